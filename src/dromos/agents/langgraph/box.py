"""What an agent itself says in the live box: plan, line, progress, background jobs, helpers.

    from dromos.agents.langgraph import box

    box.plan([{"title": "Read", "status": "done"}, {"title": "Write", "status": "active"}])
    box.progress(3, 10, "third of ten pages")

For the nodes and tools of a graph, synchronous ones too. It finds the run through LangGraph's configuration of the
call under way. Outside of a run every function does nothing, so the same graph runs anywhere; nothing here raises,
and nothing waits. Importing it loads neither the server nor LangGraph.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Literal

__all__ = ["background", "line", "plan", "progress", "subagent"]

_log = logging.getLogger("dromos.box")

BOX_KEY = "__dromos_box"
"""Key of `configurable` under which an attempt lays what takes these messages."""

Status = Literal["pending", "active", "done", "skipped"]


def plan(items: Iterable[str | Mapping[str, Any]]) -> None:
    """The whole plan, each time. An item is a text (pending), or `{"title", "status", "id"?}` with the status
    pending, active, done or skipped; todo lists (`content`, `in_progress`, `completed`) are understood as well."""
    _tell({"plan": items})


def line(text: str) -> None:
    """The one line of the collapsed box at the end; without it, the answer's first sentence."""
    _tell({"line": text})


def progress(value: float, total: float | None = None, message: str | None = None) -> None:
    """How far the tool, node or helper is in which this is called: `value` of `total`, in any unit."""
    _tell({"progress": {"value": value, "total": total, "message": message}})


def background(id: str, *, title: str | None = None, status: str | None = "running") -> None:
    """A job that goes on beside the run, by an id of your own; `status=None` takes it out of the box."""
    _tell({"background": {"id": id, "title": title, "status": status}})


def subagent(
    id: str, *, title: str | None = None, status: str = "running", current: str | None = None
) -> None:
    """A helper that Dromos cannot see (subgraphs and `task` tools it sees itself): what it is called, what it does now.
    Say its end too, with the status done, failed or cancelled."""
    _tell({"subagent": {"id": id, "title": title, "status": status, "current": current}})


def _tell(message: Mapping[str, Any]) -> None:
    try:
        from langgraph.config import get_config

        config: Mapping[str, Any] = get_config()
        taker = config.get("configurable", {}).get(BOX_KEY)
        if taker is not None:
            taker(message, config)
            return
    except (ImportError, RuntimeError):  # RuntimeError: no graph is running here
        pass
    except Exception:
        _log.warning("the live box did not take %s", sorted(message), exc_info=True)
        return
    _log.debug("no run is under way here; the live box was not told of %s", sorted(message))
