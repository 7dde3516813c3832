"""How a run is put into one line for a terminal: glyph, status, what now or why it waits, time, cost. Pure.

The words are those of the page. Text that comes from a model or a tool passes `visible` before it reaches a terminal,
so that it cannot move the cursor, change colours or reverse what is read.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any

GLYPHS: Mapping[str, tuple[str, str, str]] = {
    "queued": ("◌", "queued", "cyan"),
    "running": ("●", "running", "green"),
    "waiting_input": ("?", "needs you", "magenta"),
    "cancelling": ("◍", "stopping", "yellow"),
    "completed": ("✓", "done", "green"),
    "failed": ("✗", "failed", "red"),
    "cancelled": ("■", "stopped", "yellow"),
    "interrupted": ("◫", "interrupted", "yellow"),
    "expired": ("⌛", "expired", "yellow"),
}
"""Status → glyph, word, colour."""

_ENDS = {
    "cancel_requested": "by you",
    "cancelled_by_user": "by you",
    "cancelled_by_admin": "by an administrator",
    "cancelled_by_parent": "with its parent run",
    "owner_lost": "its worker was lost; nothing else is",
    "adapter_disconnected": "its agent went away; nothing is lost",
    "drained": "the server was stopped; nothing is lost",
    "superseded": "a newer message took its place",
    "budget_exceeded": "its budget is used up",
    "agent_removed": "its agent was removed",
    "queue_deadline": "no worker was free in time",
    "input_deadline": "no answer came in time",
    "run_deadline": "its time is used up",
}
"""Reason of an end that is neither done nor failed → words."""

_WAITS = {
    "no_worker": "no free worker",
    "capacity": "no free worker",
    "backoff": "tries again",
    "rate_limited": "the model's server asks to wait",
    "input": "waits for you",
}


def visible(text: str) -> str:
    """Control and direction characters made visible; line ends and tabs stay."""
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co") or char == "\u200d"
        else f"\\u{ord(char):04x}"
        for char in text
    )


def seconds_between(start: str | None, end: str | None) -> float | None:
    """Seconds from one RFC 3339 time to another, None where one is missing."""
    if start is None or end is None:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def duration(seconds: float) -> str:
    """`0.8 s`, `12 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def what_now(run: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """What the run does, why it waits, or how it ended; one line, or nothing."""
    status, wait, stop = run["status"], run.get("wait"), run.get("stop")
    if status == "queued" and wait:
        return f"{_WAITS.get(wait['reason'], wait['reason'])}{_until(wait.get('until'))}"
    if status == "cancelling":
        holding = ((stop or {}).get("waiting_for") or {}).get("tool")
        return f"waits for {visible(holding)}" if holding else ""
    if status == "failed":
        return " · ".join(filter(None, [run.get("error_code"), one_line(run.get("error_message") or "")]))
    if status == "running" and (current := document.get("current")):
        return one_line(" ".join(filter(None, [current.get("name"), current.get("summary")])))
    if status in ("cancelled", "interrupted", "expired"):
        unknown = (stop or {}).get("unknown_calls") or []
        told = [_ENDS.get(run["reason"], str(run["reason"]).replace("_", " "))]
        if unknown:
            told.append(f"may have happened: {', '.join(visible(name) for name in unknown)}")
        return " · ".join(told)
    return one_line(run.get("line") or "")


def status_line(run: Mapping[str, Any], document: Mapping[str, Any], elapsed: float | None) -> str:
    """Glyph · status · what now · elapsed · context · tokens at the end · cost, without what is not known."""
    glyph, word, _ = GLYPHS[run["status"]]
    parts = [f"{glyph} {word}", what_now(run, document)]
    if elapsed is not None:
        parts.append(duration(elapsed))
    percent = (document.get("context") or {}).get("percent")
    if percent is not None:
        parts.append(f"context {percent:g} %")
    if run.get("finished_at") is not None:
        parts.append(tokens(run.get("usage") or {}))
    parts.append(cost(run.get("cost")))
    return " · ".join(filter(None, parts))


def cost(value: Mapping[str, Any] | None) -> str:
    """`≈ 0.0123 USD`; nothing where the price is unknown."""
    if not value or value.get("amount") is None:
        return ""
    return f"{'≈ ' if value.get('estimated') else ''}{value['amount']} {value.get('currency', 'USD')}"


def tokens(usage: Mapping[str, Any]) -> str:
    """`120 tokens in, 30 out`; nothing where the model's server did not say."""
    known = usage.get("input") or usage.get("output")
    return f"{usage.get('input', 0)} tokens in, {usage.get('output', 0)} out" if known else ""


def one_line(text: str, longest: int = 120) -> str:
    """The text on one line, cut with an ellipsis."""
    flat = " ".join(visible(text).split())
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def _until(moment: str | None) -> str:
    return f" until {datetime.fromisoformat(moment).astimezone():%H:%M:%S}" if moment else ""
