"""Renewing a lease on SQLite: through the one writer, like every other write."""

from __future__ import annotations

from datetime import timedelta

from dromos.ports.store import Table, Tx
from dromos.store.lanes import Lane

ANSWER_TIMEOUT_S = 10.0


class SqliteLeaseKeeper:
    """`ports.store.LeaseKeeper`; called from any thread but a loop's."""

    def __init__(self, writer: Lane) -> None:
        self._writer = writer

    def renew(self, owner_id: str, ttl: float) -> bool:
        def extend(tx: Tx) -> bool:
            now = tx.now()
            until = now + timedelta(seconds=ttl)
            return (
                tx.change(Table.LEASES, {"owner_id": owner_id}, {"renewed_at": now, "lease_until": until})
                == 1
            )

        renewed: bool = self._writer.call(extend, ANSWER_TIMEOUT_S)
        return renewed

    def close(self) -> None:
        """Nothing to close: the writer is the store's."""
