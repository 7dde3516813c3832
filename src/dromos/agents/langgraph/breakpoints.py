"""Breakpoints of a compiled graph (`interrupt_before`, `interrupt_after`) as approvals: may it go on from here?

LangGraph stops at one without a question of its own, and goes past it whenever it is called again. So where a thread
stands at one, a person's leave for just this checkpoint is looked for first. It must not know threads or rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from langgraph.pregel import Pregel
from langgraph.types import StateSnapshot

from dromos.domain.requests import MAX_PROMPT
from dromos.domain.statuses import RequestKind
from dromos.domain.text import clean_text

_PREFIX = "breakpoint:"
Nodes = Sequence[str] | Literal["*"]


class Breakpoints:
    """Of one graph. `earlier` reads the state that a checkpoint stands on."""

    def __init__(
        self, graph: Pregel[Any, Any, Any, Any], earlier: Callable[[Any], Awaitable[StateSnapshot]]
    ) -> None:
        self._before: Nodes = graph.interrupt_before_nodes
        self._after: Nodes = graph.interrupt_after_nodes
        self._earlier = earlier

    def __bool__(self) -> bool:
        return bool(self._before or self._after)

    async def stands_at(self, state: StateSnapshot) -> bool:
        """True where the graph stops before its next step."""
        if _among(state.next, self._before):
            return True
        if not self._after or state.parent_config is None:
            return False
        return _among((await self._earlier(state.parent_config)).next, self._after)


def name_of(state: StateSnapshot) -> str:
    """Under which the leave to go on from this checkpoint is kept."""
    return f"{_PREFIX}{state.config['configurable']['checkpoint_id']}"


def is_one(engine_id: str) -> bool:
    return engine_id.startswith(_PREFIX)


def asked_at(state: StateSnapshot) -> dict[str, Any]:
    """As `domain.requests.opening` takes it."""
    nodes = ", ".join(dict.fromkeys(state.next))
    return {
        "kind": RequestKind.APPROVAL.value,
        "prompt": clean_text(f"May the agent go on with {nodes}?")[:MAX_PROMPT],
        "arguments": {"next": list(state.next)},
        "engine_id": name_of(state),
    }


def _among(names: Sequence[str], nodes: Nodes) -> bool:
    return bool(names) and (nodes == "*" or any(name in nodes for name in names))
