"""A follow-up's row, what happened to its text, and the run it waits for. Writes rows and tells of them; who may change
what, and when, is the callers' business. The conversation's row is held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from dromos.domain.errors import TooManyWaiting
from dromos.domain.runs import Run
from dromos.domain.statuses import FollowupStatus, WhenBusy
from dromos.lifecycle import announce
from dromos.lifecycle.change import Change, Conversation
from dromos.ports.store import Row, Table

WAITING_BYTES = 4 * 1024 * 1024
"""JSON of all contents that may wait together in one conversation; a single message may be as long as any."""


def check_size(contents: Sequence[Any]) -> None:
    """Raises `TooManyWaiting` where contents that would wait together are too long for that."""
    if len(contents) > 1 and sum(len(orjson.dumps(content)) for content in contents) > WAITING_BYTES:
        raise TooManyWaiting(
            f"What waits or is held in this conversation would be more than {WAITING_BYTES >> 20} MiB together. Let"
            " runs take it, discard some, or send a shorter message."
        )


def is_waiting(row: Row) -> bool:
    return bool(row["status"] == FollowupStatus.WAITING)


def is_steer(row: Row) -> bool:
    """True for a waiting message that the live run is to read while it works."""
    return is_waiting(row) and bool(row["when_busy"] == WhenBusy.STEER)


def rewrite(change: Change, row: Row, **values: object) -> None:
    """Change a follow-up's row, here and in the store; its version rises."""
    row.update(values, version=row["version"] + 1, updated_at=change.now)
    kept = {"version": row["version"], "updated_at": change.now, **values}
    change.tx.change(Table.RUN_FOLLOWUPS, {"id": row["id"]}, kept)


def as_queued(row: Row) -> Row:
    """The values of a row that acts as `queue` from now on; what was asked for stays visible."""
    if row["when_busy"] != WhenBusy.STEER:
        return {}
    return {"when_busy": WhenBusy.QUEUE.value, "asked": row["asked"] or row["when_busy"]}


def wait_for(change: Change, conversation: Conversation, run: Run) -> None:
    """Every message that still waits waits for `run` now.

    That changes neither its text nor its place, so its version stays and no event of its own is written: the run's
    first event lists what waits for it. Only what wanted to steer the run before is told that it is queued now.
    """
    waiting = [row for row in change.followups(conversation) if is_waiting(row)]
    if not waiting:
        return
    where = {"conversation_id": conversation.id, "status": FollowupStatus.WAITING.value}
    change.tx.change(Table.RUN_FOLLOWUPS, where, {"run_id": run.id, "during_stop": False})
    for row in waiting:
        row.update(run_id=run.id, during_stop=False)
        queued = as_queued(row)
        if queued:
            rewrite(change, row, **queued)
            announce.followup_changed(change, row, run)


def add_revision(change: Change, row: Row, author_id: str, num: int | None = None) -> None:
    """Keep the row's text as its newest revision; `num` where it is known."""
    if num is None:
        num = 1 + change.tx.count(Table.MESSAGE_REVISIONS, {"followup_id": row["id"]})
    revision: dict[str, Any] = {
        "followup_id": row["id"],
        "num": num,
        "conversation_id": row["conversation_id"],
        "content": row["content"],
        "author_id": author_id,
        "created_at": change.now,
    }
    change.tx.put(Table.MESSAGE_REVISIONS, revision)
