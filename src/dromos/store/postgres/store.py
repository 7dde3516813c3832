"""`ports.store.Store` on a PostgreSQL database.

A few threads write and a few read, each with a connection of its own. (Threads rather than psycopg's asynchronous
connections: operations are synchronous functions, and a statement costs a quarter of the processor time.) It does
not know what an operation means; `work.py` knows how a group is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from dromos.ports.store import ReadTx, Tx
from dromos.store.lanes import Lane
from dromos.store.postgres.dialect import DIALECT
from dromos.store.postgres.lease import PostgresLeaseKeeper
from dromos.store.postgres.work import ReaderWork, WriterWork
from dromos.store.statements import Statements
from dromos.store.statistics import StoreStatistics

T = TypeVar("T")

LARGEST_GROUP = 32  # PostgreSQL keeps up to 64 open savepoints cheap


class PostgresStore:
    """The store in the database at `url`, whose tables exist already (see `dromos.store.opening`).

    `check` raises where the database cannot serve; `opening` hands it in, so that backends know no migrations.
    """

    def __init__(self, url: str, check: Callable[[], None], *, writers: int = 2, readers: int = 3) -> None:
        self.url = url
        self._check = check
        self.statistics = StoreStatistics()
        statements = Statements(DIALECT)
        self._writers = Lane(
            "dromos-writer",
            lambda: WriterWork(url, statements, self.statistics),
            threads=writers,
            largest_group=LARGEST_GROUP,
        )
        self.statistics.count_waiting(lambda: self._writers.waiting)
        self._readers = Lane(
            "dromos-reader", lambda: ReaderWork(url, statements, self.statistics), threads=readers
        )

    async def write(self, fn: Callable[[Tx], T]) -> T:
        value: T = await self._writers.run(fn)
        return value

    async def read(self, fn: Callable[[ReadTx], T]) -> T:
        value: T = await self._readers.run(fn)
        return value

    async def check(self) -> None:
        """Raise `StoreUnavailable` or `SchemaMismatch` if the store cannot serve."""
        await asyncio.to_thread(self._check)

    def lease_keeper(self) -> PostgresLeaseKeeper:
        return PostgresLeaseKeeper(self.url)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.close()
        self._writers.close()
