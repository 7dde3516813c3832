"""What a no-op run costs the database: statements, round trips and commits, counted and not timed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measure import Row
from benchmarks.side import ours, run_once
from dromos.testing.postgres_server import PostgresServer

RUNS = 50

EXPLANATION = """
## Where the statements of a no-op run go

One message to a graph of one step is five write transactions: the message is accepted (conversation, message,
anchor, run, events); the run is claimed and its one input is made (run, attempt, message status, input,
events); the engine's checkpoints (the input together with the state before the step, then the state after it), each
behind the check that the run still owns its thread; the end (document, run, attempt, message status, final
answer, counts, events). A conversation that is not new also looks for its newest checkpoint. The streams of this
process read nothing: what was written comes to them with the wake-up that follows the commit. Nothing polls; the
sweep every three seconds finds what a lost wake-up left behind. With several runs at once, operations of the same
moment share a commit. On PostgreSQL, what begins a transaction, writes whose answer nobody needs, and reads that
are known to follow share a round trip with what is waited for.
"""


async def _figures(folder: Path, database: str | None) -> tuple[float, float, float]:
    """Statements, round trips and commits for each of many runs, one at a time."""
    async with ours(folder, database) as system:
        await run_once(system, "noop")
        before = system.store.statistics.figures()
        for _ in range(RUNS):
            await run_once(system, "noop")
        after = system.store.statistics.figures()
    return (
        (after.statements - before.statements) / RUNS,
        (after.round_trips - before.round_trips) / RUNS,
        (after.commits - before.commits) / RUNS,
    )


async def measure(rounds: int) -> list[Row]:
    """Counts hardly vary: taken once."""
    rows: list[Row] = []
    with PostgresServer() as server, server.database() as url, tempfile.TemporaryDirectory() as name:
        for title, database in (("SQLite", None), ("PostgreSQL", url)):
            statements, trips, commits = await _figures(Path(name) / title, database)
            told = f"{statements:.0f} statements, {commits:.1f} commits"
            if database is not None:
                told += f", {trips:.0f} round trips"
            rows.append(Row(f"a no-op run on {title}", told, "", "", "printed", None))
    return rows
