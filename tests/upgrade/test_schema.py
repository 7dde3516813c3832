"""The schema: revisions make exactly the tables of the code, a database of another version is refused with the cure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from dromos.domain.errors import SchemaMismatch, StoreUnavailable
from dromos.ports.store import Table
from dromos.store import migrations
from dromos.store.addresses import Address
from dromos.store.migrations import HEAD, Migrated, check_schema, current, known_revisions, migrate, prepare
from dromos.store.opening import open_store
from dromos.store.tables import metadata


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "data" / "dromos.db")
    url: str = request.getfixturevalue("postgres_url")
    return url


@contextmanager
def _connection(address: str) -> Iterator[sa.Connection]:
    with Address.parse(address).schema_connection(locked=True) as connection:
        assert connection is not None
        yield connection


def _set_revision(address: str, revision: str) -> None:
    with _connection(address) as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :new"), {"new": revision})
        connection.commit()


def test_revisions_are_numbered_without_a_gap_and_the_newest_is_the_one_that_is_needed() -> None:
    assert known_revisions() == tuple(f"{number:04}" for number in range(1, len(known_revisions()) + 1))
    assert known_revisions()[-1] == HEAD


def test_every_table_of_the_port_exists_and_no_other() -> None:
    assert set(metadata.tables) == {table.value for table in Table}


def test_migrating_makes_exactly_the_tables_of_the_code(address: str) -> None:
    assert current(address) is None
    assert migrate(address) == Migrated(None, HEAD)
    assert current(address) == HEAD
    with _connection(address) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        inspector = sa.inspect(connection)
        for table in metadata.tables.values():
            made = {index["name"]: bool(index["unique"]) for index in inspector.get_indexes(table.name)}
            assert made == {str(index.name): bool(index.unique) for index in table.indexes}
            defaults = {column["name"]: column["default"] for column in inspector.get_columns(table.name)}
            assert {name: _bare(text) for name, text in defaults.items()} == {
                column.name: _written(column) for column in table.columns
            }
            assert inspector.get_pk_constraint(table.name)["name"] == f"pk_{table.name}"


def _bare(default: str | None) -> str | None:
    """A default as the database tells it, without quotes and PostgreSQL's casts."""
    return None if default is None else default.partition("::")[0].strip("'")


def _written(column: sa.Column[object]) -> str | None:
    if not isinstance(column.server_default, sa.DefaultClause):
        return None
    argument = column.server_default.arg
    return argument.text if isinstance(argument, sa.TextClause) else str(argument)


def test_the_conditions_of_partial_indexes_are_those_of_the_code(address: str) -> None:
    migrate(address)
    catalogue = "pg_indexes" if address.startswith("postgresql") else "sqlite_master"
    names, sql = ("indexname", "indexdef") if catalogue == "pg_indexes" else ("name", "sql")
    with _connection(address) as connection:
        rows = connection.execute(
            sa.text(f"SELECT {names}, {sql} FROM {catalogue} WHERE {sql} LIKE '%WHERE%'")
        )
        found = {str(row[0]): str(row[1]) for row in rows}
    assert set(found) == {
        "uq_runs_live_conversation",
        "ix_runs_live",
        "uq_messages_log",
        "ix_messages_unlogged",
    }
    for status in ("queued", "running", "waiting_input", "cancelling"):
        assert status in found["uq_runs_live_conversation"]
        assert status in found["ix_runs_live"]


def test_migrating_again_changes_nothing(address: str) -> None:
    migrate(address)
    assert migrate(address) == Migrated(HEAD, HEAD)
    assert not migrate(address).changed
    check_schema(address)


async def test_an_empty_database_gets_its_tables_when_a_server_starts(address: str) -> None:
    with pytest.raises(SchemaMismatch, match="dromos migrate"):
        await open_store(address, create=False)
    store = await open_store(address)
    await store.check()
    assert await store.read(lambda tx: tx.count(Table.RUNS, {})) == 0
    await store.aclose()
    again = await open_store(address, create=False)
    await again.aclose()


