"""Routes of questions to a person: the list of what waits, and the person's word on one."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dromos.api.documented import documented
from dromos.api.door import caller, door_of
from dromos.api.native import decode, encode
from dromos.wire import answers, bodies, shapes

router = APIRouter(tags=["requests"])


@router.get(
    "/v1/requests",
    **documented(
        "List open questions over all conversations, oldest first",
        {200: answers.Page[answers.Request]},
        query=bodies.RequestsQuery,
    ),
)
async def list_requests(request: Request) -> Response:
    query = decode.open_requests(request)
    rows, cursor = await door_of(request).lifecycle.requests(
        caller(request).user_id, query.limit, query.cursor
    )
    return encode.page(map(shapes.request_json, rows), cursor)


@router.get("/v1/requests/{request_id}", **documented("Read a question", {200: answers.Request}))
async def read_request(request: Request) -> Response:
    decode.nothing(request)
    row = await door_of(request).lifecycle.request(caller(request).user_id, decode.request_id(request))
    return encode.ok(shapes.request_json(row))


@router.post(
    "/v1/requests/{request_id}/decision",
    **documented(
        "Approve, deny or answer; with the last decision the run goes on",
        {200: answers.RequestDecided},
        body=bodies.DecideRequest,
        key=True,
    ),
)
async def decide_request(request: Request) -> Response:
    decode.nothing(request)
    request_id = decode.request_id(request)
    decision, key = await decode.decision(request)
    return encode.stored(
        await door_of(request).lifecycle.decide(
            caller(request).user_id, request_id, decision, encode.decided, key
        )
    )
