"""What differs between the two databases, as one small value. Everything else of the store is written once.

`sqlite/dialect.py` and `postgres/dialect.py` make the two values; no other module asks which database it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import Table
from sqlalchemy.sql import ColumnElement

from dromos.domain.errors import DromosError

Insert = PostgresInsert | SqliteInsert


class TryAgain(DromosError):
    """The database gave way to somebody else (a lock, a deadlock): the same operation may succeed a moment later.

    Never leaves the store.
    """


class Cursor(Protocol):
    """The part of a driver's cursor that the store uses. Parameters are positional."""

    @property
    def rowcount(self) -> int: ...

    def execute(self, sql: Any, parameters: Any = ..., /) -> Any: ...

    def executemany(self, sql: Any, parameters: Any, /) -> Any: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Sent(Protocol):
    """A statement that was sent. `answer` is None until its pipeline has waited."""

    @property
    def answer(self) -> Any: ...

    @property
    def changed(self) -> int:
        """How many rows it touched or returned."""
        ...

    def rows(self) -> Sequence[Sequence[Any]]: ...


class Pipeline(Cursor, Protocol):
    """A cursor that can also send statements without waiting for them."""

    def later(self, sql: Any, parameters: Any = ..., /) -> Sent: ...

    def wait(self) -> None:
        """Until everything sent is done. Raises the first failure."""
        ...


@dataclass(frozen=True)
class SqlDialect:
    """One database's own ways.

    `compiler` writes its SQL with positional parameters. `clock` is SQL for its time as an `Instant`. `insert`
    makes an INSERT that knows ON CONFLICT. `any_of(column, name)` is the condition "one of the list bound as
    `name`", whatever the list's length; `pack` makes the driver's value of that list. `writes_in_cte`: a common table
    expression may write, which saves a round trip. `translate` says what a
    driver's error means to the product, or None where it is a mistake of ours.
    """

    compiler: Dialect
    clock: str
    insert: Callable[[Table], Insert]
    any_of: Callable[[ColumnElement[Any], str], ColumnElement[bool]]
    pack: Callable[[Sequence[Any]], Any]
    version: Callable[[Table], ColumnElement[str]] | None
    writes_in_cte: bool
    driver_error: type[Exception]
    translate: Callable[[Exception], DromosError | None]
