"""The calls of one run under its token: repeated while the lease allows, and ended for good when it is gone.

A POST keeps its Idempotency-Key over all tries, so it has one effect. An answer that says that the run is another's
by now, or over, ends the lease: from then on every call raises LeaseLost. It must not know what is sent.
"""

from __future__ import annotations

from typing import Any, Final

from dromos.client.adapter.lease import Lease
from dromos.client.connection import DELAYS, Connection
from dromos.client.errors import ApiError, ProtocolError, ServerFault, ServerUnreachable
from dromos.domain.errors import LeaseLost

Json = dict[str, Any]

ANSWER_SECONDS: Final = 10.0
MOST_FAULTS: Final = 5
"""Answers 500 to one call after which the caller hears of it; a busy server (502, 503, 504) is asked on and on."""
BUSY: Final = frozenset({502, 503, 504})
_OVER: Final = frozenset({"unknown_token", "other_run", "lease_lost", "run_not_active", "not_found"})


class RunCalls:
    """Speaks for the run `run_id` with its `token`, as long as `lease` lasts."""

    def __init__(self, connection: Connection, run_id: str, token: str, lease: Lease) -> None:
        self.run_id, self.lease = run_id, lease
        self._connection, self._token = connection, token

    async def post(self, action: str, body: Json) -> Json:
        """`POST /v1/adapter/runs/{id}/{action}` until there is an answer.

        Raises LeaseLost, the ApiError of a refusal, or ServerFault where the server fails again and again.
        """
        key = self._connection.new_key()
        attempt = faults = 0
        while True:
            try:
                return await self._once(
                    "POST", f"/v1/adapter/runs/{self.run_id}/{action}", body=body, key=key
                )
            except ServerFault as fault:
                faults += fault.status not in BUSY
                if faults >= MOST_FAULTS:
                    raise
            except ServerUnreachable:
                pass
            await self.lease.pause(DELAYS[min(attempt, len(DELAYS) - 1)])
            attempt += 1

    async def patch(self, body: Json) -> Json:
        """`PATCH /v1/runs/{id}/document`, one try. Raises LeaseLost, an ApiError or ServerUnreachable."""
        return await self._once("PATCH", f"/v1/runs/{self.run_id}/document", body=body)

    async def document(self) -> Json:
        """`GET /v1/runs/{id}/document`, as the person whose runs these are. One try."""
        return await self._once("GET", f"/v1/runs/{self.run_id}/document", token=None)

    async def _once(self, method: str, path: str, **options: Any) -> Json:
        self.lease.check()
        seconds = min(ANSWER_SECONDS, max(0.1, self.lease.left))
        try:
            answer: Json = await self._connection.json(
                method, path, patience=0, answer_seconds=seconds, **{"token": self._token, **options}
            )
        except ApiError as refusal:
            if refusal.status in (401, 403, 404, 409) and refusal.code in _OVER:
                self.lease.lose(refusal.detail)
                raise LeaseLost(refusal.detail) from refusal
            raise
        except ProtocolError as strange:  # a proxy's page, while the server behind it is away
            raise ServerFault(502, "not_this_api", strange.detail) from strange
        return answer
