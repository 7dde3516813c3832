"""The live box on a terminal: the run's line, and below it what it does, says, plans and waits for.

The same rows in the same order as on the page; an empty one is not shown. Pure: it is given a view and the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dromos.cli.words import describe, duration, numbers, one_line, seconds_between
from dromos.client import RunView
from dromos.domain.text import text_of

Json = Mapping[str, Any]
PLAN = {"done": "✓", "active": "●", "pending": "○", "skipped": "–"}
STATES = {"running": "●", "done": "✓", "failed": "✗", "cancelled": "■", "unknown": "?"}
LAST_SAID = 3
"""Rows of the text so far that a box shows."""
PLAN_ROWS = 8


def line(run: Json, document: Json, now: datetime, *, ended: bool = False) -> Text:
    """Glyph, status, what now, elapsed, context, cost: always in this order."""
    said = describe(run, document, now)
    since = run.get("started_at") or run.get("created_at")
    elapsed = seconds_between(since, run.get("finished_at") or (None if ended else now.isoformat()))
    text = Text(f"{said.glyph} {said.word}", f"bold {said.colour}", no_wrap=True, overflow="ellipsis")
    for part in (said.what, *numbers(run, document, elapsed)):
        if part:
            text.append(f" · {part}", "dim" if part is not said.what else "")
    return text


def box(view: RunView, now: datetime, width: int = 80, *, with_text: bool = True) -> Group:
    """The line, and while the run goes on the rows below it. `with_text`: also the end of what it says, as fits a
    terminal of `width` columns."""
    head = line(view.run, view.document, now)
    if view.ended:
        return Group(head)
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    rows.add_column(style="dim", min_width=10)
    rows.add_column(ratio=1)
    for name, value in _rows(view, now, width, with_text):
        rows.add_row(f"  {name}", value)
    footer = _footer(view)
    below = [rows] if rows.row_count else []
    return Group(head, *below, *([Text(f"  {footer}", "dim")] if footer else []))


def _rows(view: RunView, now: datetime, width: int, with_text: bool) -> Iterable[tuple[str, Text]]:
    document = view.document
    current = document.get("current")
    if current:
        since = seconds_between(current.get("since"), now.isoformat())
        parts = [current.get("name"), current.get("summary"), since and f"since {duration(max(since, 0))}"]
        yield "now", _plain(" ".join(str(part) for part in parts if part))
    if with_text and view.text.strip():
        said = Text(_tail(view.text, width)).plain.splitlines()[-LAST_SAID:]
        yield "last said", _plain("\n".join(said), one=False)
    if plan := document.get("plan"):
        yield "plan", _plan(plan)
    if helpers := [*_named(document.get("subagents")), *_named(document.get("workflows"))]:
        yield "helpers", _states(helpers)
    if background := _named(document.get("background")):
        yield "background", _states(background)
    followups = document.get("followups") or ()
    if followups:
        yield "waiting", _plain("\n".join(_followup(one) for one in followups), one=False)
    for request in document.get("requests") or ():
        asked = request.get("prompt") or f"approve {request.get('tool') or 'a call'}"
        yield "asks you", Text(f"{one_line(asked)} (answer on the page, or: dromos requests)", "magenta")


def _footer(view: RunView) -> str:
    run, retries = view.run, (view.document.get("retries") or {}).get("count") or 0
    parts = [f"attempt {run['attempt']}" if run["attempt"] > 1 else ""]
    parts.append(f"{retries} {'retry' if retries == 1 else 'retries'}" if retries else "")
    steps = len(view.document.get("steps") or ())
    parts.append(f"{steps} steps" if steps else "")
    return " · ".join(filter(None, [*parts, view.run_id]))


def _plan(plan: Iterable[Json]) -> Text:
    """The items around the active one; of a longer plan, how many are not shown."""
    items = list(plan)
    active = next((at for at, item in enumerate(items) if item.get("status") == "active"), 0)
    start = max(0, min(active - PLAN_ROWS // 2, len(items) - PLAN_ROWS))
    shown = items[start : start + PLAN_ROWS]
    text = Text()
    for item in shown:
        style = {"done": "dim", "active": "bold"}.get(str(item.get("status")), "")
        mark = PLAN.get(str(item.get("status")), "○")
        text.append(f"{mark} {one_line(str(item.get('title', '')))}\n", style)
    left = len(items) - len(shown)
    return text + Text(f"{left} more", "dim") if left else text[:-1]


def _named(things: Any) -> list[Json]:
    return [one for one in (things or {}).values() if isinstance(one, Mapping)]


def _states(things: Iterable[Json]) -> Text:
    told = []
    for one in things:
        current = one.get("current")
        what = current.get("name", "") if isinstance(current, Mapping) else current or ""
        mark = STATES.get(str(one.get("status")), "●")
        told.append(one_line(f"{mark} {one.get('title', '')} {what}".rstrip()))
    return _plain("\n".join(told), one=False)


def _followup(followup: Json) -> str:
    held = " (held: send or discard it)" if followup.get("status") == "held" else ""
    return one_line(text_of(followup.get("content"))) + held


def _tail(text: str, width: int) -> str:
    """The end of a text, short enough that wrapping it costs nothing."""
    return one_line(text[-width * LAST_SAID :].strip(), width * LAST_SAID)


def _plain(text: str, one: bool = True) -> Text:
    return Text(one_line(text) if one else text, no_wrap=one, overflow="ellipsis" if one else "fold")
