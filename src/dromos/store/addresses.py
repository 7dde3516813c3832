"""Where a database is: a file or a server, from the one text a person gives.

Knows how to connect once for work on the schema, under a lock; what is done there is not its business.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dromos.domain.errors import StoreUnavailable

_ADVISORY_LOCK = 0x64726F6D6F73  # "dromos"


@dataclass(frozen=True, slots=True)
class Address:
    """Exactly one of `path` (SQLite) and `url` (PostgreSQL) is set."""

    path: Path | None
    url: str | None

    @classmethod
    def parse(cls, text: str | Path) -> Address:
        """`data/dromos.db`, `sqlite:///data/dromos.db`, `postgresql://…`. Raises `StoreUnavailable` with the cure."""
        if isinstance(text, Path):
            return cls(text, None)
        scheme, separator, rest = text.partition("://")
        if not separator:
            return cls(Path(text), None)
        if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
            return cls(Path(rest[1:]), None)
        if scheme.partition("+")[0] in ("postgresql", "postgres"):
            return cls(None, f"postgresql://{rest}")
        raise StoreUnavailable(
            f"a database cannot be reached by {scheme}://…: write postgresql://USER:PASSWORD@HOST/DATABASE, or a file"
        )

    @contextmanager
    def schema_connection(self, *, locked: bool) -> Iterator[sa.Connection | None]:
        """A connection for work on the schema; rolled back unless committed.

        Where `locked`, no other process works on the schema until its end, and a missing file is created; else
        None stands for a missing file.
        """
        if self.path is None:
            with _postgres(self.url or "") as connection:
                if locked:
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
                yield connection
        elif locked:
            with _folder_lock(self.path), _sqlite(self.path, writing=True) as connection:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection
        elif not self.path.exists() or self.path.stat().st_size == 0:
            yield None
        else:
            with _sqlite(self.path, writing=False) as connection:
                yield connection


@contextmanager
def _sqlite(path: Path, *, writing: bool) -> Iterator[sa.Connection]:
    from dromos.store.sqlite.connections import open_reader, open_writer

    engine = sa.create_engine(
        "sqlite://", creator=lambda: (open_writer if writing else open_reader)(path), poolclass=sa.NullPool
    )
    with _connection(engine) as connection:
        yield connection


@contextmanager
def _postgres(url: str) -> Iterator[sa.Connection]:
    from dromos.store.postgres.connections import connect

    def open_one() -> Any:
        connection = connect(url)
        connection.autocommit = False
        return connection

    engine = sa.create_engine("postgresql+psycopg://", creator=open_one, poolclass=sa.NullPool)
    with _connection(engine) as connection:
        yield connection


@contextmanager
def _connection(engine: sa.Engine) -> Iterator[sa.Connection]:
    try:
        with engine.connect() as connection:
            yield connection
    except sa.exc.DBAPIError as error:
        raise StoreUnavailable(
            f"the database failed while its schema was read or changed: {error.orig}"
        ) from error
    finally:
        engine.dispose()


@contextmanager
def _folder_lock(path: Path) -> Iterator[None]:
    """Held while a file's schema is changed, also by processes that do not hold the data folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise StoreUnavailable(
            f"the data folder {path.parent} cannot be made or opened ({error.strerror}): check its permissions"
        ) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
