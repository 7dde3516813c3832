"""A SQLite file in which an effect and the key of the call that wanted it are one transaction.

    first call with a key     effect, answer and key are committed together
    the same call again       no effect; the answer of the first time, byte for byte, be it a refusal
    the key, another call     refused, nothing changed
    a call without a key      its effect, each time

The key's row is the proof: whoever lost the answer asks again and is told what happened. Keys are kept for 30 days
after their first use. Several processes may have the file open. It must not know MCP, nor what the effects are.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

KEPT_DAYS = 30
BUSY_SECONDS = 30.0
"""How long a transaction waits for one of another process."""

_KEYS = """
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY,
    call TEXT NOT NULL,
    answer TEXT NOT NULL,
    refused INTEGER NOT NULL,
    used_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS keys_by_age ON keys (used_at);
"""


class Refused(Exception):
    """The call cannot be carried out, and nothing was changed; the text says why and what to do instead."""


class KeyReused(Refused):
    """The key came before with another call."""


class Unopened(Exception):
    """The file cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a call answers. `repeated`: it was answered before, and nothing was done now."""

    value: Any
    repeated: bool = False


Db = sqlite3.Connection
"""The open file, within the transaction of a call."""
Effect = Callable[[Db], Any]
"""Changes the file and returns the answer, a JSON value. What it raises as `Refused` is an answer too."""


class KeyedFile:
    """`path` is made with its folder if it is not there. `tables`: SQL that makes what the effects use.

    Raises `Unopened`.
    """

    def __init__(self, path: Path, tables: str) -> None:
        self._lock = Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._db.row_factory = sqlite3.Row
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(
                "PRAGMA synchronous = FULL"
            )  # an answer is given only for what survives a power cut
            self._db.executescript(f"BEGIN IMMEDIATE;{_KEYS}{tables}COMMIT;")
        except (OSError, sqlite3.Error) as problem:
            raise Unopened(f"{path} cannot be opened: {problem}") from problem

    def once(self, key: str | None, tool: str, arguments: Mapping[str, Any], effect: Effect) -> Answered:
        """The answer of this call, which has its effect at most once for a key.

        Raises `Refused`, for a repeat with the words of the first time, and `KeyReused`.
        """
        call = _digest(tool, arguments)
        with self._transaction() as db:
            db.execute("DELETE FROM keys WHERE used_at < unixepoch() - ?", (KEPT_DAYS * 86_400,))
            if key is not None:
                row = db.execute("SELECT * FROM keys WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    return _again(row, call)
            refusal: Refused | None = None
            db.execute("SAVEPOINT effect")
            try:
                value = effect(db)
            except Refused as refused:
                db.execute("ROLLBACK TO effect")
                refusal, value = refused, str(refused)
            text = json.dumps(value, ensure_ascii=False)
            if key is not None:
                values = (key, call, text, refusal is not None)
                db.execute("INSERT INTO keys VALUES (?, ?, ?, ?, unixepoch())", values)
        if refusal is not None:
            raise refusal
        return Answered(json.loads(text))

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """What a SELECT finds."""
        with self._lock:
            return [dict(row) for row in self._db.execute(sql, values).fetchall()]

    def close(self) -> None:
        """Harmless if it is closed."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection, None, None]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")


def _again(row: sqlite3.Row, call: str) -> Answered:
    if row["call"] != call:
        raise KeyReused(
            "This idempotency key was used before for another call. Nothing was changed; take a new key for a new call."
        )
    value = json.loads(row["answer"])
    if row["refused"]:
        raise Refused(value)
    return Answered(value, repeated=True)


def _digest(tool: str, arguments: Mapping[str, Any]) -> str:
    text = json.dumps([tool, arguments], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
