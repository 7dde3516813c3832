"""Incarnations: who owns runs, and until when, by the database's clock.

An incarnation is one start of one process. Without `ttl` the exclusive lock of the data folder is the proof of life:
such a lease never expires, and every other worker incarnation is known to be dead.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from dromos.lifecycle.change import Change
from dromos.ports.store import Ne, Row, Table
from dromos.ports.wakeup import WORK


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


def retire_owner(change: Change, owner_id: str) -> None:
    """The incarnation is over; runs it still owns are taken by the next sweep."""
    change.tx.remove(Table.LEASES, {"owner_id": owner_id})
