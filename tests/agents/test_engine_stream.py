"""What the tap on LangGraph's stream rests on: inner names of LangGraph, held to what we use them for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from dromos.agents.langgraph.engine_stream import tapped
from tests.agents.graphs import Watched


def graph_of(**nodes: Any) -> Any:
    builder = StateGraph(MessagesState)
    previous = START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(previous, name)
        previous = name
    return builder.compile(checkpointer=None)


async def heard(graph: Any, **configurable: Any) -> tuple[list[Any], list[tuple[str, Any]], list[Any]]:
    """Task events, custom data with their place, and what the stream itself gives where nothing is asked of it."""
    tasks: list[Mapping[str, Any]] = []
    custom: list[tuple[str, Any]] = []

    def on_custom(data: Any, config: Mapping[str, Any]) -> None:
        custom.append((config["configurable"]["checkpoint_ns"].split(":")[0], data))

    config = {"configurable": {**configurable, **tapped(tasks.append, on_custom)}}
    stream = graph.astream({"messages": [("user", "go")]}, config, stream_mode=[], version="v2")
    return tasks, custom, [part async for part in stream]


async def test_the_root_graphs_tasks_are_told_and_nothing_is_queued_for_who_asked_nothing():
    inner = graph_of(inside=lambda state: {"messages": [AIMessage("in")]})
    tasks, _, parts = await heard(graph_of(first=lambda state: {}, helper=inner))

    assert [(event["name"], "result" in event) for event in tasks] == [
        ("first", False),
        ("first", True),
        ("helper", False),
        ("helper", True),
    ]
    assert tasks[0]["id"] == tasks[1]["id"]
    assert parts == []


async def test_a_task_is_told_when_it_begins_and_not_when_it_is_over(sqlite_room):
    await sqlite_room.conversation()
    gate = asyncio.Event()

    async def long(state: MessagesState) -> dict[str, Any]:
        await gate.wait()
        return {"messages": [AIMessage("over")]}

    watched = Watched(sqlite_room, graph_of(long=long))
    work = asyncio.create_task(watched.agent.attempt(await watched.begin("go")))
    await watched.until(lambda seen: (seen.shown["current"] or {}).get("name") == "long", work)
    gate.set()
    await work

    assert watched.shown["current"] is None


async def test_custom_data_comes_with_its_place_from_threads_and_inner_graphs_too():
    def inside(state: MessagesState) -> dict[str, Any]:
        get_stream_writer()("inner")
        return {"messages": [AIMessage("in")]}

    async def outside(state: MessagesState) -> dict[str, Any]:
        get_stream_writer()({"n": 1})
        return {}

    _, custom, _ = await heard(graph_of(outside=outside, helper=graph_of(inside=inside)))

    assert custom == [("outside", {"n": 1}), ("helper", "inner")]


async def test_a_question_stands_in_the_event_of_its_task():
    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(interrupt("why?"))]}

    builder = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")
    tasks, _, _ = await heard(builder.compile(checkpointer=InMemorySaver()), thread_id="t")

    assert [event["interrupts"][0]["value"] for event in tasks if event.get("interrupts")] == ["why?"]


async def test_a_graph_inside_that_streams_for_itself_still_does():
    inner = graph_of(inside=lambda state: {"messages": [AIMessage("in")]})
    seen: list[str] = []

    async def outside(state: MessagesState) -> dict[str, Any]:
        async for update in inner.astream({"messages": state["messages"]}, stream_mode="updates"):
            seen.extend(update)
        return {"messages": [AIMessage("out")]}

    tasks, _, _ = await heard(graph_of(outside=outside))

    assert seen == ["inside"]
    assert {event["name"] for event in tasks} == {"outside"}
