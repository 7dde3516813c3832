"""What runs use and cost: per model call and in sum, over failures, stops and takeovers, each token counted once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool

from dromos.agents.langgraph.model_facts import ModelConfig, ModelFacts
from dromos.agents.langgraph.scripted.chat_model import ScriptedChatModel
from dromos.domain.document import empty_content
from dromos.domain.errors import LeaseLost
from dromos.domain.runs import Fence, Run
from dromos.domain.statuses import RunStatus
from dromos.ports.agent import Failed, Finished
from dromos.ports.store import Table, Tx
from dromos.testing.model_server import ModelServer
from tests.agents.graphs import Watched
from tests.agents.kit import assistant, rows
from tests.agents.test_attempts import FAST, talk

PAID = ModelFacts({"*": ModelConfig(price_as="openai:gpt-5")})
"""1.25 dollars a million in, 0.125 cached, 10 out."""


async def stored_run(room: Any, run_id: str) -> Run:
    run = await room.store.read(lambda tx: tx.load_run(run_id))
    assert run is not None
    return run


def amounts(steps: list[Any]) -> list[str | None]:
    return [row["cost"] and row["cost"]["amount"] for row in steps]


async def test_each_call_has_its_usage_and_cost_and_the_run_their_sum(room):
    await room.conversation()

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    watched = Watched(room, create_agent(ScriptedChatModel(), tools=[look]), PAID)
    script = "!usage in=1000 out=50 cached=800 reasoning=30\n!call look\n!say end\n!usage in=2000 out=10 cached=2000"

    assert await watched.run(script) == Finished()

    steps = await rows(room.store, Table.RUN_STEPS, kind="model", order=("num",))
    assert [row["usage"] for row in steps] == [
        {"input": 1000, "output": 50, "cached": 800, "reasoning": 30},
        {"input": 2000, "output": 10, "cached": 2000, "reasoning": 0},
    ]
    assert amounts(steps) == ["0.00085", "0.00035"]
    assert watched.shown["usage"] == {
        "input": 3000,
        "output": 60,
        "cached": 2800,
        "reasoning": 30,
        "model_calls": 2,
        "tool_calls": 1,
    }
    run = await stored_run(room, "run-1")
    assert run.cost == {"currency": "USD", "amount": "0.0012", "estimated": True, "limit": None}
    sent = [value["cost"]["amount"] for path, value in watched.told if path == "server"]
    assert sent == ["0.00085", "0.0012"]


@pytest.mark.case("P116")
async def test_a_model_that_counts_the_cache_beside_its_input_costs_the_same(sqlite_room):
    await sqlite_room.conversation()
    agent = create_agent(ScriptedChatModel(), tools=[])
    inclusive, exclusive = (Watched(sqlite_room, agent, PAID) for _ in range(2))

    await inclusive.run("!say a\n!usage in=1000 out=50 cached=800")
    await exclusive.run("!say a\n!usage in=200 out=50 cached=800")

    one, other = await rows(sqlite_room.store, Table.RUN_STEPS, order=("started_at",))
    assert one["usage"] == other["usage"]
    assert one["cost"] == other["cost"]
    assert one["cost"]["amount"] == "0.00085"


async def test_the_real_client_tells_cached_and_reasoning_tokens_of_a_stream(sqlite_room):
    await sqlite_room.conversation()
    facts = ModelFacts({"openai:scripted": ModelConfig(context_limit=4000, price_as="openai:gpt-5")})
    async with ModelServer() as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
        agent = assistant(sqlite_room.store, model="openai:scripted", environ=environ, facts=facts)
        outcome, attempt = await talk(
            sqlite_room, agent, "!say a b\n!usage in=1000 out=50 cached=800 reasoning=30"
        )

    assert outcome == Finished()
    (step,) = await rows(sqlite_room.store, Table.RUN_STEPS)
    assert step["usage"] == {"input": 1000, "output": 50, "cached": 800, "reasoning": 30}
    assert step["cost"]["amount"] == "0.00085"
    assert attempt.live.values["/context"] == {"used": 1050, "limit": 4000, "percent": 26.2}


async def test_a_model_of_ones_own_costs_nothing_that_anybody_knows(sqlite_room):
    await sqlite_room.conversation()
    outcome, attempt = await talk(sqlite_room, assistant(sqlite_room.store), "hello")

    assert outcome == Finished()
    unknown = {"currency": "USD", "amount": None, "estimated": True, "limit": None}
    assert (await stored_run(sqlite_room, attempt.run.id)).cost == unknown
    assert attempt.live.fields == {"cost": unknown}
    (step,) = await rows(sqlite_room.store, Table.RUN_STEPS)
    assert step["cost"] is None
    assert step["usage"]["input"] > 0


async def test_tries_that_failed_are_counted_and_refusals_cost_nothing(room):
    await room.conversation()
    agent = assistant(room.store, policies=FAST, facts=PAID)

    outcome, attempt = await talk(room, agent, "!error 503 x2\n!say made it\n!usage in=100 out=10")

    assert outcome == Finished()
    usage = attempt.live.values["/usage"]
    assert (usage["model_calls"], usage["input"], usage["output"]) == (3, 100, 10)
    assert "estimated" not in usage
    steps = await rows(room.store, Table.RUN_STEPS, order=("num",))
    assert [(row["status"], row["usage"] is None) for row in steps] == [
        ("failed", True),
        ("failed", True),
        ("done", False),
    ]
    assert (await stored_run(room, attempt.run.id)).cost["amount"] == "0.000225"


async def test_a_stream_that_broke_off_counts_what_it_sent_as_an_estimate(sqlite_room):
    await sqlite_room.conversation()
    async with ModelServer() as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
        agent = assistant(
            sqlite_room.store, model="openai:scripted", environ=environ, facts=PAID, policies={}
        )
        outcome, attempt = await talk(sqlite_room, agent, "!say twelve bytes\n!break")

    assert isinstance(outcome, Failed)
    (step,) = await rows(sqlite_room.store, Table.RUN_STEPS)
    assert step["usage"] == {"input": 0, "output": 3, "cached": 0, "reasoning": 0, "estimated": True}
    assert step["cost"]["amount"] == "0.00003"
    assert attempt.live.values["/usage"]["estimated"] is True
    assert (await stored_run(sqlite_room, attempt.run.id)).cost["amount"] == "0.00003"


async def test_a_stop_counts_what_the_cut_call_had_sent(room):
    await room.conversation()
    watched = Watched(room, create_agent(ScriptedChatModel(), tools=[]), PAID)
    attempt = await watched.begin("!say twelve bytes\n!silent 600")
    work = asyncio.create_task(watched.agent.attempt(attempt))
    await watched.until(lambda seen: seen.shown["text"]["content"] == "twelve bytes", work)
    async with asyncio.timeout(10):
        await room.change(attempt.run, status=RunStatus.CANCELLING)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    (step,) = await rows(room.store, Table.RUN_STEPS)
    assert step["status"] == "cancelled"
    assert step["usage"] == {"input": 0, "output": 3, "cached": 0, "reasoning": 0, "estimated": True}
    assert (await stored_run(room, attempt.run.id)).cost["amount"] == "0.00003"
    assert watched.shown["usage"]["model_calls"] == 1


# --- takeovers: the row of the run and its document as the lost owner saved them ------------------------------------


def again(room: Any, epoch: int, recorder: Any) -> Any:
    return type(recorder)(recorder.store, Fence(recorder.fence.run_id, epoch, "c1"))


class Hanging(ScriptedChatModel):
    """Falls silent for ever behind its first word."""

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        async for chunk in super()._astream(*args, **kwargs):
            yield chunk
            if chunk.text:
                await asyncio.Event().wait()


async def lose_at_second_call(room: Any, watched: Watched) -> tuple[Any, dict[str, Any]]:
    """A run whose owner is lost in its second model call: what is left is the store, and its saved document."""
    attempt = await watched.begin("!usage in=100 out=10\n!call look\n!usage in=300 out=30\n!say word")
    work = asyncio.create_task(watched.agent.attempt(attempt))
    await watched.until(lambda seen: seen.shown["text"]["content"] == "word", work)
    saved = {**watched.shown}
    fenced = await room.change(
        attempt.run, epoch=9
    )  # its last writes are refused, as a dead owner's never come
    work.cancel()
    with pytest.raises(LeaseLost):
        await work
    return replace(attempt, run=fenced), saved


async def test_a_takeover_keeps_the_sum_and_puts_what_was_under_way_on_record(room):
    await room.conversation()

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    watched = Watched(room, create_agent(Hanging(), tools=[look]), PAID)
    attempt, saved = await lose_at_second_call(room, watched)
    assert [step["status"] for step in saved["steps"]] == ["done", "done", "running"]

    run = await room.change(attempt.run, epoch=10, attempt=2, usage=saved["usage"])
    later = Watched(room, create_agent(ScriptedChatModel(), tools=[look]), PAID)
    taken = later.attempt(run, again(room, 10, attempt.recorder), attempt.input, saved)
    assert await later.agent.attempt(taken) == Finished()

    steps = await rows(room.store, Table.RUN_STEPS, order=("num",))
    assert [(row["num"], row["attempt"], row["kind"], row["status"]) for row in steps] == [
        (1, 1, "model", "done"),
        (2, 1, "tool", "done"),
        (3, 1, "model", "failed"),
        (4, 2, "model", "done"),
    ]
    assert "lost" in steps[2]["summary"]
    usage = later.shown["usage"]
    assert (usage["input"], usage["output"]) == (100 + 300, 10 + 30)
    assert (usage["model_calls"], usage["tool_calls"]) == (3, 1)
    assert (await stored_run(room, run.id)).cost["amount"] == "0.0009"
    assert [step["id"] for step in later.shown["steps"]] == [row["id"] for row in steps]


async def test_tokens_that_only_the_saved_document_knows_stay_counted_over_two_takeovers(sqlite_room):
    """The owner died between the end of a call and the checkpoint that would have stored it."""
    await sqlite_room.conversation()
    graph = create_agent(ScriptedChatModel(), tools=[])
    shown = {
        "kind": "model",
        "name": "openai:gpt-5",
        "summary": "x",
        "started_at": "2026-11-29T10:00:00.000000Z",
    }
    saved = {
        **empty_content(),
        "steps": [{**shown, "id": "lost-1", "status": "done", "ms": 5}],
        "subagents": {"r": {"title": "R", "status": "running", "current": "reads", "usage": {}}},
    }
    usage = {"input": 70, "output": 7, "cached": 60, "reasoning": 1, "model_calls": 1, "tool_calls": 0}
    first = Watched(sqlite_room, graph, PAID)
    begun = await first.begin("!usage in=30 out=3\n!say hello", saved, attempt=2, usage=usage)
    assert await first.agent.attempt(begun) == Finished()

    assert first.shown["usage"] == {
        "input": 100,
        "output": 10,
        "cached": 60,
        "reasoning": 1,
        "model_calls": 2,
        "tool_calls": 0,
    }
    assert first.shown["subagents"]["r"]["status"] == "failed"
    lost = (await rows(sqlite_room.store, Table.RUN_STEPS, id="lost-1"))[0]
    assert lost["usage"] == {"input": 70, "output": 7, "cached": 60, "reasoning": 1}
    # 10 fresh, 60 cached, 7 out; then 30 in, 3 out
    assert lost["cost"]["amount"] == "0.00009"
    assert (await stored_run(sqlite_room, begun.run.id)).cost["amount"] == "0.0001575"

    third = await sqlite_room.change(begun.run, epoch=3, attempt=3)  # and the row was never saved again
    later = Watched(sqlite_room, graph, PAID)
    taken = later.attempt(third, again(sqlite_room, 3, begun.recorder), begun.input, saved)
    assert await later.agent.attempt(taken) == Finished()

    assert later.shown["usage"]["input"] == 100
    assert len(await rows(sqlite_room.store, Table.RUN_STEPS)) == 2
    assert (await stored_run(sqlite_room, begun.run.id)).cost["amount"] == "0.0001575"


async def test_a_run_of_an_older_release_whose_rows_tell_nothing_keeps_what_its_row_says(sqlite_room):
    await sqlite_room.conversation()
    usage = {"input": 70, "output": 7, "cached": 0, "reasoning": 0, "model_calls": 1, "tool_calls": 0}
    watched = Watched(sqlite_room, create_agent(ScriptedChatModel(), tools=[]))
    attempt = await watched.begin("!usage in=30 out=3\n!say hello", attempt=2, usage=usage)

    def old_step(tx: Tx) -> None:
        row = {"run_id": attempt.run.id, "id": "old", "conversation_id": "c1", "num": 1, "attempt": 1}
        tx.put(
            Table.RUN_STEPS,
            {**row, "kind": "model", "name": "m", "status": "done", "started_at": tx.now(), "ms": 3},
        )

    await sqlite_room.store.write(old_step)
    assert await watched.agent.attempt(attempt) == Finished()

    assert (watched.shown["usage"]["input"], watched.shown["usage"]["model_calls"]) == (100, 2)
    assert (await stored_run(sqlite_room, attempt.run.id)).cost["amount"] is None
