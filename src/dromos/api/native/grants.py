"""Routes of leave that was given for good: what is in force, and taking it back."""

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
    "/v1/grants",
    **documented(
        "List what was allowed for good and is in force, newest first",
        {200: answers.Page[answers.Grant]},
        query=bodies.GrantsQuery,
    ),
)
async def list_grants(request: Request) -> Response:
    query = decode.grants(request)
    rows, cursor = await door_of(request).lifecycle.grants(
        caller(request).user_id, query.conversation_id, query.limit, query.cursor
    )
    return encode.page(map(shapes.grant_json, rows), cursor)


@router.delete(
    "/v1/grants/{grant_id}",
    **documented("Take leave back: from the next call on a person is asked", {204: "It counts no more."}),
)
async def revoke_grant(request: Request) -> Response:
    decode.nothing(request)
    await door_of(request).lifecycle.revoke_grant(caller(request).user_id, decode.grant_id(request))
    return Response(status_code=204)
