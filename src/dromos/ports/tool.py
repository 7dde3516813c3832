"""Tools as the agents see them, wherever they live: name, schema, one call, one outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dromos.domain.effects import Word


@dataclass(frozen=True, slots=True)
class ToolAnnotations:
    """Hints of the tool's server; None where it said nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    name: str  # "server__tool" for MCP
    description: str
    input_schema: Mapping[str, Any]
    source: str  # server name, or "local"
    annotations: ToolAnnotations = field(default_factory=ToolAnnotations)


@dataclass(frozen=True, slots=True)
class ToolProgress:
    value: float
    total: float | None = None
    message: str | None = None


class Carrying(Protocol):
    """Work that goes on by itself; an `asyncio.Task` is one."""

    def done(self) -> bool: ...

    def cancel(self) -> bool: ...

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None: ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Which call it is. `state` of one that had asked a person before (`Suspended`), and what people answered since,
    oldest first; `repeatable` where its class lets it be sent once more when nobody knows whether it arrived.
    `sent` is to be called in the moment in which the call leaves: until then nothing has happened. `remains` takes what
    is still being ended behind a call that was cut, such as a process: the run's end waits for it, within limits."""

    run_id: str
    conversation_id: str
    tool_call_id: str
    idempotency_key: str
    on_progress: Callable[[ToolProgress], None] | None = None
    state: Any = None
    answers: Sequence[Word] = ()
    repeatable: bool = False
    sent: Callable[[], None] = lambda: None
    remains: Callable[[Carrying], None] = lambda ending: None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """`text` is what the model reads, cleaned and capped; an error is an outcome, not an exception."""

    text: str
    is_error: bool = False
    structured: Any = None


@dataclass(frozen=True, slots=True)
class ToolSourceHealth:
    name: str
    ok: bool
    detail: str
    tools: int = 0


class Toolbox(Protocol):
    async def specs(self) -> Sequence[ToolSpec]:
        """Every tool that can be listed now; a dead server delays nobody and removes only its own."""
        ...

    async def find(self, name: str) -> ToolSpec | None:
        """The tool as its server lists it at this moment, a server that is just being connected waited for; None where
        it is not there."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """One call. Cancelling the caller cancels the call at the server. Raises `ports.journal.Suspended` where the
        tool asks a person something that `context.answers` does not hold."""
        ...

    async def health(self) -> Sequence[ToolSourceHealth]: ...

    async def aclose(self) -> None: ...
