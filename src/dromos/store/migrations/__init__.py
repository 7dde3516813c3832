"""The database's schema and its version: check it, create it where there is nothing, bring it up to date.

Revisions are Alembic's, run from here without configuration files. What a database holds is read, and decided on,
only after a lock is held: an advisory lock on PostgreSQL, one on the folder for SQLite; and a revision and its
record are one transaction. So any number of processes may start on an empty database at once.

Alembic is imported only where a revision is run: a server that starts on a current schema does not need it.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from dromos.domain.errors import SchemaMismatch, StoreUnavailable
from dromos.store.addresses import Address
from dromos.store.tables import metadata

HEAD = "0005"
"""The revision this version of the product needs."""

_VERSIONS = "dromos.store.migrations.versions"
_VERSION_TABLE = "alembic_version"


@dataclass(frozen=True, slots=True)
class Migrated:
    """What `migrate` did: `before` is None for a database that was empty."""

    before: str | None
    after: str

    @property
    def changed(self) -> bool:
        return self.before != self.after


def known_revisions() -> tuple[str, ...]:
    """The revisions this version brings, oldest first."""
    names = (entry.name for entry in importlib.resources.files(_VERSIONS).iterdir())
    return tuple(sorted(match[1] for name in names if (match := re.match(r"r(\d{4})_\w+\.py$", name))))


def current(address: str) -> str | None:
    """The revision a database has; None for an empty one. Raises `StoreUnavailable`, and `SchemaMismatch` for a
    database that holds somebody else's tables under our names."""
    with Address.parse(address).schema_connection(locked=False) as connection:
        return None if connection is None else _revision(connection)


def check_schema(address: str) -> None:
    """Raise `SchemaMismatch` with the cure unless the database has exactly the schema of this version."""
    found = current(address)
    if found is None:
        raise SchemaMismatch(
            "the database is empty: run `dromos migrate`, or let `dromos serve` create the tables"
        )
    _compare(found)


def prepare(address: str) -> None:
    """Create everything in an empty database; else as `check_schema`. What `serve` does at start."""
    found = current(address)
    if found is None:
        migrate(address)
    else:
        _compare(found)


def migrate(address: str) -> Migrated:
    """Bring the database to this version's schema, all in one transaction.

    Raises `SchemaMismatch` for one that a newer version wrote, `StoreUnavailable` where it cannot be reached.
    """
    with Address.parse(address).schema_connection(locked=True) as connection:
        assert connection is not None
        before = _revision(connection)  # under the lock: another process may just have been here
        if before == HEAD:
            return Migrated(before, HEAD)
        if before is not None and before not in known_revisions():
            _compare(before)
        _upgrade(connection)
        connection.commit()
        return Migrated(before, HEAD)


def _compare(found: str) -> None:
    if found == HEAD:
        return
    if found in known_revisions():
        raise SchemaMismatch(
            f"the database has schema {found}, this version needs {HEAD}: stop its servers, make a backup, and run "
            "`dromos migrate`"
        )
    raise SchemaMismatch(
        f"this database was written by a newer version (its schema {found} is not known here): install that "
        "version or a later one, or name another database"
    )


def _revision(connection: sa.Connection) -> str | None:
    tables = set(sa.inspect(connection).get_table_names())
    if _VERSION_TABLE in tables:
        revision: str | None = connection.execute(
            sa.text(f"SELECT version_num FROM {_VERSION_TABLE}")
        ).scalar()
        if revision is not None:
            return revision
    strangers = sorted(tables & set(metadata.tables))
    if strangers:
        raise SchemaMismatch(
            f"the database has tables that are not of this product ({', '.join(strangers[:3])} …, and no schema "
            "version): name an empty database"
        )
    return None


def _upgrade(connection: sa.Connection) -> None:
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    with _folder_of_revisions() as folder:
        script = ScriptDirectory(folder, version_locations=[folder])

        def steps(revision: str, context: MigrationContext) -> Iterator[object]:
            return iter(script._upgrade_revs(HEAD, revision))

        context = MigrationContext.configure(
            connection, opts={"fn": steps, "version_table": _VERSION_TABLE, "transactional_ddl": True}
        )
        with Operations.context(context):
            context.run_migrations()


@contextmanager
def _folder_of_revisions() -> Iterator[str]:
    with importlib.resources.as_file(importlib.resources.files(_VERSIONS)) as folder:
        if not folder.is_dir():
            raise StoreUnavailable("this installation lacks its migrations: install the package again")
        yield str(folder)
