"""Rows of runs and their conversations as they were locked last, so that the next lock need not be waited for.

An operation goes on with what was seen, behind a lock that fails where a row has another version by now; then it is
done again and waits. So what is kept here need not be right. It knows no statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dromos.domain.runs import Run
from dromos.ports.store import Row

MOST = 256
"""Entries; with one more, all are forgotten."""

Ids = tuple[str, ...]
"""A run's, or its conversation's and then the run's."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one lock found, and the versions of the rows in the order of their ids."""

    versions: Sequence[str]
    run: Run
    conversation: Row | None = None


class SeenRows:
    """Threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[Ids, Seen] = {}
        self._with: dict[str, set[Ids]] = {}

    def get(self, ids: Ids) -> Seen | None:
        return self._kept.get(ids)

    def keep(self, ids: Ids, seen: Seen) -> None:
        if len(self._kept) >= MOST:
            self.clear()
        self._kept[ids] = seen
        for id_ in ids:
            self._with.setdefault(id_, set()).add(ids)

    def drop(self, id_: str) -> None:
        """A row with this id is written."""
        for ids in tuple(self._with.pop(id_, ())):  # others may add to it
            self._kept.pop(ids, None)

    def clear(self) -> None:
        self._kept.clear()
        self._with.clear()
