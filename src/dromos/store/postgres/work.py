"""What the writer threads and the reader threads do with a group of operations on PostgreSQL.

A group shares one transaction and one commit. Beginning and the clock ride along with what is asked anyway. At first
nobody waits to hear whether the database took an operation before the next one runs, nor before COMMIT, which is not
done behind a failure. Where it did refuse something, or an operation raised that had written, all is taken back, and
the group is done once more with care: each operation in a savepoint, and settled before the next.

*Ahead.* While operations follow each other closely, COMMIT also begins the next transaction. Its number and its clock
are known then when an operation comes; one that locks rows as they were seen last (`store.seen`) and reads nothing
takes a single round trip. Where none comes soon, that transaction is rolled back. It holds no lock and no snapshot.

*Locks.* An operation locks in the agreed order, but the second of a group already holds what the first locked. So
every operation but the first waits for a lock only `GIVE_WAY_MS`. Met with care, it is then undone, what came before
it is committed, and it goes first in the next transaction, where it holds nothing while it waits. Deadlocks and
serialisation failures are treated alike.

*Lost connections.* Lost before COMMIT was sent: nothing happened, the group runs again on a new connection. Lost
after: the transaction's number, known since its beginning, tells on a new connection whether it committed; only if
it did not does the group run again. Where even that cannot be found out, the operations get an error that says so. A
number is on disk only with what its transaction wrote: behind a crash of the server it may be somebody else's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import partial
from typing import Any

import psycopg

from dromos.domain.errors import StoreUnavailable, Unavailable
from dromos.store.dialect import TryAgain
from dromos.store.lanes import Job, Work, fail
from dromos.store.postgres.connections import Link, Patience
from dromos.store.postgres.dialect import CLOCK, DIALECT, translate
from dromos.store.postgres.session import Session
from dromos.store.seen import Key, LatestLife, Seen
from dromos.store.statements import Statements
from dromos.store.statistics import StoreStatistics
from dromos.store.transactions import SqlTx
from dromos.store.types import from_text

GIVE_WAY_MS = 50
MOST_TRIES = 8
WRITE_PATIENCE_S = 8.0
READ_PATIENCE_S = 3.0

AHEAD_S = 0.005
"""Operations follow each other closely where less than this is between them."""
FRESH_S = 1.0
"""A transaction that was begun ahead is not used after this: its clock may be behind by as much."""

_elapsed = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds, also of those in which the machine slept."""
_CLOCK_AND_NUMBER = f"SELECT {CLOCK}, pg_current_xact_id()::text"
_STATUS = (  # a server that follows another one may be behind
    "SELECT CASE WHEN pg_is_in_recovery() THEN 'in recovery' ELSE pg_xact_status(%s::xid8) END"
)
_CLOCK_ONLY = f"SELECT {CLOCK}"
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_GIVE_WAY = f"SET LOCAL lock_timeout = {GIVE_WAY_MS}"
_UNKNOWN = (
    "the connection to the database was lost while it committed, and it cannot be found out whether it did: "
    "read the current state before you repeat this"
)
_NOT_SAID = "an operation left its transaction failed and did not say so"


class _Outcome(Enum):
    COMMITTED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()


