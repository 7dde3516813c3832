"""One connection to PostgreSQL that is opened when needed and again after it was lost.

No statement asks whether a connection still lives: a lost one is noticed by the operation that meets it, which
the caller repeats (`work.py` says when that is safe). A link that went silent is noticed by the system within
`SILENT_LINK_S`, a statement that takes too long by the server's `statement_timeout`, and a server (or a pooler) that
takes bytes but is frozen by us, `FROZEN_S` later.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg import conninfo

from dromos.domain.errors import StoreUnavailable
from dromos.store.postgres.session import Session

CONNECT_TIMEOUT_S = 5
SILENT_LINK_S = 15
STATEMENT_TIMEOUT_MS = 30_000
FROZEN_S = 10.0
"""Seconds past the statement's own timeout after which a server is taken for frozen."""

_DEFAULTS: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "application_name": "dromos",
    "keepalives": 1,
    "keepalives_idle": SILENT_LINK_S // 3,
    "keepalives_interval": SILENT_LINK_S // 3,
    "keepalives_count": 2,
    "tcp_user_timeout": SILENT_LINK_S * 1000,
}

_CURES = (
    ("password authentication failed", "check the user and the password in the database URL"),
    ("no password supplied", "the server asks for a password: add it to the database URL, or to ~/.pgpass"),
    ("no pg_hba.conf entry", "the server does not accept this user from this machine: see its pg_hba.conf"),
    ('role "', "create that user, or name another one in the database URL"),
    ('database "', "create it with `createdb`, or name another one in the database URL"),
    ("could not translate host name", "check the host in the database URL, and the name service"),
    ("Name or service not known", "check the host in the database URL, and the name service"),
    ("failed to resolve host", "check the host in the database URL, and the name service"),
    ("Connection refused", "start the database server, or check host and port in the database URL"),
    (
        "No such file or directory",
        "start the database server, or check the socket folder in the database URL",
    ),
    ("too many clients", "the database server takes no more connections: raise its max_connections"),
    (
        "remaining connection slots",
        "the database server takes no more connections: raise its max_connections",
    ),
    ("starting up", "the database server is starting: wait a moment"),
    ("connection option", "correct that part of the database URL"),
    ("timeout expired", "check host and port in the database URL, and the firewall"),
)


_LIFE = """
SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE
  concat(extract(epoch FROM stats_reset), '/', substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)) END
FROM pg_stat_bgwriter
"""
"""Recovery from a crash begins the statistics anew; a server that takes over begins another timeline."""


def parameters(url: str, **more: Any) -> dict[str, Any]:
    """libpq's parameters for a URL, our defaults where it says nothing."""
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise StoreUnavailable(f"the database URL cannot be read ({error}): correct it") from error
    return {**_DEFAULTS, **more, **given, "client_encoding": "UTF8"}


def place(url: str) -> str:
    """The URL for messages: without password."""
    given = parameters(url)
    host, port, user = given.get("host") or "localhost", given.get("port"), given.get("user")
    address = f"{host}:{port}" if port else str(host)
    return f"postgresql://{f'{user}@' if user else ''}{address}/{given.get('dbname') or ''}"


def is_on_this_machine(url: str) -> bool:
    """Whether the URL names a socket, or this machine by a usual name."""
    host = str(parameters(url).get("host") or "")
    return host.startswith(("/", "@")) or host in ("", "localhost", "127.0.0.1", "::1")


def connect(url: str, **more: Any) -> psycopg.Connection[tuple[Any, ...]]:
    """A new connection in autocommit mode. Raises `StoreUnavailable` with the cure."""
    try:
        return psycopg.connect(**parameters(url, **more), autocommit=True)
    except psycopg.Error as error:
        raise StoreUnavailable(_why(url, error)) from error


def _why(url: str, error: Exception) -> str:
    said = str(error)
    cure = next((cure for words, cure in _CURES if words in said), "see the database server's log")
    first = said.strip().splitlines()[0] if said.strip() else type(error).__name__
    return f"no connection to the database {place(url)} ({first}): {cure}"


class Link:
    """A connection that one thread uses; `session` takes its statements."""

    def __init__(
        self,
        url: str,
        *,
        statement_timeout_ms: int | None = None,
        longest_wait: float | None = None,
        **more: Any,
    ) -> None:
        statement_timeout_ms = statement_timeout_ms or STATEMENT_TIMEOUT_MS
        self._longest_wait = longest_wait or statement_timeout_ms / 1000 + FROZEN_S
        self._url = url
        self._more = more
        self._settings = (
            f"SET statement_timeout = {statement_timeout_ms:d}",
            f"SET idle_in_transaction_session_timeout = {2 * statement_timeout_ms:d}",
        )
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self.session: Session
        self.life: str | None = None
        """Which life of which server it is connected to: another one behind a crash or a failover."""

    def open(self) -> None:
        """Connect, unless connected. Raises `StoreUnavailable`."""
        if self._connection is not None:
            return
        connection = connect(self._url, **self._more)
        session = Session(connection, self._longest_wait)
        try:
            session.tell(*self._settings)
            session.execute(_LIFE)
            (self.life,) = session.fetchone() or (None,)
        except psycopg.Error as error:
            connection.close()
            raise StoreUnavailable(_why(self._url, error)) from error
        self._connection, self.session = connection, session

    @property
    def is_lost(self) -> bool:
        return self._connection is None or self._connection.closed or self._connection.broken

    @property
    def has_failed_transaction(self) -> bool:
        status = None if self._connection is None else self._connection.info.transaction_status
        return status == psycopg.pq.TransactionStatus.INERROR

    @property
    def fileno(self) -> int | None:
        """The socket's number, for diagnosis."""
        return None if self._connection is None else self._connection.fileno()

    def drop(self) -> None:
        """Close; whatever transaction is open is rolled back by the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Patience:
    """How long a lost server is waited for: `seconds` from the first failure, not again for every operation."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None

    def over(self) -> None:
        """The server answers again."""
        self._until = None

    def wait(self) -> bool:
        """After a failure: pause and return True if it is worth another try."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
            return True
        if now >= self._until:
            return False
        time.sleep(min(0.2, self._until - now))
        return True
