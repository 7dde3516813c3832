"""Runs that are taken as SQLite's only writer saw them last: nobody may notice, whoever writes the file."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dromos.domain.errors import Duplicate, StoreUnavailable
from dromos.ports.store import Row, Table, Tx
from dromos.store.migrations import check_schema, migrate
from dromos.store.sqlite.store import SqliteStore
from dromos.store.sqlite.work import _Connected
from dromos.testing.conformance.rows_of import user
from tests.store.holding import together
from tests.store.two_runs import add_two_runs, lock


class _Full(sqlite3.Cursor):
    """Of a connection whose disk is full at COMMIT."""

    at_commit = False

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        if self.at_commit and sql == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(sql, parameters)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> type[_Full]:
    class Own(_Full):
        pass

    monkeypatch.setattr(_Connected, "cursor", lambda self: _cursor(self, Own))
    return Own


def _cursor(connected: _Connected, kind: type[_Full]) -> sqlite3.Cursor:
    connected._connection = connected._connection or connected._opened_by(connected._path)
    return connected._connection.cursor(kind)


@pytest.fixture
async def store(sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    monkeypatch.setattr("dromos.store.seen.KEPT_S", 60.0)  # however slow this machine is
    migrate(str(sqlite_path))
    made = SqliteStore(sqlite_path, partial(check_schema, str(sqlite_path)))
    await add_two_runs(made)
    yield made
    await made.aclose()


def _name(number: int, model: str, tx: Tx) -> None:
    tx.swap_run(found := lock(number, tx), replace(found, model=model))


def _model(number: int, tx: Tx) -> str | None:
    return lock(number, tx).model


def _conversation(tx: Tx) -> Row:
    lock(1, tx)
    row = tx.lock(Table.CONVERSATIONS, {"id": "c1"})
    assert row is not None
    return row


def _elsewhere(store: SqliteStore, sql: str) -> None:
    """What another program does."""
    with closing(sqlite3.connect(store.path)) as other, other:
        other.execute(sql)


async def test_a_run_that_was_locked_before_is_not_asked_for(store: SqliteStore) -> None:
    first = await store.write(partial(lock, 1))
    before = store.statistics.figures().statements
    assert await store.write(partial(lock, 1)) == first
    assert await store.write(lambda tx: tx.lock_run("r1")) == first
    assert store.statistics.figures().statements == before
    assert await store.write(partial(_model, 2)) is None
    assert store.statistics.figures().statements == before + 1


@pytest.mark.parametrize(
    "change", ["UPDATE runs SET model = 'other'", "UPDATE conversations SET title = 'other'"]
)
async def test_what_another_program_changed_is_seen(store: SqliteStore, change: str) -> None:
    def look(tx: Tx) -> tuple[Any, Any]:
        return _model(1, tx), _conversation(tx)["title"]

    before = await store.write(look)
    _elsewhere(store, change)
    after = await store.write(look)
    assert after != before and "other" in after
    assert await store.write(look) == after


async def test_a_run_that_is_gone_is_not_found(store: SqliteStore) -> None:
    await store.write(partial(lock, 1))
    _elsewhere(store, "DELETE FROM runs WHERE id = 'r1'")
    assert await store.write(lambda tx: tx.lock_run("r1", within="c1")) is None
    await store.write(partial(lock, 2))
    await store.write(lambda tx: tx.remove(Table.CONVERSATIONS, {"id": "c2"}))
    await store.write(lambda tx: tx.remove(Table.RUNS, {"conversation_id": "c2"}))
    assert await store.write(lambda tx: tx.lock_run("r2", within="c2")) is None


async def test_own_writes_are_seen(store: SqliteStore) -> None:
    for turn in range(3):
        await store.write(partial(_name, 1, f"mine {turn}"))
        assert await store.write(partial(_model, 1)) == f"mine {turn}"
        await store.write(lambda tx, t=turn: tx.set(Table.RUNS, {"id": "r1"}, {"model": f"set {t}"}))  # type: ignore[misc]
        assert await store.write(partial(_model, 1)) == f"set {turn}"
        await store.write(lambda tx: tx.change(Table.RUNS, {"conversation_id": "c1"}, {"model": "all"}))
        assert await store.write(partial(_model, 1)) == "all"


async def test_what_is_taken_is_the_takers_own(store: SqliteStore) -> None:
    def spoil(tx: Tx) -> None:
        row = _conversation(tx)
        row["title"] = "spoiled"

    await store.write(partial(lock, 1))
    await store.write(spoil)
    assert (await store.write(_conversation))["title"] != "spoiled"


Operation = Callable[[Tx], Any]


def _refused(tx: Tx) -> None:
    _name(1, "never", tx)
    assert tx.lock_run("r1", within="c1").model == "never"  # type: ignore[union-attr]
    tx.put(Table.USERS, user("ada"))


@pytest.mark.parametrize(
    ("group", "model"),
    [
        ([partial(lock, 1), partial(_name, 1, "new")], "new"),  # written by one behind it
        ([partial(_name, 1, "new"), partial(lock, 1)], "new"),  # as one before it wrote it
        ([_refused, partial(lock, 2)], None),  # as one wrote it that was taken back
        ([partial(_name, 1, "new"), _refused, partial(lock, 2)], "new"),
    ],
)
async def test_what_others_of_the_group_wrote_is_seen(
    store: SqliteStore, group: list[Operation], model: str | None
) -> None:
    await store.write(partial(lock, 1))
    done = await together(store, group)
    assert [type(one) for one in done if isinstance(one, Exception)] == [Duplicate] * group.count(_refused)
    assert await store.write(partial(_model, 1)) == model


async def test_what_was_not_committed_is_not_taken(full: type[_Full], store: SqliteStore) -> None:
    def write_and_look(tx: Tx) -> None:
        _name(1, "never", tx)
        assert _model(1, tx) == "never"

    full.at_commit = True
    with pytest.raises(StoreUnavailable):
        await store.write(write_and_look)
    full.at_commit = False
    await store.write(partial(lock, 2))
    assert await store.write(partial(_model, 1)) is None


async def test_a_group_has_one_clock(store: SqliteStore) -> None:
    times = await together(store, [lambda tx: tx.now()] * 3)
    assert len(set(times)) == 1
