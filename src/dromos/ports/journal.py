"""The journal of tool calls, and the gate that every call passes on its way to a tool.

A journal belongs to one attempt of one run: what it writes is fenced by the run's epoch. The gate asks it what may
be done, calls, and writes what came of it. Who wants the call made (an engine, a plain function) and how it is made
(an MCP server, a Python function) are the gate's arguments; it knows neither.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dromos.domain.effects import (
    Call,
    Fault,
    Make,
    Move,
    ReplayClass,
    ToolPolicy,
    ToolRule,
    Word,
    no_fault,
)
from dromos.ports.tool import Carrying, ToolAnnotations, ToolOutcome

Sent = Callable[[], None]
"""Told in the moment in which a call leaves for its tool, with nothing to wait for between: from then on it may have
happened."""

Execute = Callable[[Make, Sent], Awaitable[ToolOutcome]]
"""Makes the call with the arguments of its leave, and tells when it is sent: one that is not is cut by a stop, and
counts as not made. What it raises beside `Suspended` and cancellation is told as a failed call."""


class Journal(Protocol):
    """Raises `LeaseLost` where the run is somebody else's by now, `Unavailable` where the store is away."""

    async def begin(self, call: Call, fault: Fault = no_fault) -> Move:
        """What may be done with the call. Where that is `Make` the intent is on disk, and a decision it rests on is
        used up; where it is `Settle`, its outcome is."""
        ...

    async def settle(self, key: str, outcome: Mapping[str, Any]) -> None:
        """What came of the call is on disk; also while the run is stopping."""
        ...

    async def known(self, key: str) -> bool:
        """Whether there is anything recorded of the call, or a person's word on it that is not used up."""
        ...

    async def park(self, key: str, state: Any = None) -> None:
        """The call asked a person something and ended for that: it may be made again, and goes on with `state`."""
        ...

    async def answers(self, key: str) -> Sequence[Word]:
        """What people answered to questions that this call asked, oldest first."""
        ...


class NeedsPerson(Exception):
    """The call may not be made before a person has spoken. `asked` as `domain.requests.opening` takes it."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        super().__init__(f"{asked.get('kind')}: {asked.get('tool')}")
        self.asked = asked


class Suspended(Exception):
    """Raised by an `Execute`: the tool wants something of a person before it goes on, and has let go.

    `asked` as above without what the gate knows of the call, and `state` (JSON, not None) for when it goes on; `asked`
    None where the caller's engine asks by itself.
    """

    def __init__(self, asked: Mapping[str, Any] | None = None, state: Any = None) -> None:
        super().__init__("the tool asks a person")
        self.asked, self.state = asked, state


class InFlight(Protocol):
    """What one attempt must not be cut in half in, while it is under way: calls that are not safe to repeat, and work
    in threads, which nobody can cut.

    An engine that is cancelled lets go of them at once; whoever ends the attempt waits for them here.
    """

    @property
    def tools(self) -> list[str]:
        """Names of the tools that are at work, the longest at work first."""
        ...

    def add(self, carrying: Carrying, tool: str) -> None:
        """It is under way from now on until it is done."""
        ...

    async def over(self) -> None:
        """Returns when none is under way. Cancelled meanwhile, it cuts them."""
        ...


class CallGate(Protocol):
    """The only way to a tool. Raises `NeedsPerson`, `Suspended` without `asked`, `LeaseLost`, `Unavailable` and
    cancellation; every failure of the tool is an outcome."""

    def rule(
        self,
        tool: str,
        source: str,
        annotations: ToolAnnotations,
        own_policy: ToolPolicy | None = None,
        own_replay: ReplayClass | None = None,
    ) -> ToolRule:
        """What is in force for a tool: by configuration, else by what the agent's author says (`own_…`), else by what
        its server says of it."""
        ...

    async def call(self, call: Call, execute: Execute, desk: Desk, fault: Fault = no_fault) -> ToolOutcome:
        """One call, made at most once where it must not be repeated."""
        ...


@dataclass(frozen=True, slots=True)
class Desk:
    """What an attempt hands to whoever makes calls in it."""

    gate: CallGate
    journal: Journal
    in_flight: InFlight
