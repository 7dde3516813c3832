"""Waiting inside a request for something that a worker does: woken by hints, bounded, reading the truth each time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dromos.api.door import Deps
from dromos.ports.wakeup import user_topic

T = TypeVar("T")


async def until(
    deps: Deps, user_id: str, read: Callable[[], Awaitable[T]], done: Callable[[T], bool], *, seconds: float
) -> T:
    """Read until `done`, at each wake-up of the person's log and every `Options.reread` seconds.

    Returns the last value read, whether it is done or `seconds` are over or the server closes.
    """
    hint = asyncio.Event()
    stop = deps.wakeup.listen(user_topic(user_id), hint.set)
    end = deps.clock.monotonic() + seconds
    try:
        while True:
            hint.clear()
            value = await read()
            left = end - deps.clock.monotonic()
            if done(value) or left <= 0 or deps.closing.is_set():
                return value
            try:
                async with asyncio.timeout(min(left, deps.options.reread)):
                    await hint.wait()
            except TimeoutError:
                pass
    finally:
        stop()
