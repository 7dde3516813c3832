"""What stands around a run and waits: its open questions, and the follow-ups of its conversation. Reads only."""

from __future__ import annotations

from dromos.domain.statuses import FollowupStatus
from dromos.ports.store import In, ReadTx, Row, Table

OPEN_FOLLOWUPS = (FollowupStatus.WAITING.value, FollowupStatus.HELD.value)


def open_requests(tx: ReadTx, run_id: str) -> list[Row]:
    """Oldest first."""
    return tx.find(Table.REQUESTS, {"run_id": run_id, "status": "open"}, order=("opened_at", "id"))


def open_followups(tx: ReadTx, conversation_id: str) -> list[Row]:
    """Waiting and held, in order."""
    where = {"conversation_id": conversation_id, "status": In(OPEN_FOLLOWUPS)}
    return tx.find(Table.RUN_FOLLOWUPS, where, order=("position", "id"))
