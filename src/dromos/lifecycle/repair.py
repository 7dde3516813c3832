"""Repair: what a thread lacks so that the next message always just works.

The engine's thread is never edited. What is missing is written as rows of `messages` that the next run's one input
carries in: exactly one result per open tool call, and the text that was cut off. A result comes from the head's
pending writes where the call finished there, else from the journal of calls; a call of which nobody knows how it went
says so; any other call did not happen. Called in the end's own transaction where the end settles, else when the next
message arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dromos.domain.effects import OUTCOME_UNKNOWN, CallStatus
from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus
from dromos.domain.text import text_of
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.history import (
    ThreadState,
    document_text,
    head_checkpoint,
    last_answer,
    resumed_chain,
    thread_state,
)
from dromos.lifecycle.journal import calls_by_id
from dromos.ports.store import In, Row, Table

_NOT_DONE: dict[Reason, str] = {
    Reason.CANCELLED_BY_USER: "cancelled by the person",
    Reason.CANCEL_REQUESTED: "cancelled by the person",
    Reason.CANCELLED_BY_ADMIN: "cancelled by an administrator",
    Reason.CANCELLED_BY_PARENT: "cancelled by the parent run",
    Reason.SUPERSEDED: "cancelled by a newer message",
    Reason.BUDGET_EXCEEDED: "cancelled because the budget was used up",
    Reason.RUN_DEADLINE: "cancelled because the run's time was over",
    Reason.QUEUE_DEADLINE: "cancelled because the run waited too long",
    Reason.INPUT_DEADLINE: "cancelled because nobody answered in time",
}
_LOST_AT_WORK = frozenset(
    {Reason.OWNER_LOST, Reason.ADAPTER_DISCONNECTED, Reason.ATTEMPTS_EXHAUSTED, Reason.STALLED}
)
_BY_STOP = {"admin": Reason.CANCELLED_BY_ADMIN, "parent": Reason.CANCELLED_BY_PARENT}


def settle(
    change: Change, conversation: Conversation, run: Run, content: Mapping[str, Any] | None = None
) -> Row | None:
    """Write what the thread lacks after `run` ended; returns the interrupted text's row where there is one.

    `content` is the content part of the run's document where the caller has it; else the saved one is read. May be
    called again: what was written stands in the way of writing it twice.
    """
    head = head_checkpoint(change.tx, conversation.id)
    state = complete_calls(change, conversation, run, head)
    return _write_interrupted(change, conversation, run, state, head, content)


def complete_calls(
    change: Change, conversation: Conversation, run: Run, head: Row | None = None
) -> ThreadState:
    """Write one result for each open call of the thread. Also for a graph that ends with calls it never made."""
    state = thread_state(change.tx, conversation.id, head)
    if state.open_calls:
        _write_results(change, conversation, run, state)
    return state


def _write_results(change: Change, conversation: Conversation, run: Run, state: ThreadState) -> None:
    known = [
        state.pending_results[call.id]["num"] for call in state.open_calls if call.id in state.pending_results
    ]
    contents: dict[int, Row] = {}
    if known:
        found = change.tx.find(
            Table.MESSAGES,
            {"conversation_id": conversation.id, "num": In(known)},
            columns=("num", "content", "name", "status", "run_id"),
        )
        contents = {row["num"]: row for row in found}
    lost = _lost_at_work(change, run)
    recorded = calls_by_id(change.tx, run, [call.id for call in state.open_calls])
    named = _named_as_unknown(run, recorded)
    for call in state.open_calls:
        pending, record = state.pending_results.get(call.id), recorded.get(call.id)
        if pending is not None:
            row = contents[pending["num"]]
            result = {key: row[key] for key in ("content", "name", "status", "run_id")}
        elif record is not None and record["status"] != CallStatus.PARKED:
            result = {**_of_journal(record), "name": call.name, "run_id": record["run_id"]}
        elif lost or call.id in named or call.name in named:
            result = {"content": OUTCOME_UNKNOWN, "name": call.name, "status": "error", "run_id": run.id}
        else:
            result = {"content": _not_done(run), "name": call.name, "status": "error", "run_id": run.id}
        change.add_message(conversation, role="tool", kind="tool", tool_call_id=call.id, **result)


def _of_journal(record: Row) -> Row:
    """What the journal knows of a call: how it went, or that nobody knows."""
    if record["status"] == CallStatus.INTENT:
        return {"content": OUTCOME_UNKNOWN, "status": "error"}
    outcome = record["outcome"]
    return {"content": outcome["text"], "status": "error" if outcome["is_error"] else None}


def _named_as_unknown(run: Run, recorded: Mapping[str, Row]) -> set[str]:
    """Ids of calls, or names of tools, of which the stop says that nobody knows their outcome.

    Where the journal knows which call of a tool that is, another one of the same name was never begun.
    """
    begun = {row["tool"] for row in recorded.values() if row["status"] == CallStatus.INTENT}
    return {name for name in (run.stop.unknown_calls if run.stop else ()) if name not in begun}


def _lost_at_work(change: Change, run: Run) -> bool:
    """True where the last owner vanished or its work fell silent: whatever call was open may have been under way."""
    for one in resumed_chain(change.tx, run):
        if one.attempt:
            row = change.tx.first(Table.RUN_ATTEMPTS, {"run_id": one.id, "attempt": one.attempt})
            return row is not None and row["reason"] in _LOST_AT_WORK
    return False


def _not_done(run: Run) -> str:
    reason = run.reason
    if reason is Reason.CANCEL_REQUESTED and run.stop is not None:
        reason = _BY_STOP.get(run.stop.by, reason)
    if reason in _NOT_DONE:
        return _NOT_DONE[reason]
    if run.status is RunStatus.FAILED:
        return "did not run: the attempt failed"
    if run.status is RunStatus.COMPLETED:
        return "did not run: the agent ended without making this call"
    return "did not run: the attempt was interrupted"


def _write_interrupted(
    change: Change,
    conversation: Conversation,
    run: Run,
    state: ThreadState,
    head: Row | None,
    content: Mapping[str, Any] | None,
) -> Row | None:
    """The text that was cut off: pending assistant messages without their calls, else what the document shows."""
    if state.pending_texts:
        return _adopt_pending_texts(change, conversation, run, state)
    writer, message_id, text = _cut_text(change, run, head, content)
    if not text.strip() or (message_id is not None and message_id in state.message_ids):
        return None
    answer = last_answer(change.tx, writer)
    if answer is not None and text_of(answer["content"]) == text:
        return None
    if message_id is None and change.tx.count(
        Table.MESSAGES, {"conversation_id": conversation.id, "run_id": writer.id, "interrupted": True}
    ):
        return None
    return change.add_message(
        conversation, id=message_id, role="assistant", content=text, interrupted=True, run_id=writer.id
    )


def _cut_text(
    change: Change, run: Run, head: Row | None, content: Mapping[str, Any] | None
) -> tuple[Run, str | None, str]:
    """The newest text of the run and the runs it resumed, unless a later checkpoint shows that it was redone."""
    for one in resumed_chain(change.tx, run):
        part: Any = content if one is run and content is not None else None
        if part is None and one.attempt:
            row = change.tx.first(Table.RUN_DOCUMENTS, {"run_id": one.id})
            part = row["content"] if row else None
        message_id, text = document_text(part)
        if text.strip() or (head is not None and head["run_id"] == one.id):
            return one, message_id, text
    return run, None, ""


def _adopt_pending_texts(
    change: Change, conversation: Conversation, run: Run, state: ThreadState
) -> Row | None:
    """The engine's pending rows stay as they are, out of sight: the thread's writes refer to them."""
    nums = [row["num"] for row in state.pending_texts]
    where = {"conversation_id": conversation.id, "num": In(nums)}
    rows = change.tx.find(Table.MESSAGES, where, order=("num",), columns=("num", "content", "run_id"))
    change.tx.change(Table.MESSAGES, where, {"hidden": True})
    interrupted = None
    for row in rows:
        text = text_of(row["content"])
        if text.strip():
            interrupted = change.add_message(
                conversation,
                role="assistant",
                content=text,
                interrupted=True,
                run_id=row["run_id"] or run.id,
            )
    return interrupted
