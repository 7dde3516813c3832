"""`dromos runs list|show`: what a running server says about its runs. It must not judge or change them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dromos.cli.words import GLYPHS, cost, duration, one_line, seconds_between, tokens, visible, what_now
from dromos.client import Client

Json = dict[str, Any]

COLUMNS_FIT = 160
"""Columns of a terminal from which a run has room on one line, with its two ids of 36."""


def show_list(
    server: str, *, status: str | None, conversation: str | None, limit: int, as_json: bool
) -> None:
    """Print runs, newest first."""

    async def fetch() -> list[Json]:
        async with Client(server, patience=0) as client:
            found = client.runs(status=status, conversation_id=conversation, limit=limit)
            return [run async for run in found]

    runs = asyncio.run(fetch())
    if as_json:
        print(json.dumps({"items": runs}, indent=2))
        return
    console = Console(highlight=False)
    if not runs:
        console.print('No runs here yet. Start one: dromos chat "Hello"', markup=False)
        return
    if not console.is_terminal:
        Console(highlight=False, width=240).print(_in_columns(runs))
    elif console.width >= COLUMNS_FIT:
        console.print(_in_columns(runs))
    else:
        for run in runs:
            _print_in_two_lines(console, run)


def _in_columns(runs: Sequence[Json]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for heading in ("status", "run", "conversation", "agent", "started", "took"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)  # what room is left
    for run in runs:
        table.add_row(
            _status(run),
            run["id"],
            run["conversation_id"],
            visible(run["agent"]),
            _clock(run["started_at"]),
            _took(run),
            Text(what_now(run, {})),
        )
    return table


def _print_in_two_lines(console: Console, run: Json) -> None:
    """The first has room in 80 columns; `dromos runs show` tells the conversation and the agent."""
    status = _status(run)
    status.pad_right(max(0, 12 - len(status)))
    console.print(Text.assemble(status, run["id"], "  ", _clock(run["started_at"])[:16], "  ", _took(run)))
    what = Text(" " * 12 + what_now(run, {}), "dim")
    console.print(what, no_wrap=True, overflow="ellipsis")


def show_one(server: str, run_id: str, *, as_json: bool) -> None:
    """Print one run with its steps and attempts."""

    async def fetch() -> Json:
        async with Client(server, patience=0) as client:
            run = await client.run(run_id)
            steps = [step async for step in client.steps(run_id)]
            attempts = await client.attempts(run_id)
            return {"run": run, "steps": steps, "attempts": attempts}

    found = asyncio.run(fetch())
    if as_json:
        print(json.dumps(found, indent=2))
        return
    console = Console(highlight=False)
    run = found["run"]
    console.print(_status(run), Text(what_now(run, {})))
    facts = {
        "run": run["id"],
        "conversation": run["conversation_id"],
        "agent": visible(run["agent"]),
        "model": run.get("model"),
        "reason": run["reason"],
        "continues": run["resume_of"] or run["retry_of"],
        "created": _clock(run["created_at"]),
        "took": _took(run),
        "tokens": tokens(run["usage"]),
        "cost": cost(run["cost"]),
        "crashes": run["crashes"] or None,
    }
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value:
            table.add_row(Text(name, "dim"), Text(str(value)))
    console.print(table)
    _print_rows(console, "attempts", found["attempts"], _attempt)
    _print_rows(console, "steps", found["steps"], _step)


def _print_rows(console: Console, title: str, rows: Sequence[Json], row: Any) -> None:
    if not rows:
        return
    console.print()
    console.print(Text(title, "bold"))
    table = Table.grid(padding=(0, 2))
    for each in rows:
        table.add_row(*(Text(cell) for cell in row(each)))
    console.print(table)


def _attempt(attempt: Json) -> tuple[str, ...]:
    took = seconds_between(attempt["started_at"], attempt["ended_at"])
    return (
        str(attempt["attempt"]),
        _clock(attempt["started_at"]),
        "under way" if took is None else duration(took),
        str(attempt["reason"] or ""),
    )


def _step(step: Json) -> tuple[str, ...]:
    took = "" if step["ms"] is None else duration(step["ms"] / 1000)
    return step["status"], step["kind"], visible(step["name"]), took, one_line(step["summary"] or "")


def _status(run: Json) -> Text:
    glyph, word, colour = GLYPHS[run["status"]]
    return Text(f"{glyph} {word}", colour)


def _clock(moment: str | None) -> str:
    return "" if moment is None else moment[:19].replace("T", " ")


def _took(run: Json) -> str:
    took = seconds_between(run["started_at"], run["finished_at"])
    return "" if took is None else duration(took)
