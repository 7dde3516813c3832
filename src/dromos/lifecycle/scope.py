"""Whose is it: every look-up for a person goes through here. Another person's id, an id that is being erased and an
id that never was get the same answer."""

from __future__ import annotations

from dromos.domain.errors import NotFound
from dromos.domain.runs import Run
from dromos.lifecycle.change import Change, Conversation
from dromos.ports.store import ReadTx, Row, Table


def no_such(thing: str) -> NotFound:
    return NotFound(f"There is no such {thing}; look at the list for the ones you have.")


def own_conversation(tx: ReadTx, user_id: str, conversation_id: str) -> Row:
    row = tx.first(Table.CONVERSATIONS, {"id": conversation_id})
    if row is None or row["user_id"] != user_id or row["state"] != "open":
        raise no_such("conversation")
    return row


def lock_own_conversation(change: Change, user_id: str, conversation_id: str) -> Conversation:
    conversation = change.lock_conversation(conversation_id)
    if conversation is None or conversation.user_id != user_id or conversation.deleting:
        raise no_such("conversation")
    return conversation


def own_run(tx: ReadTx, user_id: str, run_id: str) -> Run:
    run = tx.load_run(run_id)
    if run is None or run.user_id != user_id:
        raise no_such("run")
    conversation = tx.first(Table.CONVERSATIONS, {"id": run.conversation_id})
    if conversation is None or conversation["state"] != "open":
        raise no_such("run")
    return run


def lock_own_run(change: Change, user_id: str, run_id: str) -> tuple[Conversation, Run]:
    """The run and its conversation, both locked, in the lock order."""
    run = change.tx.load_run(run_id)
    if run is None or run.user_id != user_id:
        raise no_such("run")
    conversation = change.lock_conversation(run.conversation_id)
    locked = change.tx.lock_run(run_id)
    if conversation is None or conversation.deleting or locked is None:
        raise no_such("run")
    return conversation, locked


def lock_run(change: Change, run_id: str) -> tuple[Conversation, Run]:
    """As `lock_own_run`, for owners and sweeps: whoever's it is."""
    run = change.tx.load_run(run_id)
    locked = change.tx.lock_run(run_id, within=run.conversation_id) if run else None
    conversation = change.lock_conversation(run.conversation_id) if run else None
    if conversation is None or locked is None:
        raise no_such("run")
    return conversation, locked


def lock_own_followup(change: Change, user_id: str, followup_id: str) -> tuple[Conversation, Row]:
    """The follow-up and its conversation, both locked."""
    row = change.tx.first(Table.RUN_FOLLOWUPS, {"id": followup_id})
    if row is None or row["user_id"] != user_id:
        raise no_such("follow-up")
    conversation = change.lock_conversation(row["conversation_id"])
    if conversation is None or conversation.deleting:
        raise no_such("follow-up")
    for open_row in change.followups(conversation):
        if open_row["id"] == followup_id:
            return conversation, open_row
    locked = change.tx.lock(Table.RUN_FOLLOWUPS, {"id": followup_id})
    if locked is None:
        raise no_such("follow-up")
    return conversation, locked


def lock_own_request(change: Change, user_id: str, request_id: str) -> tuple[Conversation, Run, Row]:
    """The question, its run and its conversation, locked in the lock order; who holds the run holds its questions."""
    seen = change.tx.first(Table.REQUESTS, {"id": request_id})
    if seen is None or seen["user_id"] != user_id:
        raise no_such("question")
    conversation = change.lock_conversation(seen["conversation_id"])
    run = change.tx.lock_run(seen["run_id"])
    row = change.tx.first(Table.REQUESTS, {"id": request_id})
    if conversation is None or conversation.deleting or run is None or row is None:
        raise no_such("question")
    return conversation, run, row
