"""How a run is put into one line for a terminal: glyph, status, what now or why it waits, time, cost. Pure.

The words are those of the page. Text that comes from a model or a tool passes `visible` before it reaches a terminal,
so that it cannot move the cursor, change colours or reverse what is read.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dromos.cli import clock

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


@dataclass(frozen=True, slots=True)
class Line:
    """A run's line without its numbers: the glyph, the word and the colour of its status, and what now or why."""

    glyph: str
    word: str
    colour: str
    what: str


def describe(run: Mapping[str, Any], document: Mapping[str, Any], now: datetime) -> Line:
    """What the run does, why it waits and until when, or how it ended. `document` {} where it is not in view."""
    glyph, word, colour = GLYPHS[run["status"]]
    retry = _retry_ahead(document, now)
    match run["status"]:
        case "queued":
            limited = (run.get("wait") or {}).get("reason") == "rate_limited"
            if limited:
                glyph, word, colour = GLYPHS["running"][0], "rate limited", "cyan"
            what = _queued(run, document, now)
        case "running" if (owner := document.get("owner") or {}).get("takeover_at"):
            glyph, word, colour = "!", "worker silent", "red"
            quiet = _ago(owner.get("seen_at"), now)
            left = max((_moment(owner["takeover_at"]) - now).total_seconds(), 0)
            what = _join(
                f"{quiet} without a sign" if quiet else "", f"takeover in {duration(left)}, nothing is lost"
            )
        case "running" if retry is not None:
            word, colour = (
                ("rate limited", "cyan") if "RATE" in (retry.get("code") or "") else ("retrying", "cyan")
            )
            what = _join(f"tries again {_when(retry['next_at'], now)}", _tries(document))
        case "running" if stall := document.get("stall"):
            glyph, colour = "◔", "yellow"
            word = "model slow" if stall["kind"] == "model" else "tool silent"
            name = (document.get("current") or {}).get("name") or ""
            what = _join(one_line(name), f"silent for {_ago(stall['since'], now)}")
        case "running":
            what = _current(document)
        case "waiting_input":
            what = _asked(document)
        case "cancelling":
            what = _stopping(run, now)
        case "failed":
            what = _join(str(run.get("error_code") or ""), one_line(run.get("error_message") or ""))
        case "completed":
            what = one_line(run.get("line") or "")
        case _:
            what = _stopped(run)
    return Line(glyph, word, colour, what)


def what_now(run: Mapping[str, Any], document: Mapping[str, Any], now: datetime | None = None) -> str:
    """The sentence of `describe` alone; `now` is this machine's time where it is not given."""
    return describe(run, document, now or clock.now()).what


def status_line(
    run: Mapping[str, Any], document: Mapping[str, Any], elapsed: float | None, now: datetime | None = None
) -> str:
    """Glyph · status · what now · elapsed · context · tokens at the end · cost, without what is not known."""
    line = describe(run, document, now or clock.now())
    return " · ".join(
        filter(None, [f"{line.glyph} {line.word}", line.what, *numbers(run, document, elapsed)])
    )


def numbers(run: Mapping[str, Any], document: Mapping[str, Any], elapsed: float | None) -> list[str]:
    """Elapsed, context, tokens at the end, cost: those that are known."""
    parts = [] if elapsed is None else [duration(elapsed)]
    percent = (document.get("context") or {}).get("percent")
    if percent is not None:
        parts.append(f"context {percent:g} %")
    if run.get("finished_at") is not None:
        parts.append(tokens(run.get("usage") or {}))
    parts.append(cost(document.get("cost") or run.get("cost")))
    return list(filter(None, parts))


def _queued(run: Mapping[str, Any], document: Mapping[str, Any], now: datetime) -> str:
    wait = run.get("wait") or {}
    until = wait.get("until")
    when = _when(until, now) if until else ""
    if wait.get("reason") == "rate_limited":
        return _join(f"the model answers again {when}".rstrip(), _tries(document))
    if wait.get("reason") == "backoff":
        return _join(f"tries again {when or 'soon'}", _tries(document))
    why = _QUEUED.get(run["reason"], "")
    return _join(why, "waiting for a free worker" if not why or run["reason"] == "decision_recorded" else "")


