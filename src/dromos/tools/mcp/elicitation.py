"""What a server asks a person in the middle of a call, in both eras of the protocol.

Since 2026-07-28 a call ends with what it needs and a state of the server's own; it goes on when it comes again with the
answers and that state. Before, the server asks back while the call is open; such a call is let go where nobody has
answered yet, and made anew afterwards. Either way answers are those that people gave to this very call, in their order.
It must not know connections, journals or requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
)

from dromos.domain.answer_schema import answer_faults, schema_fault
from dromos.domain.effects import Word
from dromos.domain.requests import MAX_PROMPT
from dromos.domain.text import clean_json, clean_text
from dromos.ports.journal import Suspended

Asked = dict[str, Any]
"""As `domain.requests.opening` takes it."""

ROUNDS_AT_MOST = 50
"""Times that one call may come back for more, answered, before it is given up."""
_DONE = "done"


class NotOffered(Exception):
    """The server asks for something that no person can give; the message names it."""


class Exchange:
    """One call's questions. `state` is what the call let go with, `words` what people said since, oldest first.

    In the new era `responses` and `request_state` go with the next request. In the old one the server asks through
    `asks`; when `unanswered` is done, the call is to be let go and `let_go` set.
    """

    def __init__(self, state: Any = None, words: Sequence[Word] = ()) -> None:
        self.responses: InputResponses | None = None
        self.request_state: str | None = None
        self.unanswered: asyncio.Future[Asked] = asyncio.get_running_loop().create_future()
        self.let_go = asyncio.Event()
        self._words = list(words)
        self._used: list[str] = []
        if isinstance(state, Mapping) and state.get("requests"):
            self._used = list(state.get("used") or ())
            requests = {key: ElicitRequest.model_validate(one) for key, one in state["requests"].items()}
            self._respond(requests, state.get("request_state"))

    def go_on(self, result: InputRequiredResult) -> None:
        """Make ready for the next round. Raises `Suspended` where a person has to speak first, and `NotOffered`."""
        requests: dict[str, ElicitRequest] = {}
        for key, request in (result.input_requests or {}).items():
            if not isinstance(request, ElicitRequest):
                raise NotOffered(request.method)
            requests[key] = request
        self._respond(requests, result.request_state)

    def forget(self) -> None:
        """The server does not know its own state any more: it is asked from the beginning, with the same answers."""
        self.responses = self.request_state = None
        self._used = []

    async def asks(self, params: ElicitRequestParams) -> ElicitResult:
        """The server asks in the open call. Where nobody has answered, the call is let go and nothing is decided."""
        asked = asked_by(params)
        word = self._take(asked)
        if word is not None:
            return result_of(params, word)
        if not self.unanswered.done():
            self.unanswered.set_result(asked)
        await self.let_go.wait()
        return ElicitResult(action="cancel")

    def suspended(self, asked: Asked) -> Suspended:
        """What to raise where the open call was let go."""
        return Suspended(asked, {"requests": {}})

    def _respond(self, requests: Mapping[str, ElicitRequest], request_state: str | None) -> None:
        before = list(self._used)
        responses: InputResponses = {}
        for key, request in requests.items():
            asked = asked_by(request.params)
            word = self._take(asked)
            if word is None:
                kept = {
                    name: one.model_dump(mode="json", by_alias=True, exclude_none=True)
                    for name, one in requests.items()
                }
                raise Suspended(asked, {"requests": kept, "request_state": request_state, "used": before})
            responses[key] = result_of(request.params, word)
        self.responses, self.request_state = responses or None, request_state

    def _take(self, asked: Asked) -> Word | None:
        """The oldest word on this question that was not given to the server yet, if it fits."""
        for word in self._words:
            if word.request_id in self._used or word.prompt != asked["prompt"]:
                continue
            schema = asked.get("answer_schema")
            if word.decision == "answer" and schema is not None and answer_faults(schema, word.answer):
                continue
            self._used.append(word.request_id)
            return word
        return None


def asked_by(params: ElicitRequestParams) -> Asked:
    """What to ask a person."""
    if isinstance(params, ElicitRequestURLParams):
        told = _cut(f"{params.message}\n\n{params.url}")
        return {"prompt": told, "options": [{"value": _DONE, "label": "Done"}]}
    schema = clean_json(params.requested_schema)[0]
    usable = schema_fault(schema) is None
    return {"prompt": _cut(params.message), **({"answer_schema": schema} if usable else {})}


def result_of(params: ElicitRequestParams, word: Word) -> ElicitResult:
    """A person's word as the server takes it."""
    if word.decision != "answer":
        return ElicitResult(action="decline")
    if isinstance(params, ElicitRequestFormParams) and isinstance(word.answer, dict):
        return ElicitResult(action="accept", content=word.answer)
    return ElicitResult(action="accept")


def _cut(prompt: str) -> str:
    prompt = clean_text(prompt)
    return prompt if len(prompt) <= MAX_PROMPT else f"{prompt[: MAX_PROMPT - 1]}…"
