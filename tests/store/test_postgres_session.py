"""Values on their way to PostgreSQL and back by libpq's own calls, and answers that do not come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from dromos.store.postgres.connections import Link
from dromos.store.postgres.session import Session


@pytest.fixture
def link(postgres_url: str) -> Iterator[Link]:
    made = Link(postgres_url, longest_wait=0.5)
    made.open()
    yield made
    made.drop()


@pytest.fixture
def session(link: Link) -> Session:
    return link.session


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("TEXT", ""),
        ("TEXT", "quotes ' \" and \\ and {braces}, and % signs \u202e 🙂"),
        ("VARCHAR", "x" * 2_000_000),
        ("BIGINT", -(2**63)),
        ("INTEGER", 2**31 - 1),
        ("SMALLINT", -1),
        ("BOOLEAN", True),
        ("BOOLEAN", False),
        ("BYTEA", b"\x00\xff\\000"),
        ("BYTEA", b""),
        ("FLOAT8", -0.125),
        ("TEXT", None),
    ],
)
def test_a_value_comes_back_as_it_was(session: Session, kind: str, value: Any) -> None:
    session.execute(f"SELECT %s::{kind}, 100 %% 7", [value])
    assert session.fetchall() == [(value, 2)]
    assert session.fetchone() is None


@pytest.mark.parametrize(
    "values", [[], ["a"], ["", ",", '"', "\\", "{}", "NULL", "a b"], [1, -2, 2**40]], ids=repr
)
def test_a_list_is_one_array(session: Session, values: list[Any]) -> None:
    kind = "BIGINT" if values and isinstance(values[0], int) else "TEXT"
    session.execute(f"SELECT v FROM unnest(%s::{kind}[]) WITH ORDINALITY AS t(v, n) ORDER BY n", [values])
    assert [row[0] for row in session.fetchall()] == values


def test_what_was_changed_is_counted(session: Session) -> None:
    session.tell("CREATE TEMP TABLE t (n INTEGER PRIMARY KEY)")
    session.executemany("INSERT INTO t VALUES (%s) ON CONFLICT DO NOTHING", [[1], [2], [2], [3]])
    assert session.rowcount == 3
    session.execute("UPDATE t SET n = n + %s WHERE n > %s", [10, 1])
    assert session.rowcount == 2
    session.execute("DELETE FROM t WHERE n > %s", [100])
    assert session.rowcount == 0
    session.execute("SELECT count(*), NULL::TEXT FROM t", [])
    assert session.fetchall() == [(3, None)]


def test_what_is_sent_and_not_waited_for_is_done_in_order_with_what_is(session: Session) -> None:
    session.tell("CREATE TEMP TABLE t (n INTEGER PRIMARY KEY)")
    before = session.round_trips
    first = session.later("INSERT INTO t VALUES (%s)", [1])
    second = session.later("SELECT n FROM t WHERE n = %s", [1])
    assert (first.answer, second.row(0)) == (None, None)
    session.execute("UPDATE t SET n = n + %s", [1])
    assert (first.changed, second.row(0), session.rowcount) == (1, (1,), 1)
    assert session.round_trips == before + 1
    session.wait()
    assert session.round_trips == before + 1, "nothing was sent"


def test_a_failure_of_what_was_sent_is_told_by_whoever_waits_and_what_follows_is_not_done(
    session: Session,
) -> None:
    session.tell("CREATE TEMP TABLE t (n INTEGER PRIMARY KEY)")
    session.tell("BEGIN", "INSERT INTO t VALUES (1)")
    session.later("INSERT INTO t VALUES (%s)", [1])
    session.later("SELECT count(*) FROM nowhere")
    with pytest.raises(errors.UniqueViolation):
        session.tell("COMMIT")
    session.tell("ROLLBACK")
    session.execute("SELECT count(*) FROM t", [])
    assert session.fetchone() == (0,)
    with pytest.raises(errors.UndefinedTable):
        session.tell("SELECT count(*) FROM nowhere")


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        ("TEXT", "a\x00b", psycopg.DataError),
        ("BIGINT", 2**63, errors.NumericValueOutOfRange),
        ("TEXT", object(), psycopg.ProgrammingError),
    ],
)
def test_what_cannot_be_sent_is_refused_and_the_connection_goes_on(
    session: Session, kind: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        session.execute(f"SELECT %s::{kind}", [value])
    session.execute("SELECT 1", [])
    assert session.fetchone() == (1,)


def test_an_error_of_the_server_is_psycopgs_with_its_facts(session: Session) -> None:
    session.tell("CREATE TEMP TABLE t (n INTEGER CONSTRAINT only_one PRIMARY KEY)")
    session.execute("INSERT INTO t VALUES (%s)", [1])
    with pytest.raises(errors.UniqueViolation) as raised:
        session.execute("INSERT INTO t VALUES (%s)", [1])
    assert raised.value.diag.constraint_name == "only_one"
    with pytest.raises(errors.UndefinedTable):
        session.execute("SELECT 1 FROM nowhere", [])
    with pytest.raises(errors.SyntaxError):
        session.tell("SELECT 1", "SELEKT 2")


def test_a_long_statement_is_sent_in_parts_while_the_server_answers(postgres_url: str) -> None:
    """More than the buffers of both sides hold."""
    link = Link(postgres_url)
    link.open()
    text = "y" * 30_000_000
    link.session.execute("SELECT %s::TEXT", [text])
    assert link.session.fetchone() == (text,)
    link.drop()


def test_an_answer_that_does_not_come_closes_the_connection(link: Link) -> None:
    with pytest.raises(psycopg.OperationalError, match=r"no answer within 0\.5 s"):
        link.session.tell("SELECT pg_sleep(5)")
    assert link.is_lost


def test_a_connection_that_the_server_ends_is_told_as_one(link: Link, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with pytest.raises(psycopg.OperationalError):
        link.session.execute("SELECT 1", [])
    assert link.is_lost


def test_a_statement_that_failed_works_again_and_is_not_prepared_twice(session: Session) -> None:
    session.tell("CREATE TEMP TABLE t (n INTEGER PRIMARY KEY)")
    for _ in range(3):
        session.tell("BEGIN")
        session.execute("INSERT INTO t VALUES (%s)", [1])
        session.later("INSERT INTO t VALUES (%s)", [1])
        with pytest.raises(errors.UniqueViolation):
            session.tell("COMMIT")
        session.tell("ROLLBACK")
    session.tell("BEGIN")
    session.execute("INSERT INTO t VALUES (%s)", [1])
    session.tell("COMMIT")
    session.execute("SELECT statement FROM pg_prepared_statements", [])
    known = [row[0] for row in session.fetchall()]
    assert len(known) == len(set(known))


def test_a_statement_that_somebody_made_the_server_forget_is_prepared_anew(session: Session) -> None:
    session.execute("SELECT %s::INTEGER", [1])
    session.tell("DEALLOCATE ALL")
    with pytest.raises(errors.InvalidSqlStatementName):
        session.execute("SELECT %s::INTEGER", [2])
    session.execute("SELECT %s::INTEGER", [3])
    assert session.fetchone() == (3,)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_text_is_text_whatever_encoding_the_client_was_told(
    monkeypatch: pytest.MonkeyPatch, postgres_url: str, encoding: str
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    link = Link(postgres_url)
    link.open()
    link.session.execute("SELECT %s::TEXT, length(%s::TEXT)", ["größer 🙂", "größer 🙂"])
    assert link.session.fetchone() == ("größer 🙂", 8)
    link.drop()
