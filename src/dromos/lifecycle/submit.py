"""What a person sends: conversations, and messages that start a run (T1) or wait for the live one.

Accepting and finishing hold the same row, the conversation's: a message is either there when the run ends and
starts the next one, or it finds no live run and starts its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dromos.domain.backend import check_narrower
from dromos.domain.errors import ConversationBusy, TooManyWaiting
from dromos.domain.followups import acts_as
from dromos.domain.machine import Supersede, ended_open
from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import FollowupStatus, RunStatus, WhenBusy
from dromos.domain.text import clean_json, clean_text
from dromos.lifecycle import announce
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.contract import Posted, PostMessage, RunOptions
from dromos.lifecycle.followup_rows import add_revision, check_size
from dromos.lifecycle.repair import settle
from dromos.lifecycle.starting import Begin, options_json, start_run
from dromos.lifecycle.transition import transition
from dromos.ports.store import Row, Table
from dromos.wire.shapes import run_json


def ensure_user(change: Change, user_id: str, name: str) -> None:
    """Of several processes that start at once on an empty database the first one makes the row; the others get a
    `Duplicate`, and it is there."""
    if change.tx.first(Table.USERS, {"id": user_id}) is None:
        row = {
            "id": user_id,
            "name": clean_text(name),
            "last_seq": 0,
            "first_seq": 1,
            "created_at": change.now,
        }
        change.tx.put(Table.USERS, row)


def create_conversation(change: Change, user_id: str, title: str | None, agent: str) -> Conversation:
    conversation = change.new_conversation(user_id, clean_text(title or "").strip(), agent)
    announce.conversation_changed(change, conversation, "idle")
    return conversation


def change_conversation(
    change: Change,
    conversation: Conversation,
    *,
    title: str | None,
    archived: bool | None,
    seen_seq: int | None,
) -> Run | None:
    """Every device is told of a new title, of the archive, and that something was looked at. Returns the newest run."""
    last = last_run(change, conversation)
    told: dict[str, Any] = {}
    if seen_seq is not None:
        user = change.tx.first(Table.USERS, {"id": conversation.user_id})
        newest = user["last_seq"] if user else 0
        seen = max(conversation.row["seen_seq"], min(seen_seq, newest))
        conversation.set(seen_seq=seen)
        if 0 < conversation.row["unseen_seq"] <= seen:
            told["unseen_seq"] = 0
    if title is not None:
        told["title"] = clean_text(title).strip()
    if archived is not None:
        told["archived"] = archived
    if told:
        conversation.set(**told)
        announce.conversation_changed(change, conversation, last.status if last else "idle")
    return last


def last_run(change: Change, conversation: Conversation) -> Run | None:
    """The newest run; it is the live one where there is a live one."""
    run_id = conversation.row["last_run_id"]
    return change.tx.load_run(run_id) if run_id else None


def post_message(
    change: Change, user_id: str, conversation: Conversation | None, post: PostMessage, default_agent: str
) -> Posted:
    """`conversation` is locked; None: a new one."""
    content, _ = clean_json(post.content)
    if conversation is None:
        agent = post.options.agent or default_agent
        conversation = change.new_conversation(user_id, "", agent)
        last = None
    else:
        agent = post.options.agent or conversation.row["agent"] or default_agent
        last = last_run(change, conversation)
    check_narrower(change.policy.backend_of(agent), post.options.backend_policy or {})
    begin = Begin(Reason.CREATED, agent, post.options, content=content)
    if last is not None and not last.is_final:
        return _while_busy(change, conversation, last, post, begin)
    settle_open_end(change, conversation, last)
    run, message = start_run(change, conversation, begin)
    return Posted(conversation.row, message=message, run=run)


def settle_open_end(change: Change, conversation: Conversation, last: Run | None) -> None:
    """An end that was left open for Continue is put in order, because a message starts the next run instead."""
    if last is not None and ended_open(last):
        interrupted = settle(change, conversation, last)
        if interrupted is not None:
            announce.message_created(change, conversation, interrupted, None)


def _while_busy(
    change: Change, conversation: Conversation, live: Run, post: PostMessage, begin: Begin
) -> Posted:
    if post.when_busy is WhenBusy.REJECT:
        raise ConversationBusy(
            "A run is under way in this conversation; wait for it, stop it, or send with when_busy=queue.",
            current={"run": run_json(live)},
        )
    if post.when_busy is WhenBusy.INTERRUPT:
        locked = change.tx.lock_run(live.id) or live
        if locked.status is not RunStatus.CANCELLING:
            after = transition(change, conversation, locked, Supersede(), start_next=False)
            if after.is_final:
                run, message = start_run(change, conversation, begin)
                return Posted(conversation.row, message=message, run=run)
            followup = _add_followup(change, conversation, after, post, begin.content, during_stop=False)
            return Posted(conversation.row, followup=followup)
        live = locked
    during_stop = live.status is RunStatus.CANCELLING
    followup = _add_followup(change, conversation, live, post, begin.content, during_stop=during_stop)
    return Posted(conversation.row, followup=followup)


def _add_followup(
    change: Change,
    conversation: Conversation,
    live: Run,
    post: PostMessage,
    content: Any,
    *,
    during_stop: bool,
) -> Row:
    """Behind what waits or is held already; a message that interrupts goes before it."""
    others = change.followups(conversation)
    _must_fit(change, others, content, live)
    places = [row["position"] for row in others]
    mode = acts_as(post.when_busy, live.status, can_steer=_can_steer(change, live, post.options))
    front = mode is WhenBusy.INTERRUPT
    row: Row = {
        "id": change.ids.new(),
        "user_id": conversation.user_id,
        "conversation_id": conversation.id,
        "run_id": live.id,
        "status": FollowupStatus.WAITING.value,
        "when_busy": mode.value,
        "asked": None if mode is post.when_busy else post.when_busy.value,
        "content": content,
        "run_options": options_json(post.options),
        "position": min(places, default=1) - 1 if front else max(places, default=0) + 1,
        "version": 1,
        "during_stop": during_stop,
        "message_id": None,
        "created_at": change.now,
        "updated_at": change.now,
    }
    change.tx.put(Table.RUN_FOLLOWUPS, dict(row))
    add_revision(change, row, conversation.user_id, 1)
    others.insert(0 if front else len(others), row)
    announce.followup_changed(change, row, live)
    return row


def _must_fit(change: Change, others: Sequence[Row], content: Any, live: Run) -> None:
    """Every change of the run's status tells all that waits: its number is bounded, and its size where several wait."""
    if len(others) >= change.policy.waiting_limit:
        raise TooManyWaiting(
            f"{len(others)} messages wait or are held in this conversation, as many as there may be. Let runs take"
            " them, discard some, or raise conversations.waiting_limit.",
            current={"run": run_json(live)},
        )
    check_size([content, *(row["content"] for row in others)])


def _can_steer(change: Change, live: Run, options: RunOptions) -> bool:
    """Whether the live run can read this message. One that asks for what that run is not wants a run of its own."""
    same = options.agent in (None, live.agent) and options.model in (None, live.model, live.model_used)
    return (
        change.policy.steers(live.agent) and same and replace(options, agent=None, model=None) == RunOptions()
    )
