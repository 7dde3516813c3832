"""What the live box shows of graphs that know nothing of it: parallel work, helpers, plans, retries, fallbacks."""

from __future__ import annotations

import asyncio
import operator
import sys
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, TodoListMiddleware
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send

from dromos.agents.langgraph import box
from dromos.agents.langgraph.attempt_run import OBSERVER_KEY
from dromos.agents.langgraph.reporting import later
from dromos.agents.langgraph.scripted.chat_model import ScriptedChatModel
from dromos.domain.document import empty_content
from dromos.domain.reasons import ErrorCode
from dromos.domain.retries import RetryPolicy
from dromos.ports.agent import Finished
from dromos.ports.store import Table
from dromos.ports.tool import ToolProgress
from dromos.tools.mcp.configuration import StdioServer
from dromos.tools.mcp.toolbox import McpToolbox
from tests.agents.graphs import Watched
from tests.agents.kit import FunctionToolbox, assistant, history, rows, until
from tests.agents.test_attempts import talk


class Branches(MessagesState):
    """Texts that parallel branches say, and what they said."""

    texts: list[str]
    said: Annotated[list[str], operator.add]


class Branch(TypedDict):
    text: str


@pytest.mark.case("P94")
async def test_two_models_that_write_at_once_do_not_mix_their_text(room):
    """The first keeps the place until it is done; the other then shows all of its own."""
    await room.conversation()
    model = ScriptedChatModel()
    in_turn, first_is_done = asyncio.Barrier(2), asyncio.Event()

    async def spoken(name: str) -> str:
        said: list[str] = []
        async for chunk in model.astream(f"!say {name}1 {name}2 {name}3"):
            said.append(str(chunk.text))
            if len(said) <= 3:
                await in_turn.wait()
            elif name == "B":
                await first_is_done.wait()
        if name == "A":
            first_is_done.set()
        return "".join(said)

    async def both(state: MessagesState) -> dict[str, Any]:
        async with asyncio.timeout(10):
            texts = await asyncio.gather(spoken("A"), spoken("B"))
        return {"messages": [AIMessage(" | ".join(texts))]}

    builder = StateGraph(MessagesState).add_node("both", both)
    watched = Watched(room, builder.add_edge(START, "both").compile())

    assert await watched.run("go") == Finished()

    parts: dict[str, list[str]] = {}
    for path, text in watched.told:
        if path.startswith("text "):
            parts.setdefault(path, []).append(text)
    assert ["".join(texts) for texts in parts.values()] == ["A1 A2 A3", "B1 B2 B3"]
    order_of_writers = [path for path, _ in watched.told if path.startswith("text ")]
    assert order_of_writers == sorted(order_of_writers, key=list(parts).index)
    assert watched.shown["text"]["content"] == "B1 B2 B3"


