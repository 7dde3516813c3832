"""What an attempt shows while it works: text as it is written, the current step, usage, cost, and the steps' records.

It listens to LangChain's callbacks (model and tool calls, wherever in the graph they happen) and to LangGraph's task
and custom events, and translates them; what the box says about them is decided in `reporting`. Everything here is a
report: nothing it does can fail or delay the run, but for two checks: that a stream was complete, and that the run may
use a model at all. Records of steps are
handed to the checkpointer, which stores them with the checkpoint that ends the step.

Synchronous nodes and tools call back on threads of their own; what they tell is carried to the event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from threading import get_ident
from typing import Any
from uuid import UUID

import structlog
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, LLMResult
from langgraph.errors import GraphBubbleUp

from dromos.agents.langgraph.failures import ModelFault, UnfinishedAnswer, safe_text
from dromos.agents.langgraph.model_facts import Expected, ModelFacts
from dromos.agents.langgraph.reporting.later import Later
from dromos.agents.langgraph.reporting.model_calls import own_id
from dromos.agents.langgraph.reporting.report import Report
from dromos.agents.langgraph.reporting.told import event_in
from dromos.domain.backend import refusal
from dromos.domain.cost import Spent
from dromos.domain.reasons import ErrorCode
from dromos.domain.runs import Run
from dromos.ports.clock import Clock
from dromos.ports.live import LiveRun
from dromos.ports.meter import Meter
from dromos.ports.store import Row
from dromos.ports.tool import ToolProgress

log = structlog.get_logger("dromos.agents")

_FINISH_KEYS = ("finish_reason", "stop_reason", "done_reason")
_TELL_THEIR_END = frozenset({"openai", "azure", "anthropic", "ollama"})
"""Providers whose complete answers always carry a stop marker."""


class Observer(BaseCallbackHandler):
    """One attempt's. `first_num` numbers the steps on from earlier attempts, `spent` is what those cost."""

    run_inline = True
    raise_error = True
    ignore_chain = True
    ignore_retriever = True
    ignore_custom_event = True
    ignore_retry = True

    def __init__(
        self,
        run: Run,
        live: LiveRun,
        clock: Clock,
        *,
        first_num: int = 1,
        expected: Expected | None = None,
        facts: ModelFacts | None = None,
        spent: Spent | None = None,
        meter: Meter | None = None,
    ) -> None:
        super().__init__()
        self.model_errors: list[BaseException] = []
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        self._later = Later(live, self._loop)
        self.report = Report(
            run,
            live,
            clock,
            self._later,
            first_num=first_num,
            expected=expected or Expected(),
            facts=facts or ModelFacts(),
            spent=spent or Spent(),
            meter=meter,
        )
        self.records, self._said = self.report.records, self.report.models.said
        chosen = expected is not None and expected.name  # then it was looked at already
        self._policy = {} if chosen else run.backend_policy
        self._providers: dict[UUID, str] = {}  # of the calls under way
        self._over = False

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """What makes a chat model stream: LangChain looks for a handler that has these two methods.

        Deriving from its protocol class as well would make LangGraph stream every node, at a third more of a step's
        time.
        """
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        return output

    # --- model calls --------------------------------------------------------------------------------------------

    def on_chat_model_start(
        self,
        serialized: Mapping[str, Any] | None,
        messages: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        facts = metadata or {}
        if self._policy:
            self._obey(facts)
        self._providers[run_id] = str(facts.get("ls_provider", ""))
        self._on_loop(self.report.model_began, run_id, parent_run_id, facts, serialized)

    def _obey(self, facts: Mapping[str, Any]) -> None:
        """A graph of a person's own chooses its models itself: each is looked at before it is asked."""
        provider, model = facts.get("ls_provider"), facts.get("ls_model_name")
        named = f"{provider}:{model}" if provider and model else model
        if (refused := refusal(self._policy, named)) is not None:
            raise ModelFault(ErrorCode.CONFIG_INVALID, refused)

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **kwargs: Any) -> None:
        if isinstance(chunk, ChatGenerationChunk):
            self._on_loop(self._said, run_id, chunk.message)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        provider = self._providers.pop(run_id, None)
        if provider is None:
            return
        message = _message_of(response)
        if message is not None and provider in _TELL_THEIR_END and not _is_complete(message):
            error = UnfinishedAnswer()
            self.model_errors.append(error)
            self._on_loop(self.report.model_failed, run_id, error, message)
            raise error
        if message is not None:
            message.id = self.report.models.message_id(run_id) or own_id(message, run_id)
        self._on_loop(self.report.model_ended, run_id, message)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if self._providers.pop(run_id, None) is None:
            return
        if isinstance(error, Exception):
            self.model_errors.append(error)
        self._on_loop(self.report.model_failed, run_id, error, None)

    # --- tool calls ---------------------------------------------------------------------------------------------

    def on_tool_start(
        self,
        serialized: Mapping[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        name = str(kwargs.get("name") or (serialized or {}).get("name") or "tool")
        ns = str((metadata or {}).get("langgraph_checkpoint_ns", ""))
        arguments = inputs if inputs is not None else input_str
        self._on_loop(self.report.tool_began, str(run_id), name, arguments, ns, run_id, parent_run_id)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        failed = getattr(output, "status", None) == "error"
        text = str(output.content if isinstance(output, BaseMessage) else output) if failed else ""
        self._on_loop(self.report.tool_ended, str(run_id), "failed" if failed else "done", text)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if isinstance(error, GraphBubbleUp):  # the call asks a person, or hands over: it did not fail
            self._on_loop(self.report.tool_ended, str(run_id), "cancelled", "")
        else:
            self._on_loop(self.report.tool_ended, str(run_id), "failed", safe_text(error))

    def tool_started(
        self, step_id: str, name: str, arguments: Any, *, ns: str = "", read_only: bool = False
    ) -> None:
        """A call begins. One that never ends leaves an unknown outcome, unless it only reads."""
        self._on_loop(self.report.tool_began, step_id, name, arguments, ns, None, None, read_only)

    def tool_progress(self, step_id: str, progress: ToolProgress) -> None:
        """How far the tool says it is."""
        self._on_loop(self.report.tool_moved, step_id, progress)

    def tool_ended(self, step_id: str, text: str, *, failed: bool) -> None:
        """The call's outcome; `text` is shown where it failed."""
        self._on_loop(self.report.tool_ended, step_id, "failed" if failed else "done", text if failed else "")

    # --- nodes and the agent's own words ------------------------------------------------------------------------

    def task(self, event: Mapping[str, Any]) -> None:
        """A node of the root graph begins, or is over."""
        self._on_loop(self.report.task_event, event)

    def custom(self, data: Any, config: Mapping[str, Any]) -> None:
        """What a node or tool writes to the engine's stream, in the call that `config` is of."""
        message = event_in(data)
        if message is not None:
            self.take(message, config)

    def take(self, message: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """What the agent says of itself by the functions of `box`, in the call that `config` is of."""
        ns = str(config.get("configurable", {}).get("checkpoint_ns", ""))
        parent = getattr(config.get("callbacks"), "parent_run_id", None)
        self._on_loop(self.report.told, message, ns, parent)

    def step_rows(self, checkpoint_id: str) -> list[Row]:
        """Records to store with this checkpoint of the root graph: it ends every node of its step, also one whose
        end LangGraph has not told yet."""
        self.report.end_tasks()
        return self.records.rows(checkpoint_id)

    def stored(self) -> None:
        """What `step_rows` and `new_cost` gave is on disk."""
        self.records.stored()
        self.report.totals.stored()

    def new_cost(self) -> Mapping[str, Any] | None:
        """The run's cost, where the store does not have it yet."""
        return self.report.totals.unstored()

    # --- the attempt --------------------------------------------------------------------------------------------

    @property
    def line(self) -> str | None:
        """The one line of the collapsed box, if the agent said one."""
        return self.report.line

    @property
    def under_way(self) -> str | None:
        """The name of the tool that is longest at work, else of the node."""
        return self.report.under_way

    def retrying(self, code: str, attempt: int, of_attempts: int, next_at: datetime) -> None:
        """The step failed and will be tried again."""
        self.report.close_open()
        self.report.retrying(code, attempt, of_attempts, next_at)

    def cut(self) -> list[str]:
        """The attempt is over: close what is open. Returns the tools whose outcome nobody knows."""
        self._over = True
        return self.report.close_open()

    def close(self) -> None:
        """Tell nothing more: the run may be somebody else's."""
        self._over = True
        self._later.stop()

    def _on_loop(self, tell: Callable[..., None], *args: Any) -> None:
        """Tell it here, or on the loop's thread; a fault of ours is logged and harms nobody."""
        if get_ident() != self._thread:
            try:
                self._loop.call_soon_threadsafe(self._on_loop, tell, *args)
            except RuntimeError:  # the loop is gone, and so is whoever would read it
                return
        elif not self._over:
            try:
                tell(*args)
            except Exception:
                log.exception("box.fault", hint="the run goes on; what it shows may be incomplete")


def _message_of(response: LLMResult) -> AIMessage | None:
    generation = response.generations[0][0] if response.generations and response.generations[0] else None
    message = generation.message if isinstance(generation, ChatGeneration) else None
    return message if isinstance(message, AIMessage) else None


def _is_complete(message: AIMessage) -> bool:
    return any(message.response_metadata.get(key) for key in _FINISH_KEYS) or bool(
        message.response_metadata.get("status")  # the Responses API says "completed" or "incomplete"
    )
