"""Waiting for a run to claim: woken by hints, bounded, reading the truth each time before it locks anything."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from dromos.api.door import Door
from dromos.lifecycle.adapters import ClaimAsk, SessionClaim
from dromos.lifecycle.tokens import ClaimKey
from dromos.ports.wakeup import WORK


async def claimed(
    request: Request, door: Door, ask: ClaimAsk, key: ClaimKey | None, seconds: float
) -> SessionClaim | None:
    """A run, or None after `seconds`, when the server closes, or once the caller has hung up.

    Every few seconds (`Options.reread`) it looks without a hint: a run whose time came wakes nobody.
    """
    deps, outside = door.deps, door.lifecycle.outside
    end = deps.clock.monotonic() + seconds
    hint = asyncio.Event()
    stop_listening = deps.wakeup.listen(WORK, hint.set)
    try:
        claim = await outside.claim(ask, key)
        while claim is None:
            left = end - deps.clock.monotonic()
            if left <= 0 or deps.closing.is_set():
                return None
            await _any_of(hint, deps.closing, seconds=min(left, deps.options.reread))
            hint.clear()
            if deps.closing.is_set() or await request.is_disconnected():
                return None
            if await outside.waiting(ask):
                claim = await outside.claim(ask, key)
        return claim
    finally:
        stop_listening()


async def _any_of(*events: asyncio.Event, seconds: float) -> None:
    """Until one of them is set, `seconds` at most."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
