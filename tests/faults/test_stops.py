"""Stops as people and the outside see them: the model's connection, the tools, the text, the next message, the sums."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from openai import DefaultAsyncHttpxClient

from dromos.agents.langgraph.chat_models import ChatModels
from dromos.ports.store import Table
from dromos.testing.model_server import ModelServer
from dromos.testing.model_server import app as model_app
from dromos.testing.waiting import eventually, within
from tests.api.conftest import Start, empty_database, start
from tests.faults.theatre import Json, Theatre

__all__ = ["Start", "empty_database", "start"]

FULL = bool(os.environ.get("FULL"))
Play = Callable[..., Awaitable[Theatre]]


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """A model server that refuses a history in which a call lacks exactly one result."""
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def play(tmp_path: Path, model: ModelServer) -> AsyncIterator[Play]:
    """Starts a process of its own; each is ended with the test, before the model it asks."""
    opened: list[Theatre] = []

    async def begin(**options: Any) -> Theatre:
        theatre = Theatre(options.pop("address", tmp_path / "dromos.db"), **options)
        await theatre.__aenter__()
        opened.append(theatre)
        return theatre

    yield begin
    for theatre in reversed(opened):
        await theatre.__aexit__()


def asking(server: ModelServer, **more: Any) -> dict[str, Any]:
    """Options for a process whose built-in agent asks this model server."""
    environ = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
    return {"model": "openai:scripted", "environ": environ, **more}


def calls_and_results(history: list[Json]) -> tuple[list[str], dict[str, str]]:
    calls = [call["id"] for message in history for call in message.get("tool_calls") or ()]
    results = [(m["tool_call_id"], m["content"]) for m in history if m["role"] == "tool"]
    assert sorted(calls) == sorted(call for call, _ in results), "each call has exactly one result"
    return calls, dict(results)


@pytest.mark.case("P23")
async def test_a_stop_closes_the_models_connection_and_frees_the_slot(play: Play, model: ModelServer) -> None:
    theatre = await play(**asking(model, slots=1))
    _, run = await theatre.begun("!tokens 1000 20")
    await theatre.text_of(run["id"], 20)
    status, _ = await theatre.cancel(run["id"])
    assert status == 202
    accepted = time.monotonic()
    await eventually(lambda: model.statistics.open == 0, seconds=1, what="the end of the model's call")
    assert time.monotonic() - accepted < 1
    (pulled,) = model.statistics.recent
    assert not pulled.finished and pulled.tokens < 100
    following = await theatre.send(await theatre.conversation(), "!say at once")
    assert (await theatre.ended(following["run"]["id"]))["line"] == "at once"
    assert (await theatre.run_now(run["id"]))["status"] == "cancelled"
    await theatre.in_order()


@pytest.mark.case("P24")
@pytest.mark.parametrize("kind", ["look", "pay"])
async def test_nothing_behind_the_stop_is_carried_out(play: Play, kind: str) -> None:
    theatre = await play()
    _, run = await theatre.begun(f'!call {kind} {{"at": "g"}}\n!say then\n!call count')
    await theatre.puppet.at("g")
    assert (await theatre.cancel(run["id"]))[0] == 202
    if kind == "pay":
        theatre.puppet.gate("g").set()
    ended = await theatre.ended(run["id"])
    assert (ended["status"], ended["stop"]["unknown_calls"]) == ("cancelled", [])
    assert [name for name, _, _ in theatre.tools.calls] == [kind]
    _, steps = await theatre.ask("GET", f"/v1/runs/{run['id']}/steps")
    last = steps["items"][-1]
    assert (last["name"], last["status"]) == (kind, "cancelled" if kind == "look" else "done")
    assert ended["stop"]["step"] == kind, "its end event names where it stopped"
    await theatre.in_order()


@pytest.mark.case("P26")
async def test_a_device_that_goes_away_stops_nothing_and_another_one_stops_it(play: Play) -> None:
    theatre = await play()
    conversation, run = await theatre.begun("!tokens 2000 50")
    async with theatre.listen(focus=conversation) as stream:
        await stream.next("run.text")
    written = len(await theatre.text_of(run["id"], 1))
    await theatre.text_of(run["id"], written + 100)  # it goes on with nobody looking
    assert (await theatre.run_now(run["id"]))["status"] == "running"
    status, stopped = await theatre.cancel(run["id"], wait=5)
    assert (status, stopped["status"], stopped["stop"]["by"]) == (200, "cancelled", "user")


@pytest.mark.case("P27")
async def test_what_was_said_before_a_stop_stays_everywhere_and_is_in_the_next_prompt(
    play: Play, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[list[str]] = []
    composed = model_app.compose

    def noting(history: Any) -> Any:
        prompts.append([message.text for message in history])
        return composed(history)

    monkeypatch.setattr(model_app, "compose", noting)
    theatre = await play(**asking(model))
    conversation, run = await theatre.begun("!tokens 100 30")
    async with theatre.listen(focus=conversation) as first:
        await theatre.text_of(run["id"], 100)
        await theatre.cancel(run["id"])
        created = await first.next("message.created")
        told = created.data["payload"]["message"]
    _, answer = await theatre.ask("GET", f"/v1/runs/{run['id']}/document")
    kept = answer["document"]["text"]["content"]
    last = (await theatre.history(conversation))[-1]
    assert (last["content"], last["interrupted"]) == (kept, True)
    assert told["content"] == kept and len(kept) >= 100
    following = (await theatre.send(conversation, "!say go on"))["run"]
    assert (await theatre.ended(following["id"]))["status"] == "completed"
    assert prompts[-1][-2:] == [kept, "!say go on"]
    await theatre.in_order()


@pytest.mark.case("P28")
async def test_each_call_has_one_result_after_a_stop_and_the_next_turn_is_taken(
    play: Play, model: ModelServer
) -> None:
    theatre = await play(**asking(model))
    script = '!call count\n!call look {"at": "g"}\n!say never'
    conversation, run = await theatre.begun(script)
    await theatre.puppet.at("g")
    await eventually(lambda: len(theatre.tools.calls) == 2, what="both calls")
    await theatre.cancel(run["id"], wait=5)
    following = (await theatre.send(conversation, "!say fine"))["run"]
    assert (await theatre.ended(following["id"]))["status"] == "completed"
    history = await theatre.history(conversation)
    calls, results = calls_and_results(history)
    assert [results[call] for call in calls] == ["count is done", "cancelled by the person"]
    assert history[-1]["content"] == "fine" and model.statistics.refused == 0
    await theatre.in_order()


async def test_a_call_that_was_never_begun_is_not_called_unknown_for_its_siblings_sake(play: Play) -> None:
    """Two calls of one tool: one is under way and cut at the deadline, the other is refused by its own arguments."""
    theatre = await play(stop_deadline=0.4)
    conversation, run = await theatre.begun('!call pay {"at": "g"}\n!call ask\n!say never')
    await theatre.puppet.at("g")
    await theatre.cancel(run["id"])
    ended = await theatre.ended(run["id"])
    assert (ended["stop"]["outcome"], ended["stop"]["unknown_calls"]) == ("forced", ["pay"])
    assert theatre.cut == ["g"]
    calls, results = calls_and_results(await theatre.history(conversation))
    assert "may have happened" in results[calls[0]]
    assert results[calls[1]] == "cancelled by the person"
    await theatre.in_order()


async def test_the_next_message_works_ten_milliseconds_after_the_stop(play: Play) -> None:
    theatre = await play()
    conversation, run = await theatre.begun('!call pay {"at": "g"}\n!tokens 500 50')
    await theatre.puppet.at("g")
    assert (await theatre.cancel(run["id"]))[0] == 202
    await asyncio.sleep(0.01)
    posted = await theatre.send(conversation, "!say the next one")
    assert posted["followup"]["status"] == "waiting"
    theatre.puppet.gate("g").set()
    assert (await theatre.ended(run["id"]))["status"] == "cancelled"
    newest = await theatre.newest(conversation)
    assert newest["id"] != run["id"] and newest["reason"] in ("created_from_followup", "claimed", "finished")
    assert (await theatre.ended(newest["id"]))["line"] == "the next one"
    _, results = calls_and_results(await theatre.history(conversation))
    assert list(results.values()) == ["pay is done"]
    await theatre.in_order()


@pytest.mark.case("P32")
@pytest.mark.parametrize("waits", ["queued", "backoff", "rate_limited", "waiting_input"])
async def test_a_stop_wins_over_every_wait_and_no_further_attempt_starts(
    play: Play, model: ModelServer, waits: str
) -> None:
    theatre = await play(**asking(model, slots=1))
    blocking = await theatre.begun("gate slot", run={"agent": "puppet"})
    await theatre.puppet.at("slot")
    script = {
        "queued": "!say never",
        "backoff": "!error 503 retry-after=60",
        "rate_limited": "!error 429 retry-after=60",
        "waiting_input": "!call ask",
    }[waits]
    conversation, run = await theatre.begun(script)
    if waits != "queued":
        theatre.puppet.gate("slot").set()
        await theatre.reaches(run["id"], "running")
        status = "waiting_input" if waits == "waiting_input" else "queued"
        await eventually(
            lambda: _is(theatre, run["id"], status, attempt=1), what=f"the run to wait ({waits})"
        )
    before = (await theatre.run_now(run["id"]), model.statistics.requests)
    if waits in ("backoff", "rate_limited"):
        assert before[0]["wait"]["reason"] == waits
    status, stopped = await theatre.cancel(run["id"])
    assert (status, stopped["status"], stopped["reason"]) == (202, "cancelled", "cancelled_by_user")
    theatre.puppet.gate("slot").set()
    following = (await theatre.send(conversation, "!say on"))["run"]
    assert (await theatre.ended(following["id"]))["status"] == "completed"
    after = await theatre.run_now(run["id"])
    assert (after["status"], after["attempt"]) == ("cancelled", before[0]["attempt"])
    assert model.statistics.requests == before[1] + 1, "only the next message's"
    assert blocking is not None
    await theatre.in_order()


async def _is(theatre: Theatre, run_id: str, status: str, **fields: Any) -> bool:
    run = await theatre.run_now(run_id)
    return run["status"] == status and all(run[name] == value for name, value in fields.items())


TEN = httpx.Limits(max_connections=10)


def ten_connections(models: ChatModels) -> httpx.AsyncClient:
    """In place of the model's usual pool of connections."""
    client = DefaultAsyncHttpxClient(limits=TEN)
    models._pools.append(client)
    return client


