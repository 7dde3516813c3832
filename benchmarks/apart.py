"""One side of a benchmark in a process of its own, as it runs in life: ours on the loop and with the garbage collection
of `dromos serve`, the bare graph on Python's own. Told on stdin how many runs, and how many at once; tells seconds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from benchmarks.graphs import STEPS, bare_run, counting, stock_postgres, stock_sqlite, timed
from benchmarks.side import ours, run_once

One = Callable[[], Awaitable[None]]


class Apart:
    """The other process, from here."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def seconds(self, runs: int, at_once: int) -> float:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{runs} {at_once}\n".encode())
        answer = await self._process.stdout.readline()
        if not answer:
            raise RuntimeError("a side of the benchmark ended; see what it wrote above")
        return float(answer)


@asynccontextmanager
async def apart(side: str, folder: Path, database: str | None = None) -> AsyncIterator[Apart]:
    """`side` is "ours" or "stock", on SQLite in `folder` or on the PostgreSQL database."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "benchmarks.apart", side, str(folder), *([database] if database else [])),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    try:
        yield Apart(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def _obey(one: One) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        runs, at_once = map(int, line.split())
        print(await timed(runs, at_once, one), flush=True)


async def _ours(folder: Path, database: str | None) -> None:
    from dromos.bootstrap.garbage import keep_what_is_loaded

    async with ours(folder, database) as system:
        keep_what_is_loaded()
        await _obey(partial(run_once, system, "fifty"))


async def _stock(folder: Path, database: str | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    async with stock_postgres(database) if database else stock_sqlite(folder / "stock.db") as saver:
        await _obey(partial(bare_run, counting(STEPS).compile(checkpointer=saver)))


def main() -> None:
    side, folder, *rest = sys.argv[1:]
    where = Path(folder), rest[0] if rest else None
    if side == "stock":
        asyncio.run(_stock(*where))
        return
    import uvloop

    from dromos.bootstrap.garbage import collect_less

    collect_less()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_ours(*where))


if __name__ == "__main__":
    main()
