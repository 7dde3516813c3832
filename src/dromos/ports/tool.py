"""Tools as the agents see them, wherever they live: name, schema, one call, one outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


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


@dataclass(frozen=True, slots=True)
class ToolContext:
    run_id: str
    conversation_id: str
    tool_call_id: str
    idempotency_key: str
    on_progress: Callable[[ToolProgress], None] | None = None


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

    async def call(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """One call. Cancelling the caller cancels the call at the server."""
        ...

    async def health(self) -> Sequence[ToolSourceHealth]: ...

    async def aclose(self) -> None: ...
