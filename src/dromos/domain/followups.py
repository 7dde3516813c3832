"""Messages sent while a run is live: what each of them acts as, and what becomes of those that wait when it ends.

After work that was done, or where a newer message took the conversation over, the first one starts the next run.
After a stop, a failure or a deadline nothing older starts by itself: what was accepted before is held for its
author; only what was accepted while the stop was under way goes on. Pure: it knows ids and order, no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus, WhenBusy


def acts_as(asked: WhenBusy, live: RunStatus, *, can_steer: bool) -> WhenBusy:
    """What a message that `asked` for something acts as, given the live run's status before it came.

    Only `steer` can become something else: a run that is stopping reads nothing more, and some agents read nothing
    while they work (`can_steer` False). Such a message waits for the next run as `queue` does.
    """
    if asked is WhenBusy.STEER and (live is RunStatus.CANCELLING or not can_steer):
        return WhenBusy.QUEUE
    return asked


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
