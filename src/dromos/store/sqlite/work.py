"""What the writer thread and the reader threads do with a group of operations on SQLite.

The writer begins one transaction for the whole group, runs each operation in a savepoint, and commits once: the
operations share one fsync. A refusal rolls back only its own savepoint. When the group itself fails (full disk,
I/O error) every operation of it gets that error; none is tried again.

What a transaction locked is taken as it was seen by those after it (`store.seen`), for there is no other writer. Should
somebody write the file all the same (a SQLite shell, a tool), its number of changes by others says so, and all that was
seen is forgotten.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from dromos.domain.errors import StoreUnavailable, Unavailable
from dromos.store.lanes import Job, Work, fail
from dromos.store.seen import Key, Seen, SeenRows
from dromos.store.sqlite.connections import open_reader, open_writer
from dromos.store.sqlite.dialect import CLOCK, DIALECT, translate
from dromos.store.statements import Statements
from dromos.store.statistics import StoreStatistics
from dromos.store.transactions import SqlTx
from dromos.store.types import from_text

_CLOCK_AND_CHANGES = f"SELECT {CLOCK}, data_version FROM pragma_data_version"


class _Connected:
    """A connection that is opened when needed, and opened anew after it failed."""

    def __init__(self, path: Path, opened_by: Callable[[Path], sqlite3.Connection]) -> None:
        self._path = path
        self._opened_by = opened_by
        self._connection: sqlite3.Connection | None = None

    def cursor(self) -> sqlite3.Cursor:
        if self._connection is None:
            self._connection = self._opened_by(self._path)
        return self._connection.cursor()

    @property
    def in_transaction(self) -> bool:
        return self._connection is not None and self._connection.in_transaction

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class WriterWork(Work):
    """The only writer of the file."""

    def __init__(self, path: Path, statements: Statements, statistics: StoreStatistics) -> None:
        self._connected = _Connected(path, open_writer)
        self._statements = statements
        self._statistics = statistics
        self._seen = SeenRows()
        self._found: dict[Key, Seen] = {}  # by the transaction under way

    def perform(self, group: Sequence[Job]) -> Sequence[Job]:
        try:
            cursor = self._connected.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            refusals, statements = self._operations(cursor, group, self._began(cursor))
            if refusals == len(group):
                cursor.execute("ROLLBACK")
            else:
                cursor.execute("COMMIT")
                self._seen.keep(self._found)
        except Exception as error:
            self._fail(group, error)
        else:
            now = time.monotonic()
            self._statistics.committed([now - job.asked_at for job in group], refusals, statements, 0)
        return ()

    def _began(self, cursor: sqlite3.Cursor) -> datetime:
        """The transaction's time. What was seen is forgotten where somebody else wrote since."""
        now, changes = cursor.execute(_CLOCK_AND_CHANGES).fetchone()
        self._found = {}
        if self._seen.life != changes:
            self._seen = SeenRows(changes)
        return from_text(now)

    def _operations(self, cursor: sqlite3.Cursor, group: Sequence[Job], now: datetime) -> tuple[int, int]:
        """Run each; returns how many were refused, and how many statements they ran."""
        alone, refusals, statements = len(group) == 1, 0, 0
        for job in group:
            if not alone:
                cursor.execute("SAVEPOINT operation")
            tx = SqlTx(
                cursor,
                DIALECT,
                self._statements,
                clock=lambda: now,
                seen=self._seen,
                trusts=True,
                found=self._found,
            )
            try:
                job.value = job.fn(tx)
            except BaseException as error:
                job.error = error
            statements += tx.statement_count
            if tx.failure is not None:
                raise tx.failure
            job.error = job.error or tx.spoiled
            if job.error is not None:
                refusals += 1
                if tx.has_written:  # what it found may be its own, and is taken back
                    self._found.clear()
            if not alone:
                if job.error is not None:
                    cursor.execute("ROLLBACK TO operation")
                cursor.execute("RELEASE operation")
        return refusals, statements

    def _fail(self, group: Sequence[Job], error: Exception) -> None:
        self._statistics.failed()
        told = error if isinstance(error, Unavailable) else translate(error)
        if not isinstance(told, Unavailable):
            told = StoreUnavailable(f"the database failed ({error}): see the server's log")
        fail(group, told, error)
        self._seen = SeenRows()
        self._connected.drop()  # closing rolls back whatever is left of the transaction

    def close(self) -> None:
        try:
            self._connected.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except Exception:
            pass  # everything acknowledged is in the log already; the next start reads it
        self._connected.drop()


class ReaderWork(Work):
    """One read-only connection; each operation sees one snapshot, which ends with it."""

    def __init__(self, path: Path, statements: Statements, statistics: StoreStatistics) -> None:
        self._connected = _Connected(path, open_reader)
        self._statements = statements
        self._statistics = statistics

    def perform(self, group: Sequence[Job]) -> Sequence[Job]:
        for job in group:
            try:
                cursor = self._connected.cursor()
                cursor.execute("BEGIN")
                tx = SqlTx(cursor, DIALECT, self._statements)
                try:
                    job.value = job.fn(tx)
                finally:
                    if self._connected.in_transaction:
                        cursor.execute("COMMIT")
                self._statistics.was_read(tx.statement_count, 0)
            except BaseException as error:
                job.error = (translate(error) if isinstance(error, Exception) else None) or error
                if not isinstance(job.error, Exception) or isinstance(job.error, StoreUnavailable):
                    self._connected.drop()
        return ()

    def close(self) -> None:
        self._connected.drop()
