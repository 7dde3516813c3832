"""Waiting inside a request for something that a worker does: woken by hints, bounded, reading the truth each time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dromos.ports.clock import Clock
from dromos.ports.wakeup import Wakeup, user_topic

T = TypeVar("T")


async def until(
    read: Callable[[], Awaitable[T]],
    done: Callable[[T], bool],
    *,
    seconds: float,
    user_id: str,
    wakeup: Wakeup,
    clock: Clock,
    reread: float,
    closing: asyncio.Event,
) -> T:
    """Read until `done`, at each wake-up of the person's log and every `reread` seconds.

    Returns the last value read, whether it is done or `seconds` are over or the server closes.
    """
    hint = asyncio.Event()
    stop = wakeup.listen(user_topic(user_id), hint.set)
    end = clock.monotonic() + seconds
    try:
        while True:
            hint.clear()
            value = await read()
            left = end - clock.monotonic()
            if done(value) or left <= 0 or closing.is_set():
                return value
            try:
                async with asyncio.timeout(min(left, reread)):
                    await hint.wait()
            except TimeoutError:
                pass
    finally:
        stop()
