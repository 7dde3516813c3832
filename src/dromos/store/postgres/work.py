"""What the writer threads and the reader threads do with a group of operations on PostgreSQL.

A group shares one transaction and one commit, each operation in a savepoint. Beginning, savepoints and the clock
ride together, so that a group costs two round trips more than its operations' own statements and their savepoints.

*Locks.* An operation locks in the agreed order, but the second of a group already holds what the first locked. So
every operation but the first waits for a lock only `GIVE_WAY_MS`; then it is undone, what came before it is
committed, and it goes first in the next transaction, where it holds nothing while it waits. Deadlocks and
serialisation failures are treated alike.

*Lost connections.* Lost before COMMIT was sent: nothing happened, the group runs again on a new connection. Lost
after: the transaction's number, known since its beginning, tells on a new connection whether it committed; only if
it did not does the group run again. Where even that cannot be found out, the operations get an error that says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import Enum, auto

import psycopg

from dromos.domain.errors import StoreUnavailable, Unavailable
from dromos.store.dialect import TryAgain
from dromos.store.lanes import Job, fail
from dromos.store.postgres.connections import Link, Patience
from dromos.store.postgres.dialect import CLOCK, DIALECT, translate
from dromos.store.statements import Statements
from dromos.store.statistics import StoreStatistics
from dromos.store.transactions import SqlTx
from dromos.store.types import from_text

GIVE_WAY_MS = 50
MOST_TRIES = 8
WRITE_PATIENCE_S = 8.0
READ_PATIENCE_S = 3.0

_BEGIN = f"BEGIN; SELECT {CLOCK}, pg_current_xact_id()::text"
_BEGIN_GROUP = f"BEGIN; SAVEPOINT operation; SELECT {CLOCK}, pg_current_xact_id()::text"
_BEGIN_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT {CLOCK}"
_NEXT = f"RELEASE operation; SET LOCAL lock_timeout = {GIVE_WAY_MS}; SAVEPOINT operation"
_NEXT_AFTER_REFUSAL = f"ROLLBACK TO operation; SET LOCAL lock_timeout = {GIVE_WAY_MS}"
_UNKNOWN = (
    "the connection to the database was lost while it committed, and it cannot be found out whether it did: "
    "read the current state before you repeat this"
)


class _Outcome(Enum):
    COMMITTED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()


class WriterWork:
    """One connection that writes."""

    def __init__(self, url: str, statements: Statements, statistics: StoreStatistics) -> None:
        self._link = Link(url)
        self._statements = statements
        self._statistics = statistics
        self._patience = Patience(WRITE_PATIENCE_S)
        self._transaction_id: str | None = None
        self._commit_sent = False
        self._left: Sequence[Job] = ()  # those that the transaction whose COMMIT was sent does not hold

    def perform(self, group: Sequence[Job]) -> Sequence[Job]:
        while True:
            self._commit_sent = False
            try:
                self._link.open()
                self._transaction(group)
            except Exception as error:
                if self._commit_sent and self._link.is_lost:
                    outcome = self._find_out()
                    if outcome is _Outcome.COMMITTED:
                        return self._left
                    if outcome is _Outcome.UNKNOWN:
                        self._fail(group, StoreUnavailable(_UNKNOWN))
                        return ()
                elif not self._may_repeat():
                    self._fail(group, error)
                    return ()
                self._link.drop()
                self._statistics.retried()
            else:
                self._patience.over()
                return self._left

    def close(self) -> None:
        self._link.drop()

    def _may_repeat(self) -> bool:
        """True where the error was a lost connection, which can come back: the address was right at start."""
        return self._link.is_lost and self._patience.wait()

    def _transaction(self, group: Sequence[Job]) -> None:
        """Run and commit operations in order; `_left` are those that have to be done again."""
        alone = len(group) == 1
        now_text, self._transaction_id = self._link.ask(_BEGIN if alone else _BEGIN_GROUP)
        now = from_text(now_text)
        statements, brackets, refusals = 0, 2, 0
        finished: list[Job] = []
        for job in group:
            if finished:
                self._link.tell(_NEXT_AFTER_REFUSAL if finished[-1].error is not None else _NEXT)
                brackets += 1
            tx = SqlTx(self._link.cursor, DIALECT, self._statements, now)
            job.value = job.error = None
            try:
                job.value = job.fn(tx)
            except BaseException as error:
                job.error = error
            statements += tx.statement_count
            if tx.failure is not None:
                if not isinstance(tx.failure, TryAgain):
                    raise tx.failure
                if job.tries >= MOST_TRIES:
                    job.error = StoreUnavailable(
                        f"the database's rows stayed locked by others ({tx.failure}): try again in a moment"
                    )
                else:
                    job.tries += 1
                    self._statistics.retried()
                    break
            job.error = job.error or tx.spoiled
            finished.append(job)
            refusals += job.error is not None
        self._left = group[len(finished) :]
        self._end(finished, alone, refusals, undo_last=bool(self._left))
        ended = time.monotonic()
        if finished:
            waited = [ended - job.asked_at for job in finished]
            self._statistics.committed(waited, refusals, statements, statements + brackets)

    def _end(self, finished: Sequence[Job], alone: bool, refusals: int, *, undo_last: bool) -> None:
        if refusals == len(finished):
            self._link.tell("ROLLBACK")
            return
        undone = not alone and (undo_last or finished[-1].error is not None)
        if not undone and self._link.has_failed_transaction:
            raise StoreUnavailable("an operation left its transaction failed and did not say so")
        self._commit_sent = True
        self._link.tell("ROLLBACK TO operation; COMMIT" if undone else "COMMIT")

    def _find_out(self) -> _Outcome:
        """What became of the transaction whose COMMIT was sent before the connection was lost."""
        while self._patience.wait():
            self._link.drop()
            try:
                self._link.open()
                status = self._link.ask(f"SELECT pg_xact_status('{self._transaction_id}'::xid8)")[0]
            except psycopg.DataError:
                break  # a number this server has never given: another server took over
            except (StoreUnavailable, psycopg.Error):
                continue
            if status == "committed":
                return _Outcome.COMMITTED
            if status == "aborted":
                return _Outcome.ROLLED_BACK
            if status is None:
                break
        return _Outcome.UNKNOWN

    def _fail(self, group: Sequence[Job], error: Exception) -> None:
        self._statistics.failed()
        told = error if isinstance(error, Unavailable) else translate(error)
        if not isinstance(told, Unavailable):
            told = StoreUnavailable(f"the database failed ({error}): try again, and see the server's log")
        fail(group, told, error)
        self._link.drop()


class ReaderWork:
    """One connection that reads; each operation sees one snapshot, which ends with it."""

    def __init__(self, url: str, statements: Statements, statistics: StoreStatistics) -> None:
        self._link = Link(url)
        self._statements = statements
        self._statistics = statistics
        self._patience = Patience(READ_PATIENCE_S)

    def perform(self, group: Sequence[Job]) -> Sequence[Job]:
        for job in group:
            while True:
                job.value = job.error = None
                try:
                    self._link.open()
                    self._read(job)
                    self._patience.over()
                except BaseException as error:
                    if self._link.is_lost and self._patience.wait():
                        self._link.drop()
                        self._statistics.retried()
                        continue
                    job.error = (translate(error) if isinstance(error, Exception) else None) or error
                    self._link.drop()
                break
        return ()

    def _read(self, job: Job) -> None:
        tx = SqlTx(self._link.cursor, DIALECT, self._statements, from_text(self._link.ask(_BEGIN_READ)[0]))
        try:
            job.value = job.fn(tx)
        except BaseException as error:
            if self._link.is_lost:
                raise
            job.error = error
        self._link.tell("COMMIT")
        self._statistics.was_read(tx.statement_count, tx.statement_count + 2)

    def close(self) -> None:
        self._link.drop()
