"""Six processes start at the same instant on one empty database: all become ready, the schema is made once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dromos.store.migrations import HEAD, current

PROCESSES = 6

_SERVER = """
import asyncio, sys
from dromos.store.opening import open_store
from dromos.ports.store import Table

async def main():
    store = await open_store(sys.argv[1])
    await store.check()
    await store.read(lambda tx: tx.count(Table.RUNS, {}))
    print("ready", flush=True)
    await store.aclose()

print("here", flush=True)
sys.stdin.readline()
asyncio.run(main())
"""

_MIGRATE = """
import sys
from dromos.store.migrations import migrate

print("here", flush=True)
sys.stdin.readline()
print("changed" if migrate(sys.argv[1]).changed else "ready", flush=True)
"""


def _start_together(program: str, address: str) -> list[str]:
    """The last line of each process; all wait for the same moment to begin."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    try:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "here\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=45) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [errors for _, errors in outputs] == [""] * PROCESSES
    return [lines.strip().splitlines()[-1] for lines, _ in outputs]


@pytest.mark.case("P134")
@pytest.mark.slow(90)
@pytest.mark.parametrize("program", [_SERVER, _MIGRATE], ids=["serve", "migrate"])
def test_six_processes_start_on_an_empty_postgres_database(postgres_url: str, program: str) -> None:
    said = _start_together(program, postgres_url)
    assert sorted(said) == (["ready"] * 6 if program is _SERVER else ["changed"] + ["ready"] * 5)
    assert current(postgres_url) == HEAD


@pytest.mark.case("P134")
@pytest.mark.slow(90)
def test_six_processes_migrate_one_sqlite_file(tmp_path: Path) -> None:
    address = str(tmp_path / "data" / "dromos.db")
    assert sorted(_start_together(_MIGRATE, address)) == ["changed"] + ["ready"] * 5
    assert current(address) == HEAD