class WriterWork(Work):
    """One connection that writes."""

    rests_after = AHEAD_S

    def __init__(
        self, url: str, statements: Statements, statistics: StoreStatistics, seen: LatestLife
    ) -> None:
        self._link = Link(url)
        self._statements = statements
        self._statistics = statistics
        self._seen = seen
        self._rows = seen.of(None)
        self._found: dict[Key, Seen] = {}  # by the transaction under way
        self._patience = Patience(WRITE_PATIENCE_S)
        self._ahead: _Begun | None = None
        self._ended_at = -AHEAD_S
        self._hurries = False  # operations follow each other closely
        self._begun: _Begun | None = None
        self._commit_sent = False
        self._left: Sequence[Job] = ()  # those that the transaction whose COMMIT was sent does not hold

    def perform(self, group: Sequence[Job]) -> Sequence[Job]:
        self._hurries = _elapsed() - self._ended_at < AHEAD_S
        try:
            return self._perform(group)
        finally:
            self._ended_at = _elapsed()

    def rest(self) -> None:
        if self._ahead is not None:
            self._roll_back_quietly()

    def close(self) -> None:
        self._drop()

    def _perform(self, group: Sequence[Job]) -> Sequence[Job]:
        while True:
            self._commit_sent = False
            try:
                self._link.open()
                if len(group) == 1 or not self._together(group):
                    self._transaction(group)
            except Exception as error:
                if self._commit_sent and self._link.is_lost:
                    outcome = self._find_out()
                    if outcome is _Outcome.COMMITTED:
                        self._patience.over()
                        return self._left
                    if outcome is _Outcome.UNKNOWN:
                        self._fail(group, StoreUnavailable(_UNKNOWN))
                        return ()
                elif not self._may_repeat():
                    self._fail(group, error)
                    return ()
                self._drop()
                self._statistics.retried()
            else:
                self._patience.over()
                return self._left

    def _drop(self) -> None:
        self._link.drop()
        self._ahead = None

    def _begin(self, *brackets: str) -> _Begun:
        session = self._link.session
        begun, self._ahead = self._ahead, None
        if begun is not None and not begun.is_fresh:  # this process was stopped for a while
            session.later("ROLLBACK")
            begun = None
        self._rows, self._found = self._seen.of(self._link.life), {}
        self._begun = begun = begun or _Begun(session, _CLOCK_AND_NUMBER, "BEGIN")
        for bracket in brackets:
            session.later(bracket)
        return begun

    def _operation(self, begun: _Begun, *, trusts: bool) -> SqlTx:
        session = self._link.session
        return SqlTx(
            session,
            DIALECT,
            self._statements,
            clock=begun.now,
            pipeline=session,
            seen=self._rows,
            trusts=trusts,
            found=self._found,
        )

    def _commit_all(self) -> bool:
        """Send COMMIT, and behind it the beginning of what follows. True: what was sent before is on disk; False: it
        was taken back. Raises what failed of it."""
        session = self._link.session
        sent = session.later("COMMIT")
        self._commit_sent = True
        ahead: _Begun | None = None
        try:
            if self._hurries:
                ahead = _Begun(session, _CLOCK_AND_NUMBER, "BEGIN")
            session.wait()
        except psycopg.Error:
            if sent.answer is None:
                self._link.drop()  # or whatever follows would send it
            if not sent.has_committed:
                self._commit_sent = self._link.is_lost
                raise
            self._roll_back_quietly()  # only what began behind it failed
        else:
            self._commit_sent = sent.has_committed
            self._ahead = ahead
            if ahead is not None:
                ahead.answered()
        if sent.has_committed:
            self._rows.keep(self._found)
        return sent.has_committed

    def _roll_back(self) -> None:
        self._ahead = None
        self._link.session.tell("ROLLBACK")

    def _roll_back_quietly(self) -> None:
        """Of what nobody waits for."""
        try:
            self._roll_back()
        except Exception:
            self._drop()

    def _may_repeat(self) -> bool:
        """True where the error was a lost connection, which can come back: the address was right at start."""
        return self._link.is_lost and self._patience.wait()

    def _together(self, group: Sequence[Job]) -> bool:
        """Run and commit operations in order without asking after each whether the database took it. False: it did not
        take one of them, and nothing was done of any."""
        session = self._link.session
        trips, refusals = session.round_trips, 0
        begun = self._begin()
        self._left = ()
        done: list[SqlTx] = []
        for number, job in enumerate(group):
            if number == 1:
                session.later(_GIVE_WAY)
            tx = self._operation(begun, trusts=job.tries == 0)
            done.append(tx)
            job.value = job.error = None
            try:
                job.value = tx.perform(job.fn)
            except BaseException as error:
                job.error = error
                refusals += 1
            if tx.spoiled is not None or (job.error is not None and tx.has_written):
                return self._take_back(done)
        try:
            if refusals == len(group):
                self._roll_back()
            else:
                kept = [tx for tx, job in zip(done, group, strict=True) if job.error is None]
                if not begun.is_known or any(tx.must_settle for tx in kept):
                    for tx in kept:
                        tx.settle()
                if not self._commit_all():
                    return False
        except Exception:
            if self._link.is_lost:
                raise
            return self._take_back(done)
        self._report(group, refusals, sum(tx.statement_count for tx in done), session.round_trips - trips)
        return True

    def _take_back(self, done: Sequence[SqlTx]) -> bool:
        """Raises what no repetition cures."""
        self._abandon()
        self._roll_back()
        for tx in done:
            tx.distrust()
            if tx.failure is not None and not isinstance(tx.failure, TryAgain):
                raise tx.failure
        self._statistics.retried()
        return False

    def _report(self, finished: Sequence[Job], refusals: int, statements: int, trips: int) -> None:
        ended = time.monotonic()
        if finished:
            waited = [ended - job.asked_at for job in finished]
            self._statistics.committed(waited, refusals, statements, trips)

    def _transaction(self, group: Sequence[Job]) -> None:
        """Run and commit operations in order; `_left` are those that have to be done again."""
        session, alone = self._link.session, len(group) == 1
        trips = session.round_trips
        begun = self._begin(*(() if alone else ("SAVEPOINT operation",)))
        self._left, statements, refusals, committed = (), 0, 0, False
        finished: list[Job] = []
        gives_way = False  # outside of any savepoint, so that it stays for the rest of the transaction
        for job in group:
            if finished:
                for bracket in _between(finished[-1], gives_way=gives_way):
                    session.later(bracket)
                gives_way = gives_way or finished[-1].error is None
            tx = self._operation(begun, trusts=alone and job.tries == 0)
            job.value = job.error = None
            try:
                job.value = tx.perform(job.fn)
                if alone and tx.spoiled is None:
                    self._commit(tx, begun)
                    committed = True
                else:
                    tx.settle()
            except BaseException as error:
                if self._commit_sent:
                    raise  # nobody knows yet what became of it
                job.error = error
                self._abandon()
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
        if not committed:
            self._end(finished, alone, refusals, undo_last=bool(self._left))
        self._report(finished, refusals, statements, session.round_trips - trips)

    def _commit(self, tx: SqlTx, begun: _Begun) -> None:
        """Together with what the only operation of a group has sent and not waited for; if that fails, nothing is."""
        # A swap may have found no row; and without the number nobody could find out what became of it.
        if tx.must_settle or not begun.is_known:
            tx.settle()
        try:
            committed = self._commit_all()
        except psycopg.Error as error:
            tx.told(error)
        if not committed:
            raise StoreUnavailable(_NOT_SAID)

    def _abandon(self) -> None:
        """What a refused operation has sent is answered, so that it can be undone."""
        try:
            self._link.session.wait()
        except psycopg.Error:
            if self._link.is_lost:
                raise

    def _end(self, finished: Sequence[Job], alone: bool, refusals: int, *, undo_last: bool) -> None:
        session = self._link.session
        if refusals == len(finished):
            self._roll_back()
            return
        undone = undo_last or finished[-1].error is not None
        if not undone and self._link.has_failed_transaction:
            raise StoreUnavailable(_NOT_SAID)
        self._commit_sent = True
        session.tell(*(("ROLLBACK TO operation", "COMMIT") if undone else ("COMMIT",)))

    def _find_out(self) -> _Outcome:
        """What became of the transaction whose COMMIT was sent before the connection was lost."""
        assert self._begun is not None
        number, life = self._begun.number, self._link.life
        while self._patience.wait():
            self._drop()
            try:
                self._link.open()
                session = self._link.session
                session.execute(_STATUS, [number])
                status = (session.fetchone() or [None])[0]
            except psycopg.DataError:
                return _Outcome.ROLLED_BACK  # a number that this server has never given
            except (StoreUnavailable, psycopg.Error):
                continue
            if status == "committed" and self._link.life == life:
                return _Outcome.COMMITTED
            if status == "aborted":
                return _Outcome.ROLLED_BACK
            if status not in ("in progress", "in recovery"):
                break  # too long ago; or a crash took the number back, and somebody else may have got it
        return _Outcome.UNKNOWN

    def _fail(self, group: Sequence[Job], error: Exception) -> None:
        self._statistics.failed()
        told = error if isinstance(error, Unavailable) else translate(error)
        if not isinstance(told, Unavailable):
            told = StoreUnavailable(f"the database failed ({error}): try again, and see the server's log")
        fail(group, told, error)
        self._drop()


