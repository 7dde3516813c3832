"""SQL for the store's few operations, each shape of it built and compiled once.

SQLAlchemy Core writes the SQL, from one table definition and for either database; the text is then executed on
the driver's own cursor with converters of ours (`types.py`). Measured on SQLite, one row of twelve columns by its
key, as a dict: 6 µs this way, 16 µs through a Connection with the construct kept, 80 µs with the construct built
each time; the bare cursor takes 3 µs.

A shape is an operation with its table, columns and operators, never a value; so the cache stays small. The
exception is a run's status, whose values are few and must be seen by the database for it to use the partial index
on live runs. This module knows no connection.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import ColumnElement

from dromos.domain.statuses import LIVE as LIVE_STATUSES
from dromos.domain.statuses import OWNED, RunStatus
from dromos.ports.store import Ge, Gt, In, Le, Lt, Ne, Table, Where
from dromos.store.dialect import SqlDialect
from dromos.store.runs import RUN_COLUMNS
from dromos.store.tables import LIVE, conversations, events, leases, metadata, run_attempts, runs, users
from dromos.store.types import Converter, decoder, encoder

Shape = tuple[Hashable, ...]
EVENT_COLUMNS = ("user_id", "type", "conversation_id", "run_id", "at", "payload")
"""Columns of an event without its number."""


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL text, how to bind values given in the builder's order, and how to read the rows it returns."""

    sql: str
    take: tuple[tuple[int, Converter | None], ...]  # parameter of the SQL ← index into the caller's values
    names: tuple[str, ...] = ()
    decoders: tuple[tuple[int, Converter], ...] = ()

    def bind(self, values: Sequence[Any]) -> list[Any]:
        """The driver's parameters for the caller's values."""
        return [
            values[index] if convert is None or values[index] is None else convert(values[index])
            for index, convert in self.take
        ]

    def decode(self, row: Sequence[Any]) -> list[Any]:
        """One row as Python values, in the order of `names`."""
        values = list(row)
        for index, convert in self.decoders:
            if values[index] is not None:
                values[index] = convert(values[index])
        return values


def split(table: Table, where: Where) -> tuple[Shape, list[Any]]:
    """The shape of a condition and the values to bind, in the order of its columns."""
    shape: list[Hashable] = []
    values: list[Any] = []
    of_runs = table is Table.RUNS
    for name, wanted in where.items():
        if of_runs and name == "status" and (statuses := _statuses(wanted)) is not None:
            shape.append((name, statuses))
        elif wanted is None:
            shape.append((name, "null"))
        elif (operator := _OPERATORS.get(type(wanted))) is None:
            shape.append((name, "eq"))
            values.append(wanted)
        elif operator == "in":
            shape.append((name, "in"))
            values.append(wanted.values)
        elif wanted.value is None:
            shape.append((name, operator + " null"))
        else:
            shape.append((name, operator))
            values.append(wanted.value)
    return tuple(shape), values


_OPERATORS: dict[type, str] = {Lt: "lt", Le: "le", Gt: "gt", Ge: "ge", In: "in", Ne: "ne"}


def _statuses(wanted: Any) -> tuple[str, ...] | None:
    if isinstance(wanted, In):
        return tuple(sorted({RunStatus(value).value for value in wanted.values}))
    return (RunStatus(wanted).value,) if isinstance(wanted, str) else None


