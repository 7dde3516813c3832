"""Statements on one connection by libpq's own calls, as psycopg wraps them: prepared once, then only sent and read.

psycopg's cursors do the same and more, at twice the processor time of a statement; a run needs some forty. What binds
values knows only the types of our columns, and there is only the way that waits with a bound. It must not know what a
statement means.
"""

from __future__ import annotations

import itertools
import select
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from psycopg import abc, adapt, errors, pq

Row = tuple[Any, ...]

_FAILED = pq.ExecStatus.FATAL_ERROR
_DONE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


class Sent:
    """A statement that was sent; `answer` is there once the session has waited."""

    __slots__ = ("answer", "prepares", "statement")

    def __init__(self, statement: _Prepared, *, prepares: bool = False) -> None:
        self.statement, self.prepares = statement, prepares
        self.answer: pq.abc.PGresult | None = None

    @property
    def changed(self) -> int:
        """Rows that it touched or returned; -1 where it counts none."""
        count = None if self.answer is None else self.answer.command_tuples
        return -1 if count is None else count

    @property
    def has_committed(self) -> bool:
        """True of a COMMIT that did; one of a transaction that failed only takes it back."""
        return self.answer is not None and self.answer.command_status == b"COMMIT"

    def row(self, number: int) -> Row | None:
        answer = self.answer
        if answer is None or number >= answer.ntuples:
            return None
        return self.statement.read(answer, number, number + 1)[0]

    def rows(self) -> list[Row]:
        answer = self.answer
        if answer is None or not answer.ntuples:
            return []
        return self.statement.read(answer, 0, answer.ntuples)


class Session:
    """One connection's statements, in libpq's pipeline mode: `later` only sends, `execute` waits for all that was sent.

    What is sent together is one round trip, and what follows a failure in it is not done. It waits no longer than
    `longest_wait` seconds for an answer; then the connection is closed, as it is where the server is gone.
    """

    def __init__(self, connection: psycopg.Connection[Any], longest_wait: float) -> None:
        self._connection, self._longest_wait = connection, longest_wait
        self._pgconn = connection.pgconn
        self._pgconn.enter_pipeline_mode()
        self._prepared: dict[str, _Prepared] = {}
        self._names = itertools.count()
        self._sent: list[Sent] = []
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)
        self._current: Sent | None = None
        self._next = 0
        self.rowcount = -1
        self.round_trips = 0

    # --- what a cursor does (`store.dialect.Cursor`)

    def later(self, sql: str, parameters: Sequence[Any] = ()) -> Sent:
        """Its failure is raised by whoever waits next."""
        statement = self._prepared.get(sql) or self._prepare(sql)
        values = [None if value is None else _encoded(value) for value in parameters]
        self._pgconn.send_query_prepared(statement.name, values, _formats(parameters), 1)
        sent = Sent(statement)
        self._sent.append(sent)
        return sent

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Raises what psycopg's cursors raise."""
        self._current, self._next = self.later(sql, parameters), 0
        self.wait()
        self.rowcount = self._current.changed

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        sent = [self.later(sql, row) for row in rows]
        self.wait()
        self.rowcount = sum(one.changed for one in sent)

    def fetchone(self) -> Row | None:
        row = None if self._current is None else self._current.row(self._next)
        self._next += row is not None
        return row

    def fetchall(self) -> list[Row]:
        rows = [] if self._current is None else self._current.rows()[self._next :]
        self._next += len(rows)
        return rows

    # --- several at once, without parameters

    def tell(self, *statements: str) -> None:
        for statement in statements:
            self.later(statement)
        self.wait()

    # --- libpq

    def wait(self) -> None:
        """Until everything that was sent is answered. Raises the first failure."""
        sent, self._sent = self._sent, []
        if not sent:
            return
        self.round_trips += 1
        pgconn = self._pgconn
        pgconn.pipeline_sync()
        while pgconn.flush():
            self._await(select.POLLIN | select.POLLOUT)
            pgconn.consume_input()
        failed: pq.abc.PGresult | None = None
        for one in sent:
            one.answer = answer = self._answer()
            if answer.status not in _DONE and (one.prepares or _is_unknown(answer)):
                self._prepared.pop(
                    one.statement.sql, None
                )  # prepared anew, under a new name, when it is needed
            if answer.status == _FAILED:
                failed = failed or answer
            self._end_of_answer()
        self._answer()  # to the mark that ends what was sent
        if failed is not None:
            raise errors.error_from_result(failed)

    def _answer(self) -> pq.abc.PGresult:
        pgconn = self._pgconn
        while pgconn.is_busy():
            self._await(select.POLLIN)
            pgconn.consume_input()
        answer = pgconn.get_result()
        if answer is None or pgconn.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(pgconn.get_error_message())
        return answer

    def _end_of_answer(self) -> None:
        if self._pgconn.get_result() is not None:
            self._connection.close()  # nobody knows any more which answer is whose
            raise psycopg.InternalError("a statement had two answers")

    def _prepare(self, sql: str) -> _Prepared:
        name = f"{next(self._names)} {sql[:20]}"
        statement = _Prepared(name.encode(), sql, self._connection)
        self._pgconn.send_prepare(statement.name, _numbered(sql).encode())
        self._prepared[sql] = statement
        self._sent.append(Sent(statement, prepares=True))
        return statement

    def _await(self, events: int) -> None:
        """The socket is ready for one of `events`; raises where it is not in time."""
        self._poll.modify(self._pgconn.socket, events)
        if not self._poll.poll(1000 * self._longest_wait):
            self._connection.close()
            raise psycopg.OperationalError(
                f"no answer within {self._longest_wait:g} s; the connection was closed"
            )


class _Prepared:
    """A statement that the server knows by name, and how to read its columns."""

    __slots__ = ("_known", "_transformer", "name", "sql")

    def __init__(self, name: bytes, sql: str, connection: psycopg.Connection[Any]) -> None:
        self.name, self.sql = name, sql
        self._transformer: abc.Transformer = adapt.Transformer(connection)
        self._known = False  # which loader each column takes

    def read(self, answer: pq.abc.PGresult, first: int, end: int) -> list[Row]:
        self._transformer.set_pgresult(answer, set_loaders=not self._known)
        self._known = True
        try:
            return self._transformer.load_rows(first, end, tuple)
        finally:
            self._transformer.set_pgresult(None, set_loaders=False)  # or it would keep the answer


def _is_unknown(answer: pq.abc.PGresult) -> bool:
    """The server does not know the prepared statement, whoever made it forget."""
    return answer.error_field(pq.DiagnosticField.SQLSTATE) == b"26000"


def _numbered(sql: str) -> str:
    """The statement with `$1`, `$2`… for each `%s`."""
    first, *parts = sql.split("%s")
    return "".join([first, *(f"${number}{part}" for number, part in enumerate(parts, 1))]).replace("%%", "%")


def _encoded(value: Any) -> bytes:
    if isinstance(value, str):
        data = value.encode()
        if b"\x00" in data:
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL bytes")
        return data
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int | float):
        return str(value).encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, list):
        return b"{" + b",".join(map(_quoted, value)) + b"}"
    raise psycopg.ProgrammingError(f"a {type(value).__name__} cannot be bound")


def _quoted(value: Any) -> bytes:
    """An element of an array."""
    return b'"' + _encoded(value).replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _formats(parameters: Sequence[Any]) -> list[int] | None:
    """Bytes go in binary form, everything else as text."""
    if any(type(value) is bytes for value in parameters):
        return [int(type(value) is bytes) for value in parameters]
    return None
