"""The store on one SQLite file: one thread writes, a few read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dromos.store.lanes import Lane
from dromos.store.sql_store import SqlStore
from dromos.store.sqlite.dialect import DIALECT
from dromos.store.sqlite.lease import SqliteLeaseKeeper
from dromos.store.sqlite.work import ReaderWork, WriterWork
from dromos.store.statements import Statements
from dromos.store.statistics import StoreStatistics

LARGEST_GROUP = 64


class SqliteStore(SqlStore):
    """The store on the file at `path`."""

    def __init__(self, path: Path, check: Callable[[], None], *, readers: int = 3) -> None:
        statistics, statements = StoreStatistics(), Statements(DIALECT)
        super().__init__(
            Lane(
                "dromos-writer",
                lambda: WriterWork(path, statements, statistics),
                largest_group=LARGEST_GROUP,
            ),
            Lane("dromos-reader", lambda: ReaderWork(path, statements, statistics), threads=readers),
            statistics,
            check,
        )
        self.path = path

    def lease_keeper(self) -> SqliteLeaseKeeper:
        return SqliteLeaseKeeper(self._writers)
