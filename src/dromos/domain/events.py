"""Durable events: what every device of the owner is told, in order, exactly once each.

An event is a fact in the past; its number is given by the store, per user and without gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    RUN_STATUS = "run.status"
    REQUEST_OPENED = "request.opened"
    REQUEST_CLOSED = "request.closed"
    MESSAGE_CREATED = "message.created"
    MESSAGE_UPDATED = "message.updated"
    FOLLOWUP_CHANGED = "followup.changed"
    GRANT_CHANGED = "grant.changed"
    CONVERSATION_CHANGED = "conversation.changed"
    CONVERSATION_DELETED = "conversation.deleted"


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event before it has its number. `payload` is JSON, already in the form devices see."""

    type: EventType
    conversation_id: str
    payload: Mapping[str, Any]
    run_id: str | None = None

    def row(self, user_id: str, seq: int, at: datetime) -> dict[str, Any]:
        """The stored row, under its number."""
        return {
            "user_id": user_id,
            "seq": seq,
            "type": self.type.value,
            "conversation_id": self.conversation_id,
            "run_id": self.run_id,
            "at": at,
            "payload": self.payload,
        }

    @property
    def calls(self) -> bool:
        """Whether a person should look at it: a question to them, or the end of a run."""
        if self.type is EventType.RUN_STATUS:
            return self.payload["run"]["finished_at"] is not None
        return self.type is EventType.REQUEST_OPENED
