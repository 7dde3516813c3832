"""From requests of `/v1/adapter` to what the lifecycle takes. Pure but for reading the body; decides nothing."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from dromos.api import requests
from dromos.api.door import Door
from dromos.domain.errors import Fault, Invalid
from dromos.lifecycle.adapters import ClaimAsk, End, SignOfLife
from dromos.lifecycle.contract import IdempotencyKey
from dromos.lifecycle.effects import Effect
from dromos.lifecycle.tokens import ClaimKey
from dromos.ports.agent import REMOTE
from dromos.wire import adapter
from dromos.wire.bodies import NoQuery

_MOST_NAMED = 20


def run_id(request: Request) -> str:
    requests.query(request, NoQuery)
    return requests.path_id(request, "run_id")


def token(request: Request) -> str | None:
    """The run token; None where there is none."""
    return requests.bearer(request)


async def claim(request: Request, door: Door, user_id: str) -> tuple[ClaimAsk, float, ClaimKey | None]:
    """What is asked for, how many seconds to wait for it, and the key of a claim that may be repeated."""
    requests.query(request, NoQuery)
    body, raw = await requests.body(request, adapter.ClaimRun)
    _check_remote(door, body.agents)
    key = requests.idempotency_key(request, raw)
    session = body.adapter_session
    ask = ClaimAsk(user_id, tuple(dict.fromkeys(body.agents)), session, body.prefer_own)
    claim_key = ClaimKey(user_id, session, key.key, key.body_sha256) if key else None
    return ask, body.wait_s, claim_key


def _check_remote(door: Door, names: list[str]) -> None:
    """Raises `Invalid` where one of the agents is carried out by the server itself, or is not known at all."""
    remote = sorted(info.name for info in door.deps.agents.infos() if info.kind == REMOTE)
    known = ", ".join(remote[:_MOST_NAMED]) or "none"
    told = f"not an agent that runs elsewhere; those are: {known}"
    faults = [
        Fault("agent_not_remote", f"/agents/{place}", told)
        for place, name in enumerate(names)
        if name not in remote
    ]
    if faults:
        wrong = next(name for name in names if name not in remote)
        raise Invalid(
            f"No adapter may claim runs of `{wrong}`. Write [agents.{wrong}] remote = true into dromos.toml, or name "
            f"another agent; those that run elsewhere are: {known}.",
            faults=faults,
        )


async def renewal(request: Request) -> tuple[SignOfLife, IdempotencyKey | None]:
    body, raw = await requests.body(request, adapter.RenewRun, optional=True)
    sign = SignOfLife(bool(body.activity), body.document_version, body.session_id, body.steer)
    return sign, requests.idempotency_key(request, raw)


async def end(request: Request) -> tuple[End, IdempotencyKey | None]:
    body, raw = await requests.body(request, adapter.EndRun)
    return End(**body.model_dump()), requests.idempotency_key(request, raw)


async def steps(request: Request) -> tuple[list[dict[str, Any]], IdempotencyKey | None]:
    body, raw = await requests.body(request, adapter.ReportSteps)
    return [step.model_dump() for step in body.steps], requests.idempotency_key(request, raw)


async def effect(request: Request) -> tuple[Effect, IdempotencyKey | None]:
    body, raw = await requests.body(request, adapter.ReportEffect)
    return Effect(**body.model_dump()), requests.idempotency_key(request, raw)


async def messages(request: Request) -> tuple[list[dict[str, Any]], IdempotencyKey | None]:
    body, raw = await requests.body(request, adapter.AppendMessages)
    return [message.model_dump() for message in body.messages], requests.idempotency_key(request, raw)


async def asked(request: Request) -> tuple[list[dict[str, Any]], IdempotencyKey | None]:
    body, raw = await requests.body(request, adapter.OpenRequests)
    return [one.model_dump() for one in body.requests], requests.idempotency_key(request, raw)