class Statements:
    """All statements of one database, compiled when first asked for. Shared by all its connections.

    A column or table that does not exist raises `KeyError`: a mistake of the caller's code.
    """

    def __init__(self, dialect: SqlDialect) -> None:
        self._dialect = dialect
        self._cache: dict[Hashable, Statement] = {}

    def select(
        self,
        table: Table,
        shape: Shape,
        order: tuple[str, ...] = (),
        *,
        columns: tuple[str, ...] = (),
        limited: bool = False,
        locked: bool = False,
    ) -> Statement:
        """Values to bind: those of the condition, then the limit where `limited`."""
        key = ("select", table, shape, order, columns, limited, locked)
        found = self._cache.get(key)
        return found or self._build_select(key, table, shape, order, columns, limited, locked)

    def _build_select(
        self,
        key: Hashable,
        table: Table,
        shape: Shape,
        order: tuple[str, ...],
        columns: tuple[str, ...],
        limited: bool,
        locked: bool,
    ) -> Statement:
        source = metadata.tables[table]
        names = columns or tuple(source.c.keys())
        binds = _Binds()
        query = sa.select(*(source.c[name] for name in names)).where(*self._conditions(table, shape, binds))
        query = query.order_by(*(_ordered(source, name) for name in order))
        if limited:
            query = _limited(query, binds)
        if locked:
            query = query.with_for_update()
        return self._compile(key, query, binds, [source.c[name] for name in names])

    def count(self, table: Table, shape: Shape) -> Statement:
        key = ("count", table, shape)
        if found := self._cache.get(key):
            return found
        binds = _Binds()
        query = sa.select(sa.func.count()).select_from(metadata.tables[table])
        return self._compile(key, query.where(*self._conditions(table, shape, binds)), binds)

    def insert(self, table: Table, columns: tuple[str, ...], rows: int = 1) -> Statement:
        """Fails where a unique constraint refuses. Values to bind: those of the first row, then those of the next."""
        key = ("insert", table, columns, rows)
        if found := self._cache.get(key):
            return found
        target, binds = metadata.tables[table], _Binds()
        values = [{name: binds.of(target.c[name]) for name in columns} for _ in range(rows)]
        statement = self._dialect.insert(target).values(values if rows > 1 else values[0])
        return self._compile(key, statement, binds)

    def insert_new(self, table: Table, columns: tuple[str, ...]) -> Statement:
        """Inserts nothing where a unique constraint refuses: the row count tells, and the transaction goes on."""
        key = ("insert new", table, columns)
        if found := self._cache.get(key):
            return found
        target, binds = metadata.tables[table], _Binds()
        statement = self._dialect.insert(target).values({name: binds.of(target.c[name]) for name in columns})
        return self._compile(key, statement.on_conflict_do_nothing(), binds)

    def upsert(self, table: Table, columns: tuple[str, ...]) -> Statement:
        """Insert, else make all other columns what the insert would have made them (defaults included)."""
        key = ("upsert", table, columns)
        if found := self._cache.get(key):
            return found
        target, binds = metadata.tables[table], _Binds()
        statement = self._dialect.insert(target).values({name: binds.of(target.c[name]) for name in columns})
        statement = statement.on_conflict_do_update(
            index_elements=list(target.primary_key.columns),
            set_={
                column.name: statement.excluded[column.name]
                for column in target.columns
                if not column.primary_key
            },
        )
        return self._compile(key, statement, binds)

    def update(self, table: Table, columns: tuple[str, ...], shape: Shape) -> Statement:
        """Values to bind: the new ones, then those of the condition."""
        key = ("update", table, columns, shape)
        if found := self._cache.get(key):
            return found
        target, binds = metadata.tables[table], _Binds()
        new = {name: binds.of(target.c[name]) for name in columns}
        statement = sa.update(target).where(*self._conditions(table, shape, binds)).values(new)
        return self._compile(key, statement, binds)

    def delete(self, table: Table, shape: Shape) -> Statement:
        key = ("delete", table, shape)
        if found := self._cache.get(key):
            return found
        binds = _Binds()
        statement = sa.delete(metadata.tables[table]).where(*self._conditions(table, shape, binds))
        return self._compile(key, statement, binds)

    def swap_run(self, columns: tuple[str, ...]) -> Statement:
        """Values to bind: the new ones, then id, status, version and epoch as they were."""
        key = ("swap", columns)
        if found := self._cache.get(key):
            return found
        binds = _Binds()
        new = {name: binds.of(runs.c[name]) for name in columns}
        fence = [runs.c[name] == binds.of(runs.c[name]) for name in ("id", "status", "version", "epoch")]
        return self._compile(key, sa.update(runs).where(*fence).values(new), binds)

    def lock_run(self, *, within: bool) -> Statement:
        """A run's row, locked; with `within` that of its conversation before it. Binds their ids in this order.

        Returns the columns of the conversation, those of the run, then the version of each row where rows have one.
        """
        key = ("lock run", within)
        if found := self._cache.get(key):
            return found
        binds = _Binds()
        tables = (conversations, runs) if within else (runs,)
        returned: list[Any] = [*(conversations.c if within else ()), *(runs.c[name] for name in RUN_COLUMNS)]
        versions = [self._dialect.version(table) for table in tables] if self._dialect.version else []
        query = _run_rows(tables, binds, [*returned, *versions])
        return self._compile(key, query, binds, returned)

    def guard(self, *, within: bool) -> Statement:
        """As `lock_run`, binding the versions too; fails with a division by zero where the rows have others."""
        key = ("guard", within)
        if found := self._cache.get(key):
            return found
        assert self._dialect.version is not None
        binds = _Binds()
        tables = (conversations, runs) if within else (runs,)
        rows = _run_rows(tables, binds, [sa.literal_column("1")])
        for table in tables:
            rows = rows.where(self._dialect.version(table) == binds.of(table.c.id))
        count: ColumnElement[int] = sa.literal_column("1 / count(*)")
        return self._compile(key, sa.select(count).select_from(rows.subquery("seen")), binds)

    def take_numbers(self) -> Statement:
        """Raise a user's event number; binds how many, and the user. Returns the highest one taken."""
        key = ("take numbers",)
        if found := self._cache.get(key):
            return found
        binds = _Binds()
        taken = users.c.last_seq + binds.of(users.c.last_seq)
        statement = (
            sa.update(users)
            .values(last_seq=taken)
            .where(users.c.id == binds.of(users.c.id))
            .returning(users.c.last_seq)
        )
        return self._compile(key, statement, binds, [users.c.last_seq])

    def append_events(self, count: int) -> Statement:
        """`take_numbers` and the insertion of `count` events in one statement, which returns their numbers.

        Binds count and user, then the `EVENT_COLUMNS` of each event but its number. Only where the database can
        write in a common table expression (`SqlDialect.writes_in_cte`).
        """
        key = ("append events", count)
        if found := self._cache.get(key):
            return found
        binds = _Binds()
        taken = (
            sa.update(users)
            .values(last_seq=users.c.last_seq + binds.of(users.c.last_seq))
            .where(users.c.id == binds.of(users.c.id))
            .returning(users.c.last_seq)
            .cte("taken")
        )
        rows = [
            sa.select(
                taken.c.last_seq - sa.literal_column(str(count - 1 - number)),
                *(binds.of(events.c[name]) for name in EVENT_COLUMNS),
            )
            for number in range(count)
        ]
        statement = (
            sa.insert(events)
            .from_select(["seq", *EVENT_COLUMNS], rows[0] if count == 1 else sa.union_all(*rows))
            .returning(events.c.seq)
        )
        return self._compile(key, statement, binds, [events.c.seq])

    def claimable(self, *asked: str, locked: bool = True) -> Statement:
        """Binds one value for each of `asked` (agents, without, user, own first; in this order), and a limit."""
        key = ("claimable", asked, locked)
        if found := self._cache.get(key):
            return found
        binds = _Binds()
        now: ColumnElement[str] = sa.literal_column(self._dialect.clock)
        due = sa.or_(runs.c.not_before.is_(None), runs.c.not_before <= now)
        chosen: list[ColumnElement[bool]] = []
        order: list[ColumnElement[Any]] = [runs.c.created_at, runs.c.id]
        if "agents" in asked:
            chosen.append(self._any_of(runs.c.agent, binds))
        if "without" in asked:
            chosen.append(sa.not_(self._any_of(runs.c.agent, binds)))
        if "user" in asked:
            # inside a function, so that SQLite looks through the live runs and not through all of this person's
            owner = sa.func.coalesce(runs.c.user_id, sa.literal_column("''"))
            chosen.append(owner == binds.of(runs.c.user_id))
        if "own first" in asked:
            own = sa.exists().where(
                run_attempts.c.run_id == runs.c.id,
                run_attempts.c.attempt == runs.c.attempt,
                run_attempts.c.owner_id == binds.of(run_attempts.c.owner_id),
            )
            order.insert(0, sa.case((own, sa.literal_column("0")), else_=sa.literal_column("1")))
        being_deleted = sa.exists().where(
            conversations.c.id == runs.c.conversation_id,
            conversations.c.state == sa.literal_column("'deleting'"),
        )
        query = (
            sa.select(*(runs.c[name] for name in RUN_COLUMNS))
            .where(*_with_status((RunStatus.QUEUED.value,)), due, *chosen, ~being_deleted)
            .order_by(*order)
        )
        if locked:
            query = query.with_for_update(of=runs, skip_locked=True)
        query = _limited(query, binds)
        return self._compile(key, query, binds, list(query.selected_columns))

    def orphans(self) -> Statement:
        """Binds now, until when an adapter's last sign of life is too old, and a limit."""
        key = ("orphans",)
        if found := self._cache.get(key):
            return found
        binds = _Binds()
        alive = sa.exists().where(
            leases.c.owner_id == runs.c.owner_id,
            sa.or_(leases.c.lease_until.is_(None), leases.c.lease_until > binds.of(leases.c.lease_until)),
        )
        of_session = runs.c.owner_kind.is_not_distinct_from(sa.literal_column("'adapter'"))
        silent = sa.func.coalesce(runs.c.renewed_at, sa.literal_column("''")) <= binds.of(runs.c.renewed_at)
        lost = sa.or_(sa.and_(of_session, silent), sa.and_(sa.not_(of_session), ~alive))
        query = (
            sa.select(*(runs.c[name] for name in RUN_COLUMNS))
            .where(*_with_status(tuple(sorted(status.value for status in OWNED))), lost)
            .order_by(runs.c.created_at, runs.c.id)
        )
        query = _limited(query, binds)
        return self._compile(key, query, binds, list(query.selected_columns))

    # --- building -----------------------------------------------------------------------------------------------

    def _conditions(self, table: Table, shape: Shape, binds: _Binds) -> Iterable[ColumnElement[bool]]:
        source = metadata.tables[table]
        for part in shape:
            assert isinstance(part, tuple)
            name, operator = part
            if isinstance(operator, tuple):
                yield from _with_status(operator)
            elif operator == "in":
                yield self._any_of(source.c[name], binds)
            else:
                yield _compared(source.c[name], operator, binds)

    def _any_of(self, column: sa.Column[Any], binds: _Binds) -> ColumnElement[bool]:
        convert, pack = encoder(column.type), self._dialect.pack

        def packed(values: Sequence[Any]) -> Any:
            return pack([value if convert is None or value is None else convert(value) for value in values])

        return self._dialect.any_of(column, binds.value(column.type, packed).key)

    def _compile(
        self,
        key: Hashable,
        construct: sa.Executable,
        binds: _Binds,
        returned: Sequence[sa.Column[Any] | ColumnElement[Any]] = (),
    ) -> Statement:
        compiled = construct.compile(dialect=self._dialect.compiler)  # type: ignore[attr-defined]
        decoders = ((index, decoder(column.type)) for index, column in enumerate(returned))
        statement = Statement(
            sql=str(compiled),
            take=tuple(binds.place(name) for name in compiled.positiontup or ()),
            names=tuple(column.name for column in returned),
            decoders=tuple((index, convert) for index, convert in decoders if convert is not None),
        )
        self._cache[key] = statement
        return statement


