"""Incarnations: who owns runs, and until when, by the database's clock.

An incarnation is one start of one process. Without `ttl` the exclusive lock of the data folder is the proof of life:
such a lease never expires, and every other worker incarnation is known to be dead.

An adapter session has no lease of its own: it keeps each of its runs alive by itself, so that one that it forgot is
found. That lease counts from the run's last renewal, or from when a server was there to be renewed at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from dromos.domain.runs import Run
from dromos.domain.statuses import OWNED, OwnerKind
from dromos.lifecycle.change import Change
from dromos.lifecycle.contract import Policy
from dromos.ports.store import In, Ne, ReadTx, Row, Table
from dromos.ports.wakeup import WORK
from dromos.wire.shapes import moment

SILENT_PART = 2 / 3
"""Part of an owner's time after which it is shown as silent; it renews at each third."""


def register_owner(change: Change, owner_id: str, kind: str, host: str, pid: int, ttl: float | None) -> None:
    strangers: Row = {"kind": kind, "owner_id": Ne(owner_id)}
    if ttl is not None:
        strangers["lease_until"] = None  # left by a process that had the data folder to itself
    change.tx.remove(Table.LEASES, strangers)
    change.tx.upsert(
        Table.LEASES,
        {
            "owner_id": owner_id,
            "kind": kind,
            "host": host,
            "pid": pid,
            "started_at": change.now,
            "renewed_at": change.now,
            "lease_until": None if ttl is None else change.now + timedelta(seconds=ttl),
        },
    )
    change.wake(WORK)


def is_valid(lease: Row, now: datetime) -> bool:
    """True where a lease holds at `now`, the database's time."""
    return lease["lease_until"] is None or bool(lease["lease_until"] > now)


def serve_anew(change: Change, owner_id: str) -> None:
    """The incarnation was not there for a while, though it never ended: its process or its machine slept."""
    change.tx.change(Table.LEASES, {"owner_id": owner_id}, {"started_at": change.now})


def retire_owner(change: Change, owner_id: str) -> None:
    """The incarnation is over; runs it still owns are taken by the next sweep."""
    change.tx.remove(Table.LEASES, {"owner_id": owner_id})


def serving_since(tx: ReadTx) -> datetime | None:
    """Since when there has been a server all the time; None where there is none now.

    The oldest of those that live: one that comes and goes beside others gives nobody more time.
    """
    now = tx.now()
    leases = tx.find(Table.LEASES, {"kind": OwnerKind.WORKER.value}, order=("started_at",))
    return next((row["started_at"] for row in leases if is_valid(row, now)), None)


def session_lease(tx: ReadTx, policy: Policy, run: Run) -> datetime:
    """Until when an adapter session has the run if it says nothing more."""
    counted_from = [moment for moment in (run.renewed_at, serving_since(tx)) if moment is not None]
    return max(counted_from, default=tx.now()) + timedelta(seconds=policy.adapter_grace)


def sessions_until(tx: ReadTx, policy: Policy) -> datetime | None:
    """An adapter's run that was renewed last then or before is nobody's; None: it is too early to tell of any.

    So it is where no server is known to be there now: whoever asks has slept, and nobody could renew meanwhile.
    """
    until = tx.now() - timedelta(seconds=policy.adapter_grace)
    since = serving_since(tx)
    return None if since is None or since > until else until


def owners_json(tx: ReadTx, policy: Policy, runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """By run: who has it, when that one was last seen, and, once it is silent, when it is taken over.

    Silent is who let two thirds of its time pass. Times by the database's clock, as texts; `seen_at` None where the
    data folder's lock is the proof of life.
    """
    owned = [run for run in runs if run.owner_id is not None]
    workers = sorted({str(run.owner_id) for run in owned if run.owner_kind is not OwnerKind.ADAPTER})
    rows = tx.find(Table.LEASES, {"owner_id": In(workers)}) if workers else []
    leases = {row["owner_id"]: row for row in rows}
    out: dict[str, dict[str, Any]] = {}
    for run in owned:
        seen: datetime | None
        until: datetime | None
        if run.owner_kind is OwnerKind.ADAPTER:
            seen, until = run.renewed_at, session_lease(tx, policy, run)
        else:
            lease = leases.get(str(run.owner_id), {})
            seen, until = lease.get("renewed_at"), lease.get("lease_until")
        silent = seen is not None and until is not None and tx.now() - seen > (until - seen) * SILENT_PART
        takeover = moment(until) if silent else None
        out[run.id] = {"kind": run.owner_kind, "seen_at": moment(seen), "takeover_at": takeover}
    return out


def silent_owners(
    tx: ReadTx, policy: Policy, conversation_ids: Sequence[str]
) -> dict[str, tuple[Run, dict[str, Any]]]:
    """By conversation: its run that has an owner, and the owner as `owners_json` tells it, where that is silent."""
    runs = tx.find_runs({"conversation_id": In(conversation_ids), "status": In(tuple(OWNED))})
    told = owners_json(tx, policy, runs)
    return {
        run.conversation_id: (run, told[run.id])
        for run in runs
        if run.id in told and told[run.id]["takeover_at"] is not None
    }


def has_live_owner(tx: ReadTx, policy: Policy, run: Run) -> bool:
    """True where somebody keeps the run alive, by the database's clock."""
    if run.owner_id is None:
        return False
    if run.owner_kind is OwnerKind.ADAPTER:
        return session_lease(tx, policy, run) > tx.now()
    lease = tx.first(Table.LEASES, {"owner_id": run.owner_id})
    return lease is not None and is_valid(lease, tx.now())
