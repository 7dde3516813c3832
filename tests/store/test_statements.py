"""The SQL that is made: few statements, each made once, and the database's indexes are of use to it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dromos.domain.statuses import LIVE
from dromos.ports.store import Gt, In, Le, Table, Where
from dromos.store.migrations import migrate
from dromos.store.postgres.dialect import DIALECT as POSTGRES
from dromos.store.sqlite.dialect import DIALECT as SQLITE
from dromos.store.statements import Statement, Statements, split
from dromos.testing.conformance.rows_of import NOON


@pytest.fixture
def shell(sqlite_path: Path) -> sqlite3.Connection:
    migrate(str(sqlite_path))
    return sqlite3.connect(sqlite_path)


def _plan(shell: sqlite3.Connection, statement: Statement) -> str:
    values = [None] * statement.sql.count("?")
    return " / ".join(row[3] for row in shell.execute(f"EXPLAIN QUERY PLAN {statement.sql}", values))


@pytest.mark.parametrize(
    ("table", "where", "order", "index"),
    [
        (Table.RUNS, {"status": "queued", "queue_deadline_at": Le(NOON)}, (), "ix_runs_live"),
        (Table.RUNS, {"status": In(sorted(LIVE)), "conversation_id": "c1"}, (), "uq_runs_live_conversation"),
        (Table.RUNS, {"conversation_id": "c1"}, ("-created_at",), "ix_runs_conversation"),
        (Table.EVENTS, {"user_id": "ada", "seq": Gt(7)}, ("seq",), "sqlite_autoindex_events_1"),
        (Table.MESSAGES, {"conversation_id": "c1", "num": Gt(3)}, ("num",), "sqlite_autoindex_messages_1"),
        (Table.MESSAGES, {"conversation_id": "c1", "id": In(["a", "b"])}, (), "ix_messages_id"),
        (Table.REQUESTS, {"run_id": In(["a", "b"]), "status": "open"}, (), "ix_requests_run"),
        (Table.CONVERSATIONS, {"user_id": "ada"}, ("-updated_at",), "ix_conversations_user"),
    ],
    ids=str,
)
def test_common_questions_use_an_index_and_do_not_sort(
    shell: sqlite3.Connection, table: Table, where: Where, order: tuple[str, ...], index: str
) -> None:
    shape, _ = split(table, where)
    plan = _plan(shell, Statements(SQLITE).select(table, shape, order))
    assert index in plan
    assert "TEMP B-TREE" not in plan
    shell.close()


def test_claims_and_sweeps_read_live_runs_only(shell: sqlite3.Connection) -> None:
    statements = Statements(SQLITE)
    claims = (
        statements.claimable(),
        statements.claimable("without"),
        statements.claimable("agents", "user", "own first"),
        statements.claimable("agents", "user", locked=False),
    )
    for statement in (*claims, statements.orphans()):
        assert "ix_runs_live" in _plan(shell, statement)
    assert "TEMP B-TREE" not in _plan(shell, statements.claimable("without"))
    shell.close()


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
def test_a_statement_is_made_once_for_a_shape_whatever_its_values(dialect) -> None:  # type: ignore[no-untyped-def]
    statements = Statements(dialect)

    def of(where: Where) -> Statement:
        return statements.select(Table.EVENTS, split(Table.EVENTS, where)[0], ("seq",), limited=True)

    first = of({"user_id": "ada", "seq": Gt(1), "run_id": In(["a"])})
    assert of({"user_id": "bob", "seq": Gt(99), "run_id": In(["a", "b", "c"])}) is first
    assert of({"user_id": "ada", "seq": 1, "run_id": In(["a"])}) is not first
    assert first.bind(["ada", 1, ["a"], 10])[0] == "ada"


def test_only_postgres_locks_rows() -> None:
    shape, _ = split(Table.USERS, {"id": "ada"})
    assert "FOR UPDATE" in Statements(POSTGRES).select(Table.USERS, shape, locked=True).sql
    assert "SKIP LOCKED" in Statements(POSTGRES).claimable("agents").sql
    assert "FOR UPDATE" not in Statements(POSTGRES).claimable("agents", locked=False).sql
    assert "FOR UPDATE" not in Statements(SQLITE).select(Table.USERS, shape, locked=True).sql
    assert "SKIP LOCKED" not in Statements(SQLITE).claimable("agents").sql
