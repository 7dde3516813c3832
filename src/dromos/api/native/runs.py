"""Routes of runs, and of the follow-ups that stand around them."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dromos.api import feed, waiting
from dromos.api.documented import documented
from dromos.api.door import Door, caller, door_of
from dromos.api.native import decode, encode
from dromos.domain.runs import Run
from dromos.wire import answers, bodies, shapes

router = APIRouter(tags=["runs"])


@router.get(
    "/v1/runs",
    **documented("List runs, newest first", {200: answers.Page[answers.RunLine]}, query=bodies.RunsQuery),
)
async def list_runs(request: Request) -> Response:
    query = decode.runs(request)
    return encode.page(
        *await door_of(request).lifecycle.listed_runs(
            caller(request).user_id, query.status, query.conversation_id, query.limit, query.cursor
        )
    )


@router.get("/v1/runs/{run_id}", **documented("Read a run", {200: answers.Run}))
async def read_run(request: Request) -> Response:
    decode.nothing(request)
    run = await door_of(request).lifecycle.run(caller(request).user_id, decode.run_id(request))
    return encode.ok(shapes.run_json(run))


@router.get(
    "/v1/runs/{run_id}/steps",
    **documented("List what the run did", {200: answers.Page[answers.Step]}, query=bodies.PageQuery),
)
async def list_steps(request: Request) -> Response:
    query = decode.page(request)
    rows = await door_of(request).lifecycle.run_steps(caller(request).user_id, decode.run_id(request))
    return encode.slice_of(list(map(shapes.step_json, rows)), query.limit, query.cursor)


@router.get(
    "/v1/runs/{run_id}/events",
    **documented("List the run's durable events", {200: answers.Page[answers.Event]}),
)
async def list_events(request: Request) -> Response:
    decode.nothing(request)
    rows = await door_of(request).lifecycle.run_events(caller(request).user_id, decode.run_id(request))
    return encode.page(map(feed.public, rows))


@router.get(
    "/v1/runs/{run_id}/attempts",
    **documented("List who worked on the run", {200: answers.Page[answers.Attempt]}),
)
async def list_attempts(request: Request) -> Response:
    decode.nothing(request)
    rows = await door_of(request).lifecycle.run_attempts(caller(request).user_id, decode.run_id(request))
    return encode.page(map(shapes.attempt_json, rows))


@router.post(
    "/v1/runs/{run_id}/cancel",
    **documented(
        "Stop the run; the answer says that this is accepted for good",
        {202: answers.RunAnswer, 200: answers.RunAnswer},
        body=bodies.CancelRun,
        body_required=False,
        query=bodies.CancelQuery,
    ),
)
async def cancel_run(request: Request) -> Response:
    door, person, run_id = door_of(request), caller(request), decode.run_id(request)
    comment, seconds = await decode.cancel(request)
    before = await door.lifecycle.run(person.user_id, run_id)
    run = await door.lifecycle.request_cancel(person.user_id, run_id, comment=comment)
    if seconds and not run.is_final:
        run = await _ended(door, person.user_id, run_id, seconds)
    # 200 says that it has ended; a first stop that ends a waiting run at once is still an acceptance.
    status = 200 if run.is_final and (seconds or before.is_final) else 202
    return encode.ok({"run": shapes.run_json(run)}, status)


async def _ended(door: Door, user_id: str, run_id: str, seconds: float) -> Run:
    return await waiting.until(
        door.deps,
        user_id,
        lambda: door.lifecycle.run(user_id, run_id),
        lambda run: run.is_final,
        seconds=seconds,
    )


@router.get(
    "/v1/followups/{followup_id}",
    **documented("Read a follow-up and the texts it had", {200: answers.FollowupRead}),
    tags=["follow-ups"],
)
async def read_followup(request: Request) -> Response:
    decode.nothing(request)
    row, revisions = await door_of(request).lifecycle.followup(
        caller(request).user_id, decode.followup_id(request)
    )
    return encode.ok(encode.followup(row, revisions))


@router.patch(
    "/v1/followups/{followup_id}",
    **documented(
        "Edit or move a message that still waits", {200: answers.Followup}, body=bodies.ChangeFollowup
    ),
    tags=["follow-ups"],
)
async def change_followup(request: Request) -> Response:
    decode.nothing(request)
    followup_id = decode.followup_id(request)
    body = await decode.followup_change(request)
    row = await door_of(request).lifecycle.change_followup(
        caller(request).user_id, followup_id, body.version, content=body.content, position=body.position
    )
    return encode.ok(shapes.followup_json(row))


@router.delete(
    "/v1/followups/{followup_id}",
    **documented(
        "Throw away a message that still waits", {200: answers.Followup}, query=bodies.FollowupQuery
    ),
    tags=["follow-ups"],
)
async def discard_followup(request: Request) -> Response:
    version = decode.followup_version(request)
    row = await door_of(request).lifecycle.discard_followup(
        caller(request).user_id, decode.followup_id(request), version
    )
    return encode.ok(shapes.followup_json(row))


@router.post(
    "/v1/followups/{followup_id}/send",
    **documented(
        "Send a message that was held after a stop",
        {201: answers.MessageStarted, 202: answers.MessageWaits},
        body=bodies.SendFollowup,
        body_required=False,
        key=True,
    ),
    tags=["follow-ups"],
)
async def send_followup(request: Request) -> Response:
    decode.nothing(request)
    door, followup_id = door_of(request), decode.followup_id(request)
    version, key = await decode.followup_sending(request)
    return encode.stored(
        await door.lifecycle.send_followup(
            caller(request).user_id, followup_id, door.deps.agents.default, encode.posted, key, version
        )
    )
