"""What is kept for a time only: stored answers, events beyond their days, leases of processes long gone,
run tokens that were spent, records of tool calls whose results the thread has.

Events leave oldest first, per user, so that what is kept is contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from dromos.domain.reasons import Reason
from dromos.lifecycle import tokens
from dromos.lifecycle.change import Change
from dromos.lifecycle.contract import Policy
from dromos.lifecycle.journal import KEPT
from dromos.lifecycle.resume import continuation
from dromos.ports.store import Le, Lt, ReadTx, Table

BATCH = 1000
_LEASE_KEPT = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Outdated:
    """What a sweep may remove. `events`: by user, the number up to which events are too old;
    `calls`: conversations whose records of tool calls are to be looked at."""

    answers: bool
    leases: bool
    tokens: bool
    events: dict[str, int]
    calls: list[str]

    def __bool__(self) -> bool:
        return self.answers or self.leases or self.tokens or bool(self.events or self.calls)


def list_outdated(tx: ReadTx, policy: Policy) -> Outdated:
    now = tx.now()
    answers = tx.first(Table.IDEMPOTENCY, {"created_at": Lt(_answers_before(policy, now))}) is not None
    leases = tx.first(Table.LEASES, {"lease_until": Lt(now - _LEASE_KEPT)}) is not None
    return Outdated(answers, leases, tokens.any_outdated(tx), _old_events(tx, policy, now), _old_calls(tx))


def remove_outdated(change: Change, outdated: Outdated) -> int:
    """How many rows were removed or kept for longer."""
    tx, removed = change.tx, 0
    if outdated.answers:
        removed += tx.remove(
            Table.IDEMPOTENCY, {"created_at": Lt(_answers_before(change.policy, change.now))}
        )
    if outdated.leases:
        removed += tx.remove(Table.LEASES, {"lease_until": Lt(change.now - _LEASE_KEPT)})
    if outdated.tokens:
        removed += tokens.remove_outdated(change)
    for conversation_id in outdated.calls:
        removed += _let_go(change, conversation_id)
    for user_id, seq in sorted(outdated.events.items()):
        user = tx.lock(Table.USERS, {"id": user_id})
        if user is not None and user["first_seq"] <= seq:
            removed += tx.remove(Table.EVENTS, {"user_id": user_id, "seq": Le(seq)})
            tx.change(Table.USERS, {"id": user_id}, {"first_seq": seq + 1})
    return removed


def _answers_before(policy: Policy, now: datetime) -> datetime:
    return now - timedelta(days=policy.idempotency_days)


def _old_events(tx: ReadTx, policy: Policy, now: datetime) -> dict[str, int]:
    if policy.event_retention_days is None:
        return {}
    limit = now - timedelta(days=policy.event_retention_days)
    old: dict[str, int] = {}
    for user in tx.find(Table.USERS, {}, columns=("id",)):
        oldest = tx.find(
            Table.EVENTS, {"user_id": user["id"]}, order=("seq",), limit=BATCH, columns=("seq", "at")
        )
        for row in oldest:
            if row["at"] >= limit:
                break
            old[user["id"]] = row["seq"]
    return old


def _old_calls(tx: ReadTx) -> list[str]:
    """Conversations with calls whose record may have been kept for long enough."""
    due = {"keep_until": Le(tx.now())}
    found = tx.find(Table.TOOL_CALLS, due, columns=("conversation_id",), limit=BATCH)
    return sorted({row["conversation_id"] for row in found})


def _let_go(change: Change, conversation_id: str) -> int:
    """Remove this conversation's outdated records of calls; keep them for longer where its newest run may still ask for
    them or ended a moment ago."""
    tx = change.tx
    conversation = tx.first(Table.CONVERSATIONS, {"id": conversation_id})
    last = tx.load_run(conversation["last_run_id"]) if conversation is not None else None
    due = {"conversation_id": conversation_id, "keep_until": Le(change.now)}
    until = change.now
    if last is not None:
        way = continuation(tx, last)
        resumable = way is not None and way.reason is Reason.RESUME_OF
        until = KEPT + (change.now if resumable or last.finished_at is None else last.finished_at)
    if until > change.now:
        return tx.change(Table.TOOL_CALLS, due, {"keep_until": until})
    return tx.remove(Table.TOOL_CALLS, due)