class ReaderWork(Work):
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
        session = self._link.session
        trips = session.round_trips
        begun = _Begun(session, _CLOCK_ONLY, _BEGIN_READ)
        tx = SqlTx(session, DIALECT, self._statements, clock=begun.now, pipeline=session)
        try:
            job.value = job.fn(tx)
        except BaseException as error:
            if self._link.is_lost:
                raise
            job.error = error
        session.tell("COMMIT")
        self._statistics.was_read(tx.statement_count, session.round_trips - trips)

    def close(self) -> None:
        self._link.drop()


def _between(before: Job, *, gives_way: bool) -> list[str]:
    """What is said between two operations of a group."""
    give_way = [] if gives_way else [_GIVE_WAY]
    if before.error is not None:
        return ["ROLLBACK TO operation", *give_way]
    return ["RELEASE operation", *give_way, "SAVEPOINT operation"]


class _Begun:
    """The beginning of a transaction: sent at once, answered with whatever is waited for next."""

    def __init__(self, session: Session, asked: str, *brackets: str) -> None:
        for bracket in brackets:
            session.later(bracket)
        self._sent = session.later(asked)
        self._sent_at, self._answered_at = _elapsed(), 0.0

    @property
    def is_known(self) -> bool:
        return self._sent.answer is not None

    @property
    def is_fresh(self) -> bool:
        """Whether it was sent not long ago."""
        return _elapsed() - self._sent_at < FRESH_S

    def answered(self) -> None:
        """Now; what passes from now on is added to the clock."""
        self._answered_at = _elapsed()

    def now(self) -> datetime | None:
        """The database's clock; None while the answer has not been waited for."""
        if not self.is_known:
            return None
        told = from_text(self._told()[0])
        return told + timedelta(seconds=_elapsed() - self._answered_at) if self._answered_at else told

    @property
    def number(self) -> str:
        """The transaction's, by which it can be asked for later. Known before COMMIT is sent."""
        return str(self._told()[1])

    def _told(self) -> Sequence[Any]:
        told = self._sent.row(0)
        if told is None:
            raise StoreUnavailable("the transaction did not begin")
        return told
