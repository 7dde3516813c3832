"""The payloads of durable events, each in one place. Builds JSON from rows and puts it into the change; decides
nothing and writes no row.

    run.status            {"run", "requests", "followups", "owner"}; at an end also {"conversation"}
    message.created       {"message"}
    message.updated       {"message": {"id", "status"}}: only what changed, to be merged
    followup.changed      {"followup"}
    request.opened/closed {"request"}
    grant.changed         {"grant", "revoked_at"}
    conversation.changed  {"conversation"}
"""

from __future__ import annotations

from typing import Any

from dromos.domain.events import EventType
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus, TriggerStatus
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.waiting import open_followups, open_requests
from dromos.ports.store import Row
from dromos.wire.shapes import (
    conversation_json,
    followup_json,
    grant_json,
    message_json,
    moment,
    request_json,
    run_json,
)


def run_status(change: Change, conversation: Conversation | None, run: Run) -> None:
    """The run has a new status (or its stop another cause). For an end this is the run's last event."""
    if conversation is not None:
        followups = change.followups(conversation)
    else:
        followups = open_followups(change.tx, run.conversation_id)
    requests: list[Row] = []
    if run.status is RunStatus.WAITING_INPUT:
        requests = open_requests(change.tx, run.id)
    owner = None
    if run.owner_kind is not None:
        owner = {"kind": run.owner_kind, "seen_at": moment(change.now), "takeover_at": None}
    payload: dict[str, Any] = {
        "run": run_json(run),
        "requests": [request_json(row) for row in requests],
        "followups": [followup_json(row) for row in followups],
        "owner": owner,
    }
    if run.is_final and conversation is not None:
        # The row is marked when this event has its number.
        payload["conversation"] = conversation_json(conversation.row, run.status) | {"unseen": True}
    change.emit(run.user_id, EventType.RUN_STATUS, run.conversation_id, payload, run)


def message_created(change: Change, conversation: Conversation, message: Row, run: Run | None) -> None:
    """`run` None where the message belongs to a run that has ended already: its end stays its last event."""
    payload = {"message": message_json(message)}
    change.emit(conversation.user_id, EventType.MESSAGE_CREATED, conversation.id, payload, run)


def trigger_status(change: Change, run: Run, status: TriggerStatus) -> None:
    """The message that started `run` has another status."""
    payload = {"message": {"id": run.trigger_message_id, "status": status}}
    change.emit(run.user_id, EventType.MESSAGE_UPDATED, run.conversation_id, payload, run)


def followup_changed(change: Change, followup: Row, run: Run | None = None) -> None:
    payload = {"followup": followup_json(followup)}
    user_id, conversation_id = followup["user_id"], followup["conversation_id"]
    change.emit(user_id, EventType.FOLLOWUP_CHANGED, conversation_id, payload, run)


def request_changed(change: Change, request: Row, run: Run) -> None:
    type = EventType.REQUEST_OPENED if request["status"] == "open" else EventType.REQUEST_CLOSED
    change.emit(run.user_id, type, run.conversation_id, {"request": request_json(request)}, run)


def grant_changed(change: Change, grant: Row) -> None:
    """Leave was given for good, or taken back."""
    payload = {"grant": grant_json(grant), "revoked_at": moment(grant["revoked_at"])}
    change.emit(grant["user_id"], EventType.GRANT_CHANGED, grant["conversation_id"], payload)


def conversation_changed(change: Change, conversation: Conversation, status: str) -> None:
    payload = {"conversation": conversation_json(conversation.row, status)}
    change.emit(conversation.user_id, EventType.CONVERSATION_CHANGED, conversation.id, payload)
