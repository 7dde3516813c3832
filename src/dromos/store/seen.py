"""Rows of runs and conversations as committed transactions locked them last, so that a lock need not be waited for.

Where others write too, an operation goes on with what was seen behind a lock that fails where a row has another
version by now; then it is done again and waits. On SQLite nobody else does, or all is forgotten. Only what was
committed is told here, and not what its transaction wrote again after the lock: two contents of one row would have one
version. It knows no statement.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dromos.domain.runs import Run
from dromos.ports.store import Row, Table

KEPT_S = 1.0
"""Older than this nothing is taken: by then it is likely that somebody else wrote the row."""
MOST = 512
"""Rows; with one more, all are forgotten."""

Key = tuple[Table, str]
"""A table and the id of a row in it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a row holds, for nobody to change, and its version; '' where rows have none."""

    value: Run | Row
    version: str
    at: float = field(default_factory=time.monotonic)


class SeenRows:
    """Those of one life of one server, or of one connection. Threads may share it."""

    def __init__(self, life: str | int | None = None) -> None:
        self.life = life
        self._rows: dict[Key, Seen] = {}

    def get(self, key: Key) -> Seen | None:
        seen = self._rows.get(key)
        return seen if seen is not None and time.monotonic() - seen.at < KEPT_S else None

    def keep(self, found: Mapping[Key, Seen]) -> None:
        """What a transaction that is committed locked, and did not write after that."""
        if len(self._rows) + len(found) > MOST:
            self._rows.clear()
        self._rows.update(found)

    def drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._rows.pop(key, None)

    def clear(self) -> None:
        self._rows.clear()


class LatestLife:
    """What was seen of the server that is connected to now: another one gives versions of its own."""

    def __init__(self) -> None:
        self._rows = SeenRows()

    def of(self, life: str | None) -> SeenRows:
        rows = self._rows
        if rows.life != life:
            rows = self._rows = SeenRows(life)
        return rows
