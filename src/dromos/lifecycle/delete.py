"""Erasing a conversation: marked and stopped in one transaction, gone from every table in another.

From the mark on nobody finds it. Events keep their numbers and lose their content; only `conversation.deleted`
names it. An erasure that was interrupted is finished by the sweep or by a repeat.
"""

from __future__ import annotations

from dromos.domain.events import EventType
from dromos.domain.machine import Cancel
from dromos.domain.runs import Run
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.scope import no_such
from dromos.lifecycle.transition import transition
from dromos.ports.store import In, Table

_BY_CONVERSATION = (
    Table.MESSAGES,
    Table.RUN_INPUTS,
    Table.RUN_STEPS,
    Table.RUN_ATTEMPTS,
    Table.RUN_DOCUMENTS,
    Table.RUN_FOLLOWUPS,
    Table.REQUESTS,
    Table.RUN_TOKENS,
    Table.MESSAGE_REVISIONS,
    Table.TOOL_CALLS,
    Table.TOOL_GRANTS,
    Table.RUNS,
)
_BY_THREAD = (Table.WRITES, Table.CHECKPOINT_BLOBS, Table.CHECKPOINTS)
ERASED = ""
"""Type of an event whose content was erased."""


def delete_conversation(change: Change, user_id: str, conversation_id: str) -> bool:
    """Mark, stop, and erase where no run is live. True once nothing of it is left."""
    conversation = change.lock_conversation(conversation_id)
    if conversation is None or conversation.user_id != user_id:
        raise no_such("conversation")
    if not conversation.deleting:
        conversation.set(state="deleting")
        live = _live(change, conversation)
        if live is not None:
            transition(change, conversation, live, Cancel("user"), start_next=False)
    return erase(change, conversation)


def erase(change: Change, conversation: Conversation) -> bool:
    """Remove all that a `deleting` conversation owns; False while a run is live."""
    live = _live(change, conversation)
    if live is not None:
        return False
    tx = change.tx
    for table in _BY_THREAD:
        tx.remove(table, {"thread_id": conversation.id})
    for table in _BY_CONVERSATION:
        tx.remove(table, {"conversation_id": conversation.id})
    _forget_answers(change, conversation)
    change.drop(conversation)
    tx.change(
        Table.EVENTS,
        {"conversation_id": conversation.id},
        {"type": ERASED, "conversation_id": None, "run_id": None, "payload": None},
    )
    tx.remove(Table.CONVERSATIONS, {"id": conversation.id})
    change.emit(
        conversation.user_id, EventType.CONVERSATION_DELETED, conversation.id, {"id": conversation.id}
    )
    return True


def _live(change: Change, conversation: Conversation) -> Run | None:
    run_id = conversation.row["last_run_id"]
    run = change.tx.lock_run(run_id) if run_id else None
    return None if run is None or run.is_final else run


def _forget_answers(change: Change, conversation: Conversation) -> None:
    """Stored answers: those whose route names the conversation, and the one that told of its creation."""
    mine = {"user_id": conversation.user_id}
    created = {**mine, "created_at": conversation.row["created_at"]}
    rows = [
        row
        for row in change.tx.find(Table.IDEMPOTENCY, mine, columns=("route", "key"))
        if row["route"].endswith(f" {conversation.id}")
    ]
    rows += [row for row in change.tx.find(Table.IDEMPOTENCY, created) if conversation.id in row["answer"]]
    keys_by_route: dict[str, list[str]] = {}
    for row in rows:
        keys_by_route.setdefault(row["route"], []).append(row["key"])
    for route, keys in keys_by_route.items():
        change.tx.remove(Table.IDEMPOTENCY, {**mine, "route": route, "key": In(keys)})
