"""Stalls: an agent that shows no sign of work while a model or a tool of its is under way.

Activity and ownership are two clocks. What an attempt writes into its document is activity; a lease that is renewed
is not, and nothing here looks at leases. The watch does not poll: it sleeps until the silence would be too long,
and looks then. It must not know statuses: it names the silence, the attempt decides what becomes of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from dromos.domain.errors import Fault
from dromos.domain.stalls import Stall, StallLimits, stall_of
from dromos.domain.text import moment_text
from dromos.ports.clock import Clock
from dromos.ports.live import DocumentSnapshot, LiveRun


class ActivePen:
    """A `LiveRun` that notes when it was last used: whatever an agent writes is a sign of work."""

    def __init__(self, pen: LiveRun, monotonic: Callable[[], float]) -> None:
        self._pen, self._monotonic = pen, monotonic
        self.at = self._noted = monotonic()
        self.current: Mapping[str, Any] | None = None
        self.turned = asyncio.Event()
        """Set where something else is under way than before, or a stalled agent moved again."""
        self.stalled = False

    @property
    def changed(self) -> bool:
        """True also where the agent moved with nothing to show for it: the document says when it did."""
        return self._pen.changed or self.at > self._noted

    @changed.setter
    def changed(self, value: bool) -> None:
        self._pen.changed = value

    def text(self, message_id: str, text: str) -> None:
        self.touch()
        self._pen.text(message_id, text)

    def set(self, path: str, value: Any) -> None:
        self.touch()
        if path == "/current":
            self.current = value
            self.turned.set()
        self._pen.set(path, value)

    def remove(self, path: str) -> None:
        self.touch()
        self._pen.remove(path)

    def step(self, step: Mapping[str, Any]) -> None:
        self.touch()
        self._pen.step(step)

    def patch(self, operations: Sequence[Mapping[str, Any]]) -> list[Fault]:
        self.touch()
        faults = self._pen.patch(operations)
        shown = [one.get("value") for one in operations if one.get("path") == "/current"]
        if shown and not faults:
            self.current = shown[-1]
            self.turned.set()
        return faults

    def server(self, fields: Mapping[str, Any]) -> None:
        self._pen.server(fields)

    def snapshot(self) -> DocumentSnapshot:
        return self._pen.snapshot()

    def close(self) -> None:
        self._pen.close()

    def touch(self) -> None:
        """The agent moved: a model sent something, even if nothing of it is shown."""
        self.at = self._monotonic()
        if self.stalled:
            self.stalled = False
            self._pen.set("/stall", None)
            self.turned.set()

    def flag(self, stall: Stall, since: str) -> None:
        self.stalled = True
        self._pen.set("/stall", {"since": since, "kind": stall.kind})

    def note_activity(self, clock: Clock) -> None:
        """Write the time of the last sign of work into the document."""
        self._noted = self.at
        quiet = timedelta(seconds=self._monotonic() - self.at)
        self._pen.set("/activity_at", moment_text(clock.now() - quiet))


async def watch_for_stall(pen: ActivePen, limits: StallLimits, clock: Clock) -> Stall:
    """Flag every silence beyond the limits; returns the first one where the policy is more than `flag`."""
    while True:
        pen.turned.clear()
        limit = limits.of(pen.current)
        quiet = clock.monotonic() - pen.at
        stall = stall_of(pen.current, quiet, limits)
        if limit is None or pen.stalled:
            await pen.turned.wait()
        elif stall is None:
            try:
                async with asyncio.timeout(limit - quiet):
                    await pen.turned.wait()
            except TimeoutError:
                continue
        else:
            pen.flag(stall, moment_text(clock.now() - timedelta(seconds=quiet)))
            if limits.policy != "flag":
                return stall
