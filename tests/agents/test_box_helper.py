"""`box`, with which an agent itself says what the live box shows, and what it does where there is no run."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph

from dromos.agents.langgraph import box
from dromos.agents.langgraph.scripted.chat_model import ScriptedChatModel
from dromos.ports.agent import Finished
from tests.agents.graphs import Watched


def one_node(node: Any) -> Any:
    return StateGraph(MessagesState).add_node("work", node).add_edge(START, "work").compile()


async def test_a_node_says_its_plan_line_background_job_and_helper(room):
    await room.conversation()

    async def work(state: MessagesState) -> dict[str, Any]:
        box.plan(["Read", {"title": "Write", "status": "active"}])
        box.background("indexing", title="Indexing 400 files")
        box.background("indexing", status="half done")
        box.background("gone", title="Never mind")
        box.background("gone", status=None)
        box.subagent("r/1", title="Reviewer", current="reads")
        box.line("Two files written.\nand more that is cut")
        return {"messages": [AIMessage("ok")]}

    watched = Watched(room, one_node(work))

    assert await watched.run("go") == Finished(line="Two files written.")

    shown = watched.shown
    assert [(item["title"], item["status"]) for item in shown["plan"]] == [
        ("Read", "pending"),
        ("Write", "active"),
    ]
    assert list(shown["background"]) == ["indexing"]
    job = shown["background"]["indexing"]
    assert (job["title"], job["status"]) == ("Indexing 400 files", "half done")
    assert job["since"] is not None
    assert shown["subagents"]["r/1"]["current"] == "reads"
    assert shown["line"] == "Two files written."


def states(watched: Watched) -> list[tuple[str, str]]:
    return [(step["name"], step["status"]) for step in watched.shown["steps"]]


async def test_progress_belongs_to_the_tool_that_says_it_also_from_a_thread(room):
    await room.conversation()
    gate = asyncio.Event()

    @tool
    def count(upto: int) -> str:
        """Count, in a thread."""
        for value in range(1, upto + 1):
            box.progress(value, upto, f"number {value}")
        return "counted"

    @tool
    async def wait() -> str:
        """Wait, and say so."""
        box.progress(0.5)
        await gate.wait()
        return "waited"

    watched = Watched(room, create_agent(ScriptedChatModel(), tools=[count, wait]))
    attempt = await watched.begin('!call wait\n!call count {"upto":3}\n!say end')
    work = asyncio.create_task(watched.agent.attempt(attempt))
    await watched.until(lambda seen: ("count", "done") in states(seen), work)
    gate.set()
    async with asyncio.timeout(10):
        assert await work == Finished()

    progress = {
        (value["name"], value["progress"]["value"])
        for value in watched.values("/current")
        if value and value["progress"]
    }
    assert progress == {("wait", 0.5)}  # the older of the two is the one that is shown


async def test_progress_of_a_node_and_of_a_helper_is_theirs(room):
    await room.conversation()

    async def inner(state: MessagesState) -> dict[str, Any]:
        box.progress(2, 5, "inner")
        return {"messages": [AIMessage("ok")]}

    def outer(state: MessagesState) -> dict[str, Any]:
        box.progress(1, 4)
        return {}

    builder = StateGraph(MessagesState).add_node("outer", outer).add_node("helper", one_node(inner))
    builder.add_edge(START, "outer").add_edge("outer", "helper")
    watched = Watched(room, builder.compile())

    assert await watched.run("go") == Finished()

    shown = [value for value in watched.values("/current") if value and value["progress"]]
    assert [(value["name"], value["progress"]) for value in shown] == [
        ("outer", {"value": 1, "total": 4, "message": None})
    ]
    assert watched.values("/subagents/helper/current")[0] == "2 of 5: inner"


async def test_a_helpers_own_plan_is_not_the_agents(room):
    await room.conversation()

    async def inner(state: MessagesState) -> dict[str, Any]:
        box.plan(["inner"])
        box.line("a line of the inner agent counts: it is the run's only one")
        return {"messages": [AIMessage("ok")]}

    builder = StateGraph(MessagesState).add_node("helper", one_node(inner)).add_edge(START, "helper")
    watched = Watched(room, builder.compile())
    await watched.run("go")

    assert watched.shown["plan"] == []


async def test_a_custom_event_says_the_same_without_importing_anything_of_ours(room):
    await room.conversation()

    def work(state: MessagesState) -> dict[str, Any]:
        write = get_stream_writer()
        write({"dromos": {"plan": [{"content": "Do it", "status": "completed"}], "line": "Done."}})
        write({"dromos": {"progress": {"value": 1, "total": 2}, "background": {"id": "job", "status": "on"}}})
        write({"anything": "else"})
        write("a text")
        return {"messages": [AIMessage("ok")]}

    watched = Watched(room, one_node(work))

    assert await watched.run("go") == Finished(line="Done.")

    assert [item["status"] for item in watched.shown["plan"]] == ["done"]
    assert watched.shown["background"]["job"]["status"] == "on"


async def test_nothing_that_an_agent_says_of_itself_can_fail_its_run(room, caplog):
    await room.conversation()

    def work(state: MessagesState) -> dict[str, Any]:
        unfit: Any = object()
        box.plan(unfit)
        box.plan([unfit, None, {"status": 7}])
        box.line(unfit)
        box.progress(unfit, unfit, unfit)
        box.progress(float("nan"))
        box.background(unfit, title=unfit, status=unfit)
        box.background("", title="no id")
        box.subagent("x" * 500, title="half \ud83d of a pair", current="\0")
        return {"messages": [AIMessage("ok")]}

    watched = Watched(room, one_node(work))

    assert await watched.run("go") == Finished()
    assert watched.shown["usage"]["tool_calls"] == 0


def test_outside_of_a_run_the_functions_do_nothing_and_say_so_to_whoever_debugs(caplog):
    with caplog.at_level(logging.DEBUG, logger="dromos.box"):
        box.plan(["a"])
        box.line("b")
        box.progress(1)
        box.background("c")
        box.subagent("d")

    assert [record.levelname for record in caplog.records] == ["DEBUG"] * 5


async def test_in_a_graph_that_runs_without_a_server_the_functions_do_nothing():
    def work(state: MessagesState) -> dict[str, Any]:
        box.plan(["a"])
        box.progress(1, 2)
        return {"messages": [AIMessage("ok")]}

    result = await one_node(work).ainvoke({"messages": [("user", "go")]})

    assert result["messages"][-1].content == "ok"


@pytest.mark.slow(60)
def test_importing_it_loads_neither_the_server_nor_the_engine():
    code = (
        "import sys; from dromos.agents.langgraph import box; box.line('x');"
        "print(sorted({name.split('.')[0] for name in sys.modules}"
        " & {'fastapi', 'starlette', 'sqlalchemy', 'langchain', 'structlog', 'uvicorn', 'httpx'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True
    )

    assert done.stdout.strip() == "[]"
