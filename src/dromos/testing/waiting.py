"""Waiting with a bound: for an event where there is one, for a condition outside this process where there is
none.

A test says what it waits for and how long; what did not come in time is an error that names it and shows what
was seen last. It must not know what is waited for.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class NotSeenInTimeError(AssertionError):
    """What was waited for did not come within its time."""


async def within(seconds: float, awaitable: Awaitable[T], what: str = "the result") -> T:
    """Await with a bound.

    Raises NotSeenInTimeError, and cancels what was awaited, after `seconds`.
    """
    bound = asyncio.timeout(seconds)
    try:
        async with bound:
            return await awaitable
    except TimeoutError:
        if not bound.expired():
            raise
        raise NotSeenInTimeError(f"{what} did not come within {seconds:g} s") from None


@overload
async def eventually(
    check: Callable[[], Coroutine[Any, Any, T]], *, seconds: float = 10.0, what: str, every: float = 0.02
) -> T: ...


@overload
async def eventually(
    check: Callable[[], T], *, seconds: float = 10.0, what: str, every: float = 0.02
) -> T: ...


async def eventually(
    check: Callable[[], Any], *, seconds: float = 10.0, what: str, every: float = 0.02
) -> Any:
    """Ask `check` until it answers something true, and return that.

    For conditions outside this process (a file, another server), which send no event. A failed assertion and
    an OSError of `check` count as "not yet".

    Raises NotSeenInTimeError with the last answer after `seconds`.
    """
    clock = asyncio.get_running_loop()
    end = clock.time() + seconds
    while True:
        seen: object
        try:
            answer = check()
            if inspect.isawaitable(answer):
                answer = await within(max(end - clock.time(), every), answer, f"one answer about {what}")
            if answer:
                return answer
            seen = answer
        except (AssertionError, OSError) as not_yet:
            seen = not_yet
        if clock.time() >= end:
            raise NotSeenInTimeError(f"{what} was not seen within {seconds:g} s; last: {seen!r}")
        await asyncio.sleep(every)


class Watched(Generic[T]):
    """A value whose changes can be waited for without asking again and again."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._changed = asyncio.Condition()

    @property
    def value(self) -> T:
        """The value now."""
        return self._value

    async def put(self, value: T) -> None:
        """Replace the value and wake who waits."""
        async with self._changed:
            self._value = value
            self._changed.notify_all()

    async def until(self, fits: Callable[[T], bool], *, seconds: float = 10.0, what: str = "the value") -> T:
        """Wait until the value fits; returns the value that did."""

        async def seen() -> T:
            async with self._changed:
                await self._changed.wait_for(lambda: fits(self._value))
                return self._value

        return await within(seconds, seen(), f"{what} (now {self._value!r})")
