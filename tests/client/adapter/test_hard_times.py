"""Servers that die, freeze or take a run away, connections that break: a run goes on or is let go, never doubled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from dromos.client.adapter import AdapterRun, AdapterSession, Answer, LeaseLost
from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import eventually, within
from tests.client.adapter.conftest import Person, person_at, serving, with_agents

pytestmark = pytest.mark.slow(90)
SHORT = {"DROMOS_ADAPTERS_GRACE_S": "3"}
LONG = {"DROMOS_ADAPTERS_GRACE_S": "120"}  # a busy machine may take its time to start a server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServeProcess]:
    async with ServeProcess(with_agents(tmp_path) / "data", env=LONG) as server:
        yield server


async def words(run: AdapterRun, count: int) -> None:
    """Says `0 1 2 …`, slowly."""
    run.box.plan = [str(number) for number in range(count)]
    for number in range(count):
        run.box.plan_item(str(number + 1), "active")
        with run.box.step(f"step {number}"):
            await asyncio.sleep(0.05)
            await run.say(f"{number} ")
        run.box.plan_item(str(number + 1), "done")


def counted(count: int) -> str:
    return "".join(f"{number} " for number in range(count))


@pytest.mark.full
async def test_a_run_outlives_the_server_that_is_killed_and_started_again(server: ServeProcess) -> None:
    async def work(run: AdapterRun) -> Answer:
        await words(run, 60)
        return Answer(line="counted")

    async with person_at(server.url) as person, serving(server.url, work):
        await person.say("count")
        await person.sees(lambda view: "9 " in view.text)
        server.kill()
        await server.restart()
        run = await person.end(seconds=40)
        assert (run["status"], run["attempt"], run["crashes"]) == ("completed", 1, 0)
        assert await person.said() == [("user", "count"), ("assistant", counted(60))]
        document = await person.document()
        assert document["text"]["content"] == counted(60)
        assert {one["status"] for one in document["plan"]} == {"done"}
        assert [one["name"] for one in document["steps"]] == [f"step {number}" for number in range(10, 60)]
        steps = [step["name"] async for step in person.client.steps(run["id"])]
        assert steps == [f"step {number}" for number in range(60)]


@pytest.mark.full
async def test_an_end_that_the_server_died_on_is_reported_to_the_next_one_once(server: ServeProcess) -> None:
    ready, go_on = asyncio.Event(), asyncio.Event()

    async def work(run: AdapterRun) -> str:
        await run.message("a note")
        ready.set()
        await go_on.wait()
        return "the answer"

    async with person_at(server.url) as person, serving(server.url, work):
        await person.say("go")
        await within(10, ready.wait(), "the handler's end")
        server.kill()
        await server.wait_exit()
        go_on.set()
        await server.start()
        run = await person.end(seconds=30)
        assert (run["status"], run["attempt"]) == ("completed", 1)
        assert await person.said() == [("user", "go"), ("assistant", "a note"), ("assistant", "the answer")]


class Leaky(httpx.AsyncBaseTransport):
    """Of the requests for runs, loses some before they are sent and the answers of others."""

    def __init__(self, seed: int) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self._random = random.Random(seed)
        self.lost = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        luck = self._random.random() if "/stream" not in request.url.path else 1.0
        if luck < 0.25:
            self.lost += 1
            raise httpx.ConnectError("lost on the way", request=request)
        answer = await self._inner.handle_async_request(request)
        if luck < 0.5:
            self.lost += 1
            await answer.aread()
            await answer.aclose()
            raise httpx.ReadError("the answer was lost", request=request)
        return answer

    async def aclose(self) -> None:
        await self._inner.aclose()


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_lost_requests_and_answers_change_nothing(url: str, person: Person, seed: int) -> None:
    steers: list[str] = []

    async def work(run: AdapterRun) -> str:
        await run.say("first")
        await run.message()
        await words(run, 20)
        while len(steers) < 3:
            async for steer in run.steering():
                steers.append(steer.text)
            await asyncio.sleep(0.01)
        answer = await run.ask("Well?")
        return f"said {answer.answer}" if answer else ""

    transport = Leaky(seed)
    async with serving(url, work, transport=transport):
        await person.say("go")
        for number in range(3):
            await person.say(f"steer {number}", when_busy="steer")
        await person.sees(lambda view: view.run["status"] == "waiting_input", seconds=40)
        assert (await person.document())["text"]["content"] == counted(20)
        assert steers == ["steer 0", "steer 1", "steer 2"]
        assert len((await person.client.conversation(person.conversation))["requests"]) == 1
        await person.client.cancel(person.run_id)
        assert (await person.end())["attempt"] == 1
    said = await person.said()
    assert [content for role, content in said if role == "assistant"].count("first") == 1
    assert transport.lost > 2


@pytest.mark.full
async def test_without_a_renewal_the_handler_is_cancelled_before_the_server_gives_the_run_away(
    tmp_path: Path,
) -> None:
    seen: list[Any] = []
    frozen = asyncio.Event()

    async def work(run: AdapterRun) -> str:
        if run.attempt > 1:
            return "taken over"
        await run.say("begun")
        await run.flush()
        try:
            await asyncio.Event().wait()
        finally:
            assert run.stop is not None
            seen.append((run.stop.cause, asyncio.get_running_loop().time()))
            with pytest.raises(LeaseLost):
                await run.message("nobody may store this")
            frozen.set()
        return "never"

    async with ServeProcess(with_agents(tmp_path) / "data", env=SHORT) as server:
        async with person_at(server.url) as person, serving(server.url, work):
            await person.say("go")
            await person.sees(lambda view: view.text == "begun")
            server.stop()
            stopped_at = asyncio.get_running_loop().time()
            await within(10, frozen.wait(), "the end of the lease")
            server.cont()
            run = await person.end(seconds=30)
            assert (run["status"], run["attempt"], run["crashes"]) == ("completed", 2, 1)
            assert await person.said() == [("user", "go"), ("assistant", "taken over")]
    assert seen[0][0] == "lease_lost" and seen[0][1] - stopped_at < 3, "two thirds of three seconds"


@pytest.mark.full
async def test_a_run_that_the_server_took_away_is_let_go_at_once(postgres_url: str, tmp_path: Path) -> None:
    lost: list[Any] = []
    begun = asyncio.Event()

    async def work(run: AdapterRun) -> str:
        if run.attempt > 1:
            return "taken over"
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            lost.append(run.stop and run.stop.cause)
            with pytest.raises(LeaseLost):
                await run.say("late")

    async with ServeProcess(with_agents(tmp_path) / "data", database=postgres_url) as server:
        async with person_at(server.url) as person, serving(server.url, work, slots=1):
            await person.say("go")
            await within(10, begun.wait(), "the run")
            # An hour passes for the run and for the server, as far as the rows know.
            async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as database:
                await database.execute("UPDATE runs SET renewed_at = '2020-01-01T00:00:00.000000Z'")
                await database.execute("UPDATE leases SET started_at = '2020-01-01T00:00:00.000000Z'")
            run = await person.end(seconds=30)
            assert (run["status"], run["attempt"], run["crashes"]) == ("completed", 2, 1)
            assert (await person.said())[-1] == ("assistant", "taken over")
    assert lost == ["lease_lost"]


@pytest.mark.full
async def test_a_session_that_closes_leaves_what_does_not_end_to_the_next_one(tmp_path: Path) -> None:
    begun = asyncio.Event()
    stops: list[Any] = []

    async def endless(run: AdapterRun) -> None:
        run.session_id = "mine"
        await run.message("so far")
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stops.append(run.stop)

    async def quick(run: AdapterRun) -> str:
        assert run.session_id == "mine"
        assert [one["content"] for one in run.progress] == ["so far"]
        return "and the rest"

    async with (
        ServeProcess(with_agents(tmp_path) / "data", env=SHORT) as server,
        person_at(server.url) as person,
    ):
        session = AdapterSession(server.url, agents=["plain"], close_s=0.1)
        async with session:
            task = asyncio.create_task(session.serve(endless))
            await person.say("go")
            await within(10, begun.wait(), "the run")
        await within(5, task, "the end of serving")
        assert stops[0].cause == "session_closed"
        assert (await person.client.run(person.run_id))["status"] == "running"
        async with serving(server.url, quick):
            run = await person.end(seconds=30)
        assert (run["status"], run["attempt"]) == ("completed", 2)
        assert await person.said() == [("user", "go"), ("assistant", "so far"), ("assistant", "and the rest")]


@pytest.mark.full
async def test_a_session_started_before_its_server_waits_for_it(tmp_path: Path) -> None:
    async def work(run: AdapterRun) -> str:
        return "here"

    server = ServeProcess(with_agents(tmp_path) / "data")
    async with serving(server.url, work) as session:
        await eventually(lambda: not session.reachable, what="a claim that fails")
        async with server, person_at(server.url) as person:
            await person.say("go")
            assert (await person.end())["status"] == "completed"
