"""`open_store`: from an address to a store that can serve, or an error that says what to do.

An address is a path to a SQLite file (`./dromos.db`, `sqlite:///…`) or a `postgresql://` URL. There is no third
kind, and never a store in memory instead of the one that was asked for.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from dromos.store.addresses import Address
from dromos.store.migrations import check_schema, prepare
from dromos.store.sql_store import SqlStore


async def open_store(address: str | Path, *, create: bool = True) -> SqlStore:
    """The store at an address, its schema checked; an empty database gets its tables first where `create`.

    Raises `StoreUnavailable` where it cannot be reached, `SchemaMismatch` where its schema is another version's.
    The data folder's lock is the caller's business (`sqlite.folder_lock.DataFolderLock`).
    """
    place = Address.parse(address)
    await asyncio.to_thread(prepare if create else check_schema, str(address))
    check = partial(check_schema, str(address))
    if place.path is not None:
        from dromos.store.sqlite.store import SqliteStore

        return SqliteStore(place.path, check)
    from dromos.store.postgres.store import PostgresStore

    assert place.url is not None
    return PostgresStore(place.url, check)


def server_version(address: str | Path) -> str:
    """Name and version of the database at an address. Raises `StoreUnavailable` where it cannot be reached."""
    place = Address.parse(address)
    if place.path is not None:
        import sqlite3

        return f"SQLite {sqlite3.sqlite_version}"
    with place.schema_connection(locked=False) as connection:
        assert connection is not None
        return f"PostgreSQL {connection.exec_driver_sql('SHOW server_version').scalar_one()}"
