"""Why a run changed its status (a closed set) and what went wrong when it failed (a closed set).

Reasons belong to edges of the machine; error codes belong to failed runs. An adapter's unknown word never gets
in: `normalize_adapter_failure` turns it into `ADAPTER_ERROR` and keeps the original in the message.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Stored with every status change."""

    CREATED = "created"
    CREATED_FROM_FOLLOWUP = "created_from_followup"
    RETRY_OF = "retry_of"
    RESUME_OF = "resume_of"
    CHILD_OF = "child_of"
    CLAIMED = "claimed"
    RECLAIMED = "reclaimed"
    INPUT_RECEIVED = "input_received"
    CANCELLED_BY_USER = "cancelled_by_user"
    CANCELLED_BY_ADMIN = "cancelled_by_admin"
    CANCELLED_BY_PARENT = "cancelled_by_parent"
    SUPERSEDED = "superseded"
    AGENT_REMOVED = "agent_removed"
    QUEUE_DEADLINE = "queue_deadline"
    RUN_DEADLINE = "run_deadline"
    INPUT_DEADLINE = "input_deadline"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    AGENT_UNAVAILABLE = "agent_unavailable"
    CONFIG_INVALID = "config_invalid"
    OWNER_LOST = "owner_lost"
    ADAPTER_DISCONNECTED = "adapter_disconnected"
    DRAINED = "drained"
    RETRY_BACKOFF = "retry_backoff"
    RATE_LIMITED = "rate_limited"
    STALLED = "stalled"
    APPROVAL_REQUIRED = "approval_required"
    QUESTION_ASKED = "question_asked"
    TOOL_OUTCOME_UNKNOWN = "tool_outcome_unknown"
    CANCEL_REQUESTED = "cancel_requested"
    BUDGET_EXCEEDED = "budget_exceeded"
    FINISHED = "finished"
    AGENT_ERROR = "agent_error"
    MODEL_ERROR = "model_error"
    TOOL_ERROR = "tool_error"
    ADAPTER_ERROR = "adapter_error"
    DECISION_RECORDED = "decision_recorded"
    DEFAULT_DECISION = "default_decision"


class ErrorCode(StrEnum):
    """What a failed run tells a person. Documented one by one in the error guide."""

    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    MODEL_AUTH = "MODEL_AUTH"
    MODEL_RATE_LIMITED = "MODEL_RATE_LIMITED"
    MODEL_BAD_RESPONSE = "MODEL_BAD_RESPONSE"
    CONTEXT_OVERFLOW = "CONTEXT_OVERFLOW"
    RECURSION_LIMIT = "RECURSION_LIMIT"
    STALLED = "STALLED"
    TOOL_UNAVAILABLE = "TOOL_UNAVAILABLE"
    TOOL_FAILED = "TOOL_FAILED"
    AGENT_FAILURE = "AGENT_FAILURE"
    ADAPTER_ERROR = "ADAPTER_ERROR"
    STATE_UNREADABLE = "STATE_UNREADABLE"
    ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"
    CONFIG_INVALID = "CONFIG_INVALID"
    INTERNAL = "INTERNAL"


REASON_OF_CODE: dict[ErrorCode, Reason] = {
    ErrorCode.MODEL_UNAVAILABLE: Reason.MODEL_ERROR,
    ErrorCode.MODEL_AUTH: Reason.MODEL_ERROR,
    ErrorCode.MODEL_RATE_LIMITED: Reason.MODEL_ERROR,
    ErrorCode.MODEL_BAD_RESPONSE: Reason.MODEL_ERROR,
    ErrorCode.CONTEXT_OVERFLOW: Reason.MODEL_ERROR,
    ErrorCode.RECURSION_LIMIT: Reason.AGENT_ERROR,
    ErrorCode.STALLED: Reason.STALLED,
    ErrorCode.TOOL_UNAVAILABLE: Reason.TOOL_ERROR,
    ErrorCode.TOOL_FAILED: Reason.TOOL_ERROR,
    ErrorCode.AGENT_FAILURE: Reason.AGENT_ERROR,
    ErrorCode.ADAPTER_ERROR: Reason.ADAPTER_ERROR,
    ErrorCode.STATE_UNREADABLE: Reason.AGENT_ERROR,
    ErrorCode.ATTEMPTS_EXHAUSTED: Reason.ATTEMPTS_EXHAUSTED,
    ErrorCode.CONFIG_INVALID: Reason.AGENT_ERROR,
    ErrorCode.INTERNAL: Reason.AGENT_ERROR,
}
"""The reason on `running → failed` for each error code."""


def normalize_adapter_failure(code: str | None, message: str | None) -> tuple[ErrorCode, str]:
    """An adapter's own words for a failure, in the closed set; the original code is kept in the message."""
    text = message or "The agent reported a failure without a message."
    if code is None:
        return ErrorCode.ADAPTER_ERROR, text
    try:
        return ErrorCode(code), text
    except ValueError:
        return ErrorCode.ADAPTER_ERROR, f"{code}: {text}"
