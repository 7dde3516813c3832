"""The task that carries out a run's block, and cancelling it so that our cancellations and others' are told apart.

The way `asyncio.timeout` does it: each `cancel` of ours is taken back when the block is left. It must not know runs.
"""

from __future__ import annotations

import asyncio
from typing import Any


class Body:
    """Entered once, by the task whose block it is."""

    def __init__(self) -> None:
        self.entered = False
        self._task: asyncio.Task[Any] | None = None
        self._before = self._ours = 0

    def enter(self) -> None:
        task = asyncio.current_task()
        if task is None or self.entered:
            raise RuntimeError("a run is entered once, by a task")
        self.entered, self._task, self._before = True, task, task.cancelling()

    def cancel(self) -> None:
        """Cancel the block, if it is under way."""
        if self._task is not None:
            self._ours += 1
            self._task.cancel()

    def leave(self) -> bool:
        """The block is left: no `cancel` has an effect any more. True where somebody else cancelled the task too."""
        task, self._task = self._task, None
        if task is None:
            return False
        for _ in range(self._ours):
            task.uncancel()
        return task.cancelling() > self._before
