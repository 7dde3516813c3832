"""Routes that tell about the server itself: agents, the caller, workers, health, metrics."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from dromos.api.documented import documented
from dromos.api.door import caller, door_of
from dromos.api.health import not_ready
from dromos.api.native import decode, encode
from dromos.wire import answers

router = APIRouter(tags=["server"])


@router.get(
    "/v1/agents",
    **documented("List the agents, and which model answers", {200: answers.Page[answers.Agent]}),
)
async def list_agents(request: Request) -> Response:
    decode.nothing(request)
    agents = door_of(request).deps.agents
    return encode.page(encode.agent(info, agents.default) for info in agents.infos())


@router.get("/v1/me", **documented("Read who the server takes you for", {200: answers.Person}))
async def read_me(request: Request) -> Response:
    decode.nothing(request)
    person = caller(request)
    return encode.ok({"id": person.user_id, "name": person.name})


@router.get(
    "/v1/workers",
    **documented("List the owners of runs and their leases", {200: answers.Page[answers.Worker]}),
)
async def list_workers(request: Request) -> Response:
    decode.nothing(request)
    rows = await door_of(request).lifecycle.owners()
    return encode.page(map(encode.worker, rows))


@router.get("/healthz", **documented("Say that the process lives", {200: answers.Health}))
async def healthz(request: Request) -> Response:
    return encode.ok({"status": "ok", "version": door_of(request).deps.version})


@router.get("/readyz", **documented("Say whether runs can be started", {200: answers.Health}))
async def readyz(request: Request) -> Response:
    problem = await not_ready(door_of(request))
    if problem is not None:
        return problem
    return encode.ok({"status": "ok", "version": door_of(request).deps.version})


@router.get(
    "/metrics",
    **documented("Read the figures, for Prometheus", {200: "Prometheus text."}, media="text/plain"),
)
async def metrics(request: Request) -> Response:
    door = door_of(request)
    door.metrics.show(await door.lifecycle.figures())
    return Response(generate_latest(door.deps.registry), 200, media_type=CONTENT_TYPE_LATEST)
