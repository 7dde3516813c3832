"""A person's stop: accepted durably, carried out by the run's owner, or at once where it has none (T3, T9, T14).

A stop of a running run takes no lock but the run's: its owner locks the run and then the conversation with every
checkpoint, and must not meet a stop that does it the other way round.
"""

from __future__ import annotations

from dromos.domain.errors import LostRace
from dromos.domain.machine import Cancel
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus
from dromos.domain.text import clean_text
from dromos.lifecycle import scope, succession
from dromos.lifecycle.change import Change
from dromos.lifecycle.transition import transition


def request_cancel(
    change: Change, user_id: str, run_id: str, *, by: str = "user", comment: str | None = None
) -> Run:
    """The run, its stop accepted. A repeat is accepted again, also after the end it led to; raises `AlreadyEnded` after
    any other end.

    Raises `LostRace` where the run stopped running between a look and its lock: call again.
    """
    command = Cancel(by, clean_text(comment) if comment else None)
    run = scope.own_run(change.tx, user_id, run_id)
    if run.status is RunStatus.RUNNING:
        locked = change.tx.lock_run(run_id)
        if locked is None or locked.status is not RunStatus.RUNNING:
            raise LostRace(f"run {run_id} is no longer running")
        return transition(change, None, locked, command)
    conversation, run = scope.lock_own_run(change, user_id, run_id)
    if run.status is RunStatus.RUNNING:
        raise LostRace(f"run {run_id} is running now")
    after = transition(change, conversation, run, command)
    if run.status is RunStatus.CANCELLING and after is not run:
        succession.count_as_before_the_stop(change, conversation)
    return after
