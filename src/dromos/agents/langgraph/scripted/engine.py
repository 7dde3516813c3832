"""The scripted model: from a conversation to one reply, and the performance of that reply in time.

`compose` is pure and stateless: the newest human message is the script, and the number of assistant messages
with calls after it says which turn is due, so a replayed call gets the same reply. `perform` plays a reply
with its pauses. The only memory is `FailureCounts`, for `!error … xTIMES`. It must not know LangChain or
HTTP: both faces of the model translate what it yields.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dromos.agents.langgraph.scripted.directives import (
    Break,
    Call,
    Directive,
    Error,
    ReportUsage,
    Say,
    Silent,
    Tokens,
    Turn,
    parse,
)

PIECES_AT_MOST = 2000
"""A text said at once comes a word at a time, but in no more pieces than this."""

RESULT_SHOWN = 500
"""Characters of each tool result that are repeated when a script has no turn left."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the history. `calls`: ids of an assistant's calls. `tool`: whose result it is, where
    known."""

    role: Literal["system", "human", "assistant", "tool"]
    text: str
    calls: tuple[str, ...] = ()
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """The model has accepted the request and said nothing yet: over HTTP, the status and headers are sent."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A whole tool call; `arguments` is JSON text, `index` its place in the turn."""

    index: int
    id: str
    tool: str
    arguments: str


Piece = Opened | TextPiece | CallPiece


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as reported; `cached_tokens` are part of `input_tokens`, `reasoning_tokens` of `output_tokens`."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What one model call answers, before any time has passed."""

    steps: tuple[Directive, ...]
    calls: tuple[CallPiece, ...]
    usage: Usage
    key: str
    """Names this turn of this conversation; failures are counted under it."""

    @property
    def finish_reason(self) -> Literal["tool_calls", "stop"]:
        """The stop marker, in OpenAI's words."""
        return "tool_calls" if self.calls else "stop"


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """As much of an HTTP answer as an error handler looks at."""

    status_code: int
    headers: dict[str, str] = field(default_factory=dict)


class ScriptedHTTPError(Exception):
    """The model refused with an HTTP status, as the clients of real providers report it.

    `status_code` and `response.headers` are named as in those clients; `retry_after` is the raw header or
    None. `endless`: over HTTP, the refusal's body never ends.
    """

    def __init__(self, status_code: int, retry_after: str | None = None, *, endless: bool = False) -> None:
        super().__init__(f"the scripted model answered with HTTP status {status_code}, as its script says")
        self.status_code = status_code
        self.retry_after = retry_after
        self.endless = endless
        headers = {} if retry_after is None else {"retry-after": retry_after}
        self.response = ErrorResponse(status_code, headers)


class ScriptedStreamError(Exception):
    """The stream ended without a stop marker: the answer is incomplete."""

    def __init__(self) -> None:
        super().__init__("the scripted model's stream ended without a stop marker, as its script says")


class FailureCounts:
    """How often each `!error … xTIMES` has failed so far; the oldest entries are forgotten beyond `size`.

    After TIMES failures one try passes and the count starts again, so a script sent twice behaves the same
    twice.
    """

    def __init__(self, failed: Mapping[str, int] | None = None, *, size: int = 10_000) -> None:
        self._failed = OrderedDict(failed or {})
        self._size = size

    def fails_now(self, key: str, times: int | None) -> bool:
        """Count one try under `key` and say whether it must fail."""
        if times is None:
            return True
        failed = self._failed.pop(key, 0)
        if failed >= times:
            return False
        self._failed[key] = failed + 1
        if len(self._failed) > self._size:
            self._failed.popitem(last=False)
        return True

    def as_dict(self) -> dict[str, int]:
        """The counts as they stand, to be given to a later `FailureCounts`."""
        return dict(self._failed)


