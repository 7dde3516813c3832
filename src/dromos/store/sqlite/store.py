"""`ports.store.Store` on one SQLite file.

One thread writes, a few read. It does not know what an operation means; `work.py` knows how a group is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dromos.ports.store import ReadTx, Tx
from dromos.store.lanes import Lane
from dromos.store.sqlite.dialect import DIALECT
from dromos.store.sqlite.lease import SqliteLeaseKeeper
from dromos.store.sqlite.work import ReaderWork, WriterWork
from dromos.store.statements import Statements
from dromos.store.statistics import StoreStatistics

T = TypeVar("T")

LARGEST_GROUP = 64


class SqliteStore:
    """The store on the file at `path`, whose tables exist already (see `dromos.store.opening`).

    `check` raises where the file cannot serve; `opening` hands it in, so that backends know no migrations.
    """

    def __init__(self, path: Path, check: Callable[[], None], *, readers: int = 3) -> None:
        self.path = path
        self._check = check
        self.statistics = StoreStatistics()
        statements = Statements(DIALECT)
        self._writer = Lane(
            "dromos-writer",
            lambda: WriterWork(path, statements, self.statistics),
            largest_group=LARGEST_GROUP,
        )
        self.statistics.count_waiting(lambda: self._writer.waiting)
        self._readers = Lane(
            "dromos-reader", lambda: ReaderWork(path, statements, self.statistics), threads=readers
        )

    async def write(self, fn: Callable[[Tx], T]) -> T:
        value: T = await self._writer.run(fn)
        return value

    async def read(self, fn: Callable[[ReadTx], T]) -> T:
        value: T = await self._readers.run(fn)
        return value

    async def check(self) -> None:
        """Raise `StoreUnavailable` or `SchemaMismatch` if the store cannot serve."""
        await asyncio.to_thread(self._check)

    def lease_keeper(self) -> SqliteLeaseKeeper:
        return SqliteLeaseKeeper(self._writer)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.close()  # first, so that the writer can put the whole log into the file
        self._writer.close()
