"""Counts of what the store did since it was opened, for `/metrics` and benchmarks.

Numbers only ever rise (but `waiting`). Written by the store's threads under a lock, read by anybody.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """One reading. Seconds are from the call of `write` to its answer; SQLite has no round trips."""

    commits: int
    operations: int
    refusals: int
    reads: int
    statements: int
    round_trips: int
    retries: int
    failures: int
    write_seconds: float
    waiting: int
    largest_group: int
    recent_write_seconds: tuple[float, ...]

    @property
    def operations_per_commit(self) -> float:
        return self.operations / self.commits if self.commits else 0.0


class StoreStatistics:
    """Counters of one store."""

    def __init__(self, keep_latencies: int = 1024) -> None:
        self._lock = threading.Lock()
        self._commits = self._operations = self._refusals = self._reads = 0
        self._statements = self._round_trips = self._retries = self._failures = 0
        self._largest = 0
        self._write_seconds = 0.0
        self._waiting: Callable[[], int] = lambda: 0
        self._recent: deque[float] = deque(maxlen=keep_latencies)

    def figures(self) -> StoreFigures:
        with self._lock:
            return StoreFigures(
                commits=self._commits,
                operations=self._operations,
                refusals=self._refusals,
                reads=self._reads,
                statements=self._statements,
                round_trips=self._round_trips,
                retries=self._retries,
                failures=self._failures,
                write_seconds=self._write_seconds,
                waiting=self._waiting(),
                largest_group=self._largest,
                recent_write_seconds=tuple(self._recent),
            )

    def committed(self, latencies: list[float], refusals: int, statements: int, round_trips: int) -> None:
        """One group ended: an entry of `latencies` for each of its operations, the refused ones included.

        `statements` are the operations' own; `round_trips` count those that begin and end transactions too.
        """
        with self._lock:
            self._commits += 1
            self._operations += len(latencies)
            self._refusals += refusals
            self._statements += statements
            self._round_trips += round_trips
            self._write_seconds += sum(latencies)
            self._largest = max(self._largest, len(latencies))
            self._recent.extend(latencies)

    def was_read(self, statements: int, round_trips: int) -> None:
        with self._lock:
            self._reads += 1
            self._statements += statements
            self._round_trips += round_trips

    def failed(self) -> None:
        with self._lock:
            self._failures += 1

    def retried(self) -> None:
        with self._lock:
            self._retries += 1

    def count_waiting(self, waiting: Callable[[], int]) -> None:
        """Take the number of waiting operations from this from now on."""
        self._waiting = waiting
