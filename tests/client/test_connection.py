"""Requests are repeated safely, and refusals become errors that say what to do."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dromos.client import (
    Client,
    ClientError,
    Conflict,
    Denied,
    InvalidRequest,
    NotFound,
    ProtocolError,
    ServerFault,
    ServerUnreachable,
)
from dromos.testing.local_http import LocalHTTP
from dromos.testing.processes import free_port
from tests.client.played import LosesAnswers


def answering(*answers: Response) -> tuple[Starlette, list[Request]]:
    """An application that gives these answers in turn (the last one again), and the requests it got."""
    seen: list[Request] = []

    async def answer(request: Request) -> Response:
        seen.append(request)
        return answers[min(len(seen), len(answers)) - 1]

    return Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST", "PATCH", "DELETE"])]), seen


async def test_a_lost_answer_is_asked_for_again_under_the_same_key() -> None:
    app, seen = answering(JSONResponse({"message": {"id": "m"}, "run": {"id": "r"}}, 201))
    transport = LosesAnswers(2)
    async with LocalHTTP(app) as http, Client(http.url, transport=transport) as client:
        assert (await client.post_message("c", "hello"))["run"] == {"id": "r"}
        await client.post_message("c", "hello")
    keys = [request.headers["idempotency-key"] for request in seen]
    assert keys[0] == keys[1] == keys[2]
    assert keys[3] != keys[0], "another call is another message"


async def test_a_busy_server_is_asked_again_and_a_refusal_is_not() -> None:
    busy = JSONResponse({"code": "store_unavailable", "detail": "wait"}, 503)
    refusal = JSONResponse({"code": "not_found", "detail": "no such run"}, 404)
    app, seen = answering(busy, busy, refusal)
    async with LocalHTTP(app) as http, Client(http.url) as client:
        with pytest.raises(NotFound, match="no such run"):
            await client.run("r")
    assert len(seen) == 3


async def test_without_patience_there_is_one_try() -> None:
    app, seen = answering(JSONResponse({"code": "store_unavailable", "detail": "wait"}, 503))
    async with LocalHTTP(app) as http, Client(http.url, patience=0) as client:
        with pytest.raises(ServerFault) as caught:
            await client.agents()
    assert (caught.value.status, caught.value.code, len(seen)) == (503, "store_unavailable", 1)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (422, InvalidRequest),
        (401, Denied),
        (403, Denied),
        (404, NotFound),
        (409, Conflict),
        (500, ServerFault),
    ],
)
async def test_a_problem_document_becomes_an_error(status: int, kind: type[Exception]) -> None:
    problem = {
        "code": "some_code",
        "detail": "do this",
        "run": {"id": "r"},
        "errors": [{"code": "x", "path": "/a", "message": "m"}],
    }
    app, _ = answering(JSONResponse(problem, status, media_type="application/problem+json"))
    async with LocalHTTP(app) as http, Client(http.url, patience=0) as client:
        with pytest.raises(kind) as caught:
            await client.cancel("r")
    error = caught.value
    assert isinstance(error, InvalidRequest | Denied | NotFound | Conflict | ServerFault)
    assert (error.code, error.detail, error.current) == ("some_code", "do this", {"run": {"id": "r"}})
    assert error.errors[0]["path"] == "/a"


@pytest.mark.parametrize("answer", [PlainTextResponse("no such page", 404), PlainTextResponse("<html>", 200)])
async def test_another_program_at_the_address_is_named(answer: Response) -> None:
    app, _ = answering(answer)
    async with LocalHTTP(app) as http, Client(http.url) as client:
        with pytest.raises(ProtocolError, match="is it a Dromos server"):
            await client.agents()


async def test_nobody_listens_and_the_error_says_the_cure() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with Client(url, patience=0.2) as client:
        with pytest.raises(ServerUnreachable, match="dromos serve") as caught:
            await client.agents()
    assert caught.value.url == url


@pytest.mark.parametrize("url", ["127.0.0.1:8321", "ftp://x", "http://", ""])
async def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(ClientError, match="not an address"):
        async with Client(url, patience=0) as client:
            await client.agents()


async def test_pages_are_fetched_until_the_last_and_no_more_than_asked_for() -> None:
    async def page(request: Request) -> Response:
        start = int(request.query_params.get("cursor", "0"))
        size = int(request.query_params["limit"])
        items = [{"id": n} for n in range(start, min(start + size, 450))]
        end = start + len(items)
        return JSONResponse({"items": items, "next_cursor": str(end) if end < 450 else None})

    app = Starlette(routes=[Route("/v1/runs", page)])
    async with LocalHTTP(app) as http, Client(http.url) as client:
        assert [run["id"] async for run in client.runs()] == list(range(450))
        assert [run["id"] async for run in client.runs(limit=7)] == list(range(7))
        assert [run["id"] async for run in client.runs(limit=201)] == list(range(201))


async def test_an_id_cannot_leave_its_place_in_the_path() -> None:
    app, seen = answering(JSONResponse({"code": "not_found", "detail": "none"}, 404))
    async with LocalHTTP(app) as http, Client(http.url) as client:
        with pytest.raises(NotFound):
            await client.run("../conversations?x=#y")
    assert seen[0].scope["raw_path"] == b"/v1/runs/..%2Fconversations%3Fx%3D%23y"


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    app, _ = answering(JSONResponse({"items": []}))
    async with LocalHTTP(app) as http, Client(http.url) as client:
        assert await client.agents() == []
