"""What the document may be told a moment later: fast work then costs little, and nobody can read it anyway.

Of each path only the newest value is told, and all that waits is told together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dromos.agents.langgraph.steps import Step
from dromos.ports.live import LiveRun

SECONDS = 0.05


class Later:
    """One attempt's. A value is given as what makes it, and is made when it is told."""

    __slots__ = ("_live", "_loop", "_steps", "_stopped", "_timer", "_waiting")

    def __init__(self, live: LiveRun, loop: asyncio.AbstractEventLoop) -> None:
        self._live, self._loop = live, loop
        self._waiting: dict[str, Callable[[], Any]] = {}
        self._steps: list[Step] = []
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def set(self, path: str, make: Callable[[], Any]) -> None:
        self._waiting[path] = make
        self._arm()

    def step(self, step: Step) -> None:
        """A step of which there is nothing to say but that it was."""
        self._steps.append(step)
        self._arm()

    def drop(self, path: str) -> None:
        """What waits for this path is not news any more."""
        self._waiting.pop(path, None)

    def flush(self) -> None:
        """Tell it now."""
        self._disarm()
        self.tell_steps()
        waiting, self._waiting = self._waiting, {}
        for path, make in waiting.items():
            self._live.set(path, make())

    def tell_steps(self) -> None:
        """Those that wait come before a step that is told now."""
        steps, self._steps = self._steps, []
        for step in steps:
            self._live.step(step.shown())

    def stop(self) -> None:
        """Tell nothing more by itself."""
        self._stopped = True
        self._disarm()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and not self._stopped:
            self._timer = self._loop.call_later(SECONDS, self.flush)
