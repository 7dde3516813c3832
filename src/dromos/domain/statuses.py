"""Statuses of a run, of the message that started it, of a follow-up, and of a question to a person.

This is the only module that says which statuses are final: every other module asks it.
"""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    """Where a run stands. See `dromos.domain.machine` for how it moves."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_INPUT = "waiting_input"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        return self in FINAL

    @property
    def is_owned(self) -> bool:
        """True where a worker incarnation or an adapter session owns the run."""
        return self in OWNED


FINAL = frozenset(
    {
        RunStatus.COMPLETED,
        RunStatus.FAILED,
        RunStatus.CANCELLED,
        RunStatus.INTERRUPTED,
        RunStatus.EXPIRED,
    }
)
LIVE = frozenset(RunStatus) - FINAL
OWNED = frozenset({RunStatus.RUNNING, RunStatus.CANCELLING})


class TriggerStatus(StrEnum):
    """Status of the person's message that started a run; follows the newest run that names it."""

    PENDING = "pending"
    WORKING = "working"
    ANSWERED = "answered"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    EXPIRED = "expired"


TRIGGER_STATUS: dict[RunStatus, TriggerStatus] = {
    RunStatus.QUEUED: TriggerStatus.PENDING,
    RunStatus.RUNNING: TriggerStatus.WORKING,
    RunStatus.WAITING_INPUT: TriggerStatus.WORKING,
    RunStatus.CANCELLING: TriggerStatus.WORKING,
    RunStatus.COMPLETED: TriggerStatus.ANSWERED,
    RunStatus.FAILED: TriggerStatus.FAILED,
    RunStatus.CANCELLED: TriggerStatus.CANCELLED,
    RunStatus.INTERRUPTED: TriggerStatus.INTERRUPTED,
    RunStatus.EXPIRED: TriggerStatus.EXPIRED,
}


class FollowupStatus(StrEnum):
    """A message sent while a run was live: waits, is taken by a run, is held after a stop, or is thrown away."""

    WAITING = "waiting"
    APPLIED = "applied"
    HELD = "held"
    DISCARDED = "discarded"


class RequestKind(StrEnum):
    """What is asked of a person: leave to do something, something to know, or what became of a call."""

    APPROVAL = "approval"
    QUESTION = "question"
    TOOL_OUTCOME_UNKNOWN = "tool_outcome_unknown"


class RequestStatus(StrEnum):
    """`decided` is handed to each owner of the run until it is `consumed`; `void` and `expired` take no answer."""

    OPEN = "open"
    DECIDED = "decided"
    CONSUMED = "consumed"
    VOID = "void"
    EXPIRED = "expired"


class Verdict(StrEnum):
    """What a person may say to a request; the last three where nobody knows what became of a call."""

    APPROVE = "approve"
    EDIT = "edit"
    DENY = "deny"
    ANSWER = "answer"
    RETRY = "retry"
    MARK_DONE = "mark_done"
    SKIP = "skip"


class OnTimeout(StrEnum):
    """What counts where nobody answered in time: the run ends, "no", or the default that was named beforehand."""

    EXPIRE = "expire"
    DENY = "deny"
    DEFAULT = "default"


class WhenBusy(StrEnum):
    """What a message does when its conversation already has a live run."""

    QUEUE = "queue"
    STEER = "steer"
    INTERRUPT = "interrupt"
    REJECT = "reject"


class Recovery(StrEnum):
    """What happens to a run whose owner was lost: taken over by itself, or ended for a person to continue."""

    AUTO = "auto"
    ASK = "ask"


class OwnerKind(StrEnum):
    WORKER = "worker"
    ADAPTER = "adapter"
