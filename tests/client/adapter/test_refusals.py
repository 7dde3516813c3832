"""What the server refuses of a run's life costs only what is wrong with it: the run goes on and gets its end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from dromos.client import InvalidRequest
from dromos.client.adapter import AdapterRun, Answer
from dromos.testing.waiting import within
from tests.client.adapter.conftest import Person, serving

pytestmark = pytest.mark.slow(60)
Json = dict[str, Any]


class Strict(httpx.AsyncBaseTransport):
    """The real server behind one that refuses some of the requests for runs, by address and body."""

    def __init__(self, refuses: Callable[[str, Json], Json | None]) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self._refuses = refuses
        self.refused = asyncio.Event()
        self.went_on = asyncio.Event()
        """A renewal was taken after one was refused."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and "/v1/adapter/runs/" in request.url.path:
            body = json.loads(await request.aread() or b"{}")
            problem = self._refuses(request.url.path.rpartition("/")[2], body)
            if problem is not None:
                self.refused.set()
                return httpx.Response(problem["status"], json=problem)
        answer = await self._inner.handle_async_request(request)
        if request.url.path.endswith("/renew") and answer.is_success and self.refused.is_set():
            self.went_on.set()
        return answer

    async def aclose(self) -> None:
        await self._inner.aclose()


def problem(path: str, status: int = 422) -> Json:
    fault = {"code": "bad", "path": path, "message": "not this one"}
    return {"status": status, "code": "validation_failed", "detail": "The body is wrong.", "errors": [fault]}


async def test_a_session_id_that_the_server_refuses_is_left_out_and_told_and_the_run_goes_on(
    url: str, person: Person, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(action: str, body: Json) -> Json | None:
        return problem("/session_id") if body.get("session_id") == "bad" else None

    transport = Strict(refuses)
    told: list[Any] = []

    async def work(run: AdapterRun) -> Answer:
        run.session_id = "bad"
        await within(10, transport.went_on.wait(), "a renewal without it")
        with pytest.raises(InvalidRequest) as refused:
            await run.flush()
        told.append((refused.value.errors[0]["path"], run.session_id))
        await run.flush()
        return Answer("fine", session_id="bad")

    with caplog.at_level(logging.ERROR, "dromos.adapter"):
        async with serving(url, work, transport=transport):
            await person.say("go")
            run = await person.end()
    assert (run["status"], run["attempt"], run["session_id"]) == ("completed", 1, None)
    assert told == [("/session_id", None)]
    assert (await person.said())[-1] == ("assistant", "fine")
    assert "/session_id: not this one" in caplog.text


async def test_a_renewal_that_is_refused_is_made_again(
    url: str, person: Person, caplog: pytest.LogCaptureFixture
) -> None:
    left = [problem("/steer", status) for status in (400, 404, 429)]

    def refuses(action: str, body: Json) -> Json | None:
        return left.pop() if action == "renew" and left else None

    transport = Strict(refuses)

    async def work(run: AdapterRun) -> str:
        run.hint()
        await within(40, transport.went_on.wait(), "a renewal that is taken")
        return "still mine"

    with caplog.at_level(logging.ERROR, "dromos.adapter"):
        async with serving(url, work, transport=transport):
            await person.say("go")
            run = await person.end()
    assert (run["status"], run["attempt"]) == ("completed", 1)
    assert caplog.text.count("a renewal was refused, trying again") == 3


async def test_a_session_id_that_no_server_takes_is_an_error_where_it_is_set(
    url: str, person: Person
) -> None:
    async def work(run: AdapterRun) -> str:
        for wrong in ("", "x" * 201, 7):
            with pytest.raises(ValueError, match="1 to 200"):
                run.session_id = wrong  # type: ignore[assignment]
        run.session_id = "half \ud83d of a pair"
        return "fine"

    async with serving(url, work):
        await person.say("go")
        run = await person.end()
    assert (run["status"], run["session_id"]) == ("completed", "half \ufffd of a pair")


async def test_of_a_message_that_meets_a_stop_the_text_is_kept_as_cut_off(url: str, person: Person) -> None:
    """The stop is accepted, and the handler does not know it yet."""
    ready, go_on = asyncio.Event(), asyncio.Event()
    stops: list[Any] = []

    async def work(run: AdapterRun) -> str:
        ready.set()
        await go_on.wait()
        try:
            await run.say("as far as I came")
            await run.message(tool_calls=[{"id": "c1", "name": "search", "args": {}}])
        except asyncio.CancelledError:
            stops.append(run.stop)
            raise
        return "never"

    async with serving(url, work, listen=False):
        await person.say("go")
        await within(10, ready.wait(), "the handler")
        await person.client.cancel(person.run_id)
        go_on.set()
        run = await person.end()
    assert (run["status"], run["stop"]["outcome"]) == ("cancelled", "acknowledged")
    assert stops[0].cause == "cancel_requested"
    items = (await person.client.messages(person.conversation))["items"]
    last = [one for one in items if one["kind"] != "run"][-1]
    assert (last["role"], last["content"], last["interrupted"]) == ("assistant", "as far as I came", True)
