"""Growth: a conversation of 1,000 messages of 216 characters, one checkpoint a message, on disk."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from benchmarks.graphs import bare_run, counting, stock_sqlite
from benchmarks.measure import Row
from benchmarks.side import ours, run_once

MIB = 1024 * 1024
AIM = 3.0


def size(file: Path) -> float:
    """MiB of a SQLite file after its log was put into it."""
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.stat().st_size / MIB


async def measure(rounds: int) -> list[Row]:
    """Sizes do not vary: measured once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with ours(folder) as system:
            await run_once(system, "noop")  # the tables and pages every database has
        before = size(folder / "data" / "dromos.db")
        async with ours(folder) as system:
            await run_once(system, "thousand")
        mine = size(folder / "data" / "dromos.db") - before
        async with stock_sqlite(folder / "stock.db") as saver:
            await bare_run(counting(999, each_says=True).compile(checkpointer=saver))
        theirs = size(folder / "stock.db")
    return [
        Row(
            "database growth, 1,000 messages of 216 characters",
            f"{mine:.2f} MiB",
            f"{theirs:.0f} MiB (stock SQLite saver)",
            f"{mine / theirs:.3f}×",
            f"≤ {AIM:.0f} MiB",
            mine <= AIM,
        )
    ]