async def test_nodes_that_were_quick_are_told_together_and_before_what_comes_after_them(room, monkeypatch):
    await room.conversation()
    monkeypatch.setattr(later, "SECONDS", 60.0)
    at_model: list[Any] = []

    async def quick(state: MessagesState) -> dict[str, Any]:
        return {}

    async def asks(state: MessagesState) -> dict[str, Any]:
        at_model.extend(step["name"] for step in watched.shown["steps"])
        return {"messages": [await ScriptedChatModel().ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    names = ["one", "two", "asks", "three"]
    for before, name in zip([START, *names], names, strict=False):
        builder.add_node(name, asks if name == "asks" else quick)
        builder.add_edge(before, name)
    watched = Watched(room, builder.compile())

    assert await watched.run("!say hello") == Finished()

    assert at_model == [], "they waited for something to be said"
    assert [step["name"] for step in watched.shown["steps"]] == ["one", "two", "scripted", "three"]
    assert {step["status"] for step in watched.shown["steps"]} == {"done"}


@pytest.mark.case("P94")
async def test_parallel_tools_and_text_in_any_order_leave_the_same_document(sqlite_room):
    await sqlite_room.conversation()
    started = asyncio.Barrier(3)
    moved: list[str] = []

    async def report(name: str, context: Any, count: int) -> str:
        await started.wait()
        for value in range(1, count + 1):
            context.on_progress(ToolProgress(value, count, f"{name} {value}"))
            moved.append(name)
            await asyncio.sleep(0)
        return name

    class Reporting(FunctionToolbox):
        async def call(self, name: str, arguments: Any, context: Any) -> Any:
            self.tools = {tool: lambda a, n=tool: report(n, context, a["count"]) for tool in self.tools}
            return await super().call(name, arguments, context)

    toolbox = Reporting(one=None, two=None, three=None)
    agent = assistant(sqlite_room.store, toolbox)
    script = "\n".join(
        f'!call {name} {{"count":{count}}}' for name, count in (("one", 3), ("two", 5), ("three", 4))
    )

    async with asyncio.timeout(10):
        outcome, attempt = await talk(sqlite_room, agent, f"!say before\n{script}\n!say after")

    assert outcome == Finished()
    assert len(set(moved[:3])) == 3  # they did speak in turn
    steps = attempt.live.steps
    assert [(step["kind"], step["name"], step["status"]) for step in steps.values()] == [
        ("model", "scripted", "done"),
        ("tool", "one", "done"),
        ("tool", "two", "done"),
        ("tool", "three", "done"),
        ("model", "scripted", "done"),
    ]
    assert list(attempt.live.texts.values()) == ["before", "after"]
    current = [value for path, value in attempt.live.told if path == "/current"]
    shown = [value for value in current if value and value["name"] == "one" and value["progress"]]
    assert [value["progress"]["value"] for value in shown] == [1, 2, 3]
    assert shown[0]["summary"] == '{"count":3} (+2 more)'
    assert current[-1] is None


def now(watched: Watched) -> list[Any]:
    return watched.values("/current")


async def test_of_several_tools_the_oldest_is_shown_and_then_the_next(room):
    await room.conversation()
    gates = {name: asyncio.Event() for name in ("slow", "slower")}

    @tool
    async def slow() -> str:
        """Ends first."""
        await gates["slow"].wait()
        return "ok"

    @tool
    async def slower() -> str:
        """Ends last."""
        gates["slow"].set()
        await gates["slower"].wait()
        return "ok"

    agent = create_agent(ScriptedChatModel(), tools=[slow, slower])
    watched = Watched(room, agent)
    attempt = await watched.begin("!call slow\n!call slower\n!say done")
    work = asyncio.create_task(watched.agent.attempt(attempt))
    await watched.until(lambda seen: any(value and value["name"] == "slower" for value in now(seen)), work)
    gates["slower"].set()
    async with asyncio.timeout(10):
        assert await work == Finished()

    tools = [(value["name"], value["summary"]) for value in now(watched) if value and value["kind"] == "tool"]
    assert tools == [("slow", "{}"), ("slow", "{} (+1 more)"), ("slower", "{}")]
    assert watched.shown["current"] is None


@pytest.mark.slow(60)
async def test_progress_over_mcp_stands_beside_the_tool_that_is_under_way(sqlite_room, tmp_path):
    await sqlite_room.conversation()
    server = StdioServer(
        "t", sys.executable, ("-m", "dromos.testing.tools_server"), {"CT_FILE": str(tmp_path / "effects")}
    )
    toolbox = McpToolbox([server])
    try:
        agent = assistant(sqlite_room.store, toolbox)
        outcome, attempt = await talk(
            sqlite_room, agent, '!call t__sleep {"s":0.5,"progress_every":0.1}\n!say awake'
        )
    finally:
        await toolbox.aclose()

    assert outcome == Finished()
    moved = [
        value["progress"]
        for path, value in attempt.live.told
        if path == "/current" and value and value["name"] == "t__sleep" and value["progress"]
    ]
    assert len(moved) >= 3
    assert [progress["value"] for progress in moved] == sorted(progress["value"] for progress in moved)
    assert {(progress["total"], progress["message"]) for progress in moved} == {(0.5, "still asleep")}


async def test_a_synchronous_node_and_tool_tell_from_their_threads_in_order(room):
    await room.conversation()
    model = ScriptedChatModel()

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke([("user", "!say from a thread\n!usage in=7 out=3")])]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile()
    watched = Watched(room, graph)

    assert await watched.run("go") == Finished()

    assert watched.shown["text"]["content"] == "from a thread"
    assert watched.shown["text"]["message_id"] == (await history(room.store))[-1]["id"]
    assert watched.shown["usage"]["input"] == 7
    steps = await rows(room.store, Table.RUN_STEPS)
    assert [(row["kind"], row["status"], row["checkpoint_id"] is not None) for row in steps] == [
        ("model", "done", True)
    ]


# --- helpers --------------------------------------------------------------------------------------------------------


def deep_agent(before_failing: Callable[[], bool] = lambda: True, **inner: Any) -> Any:
    """An agent with deepagents' `task` tool: its name, its arguments, and a graph of its own that it runs.

    Its failure is told once `before_failing()` holds: the engine cancels all siblings of a tool that fails.
    """
    researcher = create_agent(ScriptedChatModel(), name="researcher", **inner)

    @tool
    async def task(description: str, subagent_type: str) -> str:
        """Delegate."""
        try:
            result = await researcher.ainvoke({"messages": [("user", description)]})
        except Exception:
            await until(before_failing)
            raise
        return str(result["messages"][-1].text)

    return create_agent(ScriptedChatModel(), tools=[task], middleware=[TodoListMiddleware()])


def delegate(work: str, kind: str = "research") -> str:
    lines = work.replace("\n", "\\n").replace('"', '\\"')
    return f'!call task {{"description":"{lines}","subagent_type":"{kind}"}}'


async def test_a_subagent_behind_the_task_tool_has_its_own_entry_and_keeps_its_text(room):
    await room.conversation()

    @tool
    async def look(page: int) -> str:
        """Look it up."""
        return f"page {page}"

    watched = Watched(room, deep_agent(tools=[look]))
    work = 'Find the population\n!call look {"page":3}\n!say inner words\n!usage in=50 out=5'

    assert await watched.run(f"{delegate(work)}\n!say outer words\n!usage in=10 out=2") == Finished()

    (helper,) = watched.shown["subagents"].values()
    assert helper["title"] == "research: Find the population"
    assert (helper["status"], helper["current"]) == ("done", None)
    assert (helper["usage"]["model_calls"], helper["usage"]["tool_calls"]) == (2, 1)
    assert helper["usage"]["input"] >= 50
    (name,) = watched.shown["subagents"]
    assert watched.values(f"/subagents/{name}/current") == [
        "scripted",
        None,
        'look {"page":3}',
        None,
        "scripted",
        None,
        None,
    ]
    assert [text for path, text in watched.told if "inner" in str(text) and path.startswith("text")] == []
    assert watched.shown["text"]["content"] == "outer words"
    shown = [value and (value["kind"], value["name"]) for value in watched.values("/current")]
    assert ("tool", "look") not in shown
    assert ("tool", "task") in shown
    usage = watched.shown["usage"]
    assert usage["input"] > helper["usage"]["input"]
    assert (usage["model_calls"], usage["tool_calls"]) == (4, 2)


async def test_parallel_subagents_do_not_touch_each_others_entries(room):
    await room.conversation()
    both = asyncio.Barrier(2)

    @tool
    async def meet(name: str) -> str:
        """Wait for the other."""
        await both.wait()
        return name

    def one_is_done() -> bool:
        return any(helper["status"] == "done" for helper in watched.shown["subagents"].values())

    watched = Watched(room, deep_agent(one_is_done, tools=[meet]))
    one = delegate('one\n!call meet {"name":"one"}\n!say 1\n!usage in=100 out=1', "a")
    two = delegate('two\n!call meet {"name":"two"}\n!error 400', "b")
    async with asyncio.timeout(10):
        await watched.run(f"{one}\n{two}\n!say end")

    by_title = {helper["title"]: helper for helper in watched.shown["subagents"].values()}
    assert {title: helper["status"] for title, helper in by_title.items()} == {
        "a: one": "done",
        "b: two": "failed",
    }
    assert by_title["a: one"]["usage"]["input"] >= 100
    assert by_title["b: two"]["usage"]["input"] < 100


async def test_a_subgraph_is_a_helper_named_like_its_node_while_it_works(room):
    await room.conversation()
    inner = create_agent(ScriptedChatModel(), tools=[])
    builder = StateGraph(MessagesState)
    builder.add_node("researcher", inner)
    builder.add_node("writer", create_agent(ScriptedChatModel(), tools=[], name="The writer"))
    builder.add_edge(START, "researcher").add_edge("researcher", "writer").add_edge("writer", END)
    watched = Watched(room, builder.compile())

    assert await watched.run("!say inner") == Finished()

    shown = watched.shown["subagents"]
    assert {name: (helper["title"], helper["status"]) for name, helper in shown.items()} == {
        "researcher": ("researcher", "done"),
        "writer": ("The writer", "done"),
    }
    assert watched.shown["text"]["content"] == ""
    assert ("step", "researcher") in [
        value and (value["kind"], value["name"]) for value in watched.values("/current")
    ]


async def test_parallel_subgraphs_have_an_entry_each(room):
    await room.conversation()
    model = ScriptedChatModel()

    async def say(state: Branch) -> dict[str, Any]:
        answer = await model.ainvoke(state["text"])
        return {"said": [str(answer.text)]}

    class Said(TypedDict):
        text: str
        said: Annotated[list[str], operator.add]

    branch = StateGraph(Said).add_node("say", say).add_edge(START, "say").compile()
    builder = StateGraph(Branches)
    builder.add_node("branch", branch)
    builder.add_node("plan", lambda state: {"texts": ["!say one", "!say two", "!say three"]})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges(
        "plan", lambda state: [Send("branch", {"text": text}) for text in state["texts"]], ["branch"]
    )
    watched = Watched(room, builder.compile(), answering=frozenset())

    assert await watched.run("go") == Finished()

    helpers = watched.shown["subagents"].values()
    assert [(helper["title"], helper["status"]) for helper in helpers] == [("branch", "done")] * 3
    assert [helper["usage"]["model_calls"] for helper in helpers] == [1, 1, 1]


async def test_a_model_inside_of_a_tool_does_not_speak_for_the_agent(room):
    """Also where a chain stands between: a prompt and a model, as tools often are."""
    await room.conversation()
    chain = ChatPromptTemplate.from_messages([("user", "!say inside of {what}")]) | ScriptedChatModel()

    @tool
    async def think(what: str) -> str:
        """Think."""
        return str((await chain.ainvoke({"what": what})).text)

    watched = Watched(room, create_agent(ScriptedChatModel(), tools=[think]))

    assert await watched.run('!call think {"what":"it"}\n!say outside') == Finished()

    texts = [text for path, text in watched.told if path.startswith("text")]
    assert "".join(texts) == "outside"
    assert [step["name"] for step in watched.shown["steps"]] == ["scripted", "think", "scripted", "scripted"]
    assert watched.shown["usage"]["model_calls"] == 3


async def test_a_loop_over_a_subgraph_keeps_one_entry(room):
    await room.conversation()

    class Counting(MessagesState):
        count: int

    inner = create_agent(ScriptedChatModel(), tools=[])
    builder = StateGraph(Counting)
    builder.add_node("worker", inner)
    builder.add_node("count", lambda state: {"count": state.get("count", 0) + 1})
    builder.add_edge(START, "worker").add_edge("worker", "count")
    builder.add_conditional_edges("count", lambda state: "worker" if state["count"] < 3 else END)
    watched = Watched(room, builder.compile())

    assert await watched.run("hello") == Finished()

    assert list(watched.shown["subagents"]) == ["worker"]
    assert watched.shown["subagents"]["worker"]["usage"]["model_calls"] == 3


# --- plans ----------------------------------------------------------------------------------------------------------


def todos(*entries: tuple[str, str]) -> str:
    told = ",".join(f'{{"content":"{text}","status":"{status}"}}' for text, status in entries)
    return f'!call write_todos {{"todos":[{told}]}}'


async def test_a_todo_list_is_the_plan(room):
    await room.conversation()
    watched = Watched(room, deep_agent())
    first = todos(("Read", "in_progress"), ("Write", "pending"))
    second = todos(("Read", "completed"), ("Write", "cancelled"))

    await watched.run(f"{first}\n!say next\n{second}\n!say end")

    plans = watched.values("/plan")
    assert plans == [
        [
            {"id": "1", "title": "Read", "status": "active"},
            {"id": "2", "title": "Write", "status": "pending"},
        ],
        [
            {"id": "1", "title": "Read", "status": "done"},
            {"id": "2", "title": "Write", "status": "skipped"},
        ],
    ]


async def test_a_helpers_todo_list_is_not_the_agents_plan(room):
    await room.conversation()
    watched = Watched(room, deep_agent(tools=[], middleware=[TodoListMiddleware()]))
    inner = f"work\n{todos(('Inner', 'pending'))}\n!say done"

    await watched.run(f"{todos(('Outer', 'in_progress'))}\n!say now\n{delegate(inner)}\n!say end")

    assert [plan[0]["title"] for plan in watched.values("/plan")] == ["Outer"]


async def test_todos_in_a_change_of_state_are_the_plan_too(room):
    await room.conversation()

    class Planned(MessagesState):
        todos: list[Any]

    def plan(state: Planned) -> dict[str, Any]:
        return {"todos": [{"content": "Think", "status": "completed"}], "messages": [AIMessage("ok")]}

    graph = StateGraph(Planned).add_node("plan", plan).add_edge(START, "plan").compile()
    watched = Watched(room, graph)

    assert await watched.run("go") == Finished()

    assert watched.shown["plan"] == [{"id": "1", "title": "Think", "status": "done"}]


# --- failures that the agent handles itself -------------------------------------------------------------------------


async def test_a_fallback_shows_the_model_that_answers_and_counts_the_try(room):
    await room.conversation()
    agent = create_agent(
        ScriptedChatModel(model_name="first"),
        tools=[],
        middleware=[ModelFallbackMiddleware(ScriptedChatModel(model_name="second"))],
    )
    watched = Watched(room, agent)

    assert await watched.run("!error 429 x1\n!say from the second") == Finished()

    steps = [(step["name"], step["status"]) for step in watched.shown["steps"]]
    assert steps == [("scripted:first", "failed"), ("scripted:second", "done")]
    assert watched.shown["model"] == "scripted:second"
    assert watched.shown["retries"] == {
        "count": 1,
        "last": {
            "of": "model",
            "code": "MODEL_RATE_LIMITED",
            "attempt": 2,
            "of_attempts": None,
            "next_at": None,
        },
    }


async def test_a_graph_finds_no_secret_of_the_box_in_its_checkpoints(room):
    await room.conversation()
    await Watched(room, create_agent(ScriptedChatModel(), tools=[])).run("hello")

    for row in await rows(room.store, Table.CHECKPOINTS):
        assert not [key for key in row["metadata"] if key.startswith("__") or key == OBSERVER_KEY]


async def test_what_the_agent_said_before_a_takeover_stays_said(sqlite_room):
    await sqlite_room.conversation()
    saved = {
        **empty_content(),
        "line": "Half of it is done.",
        "retries": {"count": 2, "last": None},
        "background": {"job": {"title": "Job", "status": "on", "since": "2026-11-29T10:00:00.000000Z"}},
    }

    async def work(state: MessagesState) -> dict[str, Any]:
        box.background("job", status=None)
        return {"messages": [await ScriptedChatModel().ainvoke("!error 503 x1\n!say on")]}

    graph = StateGraph(MessagesState).add_node("work", work).add_edge(START, "work").compile()
    watched = Watched(sqlite_room, graph, policies={ErrorCode.MODEL_BAD_RESPONSE: RetryPolicy(2, (0.01,))})
    attempt = await watched.begin("go", saved, attempt=2)

    assert await watched.agent.attempt(attempt) == Finished(line="Half of it is done.")
    assert watched.shown["background"] == {}
    assert watched.shown["retries"]["count"] == 3
