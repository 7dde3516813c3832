"""`ports.store.Tx` over one driver cursor, the same code on both databases.

It knows tables, shapes and rows. It does not know how its transaction began, how it ends, or which other
operations share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NoReturn, TypeVar

from dromos.domain.errors import Duplicate, Invalid, LostRace, NotFound, Unavailable
from dromos.domain.events import EventDraft
from dromos.domain.runs import Run
from dromos.ports.store import ReadTx, Row, Table, Where
from dromos.store.dialect import Cursor, Pipeline, Sent, SqlDialect, TryAgain
from dromos.store.runs import RUN_COLUMNS, changes, run_from_values, run_to_values
from dromos.store.seen import Key, Seen, SeenRows
from dromos.store.statements import EVENT_COLUMNS, Shape, Statement, Statements, split
from dromos.store.tables import metadata
from dromos.store.types import from_text

T = TypeVar("T")

_MOST_EVENTS_IN_ONE = 8
"""More events at once are rare; each number of them is a statement that is kept."""
_MOST_ROWS_IN_ONE = 4
"""So with rows that are inserted together."""


class SqlTx:
    """One operation's view of the database. `clock` gives its time where the transaction's start told it, None while
    that was sent and is not answered.

    With `pipeline` (the same as `cursor`) a statement whose answer nobody needs is sent and not waited for; the next
    one that is waited for, or `settle`, tells its failure. So is a read that `ahead` was told of. Where the operation
    `trusts` what was `seen`, a lock is not waited for either; without a pipeline it is not even asked for. `found`,
    which the operations of one transaction share, is what it locked and did not write after that.

    An operation that catches an error of the driver and goes on does not save itself, on either database: what the
    error means stays in `spoiled`, or in `failure` where the whole transaction cannot survive it.
    """

    __slots__ = (
        "_ahead",
        "_clock",
        "_cursor",
        "_dialect",
        "_found",
        "_guarded",
        "_held",
        "_looks_ahead",
        "_now",
        "_pipeline",
        "_seen",
        "_statements",
        "_swaps",
        "_trusts",
        "failure",
        "has_written",
        "spoiled",
        "statement_count",
    )

    def __init__(
        self,
        cursor: Cursor,
        dialect: SqlDialect,
        statements: Statements,
        *,
        clock: Callable[[], datetime | None] | None = None,
        pipeline: Pipeline | None = None,
        seen: SeenRows | None = None,
        trusts: bool = False,
        found: dict[Key, Seen] | None = None,
    ) -> None:
        self._cursor = cursor
        self._pipeline = pipeline
        self._dialect = dialect
        self._statements = statements
        self._clock = clock
        self._seen = seen
        self._trusts = trusts
        self._found = {} if found is None else found
        self._guarded: list[Key] = []  # rows that were taken as they were seen
        self.has_written = False
        self._now: datetime | None = None
        self._held: dict[tuple[Table, Any], Row] = {}  # by id: locked here and not written since
        self._ahead: dict[
            tuple[Table, str, str], Sent
        ] = {}  # reads that were sent; until the table is written
        self._looks_ahead = False
        self._swaps: list[tuple[Sent, Run]] = []  # sent, and not known yet to have found their row
        self.failure: Unavailable | TryAgain | None = None
        self.spoiled: Exception | None = None
        self.statement_count = 0

    # --- reading ------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        if self._now is not None:
            return self._now
        if self._clock is not None:
            told = self._clock()
            if told is None:
                self.settle()
                told = self._clock()
            assert told is not None
            self._now = told
        else:
            self._run(f"SELECT {self._dialect.clock}", ())
            self._now = from_text(self._cursor.fetchone()[0])
        return self._now

    def find(
        self,
        table: Table,
        where: Where,
        *,
        order: Sequence[str] = (),
        limit: int | None = None,
        columns: Sequence[str] = (),
    ) -> list[Row]:
        statement, rows = self._select(table, where, order, limit, columns)
        names, decode = statement.names, statement.decode
        return [dict(zip(names, decode(row), strict=True)) for row in rows]

    def first(self, table: Table, where: Where, *, order: Sequence[str] = ()) -> Row | None:
        found = self.find(table, where, order=order, limit=1)
        return found[0] if found else None

    def count(self, table: Table, where: Where) -> int:
        shape, values = split(table, where)
        found = self._rows(table, self._statements.count(table, shape), values)
        return int(found[0][0]) if found else 0

    def load_run(self, run_id: str) -> Run | None:
        statement = self._statements.select(Table.RUNS, _BY_ID, columns=RUN_COLUMNS)
        found = self._runs(statement, [run_id])
        return found[0] if found else None

    def find_runs(self, where: Where, *, order: Sequence[str] = (), limit: int | None = None) -> list[Run]:
        statement, rows = self._select(Table.RUNS, where, order, limit, RUN_COLUMNS)
        return [run_from_values(statement.decode(row)) for row in rows]

    def any_claimable(self, agents: Sequence[str], user_id: str) -> bool:
        statement = self._statements.claimable("agents", "user", locked=False)
        self._execute(statement, [agents, user_id, 1])
        return self._cursor.fetchone() is not None

    def ahead(self, *reads: Callable[[ReadTx], object]) -> None:
        if self._pipeline is None:
            return
        self._looks_ahead = True
        try:
            for read in reads:
                read(self)
        finally:
            self._looks_ahead = False

    # --- locking ------------------------------------------------------------------------------------------------

    def lock(self, table: Table, where: Where) -> Row | None:
        shape, values = split(table, where)
        if shape == _BY_ID and (held := self._held.get((table, values[0]))):
            return dict(held)
        statement = self._statements.select(table, shape, locked=True)
        self._execute(statement, values)
        row = self._cursor.fetchone()
        if row is None:
            return None
        found = dict(zip(statement.names, statement.decode(row), strict=True))
        if shape == _BY_ID:
            self._held[table, values[0]] = dict(found)
        return found

    def lock_run(
        self, run_id: str, *, within: str | None = None, then: Sequence[Callable[[ReadTx], object]] = ()
    ) -> Run | None:
        keys: list[Key] = [(Table.RUNS, run_id)]
        if within is not None and (Table.CONVERSATIONS, within) not in self._held:
            keys.insert(0, (Table.CONVERSATIONS, within))
        found = self._as_seen(keys, then) or self._locked(keys, then)
        if found is None and len(keys) > 1:  # one of them is not there, or they do not belong together
            self._ahead.clear()  # nothing was locked when `then` was sent
            self.lock(Table.CONVERSATIONS, {"id": within})
            return self.lock_run(run_id)
        if found is None:
            return None
        if len(found) > 1:
            self._held[keys[0]] = dict(found[0])
        run: Run = found[-1]
        return run

    def claimable(
        self,
        agents: Sequence[str] | None,
        limit: int,
        *,
        without: Sequence[str] = (),
        user_id: str | None = None,
        own_first: str | None = None,
    ) -> list[Run]:
        chosen = {
            "agents": agents,
            "without": without or None,
            "user": user_id,
            "own first": own_first,
        }
        asked = {name: value for name, value in chosen.items() if value is not None}
        statement = self._statements.claimable(*asked)
        found, now = self._runs(statement, [*asked.values(), limit]), self.now()
        # By the clock of the statement; the transaction's may be a little behind.
        return [run for run in found if run.not_before is None or run.not_before <= now]

    def orphans(self, limit: int, sessions_until: datetime | None = None) -> list[Run]:
        return self._runs(self._statements.orphans(), [self.now(), sessions_until, limit])

    # --- writing ------------------------------------------------------------------------------------------------

    def insert_run(self, run: Run) -> None:
        self._put(Table.RUNS, RUN_COLUMNS, [run_to_values(run)])

    def swap_run(self, before: Run, after: Run) -> None:
        if before.id != after.id:
            raise ValueError(f"run {before.id} cannot become run {after.id}")
        self._let_go(Table.RUNS, _BY_ID, [before.id])
        columns, values = changes(before, after)
        fence = [before.id, before.status, before.version, before.epoch]
        # an equal run still has to be the one that is stored
        statement = self._statements.swap_run(columns or ("version",))
        given = [*(values if columns else [before.version]), *fence]
        if self._pipeline is not None:
            self._swaps.append((self._send(self._pipeline, statement, given), before))
            return
        self._execute(statement, given)
        if self._cursor.rowcount == 0:
            self.spoiled = _lost(before)
            raise self.spoiled

    def put(self, table: Table, row: Row) -> None:
        self._put(table, tuple(row), [list(row.values())])

    def put_many(self, table: Table, rows: Sequence[Row]) -> None:
        """As `put` of each, all or none of them: after a `Duplicate` the operation ends without effect."""
        for columns, group in _by_columns(rows):
            self._put(table, columns, group)

    def _put(self, table: Table, columns: tuple[str, ...], group: Sequence[list[Any]]) -> None:
        self._forget_reads(table)
        if self._pipeline is not None:
            for start in range(0, len(group), _MOST_ROWS_IN_ONE):
                part = group[start : start + _MOST_ROWS_IN_ONE]
                self._later(
                    self._statements.insert(table, columns, len(part)), list(chain.from_iterable(part))
                )
            return
        statement = self._statements.insert_new(table, columns)
        if len(group) == 1:
            self._execute(statement, group[0])
        else:
            self._run(statement.sql, [statement.bind(values) for values in group], many=True)
        if self._cursor.rowcount != len(group):
            self.spoiled = Duplicate(self._broken_constraint(table, columns, group[0]))
            raise self.spoiled

    def upsert(self, table: Table, row: Row) -> None:
        self._let_go(table, _BY_ID, [row.get("id")])
        self._later(self._statements.upsert(table, tuple(row)), list(row.values()))

    def change(self, table: Table, where: Where, values: Row) -> int:
        shape, wanted = split(table, where)
        self._let_go(table, shape, wanted)
        self._execute(self._statements.update(table, tuple(values), shape), [*values.values(), *wanted])
        return self._cursor.rowcount

    def set(self, table: Table, where: Where, values: Row) -> None:
        shape, wanted = split(table, where)
        if shape == _BY_ID and (held := self._held.get((table, wanted[0]))):
            held.update(values)
            self._forget_reads(table)
            self._writes((table, wanted[0]))
        else:
            self._let_go(table, shape, wanted)
        self._later(self._statements.update(table, tuple(values), shape), [*values.values(), *wanted])

    def remove(self, table: Table, where: Where) -> int:
        shape, values = split(table, where)
        self._let_go(table, shape, values)
        self._execute(self._statements.delete(table, shape), values)
        return self._cursor.rowcount

    def append_events(self, user_id: str, events: Sequence[EventDraft]) -> list[int]:
        if not events:
            return []
        for table in (Table.USERS, Table.EVENTS):
            self._let_go(table, (), ())
        now, count = self.now(), len(events)
        rows = [
            [user_id, event.type, event.conversation_id, event.run_id, now, event.payload] for event in events
        ]
        if self._dialect.writes_in_cte and count <= _MOST_EVENTS_IN_ONE:
            statement = self._statements.append_events(count)
            self._execute(statement, [count, user_id, *chain.from_iterable(rows)])
            numbers = sorted(row[0] for row in self._cursor.fetchall())
        else:
            self._execute(self._statements.take_numbers(), [count, user_id])
            taken = self._cursor.fetchone()
            numbers = [] if taken is None else list(range(taken[0] - count + 1, taken[0] + 1))
            statement = self._statements.insert_new(Table.EVENTS, ("seq", *EVENT_COLUMNS))
            for number, row in zip(numbers, rows, strict=False):
                self._execute(statement, [number, *row])
        if not numbers:
            raise NotFound(f"user {user_id} does not exist, so nothing can be told to its devices")
        return numbers

    # --- as a whole

    def perform(self, fn: Callable[[SqlTx], T]) -> T:
        """The value of `fn`. What that raises it decided on rows that are as it took them to be."""
        try:
            return fn(self)
        except BaseException:  # `LeaseLost` is no `Exception`
            if self._guarded:
                self.settle()
            raise

    def distrust(self) -> None:
        """What it took as seen may not be so."""
        if self._seen is not None:
            self._seen.drop(self._guarded)

    # --- one place that executes ----------------------------------------------------------------------------------

    def _run(self, sql: str, parameters: Sequence[Any], *, many: bool = False) -> None:
        self.statement_count += 1
        try:
            if many:
                self._cursor.executemany(sql, parameters)
            else:
                self._cursor.execute(sql, parameters)
            self._check_swaps()
        except self._dialect.driver_error as error:
            self.told(error)
        except OverflowError as error:
            self.spoiled = Invalid("a number does not fit into 64 bits", code="too_large")
            raise self.spoiled from error

    def told(self, error: Exception) -> NoReturn:
        """Raises what the driver's error means, and remembers it."""
        meaning = self._dialect.translate(error)
        self.spoiled = meaning or error
        if isinstance(meaning, Unavailable | TryAgain):
            self.failure = meaning
            self.distrust()
        else:
            self._check_swaps()  # one that was lost came before what failed
        if meaning is None:
            raise error
        raise meaning from error

    def settle(self) -> None:
        """Wait for what was sent. Raises what failed of it."""
        if self._pipeline is not None:
            try:
                self._pipeline.wait()
            except self._dialect.driver_error as error:
                self.told(error)
            self._check_swaps()

    @property
    def must_settle(self) -> bool:
        """True where a failure may be hidden in what was sent that the database does not call one."""
        return bool(self._swaps)

    def _check_swaps(self) -> None:
        """Of what was sent all is answered now. Raises `LostRace`."""
        if self._swaps:
            swaps, self._swaps = self._swaps, []
            for sent, before in swaps:
                if sent.changed == 0:
                    self.spoiled = _lost(before)
                    raise self.spoiled

    def _execute(self, statement: Statement, values: Sequence[Any]) -> None:
        self._run(statement.sql, statement.bind(values))

    def _later(self, statement: Statement, values: Sequence[Any]) -> None:
        if self._pipeline is None:
            self._execute(statement, values)
        else:
            self._send(self._pipeline, statement, values)

    def _send(self, pipeline: Pipeline, statement: Statement, values: Sequence[Any]) -> Sent:
        self.statement_count += 1
        try:
            return pipeline.later(statement.sql, statement.bind(values))
        except self._dialect.driver_error as error:
            self.told(error)

    def _let_go(self, table: Table, shape: Shape, wanted: Sequence[Any]) -> None:
        """Rows that a write may have touched are read again."""
        self._forget_reads(table)
        if shape == _BY_ID:
            self._held.pop((table, wanted[0]), None)
            self._writes((table, wanted[0]))
            return
        if self._held:
            self._held = {key: row for key, row in self._held.items() if key[0] is not table}
        if self._seen is not None and table in _SEEN:
            self._found.clear()
            self._seen.clear()

    def _writes(self, key: Key) -> None:
        """A row is written: what was seen of it is no more."""
        if self._seen is not None and key[0] in _SEEN:
            self._found.pop(key, None)
            self._seen.drop([key])

    def _forget_reads(self, table: Table) -> None:
        self.has_written = True
        if self._ahead:
            self._ahead = {key: sent for key, sent in self._ahead.items() if key[0] is not table}

    def _rows(self, table: Table, statement: Statement, values: Sequence[Any]) -> Sequence[Any]:
        """What a read finds; where it only looks ahead, nothing yet."""
        if self._looks_ahead and self._pipeline is not None:
            key = (table, statement.sql, repr(values))
            if key not in self._ahead:
                self._ahead[key] = self._send(self._pipeline, statement, values)
            return []
        if self._ahead and (sent := self._ahead.get((table, statement.sql, repr(values)))) is not None:
            if sent.answer is None:
                self.settle()
            return sent.rows()
        self._execute(statement, values)
        return self._cursor.fetchall()

    def _select(
        self,
        table: Table,
        where: Where,
        order: Sequence[str],
        limit: int | None,
        columns: Sequence[str],
    ) -> tuple[Statement, Sequence[Any]]:
        shape, values = split(table, where)
        limited = limit is not None
        statement = self._statements.select(
            table, shape, tuple(order), columns=tuple(columns), limited=limited
        )
        if limited:
            values.append(limit)
        return statement, self._rows(table, statement, values)

    def _first_row(
        self, statement: Statement, values: Sequence[Any], then: Sequence[Callable[[ReadTx], object]]
    ) -> Sequence[Any] | None:
        if self._pipeline is None or not then:
            self._execute(statement, values)
            row: Sequence[Any] | None = self._cursor.fetchone()
            return row
        sent = self._send(self._pipeline, statement, values)
        self.ahead(*then)
        self.settle()
        return next(iter(sent.rows()), None)

    def _as_seen(self, keys: Sequence[Key], then: Sequence[Callable[[ReadTx], object]]) -> list[Any] | None:
        """What the rows hold by what was seen last; where others write too, that it is so is found out behind."""
        if self._seen is None or not self._trusts:
            return None
        found = [seen for key in keys if (seen := self._seen.get(key)) is not None]
        if len(found) < len(keys):
            return None
        if self._pipeline is not None:
            values = [*(id_ for _, id_ in keys), *(seen.version for seen in found)]
            self._send(self._pipeline, self._statements.guard(within=len(keys) > 1), values)
            self._guarded.extend(keys)
            self.ahead(*then)
        return [seen.value for seen in found]

    def _locked(self, keys: Sequence[Key], then: Sequence[Callable[[ReadTx], object]]) -> list[Any] | None:
        """What the rows hold, which are locked now."""
        statement = self._statements.lock_run(within=len(keys) > 1)
        row = self._first_row(statement, [id_ for _, id_ in keys], then)
        if row is None:
            return None
        names = statement.names
        values, versions = statement.decode(row[: len(names)]), row[len(names) :]
        between = len(names) - len(RUN_COLUMNS)
        found: list[Any] = [run_from_values(values[between:])]
        if between:
            found.insert(0, dict(zip(names[:between], values, strict=False)))
        if self._seen is not None:
            self._found.update(zip(keys, map(Seen, found, versions or [""] * len(keys)), strict=True))
        return found

    def _runs(self, statement: Statement, values: Sequence[Any]) -> list[Run]:
        self._execute(statement, values)
        return [run_from_values(statement.decode(row)) for row in self._cursor.fetchall()]

    def _broken_constraint(self, table: Table, columns: tuple[str, ...], values: Sequence[Any]) -> str:
        """Which unique constraint refused a row: the primary key where that row is there, else the other one."""
        source = metadata.tables[table]
        row = dict(zip(columns, values, strict=True))
        key = {column.name: row[column.name] for column in source.primary_key.columns}
        others = sorted(str(index.name) for index in source.indexes if index.unique)
        if not others or self.count(table, key):
            return f"pk_{table.value}"
        return others[0]


_BY_ID = (("id", "eq"),)
_SEEN = (Table.RUNS, Table.CONVERSATIONS)


def _lost(before: Run) -> LostRace:
    return LostRace(f"run {before.id} is no longer {before.status.value} at version {before.version}")


def _by_columns(rows: Sequence[Row]) -> list[tuple[tuple[str, ...], list[list[Any]]]]:
    groups: dict[tuple[str, ...], list[list[Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row), []).append(list(row.values()))
    return list(groups.items())
