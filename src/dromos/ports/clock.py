"""Time and ids from outside. Durations are measured with `monotonic`; what is compared across processes is the
database's time (`ReadTx.now`), never this clock's."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """This process's wall clock, UTC and aware; for display and logs only."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...


class Ids(Protocol):
    def new(self) -> str:
        """A new UUIDv7, ordered by time of creation."""
        ...

    def secret(self) -> str:
        """256 random bits as text that fits into a header: nobody can guess it."""
        ...
