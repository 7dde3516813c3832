"""`ports.store.Tx` over one driver cursor, the same code on both databases.

It knows tables, shapes and rows. It does not know how its transaction began, how it ends, or which other
operations share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from dromos.domain.errors import Duplicate, Invalid, LostRace, NotFound, Unavailable
from dromos.domain.events import EventDraft
from dromos.domain.runs import Run
from dromos.ports.store import Row, Table, Where
from dromos.store.dialect import Cursor, SqlDialect, TryAgain
from dromos.store.runs import RUN_COLUMNS, changes, run_from_values, run_to_values
from dromos.store.statements import EVENT_COLUMNS, Statement, Statements, split
from dromos.store.tables import metadata
from dromos.store.types import from_text

_MOST_EVENTS_IN_ONE = 8
"""More events at once are rare; each number of them is a statement that is kept."""


class SqlTx:
    """One operation's view of the database. `now` may be handed in where the transaction's start told it.

    An operation that catches an error of the driver and goes on does not save itself, on either database: what the
    error means stays in `spoiled`, or in `failure` where the whole transaction cannot survive it.
    """

    __slots__ = ("_cursor", "_dialect", "_now", "_statements", "failure", "spoiled", "statement_count")

    def __init__(
        self, cursor: Cursor, dialect: SqlDialect, statements: Statements, now: datetime | None = None
    ) -> None:
        self._cursor = cursor
        self._dialect = dialect
        self._statements = statements
        self._now = now
        self.failure: Unavailable | TryAgain | None = None
        self.spoiled: Exception | None = None
        self.statement_count = 0

    # --- reading ------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        if self._now is None:
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
        self._execute(self._statements.count(table, shape), values)
        number: int = self._cursor.fetchone()[0]
        return number

    def load_run(self, run_id: str) -> Run | None:
        return self._one_run(run_id, locked=False)

    def find_runs(self, where: Where, *, order: Sequence[str] = (), limit: int | None = None) -> list[Run]:
        statement, rows = self._select(Table.RUNS, where, order, limit, RUN_COLUMNS)
        return [run_from_values(statement.decode(row)) for row in rows]

    # --- locking ------------------------------------------------------------------------------------------------

    def lock(self, table: Table, where: Where) -> Row | None:
        shape, values = split(table, where)
        statement = self._statements.select(table, shape, locked=True)
        self._execute(statement, values)
        row = self._cursor.fetchone()
        return None if row is None else dict(zip(statement.names, statement.decode(row), strict=True))

    def lock_run(self, run_id: str) -> Run | None:
        return self._one_run(run_id, locked=True)

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
        return self._runs(statement, [self.now(), *asked.values(), limit])

    def orphans(self, limit: int, sessions_until: datetime | None = None) -> list[Run]:
        return self._runs(self._statements.orphans(), [self.now(), sessions_until, limit])

    # --- writing ------------------------------------------------------------------------------------------------

    def insert_run(self, run: Run) -> None:
        self._insert(Table.RUNS, RUN_COLUMNS, run_to_values(run))

    def swap_run(self, before: Run, after: Run) -> None:
        if before.id != after.id:
            raise ValueError(f"run {before.id} cannot become run {after.id}")
        columns, values = changes(before, after)
        fence = [before.id, before.status, before.version, before.epoch]
        # an equal run still has to be the one that is stored
        statement = self._statements.swap_run(columns or ("version",))
        self._execute(statement, [*(values if columns else [before.version]), *fence])
        if self._cursor.rowcount == 0:
            raise LostRace(f"run {before.id} is no longer {before.status.value} at version {before.version}")

    def put(self, table: Table, row: Row) -> None:
        self._insert(table, tuple(row), list(row.values()))

    def put_many(self, table: Table, rows: Sequence[Row]) -> None:
        """As `put` of each, all or none of them: after a `Duplicate` the operation ends without effect."""
        for columns, group in _by_columns(rows):
            if len(group) == 1:
                self._insert(table, columns, group[0])
                continue
            statement = self._statements.insert(table, columns)
            self._run(statement.sql, [statement.bind(values) for values in group], many=True)
            if self._cursor.rowcount != len(group):
                self.spoiled = Duplicate(self._broken_constraint(table, columns, group[0]))
                raise self.spoiled

    def upsert(self, table: Table, row: Row) -> None:
        self._execute(self._statements.upsert(table, tuple(row)), list(row.values()))

    def change(self, table: Table, where: Where, values: Row) -> int:
        shape, wanted = split(table, where)
        self._execute(self._statements.update(table, tuple(values), shape), [*values.values(), *wanted])
        return self._cursor.rowcount

    def remove(self, table: Table, where: Where) -> int:
        shape, values = split(table, where)
        self._execute(self._statements.delete(table, shape), values)
        return self._cursor.rowcount

    def append_events(self, user_id: str, events: Sequence[EventDraft]) -> list[int]:
        if not events:
            return []
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
            statement = self._statements.insert(Table.EVENTS, ("seq", *EVENT_COLUMNS))
            for number, row in zip(numbers, rows, strict=False):
                self._execute(statement, [number, *row])
        if not numbers:
            raise NotFound(f"user {user_id} does not exist, so nothing can be told to its devices")
        return numbers

    # --- one place that executes ----------------------------------------------------------------------------------

    def _run(self, sql: str, parameters: Sequence[Any], *, many: bool = False) -> None:
        self.statement_count += 1
        try:
            if many:
                self._cursor.executemany(sql, parameters)
            else:
                self._cursor.execute(sql, parameters)
        except self._dialect.driver_error as error:
            meaning = self._dialect.translate(error)
            self.spoiled = meaning or error
            if isinstance(meaning, Unavailable | TryAgain):
                self.failure = meaning
            if meaning is None:
                raise
            raise meaning from error
        except OverflowError as error:
            self.spoiled = Invalid("a number does not fit into 64 bits", code="too_large")
            raise self.spoiled from error

    def _execute(self, statement: Statement, values: Sequence[Any]) -> None:
        self._run(statement.sql, statement.bind(values))

    def _select(
        self,
        table: Table,
        where: Where,
        order: Sequence[str],
        limit: int | None,
        columns: Sequence[str],
    ) -> tuple[Statement, list[Any]]:
        shape, values = split(table, where)
        limited = limit is not None
        statement = self._statements.select(
            table, shape, tuple(order), columns=tuple(columns), limited=limited
        )
        if limited:
            values.append(limit)
        self._execute(statement, values)
        return statement, self._cursor.fetchall()

    def _one_run(self, run_id: str, *, locked: bool) -> Run | None:
        statement = self._statements.select(Table.RUNS, _BY_ID, columns=RUN_COLUMNS, locked=locked)
        self._execute(statement, [run_id])
        row = self._cursor.fetchone()
        return None if row is None else run_from_values(statement.decode(row))

    def _runs(self, statement: Statement, values: Sequence[Any]) -> list[Run]:
        self._execute(statement, values)
        return [run_from_values(statement.decode(row)) for row in self._cursor.fetchall()]

    def _insert(self, table: Table, columns: tuple[str, ...], values: list[Any]) -> None:
        self._execute(self._statements.insert(table, columns), values)
        if self._cursor.rowcount == 0:
            raise Duplicate(self._broken_constraint(table, columns, values))

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


def _by_columns(rows: Sequence[Row]) -> list[tuple[tuple[str, ...], list[list[Any]]]]:
    groups: dict[tuple[str, ...], list[list[Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row), []).append(list(row.values()))
    return list(groups.items())
