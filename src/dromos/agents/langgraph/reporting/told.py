"""What an agent says of itself, by the functions of `box` or as a `custom` event `{"dromos": {…}}`, made fit to show.

Whatever does not fit is left out, never an error: the agent's work must not hang on what it says about it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dromos.agents.langgraph.reporting.plan import Plan, plan_of
from dromos.agents.langgraph.steps import SUMMARY_LIMIT
from dromos.domain.text import clean_text, first_line

EVENT_KEY = "dromos"
"""Key of a `custom` event that is meant for the box."""
ID_LIMIT = 100
LINE_LIMIT = 300


def event_in(data: Any) -> Mapping[str, Any] | None:
    """The message in a `custom` event, None where it is not for us."""
    message = data.get(EVENT_KEY) if isinstance(data, Mapping) else None
    return message if isinstance(message, Mapping) else None


def told_plan(message: Mapping[str, Any]) -> Plan | None:
    items = message.get("plan")
    return plan_of(items) if isinstance(items, Iterable) and not isinstance(items, str | Mapping) else None


def told_line(message: Mapping[str, Any]) -> str | None:
    """One line, without the end that does not fit."""
    text = message.get("line")
    return clean_text(first_line(text))[:LINE_LIMIT] or None if isinstance(text, str) else None


def told_progress(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """`{"value", "total", "message"}`."""
    told = message.get("progress")
    if not isinstance(told, Mapping) or (value := number(told.get("value"))) is None:
        return None
    return progress(value, told.get("total"), told.get("message"))


def progress(value: float, total: Any, message: Any) -> dict[str, Any]:
    """As the document holds it."""
    return {"value": number(value) or 0, "total": number(total), "message": short(message)}


def told_entry(message: Mapping[str, Any], kind: str) -> tuple[str, Mapping[str, Any]] | None:
    """Id and fields of a `background` or `subagent` message."""
    told = message.get(kind)
    if not isinstance(told, Mapping) or not told.get("id"):
        return None
    return clean_text(str(told["id"]))[:ID_LIMIT], told


def short(text: Any) -> str | None:
    """A text as it is shown, None where there is none."""
    return None if text is None else clean_text(str(text))[:SUMMARY_LIMIT]


def number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
