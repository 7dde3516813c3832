"""Cutting an engine: what lets go at once, what is waited for and shown while it is, and what is cut in half at last.

An engine that is cancelled closes its model call and its repeatable tool calls at once. A call that must not be cut in
half goes on; whoever looks at the run sees which one it is and until when it is waited for. Only when the time is
over it is cut too, so that what nobody knows is named exactly. It must not know statuses, nor how an end is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog

from dromos.domain.errors import LeaseLost, Unavailable
from dromos.domain.runs import Run
from dromos.ports.clock import Clock
from dromos.ports.live import LiveRun
from dromos.wire.shapes import stop_json
from dromos.worker.in_flight import CallsInFlight

log = structlog.get_logger("dromos.worker")

T = TypeVar("T")

LET_GO_SECONDS = 0.5
"""How long an engine that was cut for good may take to say what it leaves behind."""
NOTE_AGAIN_SECONDS = 1.0

Note = Callable[[str | None, float | None], Awaitable[Run]]
"""Writes the tool that is waited for, and for how many seconds more; returns the run as it is then."""


async def let_go(engine: asyncio.Task[T], patience: float, hurry: asyncio.Event) -> bool:
    """Cut the engine; True where it let go of everything within `patience`, or before `hurry` was set.

    Else what it holds on to is cut as well, and it has a moment to tell what that was.
    """
    engine.cancel()
    hurried = asyncio.create_task(hurry.wait(), name=f"hurry:{engine.get_name()}")
    await asyncio.wait({engine, hurried}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    if engine.done():
        return True
    engine.cancel()
    await asyncio.wait({engine}, timeout=LET_GO_SECONDS)
    return False


async def tell_of_calls(
    in_flight: CallsInFlight, until: float, clock: Clock, note: Note, live: LiveRun
) -> None:
    """Keep the row and the readers told of the call that is waited for, until cancelled.

    `until` by the monotonic clock. A store that is away is told later; the wait does not depend on it.
    """
    changed = asyncio.Event()
    in_flight.changed = changed.set
    told: Any = None
    while True:
        changed.clear()
        waited_for = in_flight.longest
        if waited_for is not told:
            try:
                left = max(0.0, until - clock.monotonic())
                run = await (note(waited_for.tool, left) if waited_for else note(None, None))
            except LeaseLost:
                return  # the end is written already
            except Unavailable as error:
                log.warning("stop.not_shown", detail=error.detail)
                await asyncio.sleep(NOTE_AGAIN_SECONDS)
                continue
            told = waited_for
            live.server({"run_version": run.version, "stop": stop_json(run.stop)})
            continue
        await changed.wait()
