"""Renewing a lease on PostgreSQL: a connection of its own, so that no queue of other writes can delay it.

Every step is bounded to a few seconds: an owner must know soon that it could not renew.
"""

from __future__ import annotations

import psycopg

from dromos.domain.errors import StoreUnavailable
from dromos.store.postgres.connections import Link
from dromos.store.postgres.dialect import CLOCK, translate

STEP_TIMEOUT_S = 2

_RENEW = f"""
UPDATE leases
SET renewed_at = {CLOCK},
    lease_until = {CLOCK.replace("clock_timestamp()", "(clock_timestamp() + make_interval(secs => %s))")}
WHERE owner_id = %s
"""


class PostgresLeaseKeeper:
    """`ports.store.LeaseKeeper`; used by one thread."""

    def __init__(self, url: str) -> None:
        self._link = Link(
            url,
            statement_timeout_ms=STEP_TIMEOUT_S * 1000,
            longest_wait=STEP_TIMEOUT_S + 1,
            connect_timeout=STEP_TIMEOUT_S,
            tcp_user_timeout=STEP_TIMEOUT_S * 1000,
            application_name="dromos lease",
        )

    def renew(self, owner_id: str, ttl: float) -> bool:
        """Repeats itself once on a new connection: a renewal may happen twice without harm."""
        for again in (True, False):
            try:
                self._link.open()
                self._link.session.execute(_RENEW, (float(ttl), owner_id))
                return self._link.session.rowcount == 1
            except psycopg.Error as error:
                lost = self._link.is_lost
                self._link.drop()
                if lost and again:
                    continue
                raise translate(error) or StoreUnavailable(f"the lease cannot be renewed: {error}") from error
        raise AssertionError("unreachable")

    def close(self) -> None:
        self._link.drop()
