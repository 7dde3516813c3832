"""How a SQLite file is opened: one way for the connection that writes, one for those that read.

Exactly one connection of ours may write or checkpoint the file; readers are opened read-only, so that not even the
close of the last of them can checkpoint. (SQLite before 3.51.3 can damage a WAL database when two connections do.)
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from dromos.domain.errors import StoreUnavailable
from dromos.store.sqlite.dialect import translate

OLDEST_SQLITE = (3, 35, 0)
BUSY_MS = 5_000
WAL_PAGES = 2_000
"""Pages of 4 KiB in the write-ahead log after which a commit also copies it into the file."""
WAL_BYTES_KEPT = 32 * 1024 * 1024


def open_writer(path: Path) -> sqlite3.Connection:
    """The connection that writes, in autocommit mode: transactions are begun and ended by statements of ours."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreUnavailable(
            f"this Python brings SQLite {sqlite3.sqlite_version}; {'.'.join(map(str, OLDEST_SQLITE))} or newer "
            "is needed: use a newer Python, or PostgreSQL"
        )
    return _open(
        path,
        "rwc",
        f"PRAGMA busy_timeout={BUSY_MS}",
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        f"PRAGMA wal_autocheckpoint={WAL_PAGES}",
        f"PRAGMA journal_size_limit={WAL_BYTES_KEPT}",
        "PRAGMA cache_size=-16000",
        "PRAGMA temp_store=MEMORY",
    )


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write."""
    return _open(
        path,
        "ro",
        f"PRAGMA busy_timeout={BUSY_MS}",
        "PRAGMA query_only=ON",
        "PRAGMA cache_size=-8000",
        "PRAGMA temp_store=MEMORY",
    )


def _open(path: Path, mode: str, *pragmas: str) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        try:
            for pragma in pragmas:
                connection.execute(pragma).fetchall()
        except sqlite3.Error:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise translate(error) or StoreUnavailable(f"{path} cannot be opened: {error}") from error
    return connection
