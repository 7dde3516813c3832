"""What is kept for a time only: stored answers, events beyond their days, leases of processes long gone,
run tokens that were spent.

Events leave oldest first, per user, so that what is kept is contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from dromos.lifecycle import tokens
from dromos.lifecycle.change import Change
from dromos.lifecycle.contract import Policy
from dromos.ports.store import Le, Lt, ReadTx, Table

BATCH = 1000
_LEASE_KEPT = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Outdated:
    """What a sweep may remove. `events`: by user, the number up to which events are too old."""

    answers: bool
    leases: bool
    tokens: bool
    events: dict[str, int]

    def __bool__(self) -> bool:
        return self.answers or self.leases or self.tokens or bool(self.events)


def list_outdated(tx: ReadTx, policy: Policy) -> Outdated:
    now = tx.now()
    answers = tx.first(Table.IDEMPOTENCY, {"created_at": Lt(_answers_before(policy, now))}) is not None
    leases = tx.first(Table.LEASES, {"lease_until": Lt(now - _LEASE_KEPT)}) is not None
    return Outdated(answers, leases, tokens.any_outdated(tx), _old_events(tx, policy, now))


def remove_outdated(change: Change, outdated: Outdated) -> int:
    """How many rows were removed."""
    tx, removed = change.tx, 0
    if outdated.answers:
        removed += tx.remove(
            Table.IDEMPOTENCY, {"created_at": Lt(_answers_before(change.policy, change.now))}
        )
    if outdated.leases:
        removed += tx.remove(Table.LEASES, {"lease_until": Lt(change.now - _LEASE_KEPT)})
    if outdated.tokens:
        removed += tokens.remove_outdated(change)
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
