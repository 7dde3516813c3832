"""Stalls: an agent that shows no sign of work while a model or a tool of its is under way.

Activity and ownership are two clocks. What an attempt writes into its document is activity; a lease that is renewed
is not, and nothing here looks at leases. The watch does not poll: it sleeps until the silence would be too long,
and looks then. It must not know statuses: it names the silence, the attempt decides what becomes of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from dromos.domain.errors import Fault
from dromos.domain.text import moment_text
from dromos.ports.clock import Clock
from dromos.ports.live import DocumentSnapshot, LiveRun

Policy = Literal["flag", "fail", "retry"]


@dataclass(frozen=True, slots=True)
class StallLimits:
    """Seconds of silence after which a model call, or anything else that is under way, counts as stalled; None: never.

    `policy`: `flag` only shows it, `fail` ends the run, `retry` tries the step again (and then fails).
    """

    model: float | None = 120.0
    tool: float | None = 300.0
    policy: Policy = "flag"


@dataclass(frozen=True, slots=True)
class StallPolicy:
    """The limits for all agents, and those of agents that have their own."""

    default: StallLimits = StallLimits()
    agents: Mapping[str, StallLimits] = field(default_factory=dict)

    def of(self, agent: str) -> StallLimits:
        return self.agents.get(agent, self.default)


@dataclass(frozen=True, slots=True)
class Stall:
    """What is silent (`kind` model | tool), its name, and for how many seconds."""

    kind: str
    name: str
    silent: float

    def __str__(self) -> str:
        what = "The model" if self.kind == "model" else "The tool"
        return f"{what} {self.name} showed no sign of work for {self.silent:.0f} s."


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
        limit = _limit(pen.current, limits)
        quiet = clock.monotonic() - pen.at
        if limit is None or pen.stalled:
            await pen.turned.wait()
        elif quiet < limit:
            try:
                async with asyncio.timeout(limit - quiet):
                    await pen.turned.wait()
            except TimeoutError:
                continue
        else:
            stall = Stall(_kind(pen.current), str((pen.current or {}).get("name", "")), quiet)
            pen.flag(stall, moment_text(clock.now() - timedelta(seconds=quiet)))
            if limits.policy != "flag":
                return stall


def _kind(current: Mapping[str, Any] | None) -> str:
    return "model" if current is not None and current.get("kind") == "model" else "tool"


def _limit(current: Mapping[str, Any] | None, limits: StallLimits) -> float | None:
    """Nothing under way: nothing to be silent."""
    if current is None:
        return None
    return limits.model if _kind(current) == "model" else limits.tool
