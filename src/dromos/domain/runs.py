"""The run as a value: one attempt of an agent at one piece of work, with exactly one end.

Immutable; `dromos.domain.machine` makes the next one. It knows no table and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.statuses import OwnerKind, Recovery, RunStatus


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop that was accepted. `cause` fixes the end; `outcome` says how the end was reached."""

    cause: Reason
    by: str
    accepted_at: datetime
    comment: str | None = None
    delivered_at: datetime | None = None
    forced_at: datetime | None = None
    outcome: str | None = None  # acknowledged | forced | after_work_done
    waiting_for: Mapping[str, Any] | None = None  # {"tool", "since", "until"}
    unknown_calls: tuple[str, ...] = ()
    step: str | None = None  # at the end: the newest one, in which or behind which it stopped


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a queued run does not run yet: `reason` no_worker | capacity | backoff | rate_limited | input."""

    reason: str
    until: datetime | None = None
    then: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """All of a run but its engine input, document, steps and messages.

    `version` counts changes of this row; `epoch` counts ownerships and fences every write made for the run.
    `tries` counts retryable failures since the last checkpoint, by error code.
    """

    id: str
    user_id: str
    conversation_id: str
    agent: str
    created_at: datetime
    status: RunStatus = RunStatus.QUEUED
    reason: Reason = Reason.CREATED
    error_code: ErrorCode | None = None
    error_message: str | None = None
    attempt: int = 0
    crashes: int = 0
    epoch: int = 0
    version: int = 1
    owner_id: str | None = None
    owner_kind: OwnerKind | None = None
    wait: Wait | None = None
    not_before: datetime | None = None
    stop: Stop | None = None
    trigger_message_id: str | None = None
    anchor_message_id: str | None = None
    resume_of: str | None = None
    retry_of: str | None = None
    parent_run_id: str | None = None
    session_id: str | None = None
    backend_policy: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None  # what the run asked for; None: chosen at claim
    model_used: str | None = None
    budget: Mapping[str, Any] | None = None
    step_limit: int | None = None
    recovery: Recovery = Recovery.AUTO
    deadline_at: datetime | None = None
    queue_deadline_at: datetime | None = None
    tries: Mapping[str, int] = field(default_factory=dict)
    steps: int = 0
    usage: Mapping[str, int] = field(default_factory=dict)
    cost: Mapping[str, Any] | None = None
    line: str | None = None
    document_version: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    renewed_at: datetime | None = None  # an adapter's last sign of life; a worker's is its lease
    quiet_since: datetime | None = None
    """An adapter's last sign of work. None: nothing is under way, or its silence is shown already."""

    @property
    def is_final(self) -> bool:
        return self.status.is_final


@dataclass(frozen=True, slots=True)
class Fence:
    """What a writer for a run must still hold: this epoch of this run.

    `conversation_id` never changes for a run; where it is given, one look-up less finds the rows to lock.
    """

    run_id: str
    epoch: int
    conversation_id: str | None = field(default=None, compare=False)
