"""The scripted model's language: one directive a line, read into turns.

Pure text in, values out. It must not know who asks (LangChain, HTTP), what time it is, or what was answered
before; where a conversation stands in its script is the engine's business.

    !say TEXT                                say TEXT
    !tokens N [RATE]                         N words, RATE a second (0 or missing: at once)
    !call TOOL [JSON]                        call TOOL; adjacent lines are parallel calls of one turn
    !error STATUS [xTIMES] [retry-after=S] [endless]   fail with this HTTP status, TIMES times or always
    !silent S                                send nothing for S seconds
    !break                                   end the stream without a stop marker
    !usage [in=N] [out=N] [cached=N] [reasoning=N]   report this token usage for the turn

Any other line is echoed. A message without a directive is echoed whole. A directive that cannot be read is
answered with the reason, so that a typing mistake in a script is seen where the answer is seen. A turn ends
with its calls: what stands after them is said once their results are there.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any


@dataclass(frozen=True, slots=True)
class Say:
    """Text to say."""

    text: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """`count` made-up words, `rate` a second; a rate of 0 is at once."""

    count: int
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Error:
    """An HTTP failure: `times` times and then no more, or always when `times` is None.

    `retry_after` is the header as it is sent: seconds or an HTTP date. `endless`: over HTTP, the answer's body
    never ends.
    """

    status: int
    times: int | None = None
    retry_after: str | None = None
    endless: bool = False


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Break:
    """The stream ends here without a stop marker."""


@dataclass(frozen=True, slots=True)
class ReportUsage:
    """Token counts to report for this turn; None leaves the counted value."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


Directive = Say | Tokens | Call | Error | Silent | Break | ReportUsage


@dataclass(frozen=True, slots=True)
class Turn:
    """What one model call answers: things done in order, then the calls it ends with."""

    steps: tuple[Directive, ...]
    calls: tuple[Call, ...] = ()


class _UnreadableError(Exception):
    """A directive's words do not fit; the message says what would."""


def parse(text: str) -> tuple[Turn, ...]:
    """Read a person's message as a script of at least one turn."""
    lines = [(line, _directive(line)) for line in text.split("\n")]
    if not any(directive for _, directive in lines):
        return (Turn((Say(text),)),)
    directives = [directive or Say(line) for line, directive in lines if line.strip()]
    return tuple(_turns(directives))


def _turns(directives: list[Directive]) -> Iterator[Turn]:
    steps: tuple[Directive, ...] = ()
    for are_calls, group in groupby(directives, key=lambda directive: isinstance(directive, Call)):
        if not are_calls:
            steps = tuple(group)
            continue
        yield Turn(steps, tuple(call for call in group if isinstance(call, Call)))
        steps = ()
    if steps:
        yield Turn(steps)


def _directive(line: str) -> Directive | None:
    """The directive on this line, or None if it is plain text."""
    match = re.match(r"\s*!(\w+)(?:\s+|$)(.*)", line, re.DOTALL)
    if match is None or match[1] not in _READERS:
        return None
    try:
        return _READERS[match[1]](match[2].strip())
    except _UnreadableError as problem:
        return Say(f"Cannot read {line.strip()!r}: {problem}")


def _say(rest: str) -> Directive:
    return Say(rest)


def _tokens(rest: str) -> Directive:
    count, _, rate = rest.partition(" ")
    if not count.isdecimal():
        raise _UnreadableError("write !tokens N RATE with whole N, for example !tokens 100 20")
    return Tokens(int(count), _number(rate, "RATE, words a second") if rate.strip() else 0.0)


def _call(rest: str) -> Directive:
    tool, _, source = rest.partition(" ")
    if not tool:
        raise _UnreadableError('write !call TOOL JSON, for example !call search {"query": "tea"}')
    try:
        arguments = json.loads(source) if source.strip() else {}
    except ValueError as error:
        raise _UnreadableError(f"the arguments are not JSON ({error})") from None
    if not isinstance(arguments, dict):
        raise _UnreadableError("the arguments must be one JSON object")
    return Call(tool, arguments)


def _error(rest: str) -> Directive:
    usage = "write !error STATUS [xTIMES] [retry-after=S] [endless], for example !error 429 x2 retry-after=1"
    try:
        status, *options = shlex.split(rest)
    except ValueError:
        raise _UnreadableError(usage) from None
    if not re.fullmatch(r"[45]\d\d", status):
        raise _UnreadableError(usage)
    times: int | None = None
    retry_after: str | None = None
    endless = False
    for option in options:
        if match := re.fullmatch(r"x(\d+)", option):
            times = int(match[1])
        elif option.startswith("retry-after="):
            retry_after = option.removeprefix("retry-after=")
        elif option == "endless":
            endless = True
        else:
            raise _UnreadableError(usage)
    return Error(int(status), times, retry_after, endless)


def _silent(rest: str) -> Directive:
    return Silent(_number(rest, "S, seconds"))


def _break(rest: str) -> Directive:
    if rest:
        raise _UnreadableError("!break stands alone")
    return Break()


def _usage(rest: str) -> Directive:
    counts: dict[str, int] = {}
    for option in rest.split():
        match = re.fullmatch(r"(in|out|cached|reasoning)=(\d+)", option)
        if match is None:
            raise _UnreadableError("write !usage in=N out=N cached=N reasoning=N")
        counts[match[1]] = int(match[2])
    return ReportUsage(counts.get("in"), counts.get("out"), counts.get("cached"), counts.get("reasoning"))


def _number(text: str, what: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text.strip()):
        raise _UnreadableError(f"{what}, must be a number that is not negative")
    return float(text)


_READERS: dict[str, Callable[[str], Directive]] = {
    "say": _say,
    "tokens": _tokens,
    "call": _call,
    "error": _error,
    "silent": _silent,
    "break": _break,
    "usage": _usage,
}
