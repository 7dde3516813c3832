"""What the calls of one pass over a graph have in common: where they are recorded, the loop they are recorded on, how
many there were in a task, and the questions of those that share a task.

Several calls may be made in one task of the engine. A task ends with the first exception, so one that needs a person
waits until the others are done or ask as well, and then all their questions are asked at once. It must not know tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, TypeVar

from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt

from dromos.ports.journal import Desk

CALLS_KEY = "__dromos_calls"
"""Key of `configurable` under which a graph finds its pass."""

T = TypeVar("T")
R = TypeVar("R")

_WITHIN: ContextVar[frozenset[str]] = ContextVar("dromos_within_call", default=frozenset())
"""Tasks of which a call is under way where this is asked."""


class PassCalls:
    """Of one pass; made on the loop that owns the attempt."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.loop = asyncio.get_running_loop()
        self._counts: dict[tuple[str, int, str], Iterator[int]] = {}
        self._tasks: dict[str, _Together] = {}

    def number(self, where: str, node_attempt: int, name: str) -> int:
        """How many calls of this name were made there before (a task, or a call within it), in this try of the node.
        From any thread."""
        counting = self._counts.setdefault((where, node_attempt, name), count())
        return next(counting)  # each of the two is one step: no two threads get one number

    async def together(self, task_id: str, call: Awaitable[T]) -> T:
        """The call, as one of those that its task makes now. One within another is part of that."""
        if task_id in _WITHIN.get():
            return await call
        before = _WITHIN.set(_WITHIN.get() | {task_id})
        try:
            return await self._tasks.setdefault(task_id, _Together()).join(call)
        finally:
            _WITHIN.reset(before)

    def wait(self, make: Callable[[Callable[[Callable[[], R]], Awaitable[R]]], Coroutine[Any, Any, T]]) -> T:
        """Carry `make(here)` out on the loop and wait for it, in a thread; `here(fn)` runs `fn` in that very thread.

        On the loop itself it would wait for itself for ever, so there it is refused.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self.loop:
            raise RuntimeError(
                "A durable call was made with a blocking function on the event loop. Make the function `async`, or "
                "call it with `await asyncio.to_thread(…)`."
            )
        inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

        async def here(fn: Callable[[], R]) -> R:
            result: Future[R] = Future()

            def work() -> None:
                try:
                    value = fn()
                except BaseException as error:
                    result.set_exception(error)
                else:
                    result.set_result(value)

            result.set_running_or_notify_cancel()  # nobody can cancel a function in a thread
            inbox.put(partial(copy_context().run, work))
            return await asyncio.wrap_future(result)

        carried = asyncio.run_coroutine_threadsafe(make(here), self.loop)
        carried.add_done_callback(lambda _: inbox.put(None))
        while (work := inbox.get()) is not None:
            work()
        return carried.result()


class _Together:
    """The calls that one task makes at the same time."""

    def __init__(self) -> None:
        self._busy = 0
        self._asked: list[Interrupt[Any]] = []
        self._quiet = asyncio.Event()

    async def join(self, call: Awaitable[T]) -> T:
        if self._busy == 0:
            self._asked = []
            self._quiet.clear()
        self._busy += 1
        busy = True
        try:
            return await call
        except GraphInterrupt as question:
            asked = self._asked
            asked += [one for one in question.args[0] if all(one.id != other.id for other in asked)]
            busy = False
            self._over()
            await self._quiet.wait()
            raise GraphInterrupt(tuple(asked)) from None
        finally:
            if busy:
                self._over()

    def _over(self) -> None:
        self._busy -= 1
        if self._busy == 0:
            self._quiet.set()
