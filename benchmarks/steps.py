"""A step: a 50-step graph as a run of ours, and bare with its stock saver, `durability="sync"` on both sides."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from benchmarks.graphs import STEPS, bare_run, counting, stock_postgres, stock_sqlite, timed
from benchmarks.measure import Row, Side, interleave
from benchmarks.side import ours, run_once
from dromos.testing.postgres_server import PostgresServer


async def measure(rounds: int) -> list[Row]:
    rows: list[Row] = []
    with PostgresServer() as server:
        for name, aim32 in (("SQLite", 2.0), ("PostgreSQL", 1.3)):
            async with AsyncExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                if name == "SQLite":
                    saver = await stack.enter_async_context(stock_sqlite(folder / "stock.db"))
                    system = await stack.enter_async_context(ours(folder))
                else:
                    saver = await stack.enter_async_context(
                        stock_postgres(stack.enter_context(server.database()))
                    )
                    url = stack.enter_context(server.database())
                    system = await stack.enter_async_context(ours(folder, url))
                graph = counting(STEPS).compile(checkpointer=saver)
                for at_once, runs in ((1, 4), (32, 64)):
                    sides: dict[str, Side] = {
                        "ours": partial(timed, runs, at_once, partial(run_once, system, "fifty")),
                        "stock": partial(timed, runs, at_once, partial(bare_run, graph)),
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
