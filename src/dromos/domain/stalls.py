"""Silence of an agent at work: what counts as stalled, after how long, and what then becomes of the run. Pure.

Activity and ownership are two clocks. What an owner writes about its work is activity; that it keeps its lease is not.
Who measures the silence, and with which clock, is no business of this module; nor are statuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Policy = Literal["flag", "fail", "retry"]
Current = Mapping[str, Any]
"""What is under way, as the document's `/current` shows it."""


@dataclass(frozen=True, slots=True)
class StallLimits:
    """Seconds of silence after which a model call, or anything else that is under way, counts as stalled; None: never.

    `policy`: `flag` only shows it, `fail` ends the run, `retry` tries the step again (and then fails).
    """

    model: float | None = 120.0
    tool: float | None = 300.0
    policy: Policy = "flag"

    def of(self, current: Current | None) -> float | None:
        """The limit of what is under way; None: it may be silent for ever, or there is nothing to be silent."""
        if current is None:
            return None
        return self.model if kind_of(current) == "model" else self.tool

    @property
    def shortest(self) -> float | None:
        """Whatever is under way, less silence than this is no stall; None: no silence is."""
        return min((limit for limit in (self.model, self.tool) if limit is not None), default=None)


@dataclass(frozen=True, slots=True)
class StallPolicy:
    """The limits for all agents, and those of agents that have their own."""

    default: StallLimits = StallLimits()
    agents: Mapping[str, StallLimits] = field(default_factory=dict)

    def of(self, agent: str) -> StallLimits:
        return self.agents.get(agent, self.default)

    @property
    def shortest(self) -> float | None:
        """The shortest limit of any agent."""
        shortest = (limits.shortest for limits in (self.default, *self.agents.values()))
        return min((limit for limit in shortest if limit is not None), default=None)


@dataclass(frozen=True, slots=True)
class Stall:
    """What is silent (`kind` model | tool), its name, and for how many seconds."""

    kind: str
    name: str
    silent: float

    def __str__(self) -> str:
        what = "The model" if self.kind == "model" else "The tool"
        return f"{what} {self.name} showed no sign of work for {self.silent:.0f} s."


def kind_of(current: Current | None) -> str:
    """`model` or `tool`; whatever is no model call counts as a tool."""
    return "model" if current is not None and current.get("kind") == "model" else "tool"


def stall_of(current: Current | None, silent: float, limits: StallLimits) -> Stall | None:
    """The stall that `silent` seconds are, with this under way; None: they are none."""
    limit = limits.of(current)
    if limit is None or silent < limit:
        return None
    return Stall(kind_of(current), str((current or {}).get("name", "")), silent)


def stalled_text(stall: Stall, unknown: str) -> str:
    """Why a run failed. `unknown`: calls whose outcome nobody knows, '' where there are none."""
    happened = f" What became of {unknown} is unknown: it may have happened." if unknown else ""
    return f"{stall}{happened} Its work is kept; Continue goes on from the last step."
