"""Continue: a new run that goes on where an ended one stands.

`resume_of` where the thread still holds the pending step of an end that was left open; `retry_of` where the input
never reached the thread, or the end was put in order and its repair is the new input. A run that ended stays ended.
"""

from __future__ import annotations

from dataclasses import replace

from dromos.domain.errors import ConversationBusy, NotResumable
from dromos.domain.machine import ended_open
from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.contract import Continuation, RunOptions
from dromos.lifecycle.history import head_checkpoint, resumed_chain
from dromos.lifecycle.starting import Begin, start_run
from dromos.lifecycle.submit import last_run, settle_open_end
from dromos.ports.store import In, ReadTx, Table
from dromos.wire.shapes import run_json


def continuation(tx: ReadTx, last: Run | None) -> Continuation | None:
    """How the newest run could be continued; None: not at all."""
    if last is None or not last.is_final or last.status is RunStatus.COMPLETED:
        return None
    if last.renewed_at is not None:
        # An adapter had it: its agent's own session goes on, there is no thread here.
        return Continuation(Reason.RESUME_OF, needs_pending=False)
    head = head_checkpoint(tx, last.conversation_id)
    if ended_open(last):
        if head is None and last.session_id is not None:  # an agent that keeps its own thread goes on in it
            return Continuation(Reason.RESUME_OF, needs_pending=False)
        if head is not None and any(run.id == head["run_id"] for run in resumed_chain(tx, last)):
            return Continuation(Reason.RESUME_OF, needs_pending=True)
        return Continuation(Reason.RETRY_OF, needs_pending=False)
    left = {
        "conversation_id": last.conversation_id,
        "log_seq": None,
        "pending_of": None,
        "hidden": False,
        "ns": "",
    }
    unlogged = tx.find(Table.MESSAGES, {**left, "kind": In(("text", "tool"))}, limit=1, columns=("num",))
    return Continuation(Reason.RETRY_OF, needs_pending=not unlogged)


def continue_run(
    change: Change, conversation: Conversation, pending: bool, options: RunOptions | None = None
) -> Run:
    """T1 with `resume_of` or `retry_of`; the message that started the ended run stays the trigger."""
    last = last_run(change, conversation)
    if last is not None and not last.is_final:
        raise ConversationBusy(
            "A run is under way in this conversation; there is nothing to continue yet.",
            current={"run": run_json(last)},
        )
    way = continuation(change.tx, last)
    if last is None or way is None or (way.needs_pending and not pending):
        raise NotResumable(
            "Nothing is left to continue here; send a message instead.",
            current={"run": run_json(last)} if last else None,
        )
    if last.renewed_at is not None:
        settle_open_end(change, conversation, last)
    asked = options or RunOptions()
    asked = replace(
        asked,
        model=asked.model or last.model,
        budget=asked.budget or last.budget,
        backend_policy=asked.backend_policy or last.backend_policy or None,
    )
    run, _ = start_run(
        change,
        conversation,
        Begin(
            way.reason,
            asked.agent or last.agent,
            asked,
            trigger=last.trigger_message_id,
            resume_of=last.id if way.reason is Reason.RESUME_OF else None,
            retry_of=last.id if way.reason is Reason.RETRY_OF else None,
        ),
    )
    return run
