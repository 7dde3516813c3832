"""What becomes of the messages that waited for a run, when it ends.

After work that was done, or where a newer message took the conversation over, the first one starts the next run.
After a stop, a failure or a deadline nothing older starts by itself: what was accepted before is held for its
author; only what was accepted while the stop was under way goes on. Pure: it knows ids and order, no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus


@dataclass(frozen=True, slots=True)
class Waiting:
    """A follow-up that waits; `during_stop`: it was accepted while the run was already stopping."""

    id: str
    during_stop: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """`start` begins the successor run, `pass_on` wait for that one, `hold` ask their author: send or discard."""

    start: str | None
    pass_on: tuple[str, ...]
    hold: tuple[str, ...]


def after_end(run: Run, waiting: Sequence[Waiting]) -> Plan:
    """The plan for `waiting` (in their order) after `run` ended."""
    goes_on = run.status is RunStatus.COMPLETED or run.reason is Reason.SUPERSEDED
    eligible = [one.id for one in waiting if goes_on or one.during_stop]
    held = tuple(one.id for one in waiting if one.id not in eligible)
    return Plan(eligible[0] if eligible else None, tuple(eligible[1:]), held)
