"""Route of the one read that brings a device up to date, however long it was away."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dromos.api.documented import documented
from dromos.api.door import caller, door_of
from dromos.api.native import decode, encode
from dromos.wire import answers, bodies

router = APIRouter(tags=["conversations"])


@router.get(
    "/v1/overview",
    **documented(
        "Read everything a device shows beside the open conversation, consistent and with its cursor",
        {200: answers.Overview},
        query=bodies.OverviewQuery,
    ),
)
async def read_overview(request: Request) -> Response:
    limit = decode.overview(request)
    found = await door_of(request).lifecycle.overview(caller(request).user_id, limit)
    return encode.ok(encode.overview(found))
