"""A step: a 50-step graph as a run of ours, and bare with its stock saver, `durability="sync"` on both sides; each side
in a process of its own."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from benchmarks.apart import Apart, apart
from benchmarks.graphs import STEPS
from benchmarks.measure import Row, Side, interleave
from dromos.testing.postgres_server import PostgresServer


async def measure(rounds: int) -> list[Row]:
    rows: list[Row] = []
    with PostgresServer() as server:
        for name, aim32 in (("SQLite", 2.0), ("PostgreSQL", 1.3)):
            async with AsyncExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                both: dict[str, Apart] = {}
                for side in ("ours", "stock"):
                    url = stack.enter_context(server.database()) if name == "PostgreSQL" else None
                    both[side] = await stack.enter_async_context(apart(side, folder / side, url))
                for at_once, runs in ((1, 4), (32, 64)):
                    sides: dict[str, Side] = {
                        side: partial(other.seconds, runs, at_once) for side, other in both.items()
                    }
                    seen = await interleave(sides, rounds)
                    rows.append(_row(name, at_once, runs * STEPS, seen, aim32))
    return rows


def _row(database: str, at_once: int, steps: int, seen: dict[str, float], aim: float) -> Row:
    if at_once == 1:
        mine, theirs = (1000 * seen[side] / steps for side in ("ours", "stock"))
        ratio = mine / theirs
        return Row(
            f"ms a step, {database}, one run at a time",
            f"{mine:.2f}",
            f"{theirs:.2f} (stock saver)",
            f"{ratio:.2f}×",
            "≤ 1.0×",
            ratio <= 1.0,
        )
    mine, theirs = (steps / seen[side] for side in ("ours", "stock"))
    ratio = mine / theirs
    return Row(
        f"steps/s, {database}, {at_once} runs at once",
        f"{mine:.0f}",
        f"{theirs:.0f} (stock saver)",
        f"{ratio:.2f}×",
        f"≥ {aim}×",
        ratio >= aim,
    )
