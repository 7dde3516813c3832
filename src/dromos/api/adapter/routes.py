"""Routes of agents that run elsewhere. Claiming is a person's; everything else goes by the run's token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dromos.api.adapter import decode, encode, patience
from dromos.api.documented import documented
from dromos.api.door import caller, door_of
from dromos.domain.errors import Refusal
from dromos.wire import adapter

T = TypeVar("T")

router = APIRouter(tags=["adapters"])


@router.post(
    "/v1/adapter/claim",
    **documented(
        "Take a run that waits for one of these agents",
        {200: adapter.ClaimedRun, 204: "No run waits."},
        body=adapter.ClaimRun,
        key=True,
    ),
)
async def claim(request: Request) -> Response:
    door = door_of(request)
    ask, seconds, key = await decode.claim(request, door, caller(request).user_id)
    return encode.claimed(await patience.claimed(request, door, ask, key, seconds))


@router.post(
    "/v1/adapter/runs/{run_id}/renew",
    **documented(
        "Keep a run alive, and hear of a stop or of messages to steer by",
        {200: adapter.Renewed},
        body=adapter.RenewRun,
        body_required=False,
        key=True,
        token=True,
    ),
)
async def renew(request: Request) -> Response:
    run_id = decode.run_id(request)
    sign, key = await _read(request, run_id, decode.renewal)
    door = door_of(request)
    answer, patched = await door.lifecycle.outside.renew(
        run_id, decode.token(request), sign, encode.renewed, key
    )
    if patched is not None:
        door.deps.live.relay(patched)
    return encode.stored(answer)


@router.post(
    "/v1/adapter/runs/{run_id}/transition",
    **documented("End the run", {200: adapter.EndedRun}, body=adapter.EndRun, key=True, token=True),
)
async def end(request: Request) -> Response:
    run_id = decode.run_id(request)
    told, key = await _read(request, run_id, decode.end)
    return encode.stored(
        await door_of(request).lifecycle.outside.end(run_id, decode.token(request), told, encode.ended, key)
    )


@router.post(
    "/v1/adapter/runs/{run_id}/steps",
    **documented(
        "Report what the run did", {200: adapter.StepsStored}, body=adapter.ReportSteps, key=True, token=True
    ),
)
async def report_steps(request: Request) -> Response:
    run_id = decode.run_id(request)
    steps, key = await _read(request, run_id, decode.steps)
    return encode.stored(
        await door_of(request).lifecycle.outside.report_steps(
            run_id, decode.token(request), steps, encode.steps, key
        )
    )


@router.post(
    "/v1/adapter/runs/{run_id}/effects",
    **documented(
        "Tell of a call before it is made, and what came of it",
        {200: adapter.EffectKnown},
        body=adapter.ReportEffect,
        key=True,
        token=True,
    ),
)
async def report_effect(request: Request) -> Response:
    run_id = decode.run_id(request)
    effect, key = await _read(request, run_id, decode.effect)
    return encode.stored(
        await door_of(request).lifecycle.outside.report_effect(
            run_id, decode.token(request), effect, encode.effect, key
        )
    )


@router.post(
    "/v1/adapter/runs/{run_id}/messages",
    **documented(
        "Append to the conversation's history",
        {200: adapter.MessagesStored},
        body=adapter.AppendMessages,
        key=True,
        token=True,
    ),
)
async def append_messages(request: Request) -> Response:
    run_id = decode.run_id(request)
    messages, key = await _read(request, run_id, decode.messages)
    return encode.stored(
        await door_of(request).lifecycle.outside.append_messages(
            run_id, decode.token(request), messages, encode.messages, key
        )
    )


@router.post(
    "/v1/adapter/runs/{run_id}/requests",
    **documented(
        "Ask a person, and give the run back until they answered",
        {200: adapter.ParkedRun},
        body=adapter.OpenRequests,
        key=True,
        token=True,
    ),
)
async def open_requests(request: Request) -> Response:
    run_id = decode.run_id(request)
    asked, key = await _read(request, run_id, decode.asked)
    return encode.stored(
        await door_of(request).lifecycle.outside.park(
            run_id, decode.token(request), asked, encode.parked, key
        )
    )


async def _read(request: Request, run_id: str, decoded: Callable[[Request], Awaitable[T]]) -> T:
    """The body. What is wrong with it is told only to whoever may write for the run: the token comes first."""
    try:
        return await decoded(request)
    except Refusal:
        await door_of(request).lifecycle.outside.look(run_id, decode.token(request))
        raise
