"""Rows of runs and conversations as committed transactions locked them last, so that a lock need not be waited for.

An operation goes on with what was seen, behind a lock that fails where a row has another version by now; then it is
done again and waits. Only what was committed may be told here, and never what the same transaction wrote: two contents
of one row could have one version. It knows no statement.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dromos.ports.store import Table

KEPT_S = 1.0
"""Older than this nothing is taken: by then it is likely that somebody else wrote the row."""
MOST = 512
"""Rows; with one more, all are forgotten."""

Key = tuple[Table, str]
"""A table and the id of a row in it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A row as the database told it, and its version."""

    told: Sequence[Any]
    version: str
    at: float = field(default_factory=time.monotonic)


class SeenRows:
    """Threads may share it."""

    def __init__(self) -> None:
        self._rows: dict[Key, Seen] = {}

    def get(self, key: Key) -> Seen | None:
        seen = self._rows.get(key)
        return seen if seen is not None and time.monotonic() - seen.at < KEPT_S else None

    def keep(self, found: Mapping[Key, Seen]) -> None:
        """What was locked in a transaction that is committed, and not written in it after that."""
        if len(self._rows) + len(found) > MOST:
            self._rows.clear()
        self._rows.update(found)

    def drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._rows.pop(key, None)

    def clear(self) -> None:
        self._rows.clear()
