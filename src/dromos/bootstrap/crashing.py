"""A probe for real processes: where a named point is reached, it does what a test wrote into a file.

It is made only where `DROMOS_TEST_PROBE` names that file, and costs nothing elsewhere. The file holds one order,
`kill POINT.MOMENT N` or `hold POINT.MOMENT N`: at the N-th time from then on the process kills itself, or the thread
that came there waits until `FILE.open` exists. What is carried out is moved to `FILE.hit` before; every moment that is
reached is a line of `FILE.reached`. It must not know what the points mean.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from dromos.ports.probe import Moment

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

VARIABLE = "DROMOS_TEST_PROBE"
LOOK_SECONDS = 0.01
FLUSH_TURNS = 3
"""Turns of the event loop after which the bytes of an answer have left the process."""


def make_probe(environ: Mapping[str, str]) -> FileProbe | None:
    """None in production."""
    path = environ.get(VARIABLE)
    return FileProbe(Path(path)) if path else None


class _Request:
    """One HTTP request: whether its answer is out, and what is to be done then."""

    def __init__(self) -> None:
        self.over = False
        self.order: str | None = None


_request: ContextVar[_Request | None] = ContextVar("request", default=None)


class FileProbe:
    """`ports.probe.Probe`; called from the event loop and from the store's threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reached = self._beside("reached").open("a", buffering=1)
        self._lock = threading.Lock()
        self._order: tuple[int, str, str, int] | None = (
            None  # what the file is, what to do, where, times left
        )

    def reach(self, point: str) -> None:
        with self._lock:
            self._reached.write(f"{point}\n")
            action = self._due(point)
        if action is not None:
            self._carry_out(action)
        if point.endswith(Moment.COMMITTED):
            self._reach_replied(point.removesuffix(Moment.COMMITTED) + Moment.REPLIED)

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application, seen to answer."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            request = _Request()
            token = _request.set(request)
            try:
                await app(scope, receive, send)
            finally:
                _request.reset(token)
                request.over = True
            if request.order is not None:
                for _ in range(FLUSH_TURNS):
                    await asyncio.sleep(0)
                self._carry_out(request.order)

        return watched

    def _reach_replied(self, point: str) -> None:
        """Our own code has its value when the event loop turns next, a client when its answer is out."""
        with self._lock:
            self._reached.write(f"{point}\n")
            action = self._due(point)
        if action is None:
            return
        request = _request.get()
        if request is not None and not request.over:
            request.order = action
            return
        asyncio.get_running_loop().call_soon(self._carry_out, action)

    def _due(self, point: str) -> str | None:
        """What is to be done here and now; the order is used up then."""
        try:
            written = self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return None
        if self._order is None or self._order[0] != written:
            action, where, times = self._path.read_text().split()
            self._order = (written, action, where, int(times))
        _, action, where, left = self._order
        if where != point:
            return None
        if left > 1:
            self._order = (written, action, where, left - 1)
            return None
        self._order = None
        os.replace(self._path, self._beside("hit"))
        return action

    def _carry_out(self, action: str) -> None:
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        opened = self._beside("open")
        while not opened.exists():
            time.sleep(LOOK_SECONDS)

    def _beside(self, name: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{name}")
