"""Writes of finished tasks that wait, for a moment, to be stored together.

A task's writes matter only while its step is not finished: the next checkpoint holds what they did. So they wait for
up to `hold` seconds. If the checkpoint comes first it takes them and one commit does for the whole step; if other
tasks are still running the writes are stored by themselves, so that a finished sibling is never run again. Whoever
handed them in waits until one of both is on disk. Knows no table: `store` does the writing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

HOLD_SECONDS = 0.002
_TURNS = 10
"""Turns of the event loop that must pass besides: a busy moment is no reason for a commit more."""


@dataclass(frozen=True, slots=True, eq=False)
class TaskWrites:
    """What one task wrote on top of one checkpoint. `done` is resolved when it is on disk or no longer needed."""

    thread_id: str
    ns: str
    checkpoint_id: str
    task_id: str
    task_path: str
    writes: Sequence[tuple[str, Any]]
    done: asyncio.Future[None]


class PendingWrites:
    """The writes that wait, and the ones being stored right now. A context: `with` it, a checkpoint is being stored."""

    def __init__(
        self, store: Callable[[list[TaskWrites]], Awaitable[None]], *, hold: float = HOLD_SECONDS
    ) -> None:
        self._store = store
        self._hold = hold
        self._waiting: list[TaskWrites] = []
        self._timer: asyncio.Handle | None = None
        self._storing: set[asyncio.Task[None]] = set()
        self._saves = 0

    async def add(self, entry: TaskWrites) -> None:
        """Wait until `entry` is stored, or taken and settled by a checkpoint."""
        self._waiting.append(entry)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._hold, self._turn, _TURNS)
        await entry.done

    def __enter__(self) -> None:
        """While a checkpoint is being stored the waiting writes go on waiting."""
        self._saves += 1

    def __exit__(self, *_: object) -> None:
        self._saves -= 1

    async def take(self, thread_id: str, ns: str, checkpoint_id: str | None) -> list[TaskWrites]:
        """The waiting writes on top of this checkpoint; the caller must `settle` them. Waits for those under way."""
        while self._storing:
            await asyncio.wait(self._storing)
        mine = [
            e for e in self._waiting if (e.thread_id, e.ns, e.checkpoint_id) == (thread_id, ns, checkpoint_id)
        ]
        self._waiting = [entry for entry in self._waiting if entry not in mine]
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return mine

    async def settled(self) -> None:
        """Store what waits and wait for all that is under way; failures go to whoever handed the writes in."""
        self._flush()
        while self._storing:
            await asyncio.wait(self._storing)

    def _turn(self, left: int) -> None:
        loop = asyncio.get_running_loop()
        if left:
            self._timer = loop.call_soon(self._turn, left - 1)
        elif self._saves:
            # What these writes stand on is not on disk itself yet; the checkpoint after it takes them.
            self._timer = loop.call_later(self._hold, self._turn, _TURNS)
        else:
            self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            entries, self._waiting = self._waiting, []
            task = asyncio.get_running_loop().create_task(self._store_now(entries))
            self._storing.add(task)
            task.add_done_callback(self._storing.discard)

    async def _store_now(self, entries: list[TaskWrites]) -> None:
        try:
            await self._store(entries)
        except BaseException as error:
            settle(entries, error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            settle(entries)


def settle(entries: Sequence[TaskWrites], error: BaseException | None = None) -> None:
    """Tell whoever waits for these writes."""
    for entry in entries:
        if entry.done.done():
            continue
        if error is None:
            entry.done.set_result(None)
        else:
            entry.done.set_exception(error)
