"""PostgreSQL's SQL and what its errors mean. A list is bound as one array, whatever its length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import errors
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql import ColumnElement

from dromos.domain.errors import DromosError, Duplicate, Invalid, SchemaMismatch, StoreUnavailable
from dromos.store.dialect import SqlDialect, TryAgain

CLOCK = "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"


def _any_of(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    return column == sa.any_(sa.bindparam(name, type_=postgresql.ARRAY(sa.types.to_instance(column.type))))


def _pack(values: Sequence[Any]) -> list[Any]:
    return list(values)


def _version(table: sa.Table) -> ColumnElement[str]:
    """The number of the transaction that wrote the row."""
    return sa.literal_column(f"{table.name}.xmin::text", sa.Text())


_NOT_AS_SEEN = errors.DivisionByZero  # of `Statements.guard`
_TRY_AGAIN = (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable)
_CURES: dict[type[psycopg.Error], str] = {
    errors.DiskFull: "the database server's disk is full: free some space there",
    errors.OutOfMemory: "the database server is out of memory: see its log",
    errors.TooManyConnections: "the database server takes no more connections: raise its max_connections",
    errors.ReadOnlySqlTransaction: "the database is read-only: is this a standby? name the primary server",
    errors.QueryCanceled: "a statement took longer than the time allowed, or was cancelled: see the server's log",
    errors.InsufficientPrivilege: "this database user may not do that: grant it the tables of Dromos",
    errors.IdleInTransactionSessionTimeout: "a transaction was idle for too long: see the server's log",
}


def translate(error: Exception) -> DromosError | None:
    """What a driver's error means; None for a mistake in our own SQL."""
    if isinstance(error, _TRY_AGAIN):
        return TryAgain(str(error))
    if isinstance(error, _NOT_AS_SEEN):
        return TryAgain("somebody else has written a row since it was seen")
    for kind, cure in _CURES.items():
        if isinstance(error, kind):
            return StoreUnavailable(f"the database cannot be used ({_first_line(error)}): {cure}")
    if isinstance(error, errors.UniqueViolation):
        return Duplicate(str(error.diag.constraint_name))
    if isinstance(error, psycopg.IntegrityError):
        return Invalid(f"the database refuses this row: {_first_line(error)}", code="bad_row")
    if isinstance(error, errors.ProgramLimitExceeded):
        return Invalid(
            f"the value is larger than the database can store: {_first_line(error)}", code="too_large"
        )
    if isinstance(error, errors.NumericValueOutOfRange):
        return Invalid(f"a number does not fit into its column: {_first_line(error)}", code="too_large")
    if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn):
        return SchemaMismatch(
            f"the database's tables are not those of this version ({_first_line(error)}): run `dromos migrate`"
        )
    if isinstance(error, psycopg.OperationalError):
        return StoreUnavailable(
            f"the database does not answer ({_first_line(error)}): check that the server runs and can be reached"
        )
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


DIALECT = SqlDialect(
    compiler=PGDialect_psycopg(paramstyle="format"),  # type: ignore[no-untyped-call]
    clock=CLOCK,
    insert=postgresql.insert,
    any_of=_any_of,
    pack=_pack,
    version=_version,
    writes_in_cte=True,
    driver_error=psycopg.Error,
    translate=translate,
)