def _run_rows(tables: Sequence[sa.Table], binds: _Binds, returned: Sequence[Any]) -> sa.Select[Any]:
    """The run with an id, and before it the conversation with one where that is among the tables; both locked."""
    query = sa.select(*returned).select_from(runs)
    if conversations in tables:
        query = sa.select(*returned).join_from(
            conversations, runs, runs.c.conversation_id == conversations.c.id
        )
    wanted = [table.c.id == binds.of(table.c.id) for table in tables]
    return query.where(*wanted).with_for_update(of=list(tables))


class _Binds:
    """The parameters of a statement that is being built, numbered in the order in which callers give them."""

    def __init__(self) -> None:
        self._converters: list[Converter | None] = []

    def of(self, column: sa.Column[Any]) -> sa.BindParameter[Any]:
        """A parameter that takes this column's values."""
        return self.value(column.type, encoder(column.type))

    def value(self, kind: Any, convert: Converter | None) -> sa.BindParameter[Any]:
        name = f"p{len(self._converters)}"
        self._converters.append(convert)
        return sa.bindparam(name, type_=kind)

    def place(self, name: str) -> tuple[int, Converter | None]:
        """Where the value of a parameter comes from, by its name in the compiled statement."""
        index = int(name.removeprefix("p"))
        return index, self._converters[index]


