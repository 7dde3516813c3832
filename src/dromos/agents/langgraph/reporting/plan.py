"""An agent's own list of what it means to do, read from the todo lists that agents write.

LangChain's `write_todos` and its like (deepagents, coding agents) pass `todos`: a list of objects with a text and a
status. The shape is what counts, not the tool's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dromos.domain.text import clean_text

ITEMS = 100
"""Entries of a plan that are shown."""
TITLE = 300
"""Characters of one entry."""

_STATUSES = {
    "in_progress": "active",
    "in-progress": "active",
    "active": "active",
    "doing": "active",
    "running": "active",
    "completed": "done",
    "complete": "done",
    "done": "done",
    "cancelled": "skipped",
    "canceled": "skipped",
    "skipped": "skipped",
}
_TITLES = ("content", "title", "text", "task", "description")

Plan = list[dict[str, str]]


def plan_in(told: Any) -> Plan | None:
    """The plan in a tool's arguments or in a change of state (`{"todos": […]}`), None where there is none."""
    todos = told.get("todos") if isinstance(told, Mapping) else None
    if not isinstance(todos, list | tuple):
        return None
    if not all(isinstance(todo, Mapping) and _title(todo) is not None for todo in todos):
        return None
    return plan_of(todos)


def plan_of(items: Iterable[Any]) -> Plan:
    """As the document holds it: ids by place, statuses `pending` `active` `done` `skipped`. Texts are pending items."""
    plan: Plan = []
    for place, item in enumerate(items, start=1):
        if place > ITEMS:
            break
        known = item if isinstance(item, Mapping) else {"title": item}
        title = clean_text(str(_title(known) or ""))[:TITLE]
        status = _STATUSES.get(str(known.get("status", "")).lower(), "pending")
        plan.append({"id": str(known.get("id") or place)[:TITLE], "title": title, "status": status})
    return plan


def _title(todo: Mapping[str, Any]) -> str | None:
    return next((todo[name] for name in _TITLES if isinstance(todo.get(name), str)), None)
