"""The store on a PostgreSQL database: a few threads write and a few read, each with a connection of its own.

Threads rather than psycopg's asynchronous connections: operations are synchronous functions, and a statement costs a
quarter of the processor time.
"""

from __future__ import annotations

from collections.abc import Callable

from dromos.store.lanes import Lane
from dromos.store.postgres.connections import is_on_this_machine
from dromos.store.postgres.dialect import DIALECT
from dromos.store.postgres.lease import PostgresLeaseKeeper
from dromos.store.postgres.work import ReaderWork, WriterWork
from dromos.store.seen import LatestLife
from dromos.store.sql_store import SqlStore
from dromos.store.statements import Statements
from dromos.store.statistics import StoreStatistics

LARGEST_GROUP = 32  # PostgreSQL keeps up to 64 open savepoints cheap


class PostgresStore(SqlStore):
    """The store in the database at `url`.

    `writers` None: one where the server is on this machine. There one thread with larger groups does more than two
    that wait for each other's rows; over a network the second one works while the first waits for an answer.
    """

    def __init__(
        self, url: str, check: Callable[[], None], *, writers: int | None = None, readers: int = 3
    ) -> None:
        statistics, statements, seen = StoreStatistics(), Statements(DIALECT), LatestLife()
        writers = writers or (1 if is_on_this_machine(url) else 2)
        super().__init__(
            Lane(
                "dromos-writer",
                lambda: WriterWork(url, statements, statistics, seen),
                threads=writers,
                largest_group=LARGEST_GROUP,
            ),
            Lane("dromos-reader", lambda: ReaderWork(url, statements, statistics), threads=readers),
            statistics,
            check,
        )
        self.url = url

    def lease_keeper(self) -> PostgresLeaseKeeper:
        return PostgresLeaseKeeper(self.url)
