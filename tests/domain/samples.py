"""Runs in every status, for tests of the rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Run, Stop
from dromos.domain.statuses import OWNED, OwnerKind, RunStatus

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
FIRST_REASON = {
    RunStatus.QUEUED: Reason.CREATED,
    RunStatus.RUNNING: Reason.CLAIMED,
    RunStatus.WAITING_INPUT: Reason.QUESTION_ASKED,
    RunStatus.CANCELLING: Reason.CANCEL_REQUESTED,
    RunStatus.COMPLETED: Reason.FINISHED,
    RunStatus.FAILED: Reason.AGENT_ERROR,
    RunStatus.CANCELLED: Reason.CANCELLED_BY_USER,
    RunStatus.INTERRUPTED: Reason.OWNER_LOST,
    RunStatus.EXPIRED: Reason.RUN_DEADLINE,
}


def run_in(status: RunStatus, *, cause: Reason = Reason.CANCEL_REQUESTED, **changes: Any) -> Run:
    """A run that stands in `status`, with an owner and a stop where that status has them."""
    run = Run(
        id="run",
        user_id="user",
        conversation_id="conversation",
        agent="assistant",
        created_at=NOW,
        status=status,
        reason=FIRST_REASON[status],
    )
    if status is not RunStatus.QUEUED:
        run = replace(run, attempt=1, epoch=1, version=2, started_at=NOW)
    if status in OWNED:
        run = replace(run, owner_id="owner", owner_kind=OwnerKind.WORKER)
    if status is RunStatus.CANCELLING:
        run = replace(run, reason=cause, stop=Stop(cause, "user", NOW))
    if status.is_final:
        run = replace(run, finished_at=NOW)
    if status is RunStatus.FAILED:
        run = replace(run, error_code=ErrorCode.AGENT_FAILURE, error_message="it broke")
    return replace(run, **changes)
