"""T1: how a run comes to be. One function, used by every way that leads to a run: a message, a follow-up, Continue.

It inserts and never moves a run; whoever calls it holds the conversation and knows that no other run is live. What
waits in the conversation waits for this run from now on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dromos.domain.backend import narrowed
from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import TriggerStatus
from dromos.domain.text import text_of, title_of
from dromos.lifecycle import announce
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.contract import RunOptions
from dromos.lifecycle.followup_rows import wait_for
from dromos.ports.store import Row, Table
from dromos.ports.wakeup import WORK


@dataclass(frozen=True, slots=True)
class Begin:
    """Why a run begins, and from what: a new message (`content`), or one that is there (`trigger`)."""

    reason: Reason
    agent: str
    options: RunOptions
    content: Any = None
    trigger: str | None = None
    resume_of: str | None = None
    retry_of: str | None = None


def start_run(change: Change, conversation: Conversation, begin: Begin) -> tuple[Run, Row | None]:
    """Insert message (where it is new), anchor and run with their events; returns the run and the new message."""
    run_id, now, options = change.ids.new(), change.now, begin.options
    message: Row | None = None
    trigger = begin.trigger
    if trigger is None:
        message = change.add_message(
            conversation,
            role="user",
            content=begin.content,
            status=TriggerStatus.PENDING.value,
            run_id=run_id,
        )
        trigger = message["id"]
    anchor = change.add_message(conversation, kind="run", run_id=run_id)
    policy = change.policy
    run = Run(
        id=run_id,
        user_id=conversation.user_id,
        conversation_id=conversation.id,
        agent=begin.agent,
        created_at=now,
        reason=begin.reason,
        trigger_message_id=trigger,
        anchor_message_id=anchor["id"],
        resume_of=begin.resume_of,
        retry_of=begin.retry_of,
        backend_policy=narrowed(policy.backend_of(begin.agent), options.backend_policy or {}),
        model=options.model,
        budget=options.budget,
        step_limit=policy.step_limit_of(begin.agent),
        recovery=policy.recovery_of(begin.agent),
        deadline_at=_after(change, options.deadline_s),
        queue_deadline_at=_after(change, policy.queue_deadline),
    )
    change.tx.insert_run(run)
    conversation.set(last_run_id=run.id, updated_at=now)
    if not conversation.row["title"]:
        title = title_of(text_of(begin.content))
        if title:
            conversation.set(title=title)
            announce.conversation_changed(change, conversation, run.status)
    if message is not None:
        announce.message_created(change, conversation, message, run)
    else:
        where = {"conversation_id": conversation.id, "id": trigger}
        if change.tx.change(Table.MESSAGES, where, {"status": TriggerStatus.PENDING.value}):
            announce.trigger_status(change, run, TriggerStatus.PENDING)
    announce.message_created(change, conversation, anchor, run)
    wait_for(change, conversation, run)
    announce.run_status(change, conversation, run)
    change.wake(WORK)
    return run, message


def _after(change: Change, seconds: float | None) -> Any:
    return None if seconds is None else change.now + timedelta(seconds=seconds)


def options_json(options: RunOptions) -> Row | None:
    """What a message asked of its run, as it is stored with a follow-up."""
    values = {name: getattr(options, name) for name in RunOptions.__slots__}
    kept = {name: value for name, value in values.items() if value is not None}
    return kept or None


def options_from(stored: Row | None) -> RunOptions:
    return RunOptions(**(stored or {}))
