"""From the lifecycle's values to the answers of `/v1/adapter`. Pure: same value in, same bytes out."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from dromos.api.json import dumps
from dromos.domain.runs import Run
from dromos.lifecycle.adapters import Renewal, SessionClaim, decided_json
from dromos.lifecycle.contract import Answer
from dromos.lifecycle.effects import Told
from dromos.ports.store import Row
from dromos.wire import shapes

_SECRET = {"cache-control": "no-store"}


def claimed(claim: SessionClaim | None) -> Response:
    """200 with the run and its token, told once; 204 where no run waits."""
    if claim is None:
        return Response(status_code=204, headers=_SECRET)
    body = {
        "run": shapes.run_json(claim.run),
        "input": claim.input,
        "history": [shapes.message_json(row) for row in claim.history],
        "progress": [shapes.message_json(row) for row in claim.progress],
        "decisions": [decided_json(one) for one in claim.decisions],
        "applied": [decided_json(one) for one in claim.applied],
        "session_id": claim.session_id,
        "token": claim.token,
        "epoch": claim.run.epoch,
        "lease_until": shapes.moment(claim.lease_until),
        "lease_s": claim.lease_s,
    }
    return Response(dumps(body), 200, _SECRET, "application/json")


def stored(answer: Answer) -> Response:
    """What the operation answered in its own transaction, now or to an earlier request with the same key."""
    headers = {"Idempotency-Replayed": "true"} if answer.replayed else None
    return Response(answer.body.encode(), answer.status, headers, "application/json")


# --- encoders that run inside the operation's transaction: value → (status, JSON text)
def renewed(told: Renewal) -> tuple[int, str]:
    stop = None
    if told.stop_in is not None and told.run.stop is not None:
        stop = {"cause": told.run.stop.cause, "by": told.run.stop.by, "deadline_s": round(told.stop_in, 3)}
    steer = [{"id": row["id"], "content": row["content"]} for row in told.steer]
    lease = {"lease_until": shapes.moment(told.lease_until), "lease_s": told.lease_s}
    return _ok({**lease, "document_version": told.document_version, "stop": stop, "steer": steer})


def ended(run: Run) -> tuple[int, str]:
    return _ok({"run": shapes.run_json(run)})


def parked(told: tuple[Run, list[Row]]) -> tuple[int, str]:
    run, rows = told
    return _ok({"run": shapes.run_json(run), "requests": [shapes.request_json(row) for row in rows]})


def steps(count: int) -> tuple[int, str]:
    return _ok({"steps": count})


def effect(told: Told) -> tuple[int, str]:
    body = {
        "key": told.key,
        "state": told.state,
        "outcome": told.outcome,
        "run": shapes.run_json(told.run),
        "requests": [shapes.request_json(row) for row in told.asked],
    }
    return _ok(body)


def messages(rows: list[Row]) -> tuple[int, str]:
    return _ok({"messages": [shapes.message_json(row) for row in rows]})


def _ok(value: Any) -> tuple[int, str]:
    return 200, dumps(value).decode()