_QUEUED = {
    "owner_lost": "its worker was lost, nothing else is",
    "drained": "the server is restarting, goes on by itself",
    "stalled": "nothing had moved for too long, tries again",
    "decision_recorded": "decided",
}


def _current(document: Mapping[str, Any]) -> str:
    current = document.get("current")
    if not current:
        return ""
    progress = current.get("progress") or {}
    part = f"{progress.get('value', 0):g} of {progress['total']:g}" if progress.get("total") else ""
    told = progress.get("message") or part or current.get("summary") or ""
    return one_line(f"{current.get('name') or ''} {told}".strip())


def _asked(document: Mapping[str, Any]) -> str:
    requests = document.get("requests") or []
    if not requests:
        return "a question is open"
    first = requests[0]
    more = f"{len(requests) - 1} more" if len(requests) > 1 else ""
    asked = f"approve {first.get('tool') or ''}" if first.get("kind") == "approval" else ""
    return _join(one_line(asked or first.get("prompt") or "a question"), more)


def _stopping(run: Mapping[str, Any], now: datetime) -> str:
    stop = run.get("stop") or {}
    holding = stop.get("waiting_for") or {}
    if not holding.get("tool"):
        return "closing what is open" if stop.get("delivered_at") else ""
    spent = _ago(holding.get("since"), now)
    return f"waits for {visible(holding['tool'])}" + (f", {spent}" if spent else "")


def _stopped(run: Mapping[str, Any]) -> str:
    unknown = (run.get("stop") or {}).get("unknown_calls") or []
    told = _ENDS.get(run["reason"], str(run["reason"]).replace("_", " "))
    return _join(
        told, f"may have happened: {', '.join(visible(name) for name in unknown)}" if unknown else ""
    )


def _retry_ahead(document: Mapping[str, Any], now: datetime) -> Mapping[str, Any] | None:
    last: Mapping[str, Any] | None = (document.get("retries") or {}).get("last")
    ahead = last is not None and last.get("next_at") and _moment(last["next_at"]) > now
    return last if ahead else None


def _tries(document: Mapping[str, Any]) -> str:
    last = (document.get("retries") or {}).get("last") or {}
    return (
        f"attempt {last['attempt']} of {last['of_attempts']}"
        if last.get("attempt") and last.get("of_attempts")
        else ""
    )


def _join(*parts: str) -> str:
    return " · ".join(filter(None, parts))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.upper())  # RFC 3339 may be written with a small t and z


def _ago(text: str | None, now: datetime) -> str:
    return duration(max((now - _moment(text)).total_seconds(), 0)) if text else ""


def _when(text: str, now: datetime) -> str:
    """A moment ahead: soon as a span, later as a time of day."""
    moment = _moment(text)
    left = (moment - now).total_seconds()
    return f"in {duration(max(left, 0))}" if left < 120 else f"at {moment.astimezone():%H:%M:%S}"


def cost(value: Mapping[str, Any] | None) -> str:
    """`≈ 0.0123 USD`; nothing where the price is unknown."""
    if not value or value.get("amount") is None:
        return ""
    amount = str(value["amount"])
    rounded = f"{float(amount):.6f}".rstrip("0").rstrip(".")
    if float(rounded) or not float(amount):
        amount = (
            rounded  # a sum of floats has a tail that says nothing; what is there is not rounded to nothing
        )
    return f"{'≈ ' if value.get('estimated') else ''}{amount} {value.get('currency', 'USD')}"


def tokens(usage: Mapping[str, Any]) -> str:
    """`120 tokens in, 30 out`; nothing where the model's server did not say."""
    known = usage.get("input") or usage.get("output")
    return f"{usage.get('input', 0)} tokens in, {usage.get('output', 0)} out" if known else ""


def one_line(text: str, longest: int = 120) -> str:
    """The text on one line, cut with an ellipsis."""
    flat = " ".join(visible(text).split())
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"
