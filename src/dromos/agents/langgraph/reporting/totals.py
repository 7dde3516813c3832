"""A run's usage and cost while it works: summed over its attempts, told when a call ended.

Every call counts, also one that failed or was cut, with what is known of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dromos.agents.langgraph.reporting.later import Later
from dromos.domain.cost import COUNTS, Spent, Tokens
from dromos.ports.live import LiveRun


class Totals:
    """One attempt's; `usage` and `spent` are what the run had before it, `stored` is its cost as the store has it."""

    def __init__(
        self,
        live: LiveRun,
        later: Later,
        usage: Mapping[str, Any],
        spent: Spent,
        stored: Mapping[str, Any] | None,
    ) -> None:
        self._live, self._later = live, later
        self.usage: dict[str, int] = {name: usage.get(name) or 0 for name in COUNTS}
        self.spent = spent
        self._stored = self._handed = stored
        self.estimated = bool(usage.get("estimated"))

    def tool_began(self) -> None:
        self.usage["tool_calls"] += 1
        self._later.set("/usage", self._told)

    def model_ended(self, tokens: Tokens | None) -> None:
        """A model call is over; None: nothing is known of what it used."""
        usage = self.usage
        usage["model_calls"] += 1
        if tokens is not None:
            usage["input"] += tokens.input
            usage["output"] += tokens.output
            usage["cached"] += tokens.cached
            usage["reasoning"] += tokens.reasoning
            self.estimated = self.estimated or tokens.estimated
        self._later.set("/usage", self._told)

    def paid(self, spent: Spent) -> None:
        """The sum after a call whose tokens are known."""
        self.spent = spent
        self._live.server({"cost": spent.json()})

    def unstored(self) -> Mapping[str, Any] | None:
        """The run's cost where the store has another, else None."""
        self._handed = self.spent.json()
        return None if self._handed == self._stored else self._handed

    def stored(self) -> None:
        """What was handed out is on disk."""
        self._stored = self._handed

    def _told(self) -> dict[str, Any]:
        told: dict[str, Any] = dict(self.usage)
        if self.estimated:
            told["estimated"] = True
        return told
