"""A person's stop: accepted durably, carried out by the run's owner, or at once where it has none (T3, T9, T14)."""

from __future__ import annotations

from dromos.domain.machine import Cancel
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus
from dromos.domain.text import clean_text
from dromos.lifecycle import succession
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.contract import Cancelled
from dromos.lifecycle.transition import transition


def request_cancel(
    change: Change, conversation: Conversation, run: Run, *, by: str = "user", comment: str | None = None
) -> Cancelled:
    """A repeat is accepted again, also after the end it led to. Raises `AlreadyEnded` after any other end."""
    stopping = run.status is RunStatus.CANCELLING
    after = transition(change, conversation, run, Cancel(by, clean_text(comment) if comment else None))
    if stopping and after is not run:
        succession.count_as_before_the_stop(change, conversation)
    return Cancelled(after)
