"""A step: a 50-step graph as a run of ours, and bare with its stock saver, `durability="sync"` on both sides; each side
in a process of its own.

Two processes that do the same work differ by some hundredths for as long as they live. So each side is begun anew for
each of several sittings, and the medians are those of all.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections import defaultdict
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from benchmarks.apart import apart
from benchmarks.graphs import STEPS
from benchmarks.measure import Row, Side, turns
from dromos.testing.postgres_server import PostgresServer

SITTINGS = 3
AT_ONCE = ((1, 12), (32, 64))
"""Runs at once, and how many are timed together."""


async def measure(rounds: int) -> list[Row]:
    rows: list[Row] = []
    with PostgresServer() as server:
        for name, aim32 in (("SQLite", 2.0), ("PostgreSQL", 1.3)):
            seen: dict[tuple[int, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
            for _ in range(SITTINGS):
                await _sit(server if name == "PostgreSQL" else None, math.ceil(rounds / SITTINGS), seen)
            for (at_once, runs), sides in seen.items():
                medians = {side: statistics.median(values) for side, values in sides.items()}
                rows.append(_row(name, at_once, runs * STEPS, medians, aim32))
    return rows


async def _sit(
    server: PostgresServer | None, rounds: int, seen: dict[tuple[int, int], dict[str, list[float]]]
) -> None:
    """Add one sitting's seconds to what was seen."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        both = {}
        for side in ("ours", "stock"):
            url = stack.enter_context(server.database()) if server is not None else None
            both[side] = await stack.enter_async_context(apart(side, folder / side, url))
        for at_once, runs in AT_ONCE:
            sides: dict[str, Side] = {
                side: partial(other.seconds, runs, at_once) for side, other in both.items()
            }
            for side, values in (await turns(sides, rounds)).items():
                seen[at_once, runs][side] += values


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
