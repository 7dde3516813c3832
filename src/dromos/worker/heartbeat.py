"""The lease of this worker's incarnation, renewed from a thread of its own.

A blocked event loop must not lose the lease, and a lost lease must stop the worker even where the loop is blocked:
the thread measures with a monotonic clock from before each renewal and reports a loss at two thirds of the lease.
It decides nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from dromos.domain.errors import Unavailable
from dromos.ports.clock import Clock
from dromos.ports.store import LeaseKeeper

log = structlog.get_logger("dromos.worker")

RENEW_SECONDS = 3.0


class Heartbeat:
    """Renews `owner_id` until stopped; calls `on_lost` once, from its thread, when the lease is gone."""

    def __init__(
        self, keeper: LeaseKeeper, owner_id: str, lease: float, clock: Clock, on_lost: Callable[[], None]
    ) -> None:
        self._keeper, self._owner_id, self._lease = keeper, owner_id, lease
        self._clock, self._on_lost = clock, on_lost
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="dromos-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=self._lease)

    def _beat(self) -> None:
        interval = min(RENEW_SECONDS, self._lease / 3)
        renewed = self._clock.monotonic()
        while not self._stop.wait(interval):
            before = self._clock.monotonic()
            try:
                kept = self._keeper.renew(self._owner_id, self._lease)
            except Unavailable as error:
                log.warning("heartbeat.store_away", detail=error.detail)
                kept = None
            if kept:
                renewed = before
            if kept is False or self._clock.monotonic() - renewed > self._lease * 2 / 3:
                log.error("heartbeat.lease_lost", owner_id=self._owner_id)
                self._on_lost()
                return