async def test_an_older_schema_is_refused_with_the_command_that_cures_it(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(address)
    newer = f"{int(HEAD) + 1:04}"
    monkeypatch.setattr(migrations, "HEAD", newer)
    for ask in (check_schema, prepare):
        with pytest.raises(
            SchemaMismatch, match=rf"has schema {HEAD}, this version needs {newer}.*`dromos migrate`"
        ):
            ask(address)


async def test_a_schema_of_a_newer_version_is_refused_by_every_command(address: str) -> None:
    migrate(address)
    store = await open_store(address)
    _set_revision(address, "9999")
    with pytest.raises(SchemaMismatch, match=r"newer version.*install that version"):
        await store.check()
    await store.aclose()
    for ask in (check_schema, prepare, migrate):
        with pytest.raises(SchemaMismatch, match=r"newer version.*install that version"):
            ask(address)
    assert current(address) == "9999"


def test_somebody_elses_tables_are_left_alone(address: str) -> None:
    with _connection(address) as connection:
        connection.execute(sa.text("CREATE TABLE users (id INTEGER, password TEXT)"))
        connection.commit()
    for ask in (check_schema, prepare, migrate):
        with pytest.raises(SchemaMismatch, match="name an empty database"):
            ask(address)
    with _connection(address) as connection:
        assert sa.inspect(connection).get_table_names() == ["users"]


def test_a_revision_that_fails_leaves_nothing_behind(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade = migrations._upgrade

    def fail_at_the_end(connection: sa.Connection) -> None:
        upgrade(connection)
        raise RuntimeError("the power went out")

    monkeypatch.setattr(migrations, "_upgrade", fail_at_the_end)
    with pytest.raises(RuntimeError, match="power"):
        migrate(address)
    assert current(address) is None
    monkeypatch.undo()
    assert migrate(address) == Migrated(None, HEAD)


def test_a_wrong_address_is_an_error_with_its_cure(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="start the database server"):
        migrate(f"postgresql:///x?host={tmp_path}")
    with pytest.raises(StoreUnavailable, match="write postgresql://"):
        migrate("redis://localhost")


def test_what_was_not_seen_before_an_update_still_calls_after_it(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "HEAD", "0001")
    migrate(address)
    monkeypatch.undo()
    with _connection(address) as connection:
        # (conversation, newest event told of it, newest event somebody saw there)
        for name, told, seen in (("new", 4, 0), ("later", 7, 5), ("seen", 6, 6), ("silent", None, 0)):
            values = {"id": name, "seen": seen, "at": "2026-11-29T13:46:04.123456Z"}
            connection.execute(
                sa.text(
                    "INSERT INTO conversations (id, user_id, title, agent, seen_seq, created_at, updated_at)"
                    " VALUES (:id, 'anna', '', 'assistant', :seen, :at, :at)"
                ),
                values,
            )
            if told is not None:
                connection.execute(
                    sa.text(
                        "INSERT INTO events (user_id, seq, type, conversation_id, at)"
                        " VALUES ('anna', :seq, 'run.status', :id, :at)"
                    ),
                    {**values, "seq": told},
                )
        connection.commit()
    assert migrate(address) == Migrated("0001", HEAD)
    with _connection(address) as connection:
        rows = connection.execute(sa.text("SELECT id, unseen_seq FROM conversations")).all()
    assert {row[0]: row[1] for row in rows} == {"new": 4, "later": 7, "seen": 0, "silent": 0}


def test_runs_that_adapters_have_during_an_update_are_watched_from_their_last_patch(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "HEAD", "0003")
    migrate(address)
    monkeypatch.undo()
    then, columns = "2026-11-29T13:46:04.123456Z", metadata.tables["runs"].columns
    with _connection(address) as connection:
        # (run, status, kind of its owner, its epoch, the document's)
        for name, status, kind, epoch, of in (
            ("working", "running", "adapter", 3, 3),
            ("taken over", "running", "adapter", 5, 3),
            ("stopping", "cancelling", "adapter", 3, 3),
            ("own", "running", "worker", 3, 3),
        ):
            needed = {
                column.name: "{}" if column.name in ("backend_policy", "tries", "usage") else name
                for column in columns
                if not column.nullable
            }
            needed |= dict.fromkeys(("attempt", "crashes", "version", "steps", "document_version"), 1)
            run = {**needed, "status": status, "owner_kind": kind, "epoch": epoch, "created_at": then}
            document = {"run_id": name, "conversation_id": name, "epoch": of, "version": 1}
            document |= {"content": "{}", "saved_at": then}
            for table, row in (("runs", run), ("run_documents", document)):
                named = ", ".join(row)
                values = ", ".join(f":{column}" for column in row)
                connection.execute(sa.text(f"INSERT INTO {table} ({named}) VALUES ({values})"), row)
        connection.commit()
    assert migrate(address) == Migrated("0003", HEAD)
    with _connection(address) as connection:
        rows = connection.execute(sa.text("SELECT id, quiet_since FROM runs")).all()
    assert {row[0]: row[1] for row in rows} == {
        "working": then,
        "taken over": None,
        "stopping": None,
        "own": None,
    }
