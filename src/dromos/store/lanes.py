"""Threads that run operations for tasks: a queue, a few threads, answers handed back to each task's own loop.

A lane takes what is waiting, in order and up to a limit, and gives it to its work as one group. It does not know
what an operation does, or that there is a database.

The answers of a group wake each loop once. A task that was cancelled while its operation waited is simply left
out; one that was cancelled later does not disturb the group.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dromos.domain.errors import StoreUnavailable, Unavailable


class Job:
    """One operation that waits, its answer once it has one, and whom to tell: a task, or a blocked thread."""

    __slots__ = ("asked_at", "done", "error", "fn", "future", "loop", "tries", "value")

    def __init__(self, fn: Callable[[Any], Any], loop: asyncio.AbstractEventLoop | None) -> None:
        self.fn = fn
        self.loop = loop
        self.future: asyncio.Future[Any] | None = None if loop is None else loop.create_future()
        self.done = threading.Event() if loop is None else None
        self.asked_at = time.monotonic()
        self.tries = 0
        self.value: Any = None
        self.error: BaseException | None = None

    @property
    def is_wanted(self) -> bool:
        return self.future is None or not self.future.cancelled()

    def tell(self) -> None:
        """Hand over the answer; for a task's job, on its loop."""
        if self.done is not None:
            self.done.set()
        elif self.future is not None and not self.future.done():
            if self.error is None:
                self.future.set_result(self.value)
            else:
                self.future.set_exception(self.error)


class Work(Protocol):
    """What one thread of a lane does. Made on that thread, used and closed only there."""

    rests_after: float | None = None
    """Seconds; None: it need not rest."""

    def perform(self, group: Sequence[Job]) -> Sequence[Job]:
        """Set `value` or `error` of every job but those returned, which come first in the next group.

        Raises nothing.
        """
        ...

    def rest(self) -> None:
        """No job came for `rests_after` seconds. Raises nothing."""
        return

    def close(self) -> None: ...


class Lane:
    """`threads` threads, each with work of its own, behind one queue of at most `most_waiting` jobs."""

    def __init__(
        self,
        name: str,
        make_work: Callable[[], Work],
        *,
        threads: int = 1,
        largest_group: int = 1,
        most_waiting: int = 10_000,
    ) -> None:
        self._name = name
        self._make_work = make_work
        self._largest_group = largest_group
        self._most_waiting = most_waiting
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """How many jobs no thread has taken yet."""
        return self._queue.qsize()

    async def run(self, fn: Callable[[Any], Any]) -> Any:
        """The value of `fn`, called on one of the threads. Raises what it raises."""
        job = Job(fn, asyncio.get_running_loop())
        self._put(job)
        assert job.future is not None
        return await job.future

    def call(self, fn: Callable[[Any], Any], timeout: float) -> Any:
        """As `run`, for a thread without a loop. Raises `StoreUnavailable` after `timeout` seconds."""
        job = Job(fn, None)
        self._put(job)
        assert job.done is not None
        if not job.done.wait(timeout):
            raise StoreUnavailable(f"{self._name} did not answer within {timeout:g} s: the disk is too slow")
        if job.error is not None:
            raise job.error
        return job.value

    def _put(self, job: Job) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed: this process is stopping")
        if self._queue.qsize() >= self._most_waiting:
            raise StoreUnavailable(
                f"{self._most_waiting} operations wait for {self._name} already: the disk or the database "
                "server does not keep up; try again later"
            )
        self._queue.put(job)

    def close(self) -> None:
        """Finish what is waiting, refuse what comes later, and join the threads. Blocking; safe to repeat."""
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads:
            thread.join()
        while True:  # what slipped in behind the end marks
            try:
                late = self._queue.get_nowait()
            except queue.Empty:
                break
            if late is not None:
                late.error = StoreUnavailable("the store was closed before this operation began")
                _answer([late])

    def _serve(self) -> None:
        work = self._make_work()
        again: Sequence[Job] = ()
        try:
            going = True
            while going or again:
                group = list(again)
                if going:
                    going = self._fill(group, work)
                if group:
                    again = self._perform(work, group)
                    _answer([job for job in group if job not in again] if again else group)
                group = []  # the answers live with their tasks only
        finally:
            work.close()

    @staticmethod
    def _perform(work: Work, group: Sequence[Job]) -> Sequence[Job]:
        try:
            return work.perform(group)
        except Exception as error:  # a mistake in the work: nobody may wait for ever because of it
            fail(group, StoreUnavailable(f"the store failed inside ({error!r}): see the server's log"), error)
            return ()

    def _fill(self, group: list[Job], work: Work) -> bool:
        """Add what waits now, blocking until there is something to do; False: end afterwards."""
        while len(group) < self._largest_group:
            try:
                job = self._queue.get_nowait() if group else self._next(work)
            except queue.Empty:
                break
            if job is None:
                return False
            if job.is_wanted:
                group.append(job)
        return True

    def _next(self, work: Work) -> Job | None:
        if work.rests_after is not None:
            try:
                return self._queue.get(timeout=work.rests_after)
            except queue.Empty:
                work.rest()
        return self._queue.get()


def fail(group: Sequence[Job], told: Unavailable, cause: BaseException) -> None:
    """Give every job of a group the error, each a copy of its own (tasks add their tracebacks to it)."""
    for job in group:
        job.value, job.error = None, type(told)(told.detail)
        job.error.__cause__ = cause


def _answer(group: Sequence[Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in group:
        if job.loop is None:
            job.tell()
        else:
            by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, jobs)
        except RuntimeError:
            pass  # that loop has ended, and its tasks with it


def _resolve(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.tell()
