"""A long run grows the file in proportion to what it says: messages are stored once, step records refer to them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dromos.ports.agent import Finished
from dromos.ports.store import Table
from tests.agents.kit import FunctionToolbox, assistant, history, rows
from tests.agents.test_attempts import talk

CALLS, RESULT, START = 150, 5_000, 400_000


@pytest.mark.case("P109")
@pytest.mark.slow(180)
async def test_a_hundred_and_fifty_calls_on_a_long_history_grow_it_in_proportion(sqlite_room, tmp_path: Path):
    store = sqlite_room.store
    await sqlite_room.conversation()
    sizes: list[int] = []

    def work(arguments: object) -> str:
        sizes.append(_size(tmp_path))
        return f"{len(sizes)} ".ljust(RESULT, "x")

    agent = assistant(store, FunctionToolbox(work=work))
    outcome, _ = await talk(sqlite_room, agent, "!say read it\n" + "word " * (START // 5))
    assert outcome == Finished()
    script = "\n".join(["!call work\n!say next"] * CALLS)

    outcome, _ = await talk(sqlite_room, agent, script, step_limit=3 * CALLS)

    assert outcome == Finished()
    results = await history(store, role="tool")
    assert len(results) == CALLS and {len(row["content"]) for row in results} == {RESULT}
    steps = await rows(store, Table.RUN_STEPS, kind="tool")
    assert len(steps) == CALLS and max(len(step["summary"] or "") for step in steps) <= 200
    first, second = sizes[CALLS // 2] - sizes[0], sizes[-1] - sizes[CALLS // 2]
    assert second < 1.2 * first, "the later half costs what the earlier one did"
    assert sizes[-1] - sizes[0] < 3.5 * CALLS * RESULT, "once in the thread, once in the journal"


def _size(folder: Path) -> int:
    """Bytes of the database's pages, those in the write-ahead log included."""
    with closing(sqlite3.connect(f"file:{folder / 'dromos.db'}?mode=ro", uri=True)) as reader:
        (pages,) = reader.execute("PRAGMA page_count").fetchone()
        (size,) = reader.execute("PRAGMA page_size").fetchone()
        return int(pages) * int(size)
