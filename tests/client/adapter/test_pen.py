"""Whatever happens to its requests, the document ends as the box says, with nothing said twice."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dromos.client import InvalidRequest
from dromos.client.adapter.pen import SECONDS_BETWEEN, Pen
from dromos.client.connection import DELAYS
from dromos.domain.errors import LeaseLost
from dromos.testing.waiting import within
from tests.client.adapter.home import Home, pen_at

PLAN = ["look", "write", "check"]


@pytest.fixture
def home() -> Home:
    return Home()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeats come at once: what is tested is what is sent, not when."""
    monkeypatch.setattr("dromos.client.adapter.pen.DELAYS", (0.0,))
    monkeypatch.setattr("dromos.client.adapter.calls.DELAYS", (0.0,))
    assert DELAYS[0] > 0


async def kept(pen: Pen) -> asyncio.Task[None]:
    return asyncio.create_task(pen.run())


async def test_changes_of_a_quarter_of_a_second_travel_in_one_patch(home: Home) -> None:
    async with pen_at(home) as pen:
        task = await kept(pen)
        clock = asyncio.get_running_loop().time
        began = clock()
        pen.box.line = "0"
        await pen.flush()
        for number in range(1, 50):
            pen.box.line = str(number)
            await pen.say("x")
            await asyncio.sleep(0)
        await pen.flush()
        took = clock() - began
        task.cancel()
        assert home.content["line"] == "49" and home.text["content"] == "x" * 49
        assert len(home.taken) == 2
        assert took >= SECONDS_BETWEEN


async def test_it_begins_from_the_document_as_it_is(home: Home) -> None:
    home.compete({"op": "add", "path": "/plan/-", "value": {"id": "1", "title": "old", "status": "done"}})
    async with pen_at(home) as pen:
        assert (await pen.read())["plan"][0]["title"] == "old"
        assert pen.version == home.version


async def test_a_competing_patch_is_healed_and_both_stay(home: Home) -> None:
    async with pen_at(home) as pen:
        pen.box.plan = PLAN
        pen.box.model = "mine"
        await pen.finish()
        home.compete(
            {"op": "remove", "path": "/plan/0"},
            {"op": "add", "path": "/background/theirs", "value": {"title": "t"}},
            {"op": "replace", "path": "/model", "value": "theirs"},
        )
        pen.box.plan_item("3", "done")
        pen.box.plan_item("1", "done")  # they took it away: it stays away
        pen.box.background("mine", title="m")
        await pen.say("hello")
        await pen.finish()
    assert [(one["id"], one["status"]) for one in home.content["plan"]] == [("2", "pending"), ("3", "done")]
    assert set(home.content["background"]) == {"theirs", "mine"}
    assert home.content["model"] == "theirs", "what was not changed again is the last writer's"
    assert home.text["content"] == "hello"
    assert pen.version == home.version


@pytest.mark.parametrize("fault", ["lost", "unheard", "busy", "broken"])
async def test_a_request_or_answer_that_is_lost_neither_drops_nor_doubles_anything(
    home: Home, fault: str
) -> None:
    async with pen_at(home) as pen:
        await pen.read()
        home.faults.extend([fault, fault, None])
        pen.box.step("search").end(summary="3 hits")
        await pen.say("one ")
        await pen.finish()
        home.faults.extend([fault])
        await pen.say("two")
        await pen.finish()
    assert home.text["content"] == "one two"
    assert [step["status"] for step in home.content["steps"]] == ["done"]
    assert {step["id"] for step in home.steps} == {home.content["steps"][0]["id"]}


async def test_every_fault_is_logged_dropped_alone_and_raised_where_somebody_waits(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    async with pen_at(home) as pen:
        task = await kept(pen)
        pen.box.set("/status", "completed")
        pen.box.set("/plan", [{"id": "1", "title": "a", "status": "doing"}])
        pen.box.line = "good"
        with caplog.at_level(logging.WARNING), pytest.raises(InvalidRequest) as refused:
            await within(5, pen.flush(), "the refusal")
        assert {fault["path"] for fault in refused.value.errors} == {"/status", "/plan/0/status"}
        assert "/status: " in caplog.text and "/plan/0/status: " in caplog.text
        await within(5, pen.flush(), "the rest")
        task.cancel()
    assert home.content["line"] == "good"
    assert home.content["plan"] == []


async def test_a_lease_that_is_over_ends_the_task_and_whoever_waits(home: Home) -> None:
    async with pen_at(home) as pen:
        task = await kept(pen)
        home.faults.extend([None, "over"])
        pen.box.line = "late"
        with pytest.raises(LeaseLost):
            await within(5, pen.flush(), "the end of the lease")
        with pytest.raises(LeaseLost):
            await within(5, task, "the end of the task")
        sent = len(home.requests)
        with pytest.raises(LeaseLost):
            await pen.finish()
        with pytest.raises(LeaseLost):
            await pen.flush()
        assert len(home.requests) == sent, "nothing is sent once it is over"


async def test_very_much_text_makes_the_speaker_wait(home: Home) -> None:
    async with pen_at(home) as pen:
        speaking = asyncio.create_task(pen.say("x" * 300_000))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not speaking.done()
        finishing = asyncio.create_task(pen.finish())
        await within(10, speaking, "room for more text")
        await within(10, finishing, "all of it")
    assert len(home.text["content"]) == 300_000


FAULTS = st.sampled_from([None, None, "lost", "unheard", "busy", "broken"])
MOVES = st.one_of(
    st.tuples(st.just("say"), st.text("ab🌊", min_size=1, max_size=3)),
    st.tuples(st.just("plan"), st.sampled_from(["1", "2", "3"])),
    st.tuples(st.just("step"), st.sampled_from(["running", "done"])),
    st.tuples(st.just("usage"), st.integers(1, 5)),
    st.tuples(st.just("theirs"), st.sampled_from(["/background/a", "/background/b"])),
    st.tuples(st.just("send"), st.lists(FAULTS, max_size=4)),
)


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(MOVES, max_size=25))
async def test_any_order_of_faults_and_competitors_ends_with_the_same_document(moves: list[Any]) -> None:
    home = Home()
    async with pen_at(home) as pen:
        pen.box.plan = PLAN
        said, used = "", 0
        steps = []
        for move, value in moves:
            if move == "say":
                said += value
                await pen.say(value)
            elif move == "plan":
                pen.box.plan_item(value, "done")
            elif move == "step":
                steps.append(pen.box.step("s"))
                if value == "done":
                    steps[-1].end()
            elif move == "usage":
                used += value
                pen.box.usage(input=value)
            elif move == "theirs":
                home.compete({"op": "add", "path": value, "value": {"title": "theirs"}})
            else:
                home.faults.extend(value)
                await pen.finish()
        home.faults.clear()
        await pen.finish()
        assert home.text["content"] == said
        assert home.content["plan"] == pen.box.plan
        assert home.content["usage"]["input"] == used
        assert [one["id"] for one in home.content["steps"]] == [step.id for step in steps]
        assert {one["id"] for one in home.steps} == {step.id for step in steps if step.status == "done"}


async def test_it_is_told_when_the_agent_last_moved_also_where_nothing_else_is_to_be_told(home: Home) -> None:
    async with pen_at(home) as pen:
        await pen.read()
        assert home.content["activity_at"] is None
        pen.box.alive()
        await pen.finish()
        task = await kept(pen)
        await pen.flush()
        first = home.content["activity_at"]
        assert first is not None
        await pen.say("a")
        await pen.flush()
        assert home.content["activity_at"] == first, "once a second is enough"
        task.cancel()
