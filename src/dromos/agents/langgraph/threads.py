"""The threads in which synchronous nodes and tools work, and which of that work belongs to which attempt.

Nobody can cut a function in a thread: a task that is cancelled lets go of it, and it goes on. So that a stop can wait
for it, and a second try never runs beside the first, whoever submits work while `noting` is noted as its owner. It
must not know graphs, and not what the work is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class AtWork:
    """What one attempt has under way in threads."""

    def __init__(self) -> None:
        self._futures: set[Future[Any]] = set()

    def add(self, future: Future[Any]) -> None:
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)  # in its thread; one operation of a set

    def take(self) -> list[Future[Any]]:
        """What is under way and was not taken before."""
        taken = [future for future in list(self._futures) if not future.done()]
        self._futures.difference_update(taken)
        return taken


_OWNER: ContextVar[AtWork | None] = ContextVar("dromos_threads", default=None)


@contextmanager
def noting(at_work: AtWork) -> Iterator[None]:
    """What is submitted in this context, and in tasks that are made in it, is noted in `at_work`."""
    before = _OWNER.set(at_work)
    try:
        yield
    finally:
        _OWNER.reset(before)


class Threads(ThreadPoolExecutor):
    """The default executor of the loop. Closing it waits for nothing: whoever ends the process asks `at_work`."""

    def __init__(self, most: int) -> None:
        super().__init__(most, thread_name_prefix="work")
        self._all: set[Future[Any]] = set()

    @property
    def at_work(self) -> bool:
        return bool(self._all)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = super().submit(fn, *args, **kwargs)
        self._all.add(future)
        future.add_done_callback(self._all.discard)
        owner = _OWNER.get()
        if owner is not None:
            owner.add(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


async def until_done(future: Future[Any]) -> None:
    """Returns when the work is over, however it ended. Cancelled, it only waits no longer."""
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell(_: Future[Any]) -> None:
        try:
            loop.call_soon_threadsafe(done.set)
        except RuntimeError:  # the loop is gone, and so is whoever waited
            return

    future.add_done_callback(tell)
    await done.wait()
