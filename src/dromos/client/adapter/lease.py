"""How long this side may act for a run, and what time it is at the server.

The lease counts from *before* its request was sent, by a monotonic clock. At two thirds of it without a renewal this
side stops by itself, long before the server gives the run to another. Once over, a lease never comes back. It must
not know how a renewal is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from dromos.domain.errors import LeaseLost


class Lease:
    """`on_lost()` is called once, from the event loop, when it is over before `close`."""

    def __init__(self, monotonic: Callable[[], float], on_lost: Callable[[], None]) -> None:
        self.lost: str | None = None
        """Why it is over; None while it lasts."""
        self.over = asyncio.Event()
        self.monotonic = monotonic
        self._on_lost = on_lost
        self._seconds = 0.0
        self._since = monotonic()
        self._server: datetime | None = None
        self._server_at = self._since
        self._timer: asyncio.TimerHandle | None = None

    def grant(self, *, sent_at: float, seconds: float, until: str) -> None:
        """The server gave `seconds`, up to its moment `until`, in the answer to a request sent at `sent_at`."""
        self._server_at = self.monotonic()
        self._server = datetime.fromisoformat(until) - timedelta(seconds=seconds)
        if self.lost is not None:
            return
        self._since, self._seconds = sent_at, seconds
        self._watch()

    @property
    def due(self) -> float:
        """When to renew: after a third."""
        return self._since + self._seconds / 3

    @property
    def stops_at(self) -> float:
        """When this side stops by itself: after two thirds."""
        return self._since + self._seconds * 2 / 3

    @property
    def left(self) -> float:
        """Seconds until then, 0 where it is over."""
        return 0.0 if self.lost is not None else max(0.0, self.stops_at - self.monotonic())

    def check(self) -> None:
        """Raises LeaseLost where it is over."""
        if self.lost is None and self.left <= 0:
            self.lose(f"no renewal got through for {self._seconds * 2 / 3:.0f} s")
        if self.lost is not None:
            raise LeaseLost(self.lost)

    def lose(self, why: str) -> None:
        """It is over."""
        if self.lost is None:
            self.lost = why
            self.over.set()
            self.close()
            self._on_lost()

    def close(self) -> None:
        """Nobody has to be told any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def server_now(self) -> datetime:
        """The server's time; its clock was read with the last renewal and this side's stopwatch ran since."""
        if self._server is None:
            raise RuntimeError("the server's time is known from the claim on")
        return self._server + timedelta(seconds=self.monotonic() - self._server_at)

    async def pause(self, seconds: float) -> None:
        """Wait, but not beyond the lease. Raises LeaseLost where it ended meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self.over.wait()
        except TimeoutError:
            pass
        self.check()

    def _watch(self) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, self.left), self._expire)

    def _expire(self) -> None:
        try:
            self.check()
        except LeaseLost:
            return
        self._watch()