def compose(history: Sequence[Message]) -> Reply:
    """The reply that is due after this history."""
    script_at = max((at for at, message in enumerate(history) if message.role == "human"), default=-1)
    after = history[script_at + 1 :]
    turns = parse(history[script_at].text) if script_at >= 0 else (Turn((Say(""),)),)
    position = sum(1 for message in after if message.role == "assistant" and message.calls)
    turn = turns[position] if position < len(turns) else _closing(after)
    calls = tuple(_number_calls(turn.calls, history))
    return Reply(turn.steps, calls, _usage(turn, history), _key(history, position))


async def perform(reply: Reply, counts: FailureCounts) -> AsyncGenerator[Piece]:
    """Play a reply in real time, piece by piece; `Opened` comes once, before everything but a refusal.

    Raises ScriptedHTTPError where the script fails and ScriptedStreamError where it breaks off.
    """
    opened = said = False
    for number, step in enumerate(reply.steps):
        if isinstance(step, Error):
            if counts.fails_now(f"{reply.key}/{number}", step.times):
                raise ScriptedHTTPError(step.status, step.retry_after, endless=step.endless)
            continue
        if not opened:
            opened = True
            yield Opened()
        match step:
            case Break():
                raise ScriptedStreamError
            case Silent(seconds):
                await asyncio.sleep(seconds)
            case Say() | Tokens():
                if said:
                    yield TextPiece("\n")
                said = True
                async for piece in _speak(step):
                    yield piece
    if not opened:
        yield Opened()
    for call in reply.calls:
        yield call


async def _speak(step: Say | Tokens) -> AsyncIterator[TextPiece]:
    if isinstance(step, Say):
        for piece in _pieces(step.text):
            yield TextPiece(piece)
        return
    clock = asyncio.get_running_loop()
    begun = clock.time()
    for number in range(step.count):
        if step.rate:
            await asyncio.sleep(begun + number / step.rate - clock.time())
        elif number % 100 == 99:
            await asyncio.sleep(0)
        yield TextPiece(_word(number))


def _word(number: int) -> str:
    return f"{' ' if number else ''}w{number + 1}"


def _pieces(text: str) -> Iterator[str]:
    words = re.findall(r"\s*\S+\s*?|\s+", text)
    stride = -(-len(words) // PIECES_AT_MOST)
    for start in range(0, len(words), stride or 1):
        yield "".join(words[start : start + stride])


def _closing(after: Sequence[Message]) -> Turn:
    """The script has nothing left but the engine asks once more: repeat what the last calls brought."""
    results: list[str] = []
    for message in reversed(after):
        if message.role != "tool":
            break
        results.append(f"{message.tool or 'tool'}: {message.text[:RESULT_SHOWN]}")
    return Turn((Say("\n".join(reversed(results)) or "Done."),))


def _number_calls(calls: Sequence[Call], history: Sequence[Message]) -> Iterator[CallPiece]:
    used = [re.fullmatch(r"call_(\d+)", call) for message in history for call in message.calls]
    first = max((int(match[1]) for match in used if match), default=0) + 1
    for index, call in enumerate(calls):
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        yield CallPiece(index, f"call_{first + index}", call.tool, arguments)


def _usage(turn: Turn, history: Sequence[Message]) -> Usage:
    """Words stand for tokens, unless the turn says otherwise."""
    taken = sum(len(message.text.split()) for message in history)
    given = len(turn.calls)
    cached = reasoning = 0
    for step in turn.steps:
        match step:
            case Say(text):
                given += len(text.split())
            case Tokens(count):
                given += count
    for step in turn.steps:
        if isinstance(step, ReportUsage):
            taken = taken if step.input_tokens is None else step.input_tokens
            given = given if step.output_tokens is None else step.output_tokens
            cached = cached if step.cached_tokens is None else step.cached_tokens
            reasoning = reasoning if step.reasoning_tokens is None else step.reasoning_tokens
    return Usage(taken, given, cached, reasoning)


def _key(history: Sequence[Message], position: int) -> str:
    """What people said so far and the turn: the same over retries and replays of one step."""
    spoken = json.dumps([message.text for message in history if message.role == "human"])
    return f"{hashlib.sha256(spoken.encode()).hexdigest()}/{position}"
