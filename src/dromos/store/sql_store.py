"""`ports.store.Store` over two lanes of threads, one that writes and one that reads: what both databases share.

It does not know what an operation means, nor which database it has; how a group is committed is in `sqlite/work.py`
and `postgres/work.py`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from dromos.ports.store import LeaseKeeper, ReadTx, Tx
from dromos.store.lanes import Lane
from dromos.store.statistics import StoreStatistics

T = TypeVar("T")


class SqlStore(ABC):
    """A store whose tables exist already (see `dromos.store.opening`).

    `check` raises where the database cannot serve; `opening` hands it in, so that backends know no migrations.
    """

    def __init__(
        self, writers: Lane, readers: Lane, statistics: StoreStatistics, check: Callable[[], None]
    ) -> None:
        self._writers, self._readers, self._check = writers, readers, check
        self.statistics = statistics
        statistics.count_waiting(lambda: writers.waiting)

    async def write(self, fn: Callable[[Tx], T]) -> T:
        value: T = await self._writers.run(fn)
        return value

    async def read(self, fn: Callable[[ReadTx], T]) -> T:
        value: T = await self._readers.run(fn)
        return value

    async def check(self) -> None:
        """Raise `StoreUnavailable` or `SchemaMismatch` if the store cannot serve."""
        await asyncio.to_thread(self._check)

    @abstractmethod
    def lease_keeper(self) -> LeaseKeeper:
        """For one thread that renews a lease; the caller ends with its `close()`."""

    async def aclose(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.close()  # first, so that the writer can put a whole SQLite log into its file
        self._writers.close()
