"""Model calls under way: their text, what they use and cost, which model answers, and how full its context is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from langchain_core.messages import AIMessage, BaseMessage

from dromos.agents.langgraph.live_text import LiveText
from dromos.agents.langgraph.model_facts import CalledModel, Expected, ModelFacts
from dromos.agents.langgraph.reporting.later import Later
from dromos.agents.langgraph.reporting.totals import Totals
from dromos.agents.langgraph.steps import Step
from dromos.agents.langgraph.usage import Streamed, final
from dromos.domain.cost import Tokens, money
from dromos.ports.live import LiveRun


@dataclass(slots=True, eq=False)
class Call:
    """`tokens` are known at its end, None where nobody told."""

    step: Step
    model: CalledModel
    streamed: Streamed = field(default_factory=Streamed)
    message_id: str | None = None
    tokens: Tokens | None = None


class ModelCalls:
    """One attempt's."""

    def __init__(
        self, live: LiveRun, later: Later, facts: ModelFacts, expected: Expected, totals: Totals
    ) -> None:
        self._live, self._later = live, later
        self._facts, self._expected, self._totals = facts, expected, totals
        self._text = LiveText(live)
        self._calls: dict[UUID, Call] = {}
        self._answering = expected.name

    def called(self, metadata: Mapping[str, Any], serialized: Mapping[str, Any] | None) -> CalledModel:
        """The model that a call really uses."""
        model = self._facts.called(metadata, serialized, self._expected)
        if model.priced is not None:
            self._facts.prices.soon()
        return model

    def answers(self, model: CalledModel) -> None:
        """This model works for the agent itself from now on."""
        if model.name != self._answering:
            self._answering = model.name
            self._live.set("/model", model.name)

    def began(self, call_id: UUID, step: Step, model: CalledModel) -> None:
        self._calls[call_id] = Call(step, model)

    def said(self, call_id: UUID, message: BaseMessage) -> None:
        """One chunk of an answer."""
        call = self._calls.get(call_id)
        if call is None:
            return
        text = spoken(message)
        call.streamed.take(message, text)
        if call.step.inner or not text:
            self._live.touch()
            return
        if call.message_id is None:
            call.message_id = own_id(message, call_id)
        self._text.add(call, call.message_id, text)

    def message_id(self, call_id: UUID) -> str | None:
        call = self._calls.get(call_id)
        return None if call is None else call.message_id

    def under_way(self) -> list[UUID]:
        return list(self._calls)

    def ended(self, call_id: UUID, message: AIMessage | None) -> Call | None:
        """The call came to its end; None where it is not one of ours."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return None
        if message is not None and call.message_id is None and not call.step.inner and message.text:
            self._text.add(
                call_id, message.id or str(call_id), str(message.text)
            )  # a model that does not stream
        self._text.end(call)
        call.tokens = final(message, call.streamed)
        self._account(call, message.response_metadata if message is not None else {}, counts=True)
        if call.tokens is not None and not call.step.inner:
            self._fill(call)
        return call

    def failed(self, call_id: UUID, message: AIMessage | None) -> Call | None:
        """The call broke off or was cut; it counts with what is known of it. None: not one of ours."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return None
        self._text.end(call)
        call.tokens = final(message, call.streamed) if message is not None else None
        call.tokens = call.tokens or call.streamed.so_far()
        self._account(call, {}, counts=call.tokens is not None)
        return call

    def _account(self, call: Call, response: Mapping[str, Any], *, counts: bool) -> None:
        """`counts` False: a call that was refused and used nothing."""
        self._totals.model_ended(call.tokens)
        amount: Decimal | None = None
        if call.tokens is not None:
            call.step.usage = call.tokens.json()
            if call.model.priced is not None:
                amount = self._facts.prices.cost(
                    call.model.priced, call.tokens, call.step.started_at, response
                )
        if amount is not None:
            call.step.cost = money(amount)
        if counts:
            self._totals.paid(self._totals.spent.plus(amount))

    def _fill(self, call: Call) -> None:
        """How much of the model's context the conversation takes, by its own count."""
        tokens = call.tokens or Tokens()
        used, limit = tokens.input + tokens.output, self._facts.limit(call.model)
        percent = None if limit is None else round(100 * used / limit, 1)
        self._later.set("/context", lambda: {"used": used, "limit": limit, "percent": percent})


def spoken(message: BaseMessage) -> str:
    """The text of a message or a chunk."""
    content = message.content
    return content if isinstance(content, str) else str(message.text)


def own_id(message: BaseMessage, call_id: UUID) -> str:
    """The id under which an answer is shown and stored, never used twice.

    Servers that speak OpenAI's protocol often give every answer the same id; only these prefixes are trusted.
    """
    known = message.id or ""
    return known if known.startswith(("msg_", "resp_")) else f"lc_run--{call_id}"