async def _stops(theatre: Theatre, run_id: str) -> bool:
    return (await theatre.run_now(run_id))["status"] in ("cancelling", "cancelled")


async def _no_stream_is_open(theatre: Theatre) -> bool:
    return "dromos_streams_open 0.0" in (await theatre.http.get("/metrics")).text.splitlines()


@pytest.mark.case("P35")
@pytest.mark.slow(300 if FULL else 60)
async def test_many_stops_in_a_row_exhaust_nothing_and_keep_what_was_done(
    play: Play, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 in the full size; ten connections to the model, and ten of the person who looks, stops and goes away."""
    monkeypatch.setattr(ChatModels, "_openai_http", ten_connections)
    theatre = await play(**asking(model))
    await theatre.http.aclose()
    theatre.http = httpx.AsyncClient(base_url=theatre.server.url, timeout=10, trust_env=False, limits=TEN)
    script = "!usage in=100 out=10\n!call count\n!say first\n!tokens 1000 100"
    for number in range(200 if FULL else 15):
        conversation, run = await theatre.begun(script)
        async with theatre.listen(focus=conversation) as stream:
            await theatre.text_of(run["id"], 10)
            await stream.next("run.text")
        stopping = asyncio.create_task(theatre.cancel(run["id"], wait=5))
        if number % 2:  # and does not wait for the answer
            await eventually(lambda at=run["id"]: _stops(theatre, at), what="the accepted stop")
            stopping.cancel()
        await asyncio.wait({stopping})
        await eventually(lambda at=run["id"]: _is(theatre, at, "cancelled"), what="the end")
        ended = await theatre.run_now(run["id"])
        usage = ended["usage"]
        assert usage["input"] >= 100 and usage["output"] > 10 and usage["model_calls"] == 2
        _, steps = await theatre.ask("GET", f"/v1/runs/{run['id']}/steps")
        models = [step for step in steps["items"] if step["kind"] == "model"]
        assert sum(step["usage"]["output"] for step in models) == usage["output"]
        history = await theatre.history(conversation)
        assert [m["content"] for m in history if m["role"] == "tool"] == ["count is done"]
        assert history[-1]["interrupted"] is True
    await eventually(lambda: model.statistics.open == 0, what="every connection given back")
    await eventually(lambda: _no_stream_is_open(theatre), what="the end of every stream")
    _, run = await theatre.begun("!say all is well")
    assert (await theatre.ended(run["id"]))["line"] == "all is well"
    await theatre.in_order()


@pytest.mark.case("P119")
@pytest.mark.slow(300 if FULL else 60)
async def test_usage_is_booked_once_however_a_stop_meets_the_end(play: Play, model: ModelServer) -> None:
    """500 races in the full size."""
    theatre = await play(**asking(model))
    took = []
    for _ in range(3):  # the first one loads what the next ones have
        before = time.monotonic()
        await theatre.ended((await theatre.begun("!say how long it takes"))[1]["id"])
        took.append(time.monotonic() - before)
    ends: dict[str, int] = {}
    for number in range(500 if FULL else 30):
        requests = model.statistics.requests
        _, run = await theatre.begun("!usage in=100 out=10\n!say done")
        await asyncio.sleep(min(took) * (number % 12) / 8)  # somewhere between the first step and the end
        status, _ = await theatre.cancel(run["id"])
        ended = await theatre.ended(run["id"])
        ends[ended["status"]] = ends.get(ended["status"], 0) + 1
        assert ended["status"] == ("cancelled" if status in (200, 202) else "completed")
        _, steps = await theatre.ask("GET", f"/v1/runs/{run['id']}/steps")
        models = [step for step in steps["items"] if step["kind"] == "model"]
        assert model.statistics.requests - requests <= len(models) == ended["usage"].get("model_calls", 0)
        for kind in ("input", "output"):
            booked = sum(step["usage"][kind] for step in models if step["usage"])
            assert ended["usage"].get(kind, 0) == booked <= 100
    assert ends.get("completed", 0) and ends.get("cancelled", 0), "both ends were met"
    await theatre.in_order()


class Three(MessagesState):
    """The state of a graph with three helpers side by side."""


@pytest.mark.case("P119")
async def test_three_agents_side_by_side_are_booked_once_each_and_their_sum_is_the_runs(play: Play) -> None:
    from dromos.agents.langgraph.scripted.chat_model import ScriptedChatModel

    def helper(number: int) -> Any:
        model = ScriptedChatModel()

        async def speak(state: MessagesState) -> Any:
            answer = await model.ainvoke(f"!usage in={10 * number} out={number}\n!say {number}")
            return {"messages": [AIMessage(answer.content)]}

        inner = StateGraph(MessagesState)
        inner.add_node("speak", speak)
        inner.add_edge(START, "speak")
        inner.add_edge("speak", END)
        return inner.compile()

    builder = StateGraph(Three)
    for number in (1, 2, 3):
        builder.add_node(f"helper{number}", helper(number))
        builder.add_edge(START, f"helper{number}")
        builder.add_edge(f"helper{number}", END)
    theatre = await play(graphs={"three": builder.compile()})
    _, run = await theatre.begun("go", run={"agent": "three"})
    ended = await theatre.ended(run["id"])
    assert ended["status"] == "completed"
    assert (ended["usage"]["model_calls"], ended["usage"]["input"], ended["usage"]["output"]) == (3, 60, 6)
    _, steps = await theatre.ask("GET", f"/v1/runs/{run['id']}/steps")
    used = sorted(step["usage"]["input"] for step in steps["items"] if step["kind"] == "model")
    assert used == [10, 20, 30]
    cost = sum((Decimal(str(step.get("cost") or 0)) for step in steps["items"]), Decimal(0))
    assert Decimal(str((ended["cost"] or {}).get("amount") or 0)) == cost


def threads(began: threading.Event, go: threading.Event) -> Any:
    """A graph whose one tool is a plain function, which no stop can cut."""

    @tool
    def grind(grain: str) -> str:
        """Grind it."""
        began.set()
        go.wait(20)
        return f"{grain} ground"

    def work(state: MessagesState) -> Any:
        return {"messages": [AIMessage(grind.invoke({"grain": "rye"}))]}

    builder = StateGraph(MessagesState)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    builder.add_edge("work", END)
    return builder.compile()


async def test_a_function_in_a_thread_is_waited_for_in_sight(play: Play) -> None:
    began, go = threading.Event(), threading.Event()
    theatre = await play(graphs={"mill": threads(began, go)}, stop_deadline=10.0)
    conversation, run = await theatre.begun("go", run={"agent": "mill"})
    await within(5, asyncio.to_thread(began.wait), "the function to begin")
    async with theatre.listen(focus=conversation) as stream:
        assert (await theatre.cancel(run["id"]))[0] == 202
        told = (await stream.next("run.server")).data
    assert told["stop"]["waiting_for"]["tool"] == "grind"
    assert (await theatre.run_now(run["id"]))["status"] == "cancelling"
    go.set()
    ended = await theatre.ended(run["id"])
    assert (ended["status"], ended["stop"]["outcome"]) == ("cancelled", "acknowledged")


async def test_a_function_that_does_not_return_in_time_is_named_as_unknown(play: Play) -> None:
    began, go = threading.Event(), threading.Event()
    theatre = await play(graphs={"mill": threads(began, go)}, stop_deadline=0.4)
    conversation, run = await theatre.begun("go", run={"agent": "mill"})
    await within(5, asyncio.to_thread(began.wait), "the function to begin")
    await theatre.cancel(run["id"])
    ended = await theatre.ended(run["id"])
    assert (ended["stop"]["outcome"], ended["stop"]["unknown_calls"]) == ("forced", ["grind"])
    following = (await theatre.send(conversation, "!say on", run={"agent": "assistant"}))["run"]
    assert (await theatre.ended(following["id"]))["status"] == "completed"
    go.set()
    await eventually(lambda: not theatre.threads.at_work, what="the function's end")
    assert await theatre.run_now(run["id"]) == ended


async def test_a_persons_stop_after_a_superseding_message_holds_the_message(play: Play) -> None:
    theatre = await play()
    conversation, run = await theatre.begun('!call pay {"at": "g"}')
    await theatre.puppet.at("g")
    posted = await theatre.send(conversation, "!say instead", when_busy="interrupt")
    assert (await theatre.run_now(run["id"]))["stop"]["cause"] == "superseded"
    status, stopping = await theatre.cancel(run["id"])
    assert (status, stopping["status"], stopping["stop"]["cause"]) == (202, "cancelling", "cancel_requested")
    theatre.puppet.gate("g").set()
    assert (await theatre.ended(run["id"]))["status"] == "cancelled"
    _, followup = await theatre.ask("GET", f"/v1/followups/{posted['followup']['id']}")
    assert followup["status"] == "held"
    assert (await theatre.newest(conversation))["id"] == run["id"], "nothing starts by itself"
    await theatre.in_order()


async def test_a_superseding_message_starts_its_run_with_the_end_of_the_old_one(play: Play) -> None:
    theatre = await play()
    conversation, run = await theatre.begun("!tokens 1000 50")
    await theatre.text_of(run["id"], 10)
    posted = await theatre.send(conversation, "!say instead", when_busy="interrupt")
    ended = await theatre.ended(run["id"])
    assert (ended["status"], ended["reason"]) == ("interrupted", "superseded")
    _, followup = await theatre.ask("GET", f"/v1/followups/{posted['followup']['id']}")
    assert followup["status"] == "applied"
    successor = await theatre.newest(conversation)
    assert successor["id"] == followup["run_id"] != run["id"]
    assert (await theatre.ended(successor["id"]))["line"] == "instead"
    await theatre.in_order()


@pytest.mark.parametrize("wait", [None, 0.2, 5])
async def test_the_answer_to_a_stop_says_honestly_whether_it_is_over(play: Play, wait: float | None) -> None:
    theatre = await play()
    _, run = await theatre.begun('!call pay {"at": "g"}')
    await theatre.puppet.at("g")
    asked = asyncio.create_task(theatre.cancel(run["id"], wait))
    if wait == 5:
        await theatre.reaches(run["id"], "cancelling")
        assert not asked.done()
        theatre.puppet.gate("g").set()
    status, answered = await within(7, asked, "the answer")
    assert (status, answered["status"]) == ((200, "cancelled") if wait == 5 else (202, "cancelling"))
    rows = await theatre.store.read(lambda tx: tx.find(Table.RUNS, {"id": run["id"]}))
    assert rows[0]["stop"]["cause"] == "cancel_requested", "what was answered is on disk"
    theatre.puppet.gate("g").set()
    assert (await theatre.ended(run["id"]))["status"] == "cancelled"
    assert (await theatre.cancel(run["id"]))[0] == 200
