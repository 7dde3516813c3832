"""SQLite's SQL and what its errors mean.

Its clock has milliseconds; the last three digits of an `Instant` are zeros. A list is bound as one JSON array,
whatever its length.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql import ColumnElement

from dromos.domain.errors import DromosError, Duplicate, Invalid, SchemaMismatch, StoreUnavailable
from dromos.store.dialect import SqlDialect
from dromos.store.tables import metadata

CLOCK = "strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'"


def _any_of(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    each = sa.func.json_each(sa.bindparam(name, type_=sa.Text())).table_valued("value")
    return column.in_(sa.select(each.c.value))


def _pack(values: Sequence[Any]) -> str:
    return orjson.dumps(list(values)).decode()


_CURES = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, or move the data folder to a larger disk",
    sqlite3.SQLITE_IOERR: "the disk reported an error: check it, and that the data folder is not a network drive",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged: stop, and restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database: name another file or data folder",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened: check the data folder and its permissions",
    sqlite3.SQLITE_READONLY: "the database file is read-only: check the permissions of the data folder",
    sqlite3.SQLITE_BUSY: "another program holds the database file locked: close it (a SQLite shell, a backup)",
    sqlite3.SQLITE_LOCKED: "the database is locked by another connection: close the program that holds it",
    sqlite3.SQLITE_NOMEM: "there is not enough memory: close other programs",
    sqlite3.SQLITE_PROTOCOL: "the file's locks do not work here: use a local disk, not a network drive",
    sqlite3.SQLITE_AUTH: "access to the database file was denied",
    sqlite3.SQLITE_PERM: "access to the database file was denied: check the permissions of the data folder",
}


def translate(error: Exception) -> DromosError | None:
    """What a driver's error means; None for a mistake in our own SQL."""
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _CURES:
        return StoreUnavailable(f"the database cannot be used ({error}): {_CURES[code]}")
    if isinstance(error, sqlite3.IntegrityError):
        return _broken_rule(str(error))
    if code == sqlite3.SQLITE_TOOBIG:
        return Invalid("the value is larger than the database can store (1 GB)", code="too_large")
    if str(error).startswith(("no such table", "no such column")) or "has no column named" in str(error):
        return SchemaMismatch(
            f"the database's tables are not those of this version ({error}): run `dromos migrate`"
        )
    return None


def _broken_rule(message: str) -> DromosError:
    # "UNIQUE constraint failed: runs.conversation_id", or "… failed: index 'NAME'"
    by_index = re.search(r"failed: index '([^']+)'", message)
    if by_index:
        return Duplicate(by_index[1])
    unique = re.search(r"UNIQUE constraint failed: (.+)$", message)
    if unique is None:
        return Invalid(f"the database refuses this row: {message}", code="bad_row")
    names = [part.strip().partition(".") for part in unique[1].split(",")]
    table, columns = metadata.tables[names[0][0]], [column for _, _, column in names]
    for index in table.indexes:
        if index.unique and [column.name for column in index.columns] == columns:
            return Duplicate(str(index.name))
    return Duplicate(f"pk_{table.name}")


DIALECT = SqlDialect(
    compiler=sqlite.dialect(paramstyle="qmark"),
    clock=CLOCK,
    insert=sqlite.insert,
    any_of=_any_of,
    pack=_pack,
    version=None,
    writes_in_cte=False,
    driver_error=sqlite3.Error,
    translate=translate,
)
