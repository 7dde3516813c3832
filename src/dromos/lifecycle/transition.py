"""`transition`: the single place that moves a run.

Decide, compare and swap, and with it everything an edge brings: the attempt's row, the status of the message that
started the run, the durable event; at an end also repair, the final answer, the one line, the follow-ups and the
successor run. One call is part of one transaction. Which command to give is the callers' business.

At an end the event `run.status` is the run's last: whatever else is told about the run stands before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dromos.domain.errors import Refusal
from dromos.domain.machine import Command, decide
from dromos.domain.runs import Run
from dromos.domain.statuses import TRIGGER_STATUS, OwnerKind, RunStatus
from dromos.domain.text import one_line, text_of
from dromos.lifecycle import announce, journal, succession, tokens
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.history import head_checkpoint, last_answer, reads_of_end, step_count
from dromos.lifecycle.repair import complete_calls, settle
from dromos.lifecycle.requests import void_all
from dromos.ports.store import In, Row, Table
from dromos.ports.wakeup import WORK, run_topic
from dromos.wire.shapes import run_json

LINE_LENGTH = 140


def transition(
    change: Change,
    conversation: Conversation | None,
    run: Run,
    command: Command,
    *,
    facts: Mapping[str, Any] | None = None,
    content: Mapping[str, Any] | None = None,
    start_next: bool = True,
) -> Run:
    """The run after `command`, written. Refusals carry the current run.

    `conversation` must be locked where the command may end the run. `facts` are fields of the run that changed
    beside its status (usage, model, document version); `content` is its document's content part where it is at
    hand. `start_next` False: the caller starts the successor itself.
    """
    try:
        decision = decide(run, command, change.now)
    except Refusal as refusal:
        refusal.current["run"] = run_json(run)
        raise
    if not decision.changed:
        return decision.run
    after = replace(decision.run, **facts) if facts else decision.run
    if decision.edge is not None and after.is_final:
        if conversation is None:
            raise AssertionError("a run ends only while its conversation is locked")
        return _end(change, conversation, run, after, decision.settles, content, start_next)
    change.tx.swap_run(run, after)
    _keep_attempt(change, run, after)
    _spend_tokens(change, run, after)
    _tell_trigger(change, run, after)
    announce.run_status(change, conversation, after)
    if after.status is RunStatus.QUEUED:
        change.wake(WORK)
    if after.status is RunStatus.CANCELLING or (run.status.is_owned and not after.status.is_owned):
        change.wake(run_topic(run.id))
    return after


def _end(
    change: Change,
    conversation: Conversation,
    before: Run,
    after: Run,
    settles: bool,
    content: Mapping[str, Any] | None,
    start_next: bool,
) -> Run:
    if before.attempt:
        change.tx.ahead(*reads_of_end(conversation.id, before.id))
    _keep_attempt(change, before, after)
    after = _naming_the_step(change, _naming_unknown_calls(change, before, after))
    answer = last_answer(change.tx, after) if before.attempt else None
    interrupted: Row | None = None
    if settles:
        interrupted = settle(change, conversation, after, content)
    elif after.status is RunStatus.COMPLETED and answer is not None and answer["tool_calls"]:
        complete_calls(change, conversation, after)
    shown = interrupted or answer
    steps = step_count(change.tx, before.id) if before.attempt else 0
    after = replace(after, line=after.line or _line(after, shown), steps=steps)
    if _may_have_requests(before):
        void_all(change, after)
    change.tx.swap_run(before, after)
    _spend_tokens(change, before, after)
    change.ended.append(after)
    if after.status is not RunStatus.COMPLETED and before.attempt:
        _close_steps(change, after)
    if shown is not None:
        announce.message_created(change, conversation, shown, after)
    _tell_trigger(change, before, after)
    plan = succession.plan_after(change, conversation, after)
    succession.hold(change, conversation, after, plan)
    conversation.set(message_count=_message_count(change, conversation, before), updated_at=change.now)
    announce.run_status(change, conversation, after)
    if before.status.is_owned:
        change.wake(run_topic(after.id))
    if start_next:
        succession.succeed(change, conversation, after, plan)
    return after


def _keep_attempt(change: Change, before: Run, after: Run) -> None:
    """Each attempt has its own times and reason; the run's reason is that of its own status."""
    if after.attempt > before.attempt:
        change.tx.put(
            Table.RUN_ATTEMPTS,
            {
                "run_id": after.id,
                "attempt": after.attempt,
                "conversation_id": after.conversation_id,
                "owner_id": after.owner_id,
                "epoch": after.epoch,
                "started_at": change.now,
            },
        )
    elif before.status.is_owned and not after.status.is_owned:
        change.tx.set(
            Table.RUN_ATTEMPTS,
            {"run_id": after.id, "attempt": after.attempt},
            {"ended_at": change.now, "reason": after.reason.value},
        )