def _limited(query: sa.Select[Any], binds: _Binds) -> sa.Select[Any]:
    # SQLite's compiler would bind an offset of its own
    return query.limit(binds.value(sa.Integer(), None)).offset(sa.literal_column("0"))


def _compared(column: sa.Column[Any], operator: str, binds: _Binds) -> ColumnElement[bool]:
    match operator:
        case "null":
            return column.is_(None)
        case "ne null":
            return column.is_not(None)
        case "eq":
            return column == binds.of(column)
        case "ne":
            return column.is_distinct_from(binds.of(column))
        case "lt":
            return column < binds.of(column)
        case "le":
            return column <= binds.of(column)
        case "gt":
            return column > binds.of(column)
        case "ge":
            return column >= binds.of(column)
    raise ValueError(f"{column.name}: nothing is {operator} (use None or NOT_NULL)")


def _with_status(statuses: tuple[str, ...]) -> Iterable[ColumnElement[bool]]:
    if not statuses:
        yield sa.false()
        return
    yield runs.c.status.in_([sa.literal_column(f"'{status}'") for status in statuses])
    if LIVE_STATUSES.issuperset(statuses):
        yield LIVE  # type: ignore[misc]  # word for word the index's own condition, so that SQLite uses it


def _ordered(source: sa.Table, name: str) -> ColumnElement[Any]:
    """NULL comes first ascending and last descending, on both databases."""
    column = source.c[name.removeprefix("-")]
    if name.startswith("-"):
        return column.desc().nulls_last() if column.nullable else column.desc()
    return column.asc().nulls_first() if column.nullable else column.asc()