def _naming_unknown_calls(change: Change, before: Run, after: Run) -> Run:
    """A run that nobody owns is stopped at once; what an earlier owner left without an outcome is named still."""
    if after.stop is None or before.status.is_owned or not before.attempt:
        return after
    unknown = tuple(journal.unknown_tools(change.tx, before.id))
    return replace(after, stop=replace(after.stop, unknown_calls=unknown))


def _naming_the_step(change: Change, after: Run) -> Run:
    """A stopped run says where: in its newest step, or behind it."""
    if after.stop is None or not after.attempt:
        return after
    newest = change.tx.find(Table.RUN_STEPS, {"run_id": after.id}, order=("-num",), limit=1)
    return replace(after, stop=replace(after.stop, step=newest[0]["name"])) if newest else after


def _spend_tokens(change: Change, before: Run, after: Run) -> None:
    """An epoch that is over takes an outside owner's token with it."""
    if before.owner_kind is OwnerKind.ADAPTER and not after.status.is_owned:
        tokens.spend(change, before)


def _tell_trigger(change: Change, before: Run, after: Run) -> None:
    status = TRIGGER_STATUS[after.status]
    if after.trigger_message_id is None or status is TRIGGER_STATUS[before.status]:
        return
    where = {"conversation_id": after.conversation_id, "id": after.trigger_message_id}
    change.tx.set(Table.MESSAGES, where, {"status": status.value})
    announce.trigger_status(change, after, status)


def _may_have_requests(run: Run) -> bool:
    """Whoever was claimed once and never parked has none; this spares the usual run a look."""
    return run.status is RunStatus.WAITING_INPUT or run.attempt + (run.status is RunStatus.QUEUED) > 1


def _close_steps(change: Change, run: Run) -> None:
    """No step goes on after its run. A tool that nobody waited for may have had its effect."""
    lost = run.stop.outcome == "forced" if run.stop else run.status is not RunStatus.CANCELLED
    running = {"run_id": run.id, "status": "running"}
    if lost:
        change.tx.change(Table.RUN_STEPS, {**running, "kind": "tool"}, {"status": "unknown"})
    change.tx.change(Table.RUN_STEPS, running, {"status": "cancelled" if run.stop else "failed"})


def _line(run: Run, shown: Row | None) -> str | None:
    """One line for the collapsed box: what came out, or why nothing did."""
    text = text_of(shown["content"]) if shown is not None else ""
    if run.status is RunStatus.FAILED and run.error_message:
        text = run.error_message
    return one_line(text, LINE_LENGTH) or None


def _message_count(change: Change, conversation: Conversation, before: Run) -> int:
    """The thread's count at its head, anchors excluded.

    For an agent without a message channel, and for one outside of this process, the rows are counted.
    """
    if not before.attempt:
        return int(conversation.row["message_count"])
    if before.renewed_at is None:
        head = head_checkpoint(change.tx, conversation.id)
        if head is None or head["message_count"]:
            return int(head["message_count"]) if head else 0
    change.write_messages()
    shown = {"conversation_id": conversation.id, "hidden": False, "pending_of": None}
    return change.tx.count(Table.MESSAGES, {**shown, "kind": In(("text", "tool"))})
