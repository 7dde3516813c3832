"""Messages that steer a run under way: they enter the thread between two steps, once, whatever dies around it."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send, interrupt

from dromos.agents.langgraph.adapter import LangGraphAgent
from dromos.agents.langgraph.attempt_run import Plan
from dromos.agents.langgraph.checkpointer import Checkpointer
from dromos.agents.langgraph.scripted.chat_model import ScriptedChatModel
from dromos.agents.langgraph.steering import Entrance, has_open_call, next_nodes
from dromos.domain.statuses import Verdict, WhenBusy
from dromos.lifecycle import Lifecycle
from dromos.lifecycle.contract import Claimed, Policy
from dromos.ports.agent import AgentInfo, Attempt, Drained, Failed, Finished, Outcome, Parked
from dromos.ports.store import Row, Store, Table
from dromos.testing.waiting import within
from tests.agents.kit import FunctionToolbox, LiveNotes, SystemClock, assistant, desk
from tests.lifecycle.world import USER, NewIds, Wakeups, World, check_invariants


class Killed(BaseException):
    """The process is gone at this point."""


class DeadlyProbe:
    """Kills at the `nth` time that `point` is reached."""

    def __init__(self) -> None:
        self.point, self.left = "", 0

    def reach(self, point: str) -> None:
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                raise Killed(point)


class Stage:
    """A conversation with one agent, carried out attempt by attempt, as a worker does."""

    def __init__(self, store: Store, agent: LangGraphAgent, policy: Policy | None = None) -> None:
        self.world = World(store, policy)
        self.probe = DeadlyProbe()
        self.world.lifecycle = Lifecycle(store, Wakeups(), NewIds(), policy or Policy(), probe=self.probe)
        self.agent, self.notes = agent, LiveNotes()
        self.drain = asyncio.Event()

    async def begin(self, text: str) -> str:
        await self.world.begin()
        return str((await self.world.post(text)).conversation["id"])

    async def claim(self) -> Claimed:
        (claimed,) = await self.world.lifecycle.claim(
            "incarnation-1", None, 1, {"assistant": self.agent.compose}
        )
        return claimed

    async def attempt(self, claimed: Claimed) -> Outcome:
        fence = claimed.fence
        attempt = Attempt(
            claimed.run,
            claimed.input,
            self.world.lifecycle.recorder(fence),
            self.notes,
            self.drain,
            steer=self.world.lifecycle.steering(fence),
            decisions=claimed.decisions,
            desk=desk(self.world.lifecycle.recorder(fence)),
        )
        return await self.agent.attempt(attempt)

    async def run(self) -> Outcome:
        """One run, to the end of its attempt."""
        claimed = await self.claim()
        outcome = await self.attempt(claimed)
        await self.world.lifecycle.end_attempt(claimed.fence, outcome, None)
        return outcome

    async def steer(self, conversation_id: str, content: Any) -> Row:
        posted = await self.world.post(content, conversation_id, when_busy=WhenBusy.STEER)
        assert posted.followup is not None
        return posted.followup

    async def said(self, conversation_id: str) -> list[tuple[str, Any]]:
        rows = await self.world.history(conversation_id)
        return [(row["role"], row["content"]) for row in rows if row["kind"] != "run"]

    async def thread(self, conversation_id: str) -> list[tuple[str, Any]]:
        """The list that the engine reads at the head."""
        saver = Checkpointer(self.world.store)
        found = await saver.aget_tuple({"configurable": {"thread_id": conversation_id}})
        assert found is not None
        roles = {"human": "user", "ai": "assistant"}
        messages = found.checkpoint["channel_values"]["messages"]
        return [(roles.get(one.type, one.type), one.content) for one in messages]

    async def followups(self) -> list[tuple[Any, str, str]]:
        rows = await self.world.rows(Table.RUN_FOLLOWUPS)
        rows.sort(key=lambda row: str(row["created_at"]) + row["id"])
        return [(row["content"], row["status"], row["when_busy"]) for row in rows]


class Gate:
    """A tool that says when it was called and waits until it is let through."""

    def __init__(self) -> None:
        self.called, self.open = asyncio.Event(), asyncio.Event()

    async def __call__(self, arguments: Any) -> str:
        self.called.set()
        await self.open.wait()
        return "through"


async def at_the_gate(stage: Stage, gate: Gate, meanwhile: Callable[[], Any]) -> Outcome:
    """One attempt during whose tool call `meanwhile` happens."""
    running = asyncio.create_task(stage.run())
    await within(10, gate.called.wait(), "the call")
    await meanwhile()
    gate.open.set()
    return await within(10, running, "the end of the attempt")


async def test_the_assistant_reads_a_message_after_the_results_and_before_its_next_words(
    store: Store,
) -> None:
    gate = Gate()
    stage = Stage(store, assistant(store, FunctionToolbox(gate=gate, other=lambda arguments: "ok")))
    talk = await stage.begin("!call other\n!call gate\n!say not steered")

    async def meanwhile() -> None:
        await stage.world.post("!say queued", talk)
        await stage.steer(talk, "first")
        await stage.steer(talk, "!say steered")

    assert await at_the_gate(stage, gate, meanwhile) == Finished()
    expected = [
        ("user", "!call other\n!call gate\n!say not steered"),
        ("assistant", ""),
        ("tool", "ok"),
        ("tool", "through"),
        ("user", "first"),
        ("user", "!say steered"),
        ("assistant", "steered"),
    ]
    assert await stage.said(talk) == [*expected, ("user", "!say queued")]
    assert await stage.thread(talk) == expected
    (run, _) = await stage.world.runs_of(talk)
    checkpoints = await stage.world.rows(Table.CHECKPOINTS, thread_id=talk)
    head = max(checkpoints, key=lambda row: row["checkpoint_id"])
    assert (run.status, head["message_count"], head["run_id"]) == ("completed", 7, run.id)
    assert len(checkpoints) == 5, "no checkpoint of its own"
    assert await stage.followups() == [
        ("!say queued", "applied", "queue"),
        ("first", "applied", "steer"),
        ("!say steered", "applied", "steer"),
    ]
    assert await stage.run() == Finished()
    assert (await stage.said(talk))[-1] == ("assistant", "queued")
    await check_invariants(stage.world)


async def test_a_message_that_comes_before_the_first_words_is_read_by_them(store: Store) -> None:
    stage = Stage(store, assistant(store))
    talk = await stage.begin("!say alone")
    await stage.steer(talk, "!say together")
    assert await stage.run() == Finished()
    assert await stage.said(talk) == [
        ("user", "!say alone"),
        ("user", "!say together"),
        ("assistant", "together"),
    ]


@pytest.mark.case("P77")
async def test_a_message_that_comes_during_the_last_words_starts_the_next_run(store: Store) -> None:
    stage = Stage(store, assistant(store))
    talk = await stage.begin("!say word\n!silent 30")
    claimed = await stage.claim()
    running = asyncio.create_task(stage.attempt(claimed))
    await within(10, stage.notes.spoke.wait(), "its words")
    await stage.steer(talk, "!say next")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await stage.world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    assert await stage.followups() == [("!say next", "applied", "queue")]
    assert await stage.run() == Finished()
    assert (await stage.said(talk))[-2:] == [("user", "!say next"), ("assistant", "next")]


@pytest.mark.parametrize(
    "content",
    [[{"type": "text", "text": "look"}], {"choice": 3}, "two\nlines"],
    ids=["blocks", "json", "text"],
)
async def test_whatever_a_message_holds_is_in_the_history_as_sent_and_in_the_thread_as_a_chat_reads_it(
    store: Store, content: Any
) -> None:
    stage = Stage(store, assistant(store))
    talk = await stage.begin("hello")
    await stage.steer(talk, content)
    assert await stage.run() == Finished()
    assert (await stage.said(talk))[1] == ("user", content)
    read = (await stage.thread(talk))[1]
    assert read == ("user", '{"choice":3}' if isinstance(content, dict) else content)


async def test_an_edit_that_comes_first_is_what_is_read_and_a_removed_message_is_not(store: Store) -> None:
    gate = Gate()
    stage = Stage(store, assistant(store, FunctionToolbox(gate=gate)))
    talk = await stage.begin("!call gate\n!say as planned")

    async def meanwhile() -> None:
        edited = await stage.steer(talk, "!say draft")
        removed = await stage.steer(talk, "!say never")
        await stage.world.lifecycle.change_followup(USER, edited["id"], 1, content="!say final")
        await stage.world.lifecycle.discard_followup(USER, removed["id"], 1)

    assert await at_the_gate(stage, gate, meanwhile) == Finished()
    assert (await stage.said(talk))[-2:] == [("user", "!say final"), ("assistant", "final")]


async def test_an_attempt_that_ends_at_the_boundary_leaves_the_message_waiting(store: Store) -> None:
    gate = Gate()
    stage = Stage(store, assistant(store, FunctionToolbox(gate=gate)))
    talk = await stage.begin("!call gate\n!say as planned")

    async def meanwhile() -> None:
        await stage.steer(talk, "!say steered")
        stage.drain.set()

    assert await at_the_gate(stage, gate, meanwhile) == Drained()
    assert await stage.followups() == [("!say steered", "waiting", "steer")]
    stage.drain.clear()
    assert await stage.run() == Finished()
    # the next owner begins at a boundary that is stored already; the model's answer ends the run
    assert await stage.followups() == [("!say steered", "applied", "queue")]
    assert (await stage.said(talk))[-2:] == [("assistant", "as planned"), ("user", "!say steered")]


async def test_a_step_limit_that_is_reached_leaves_the_message_for_its_author(store: Store) -> None:
    gate = Gate()
    stage = Stage(store, assistant(store, FunctionToolbox(gate=gate)), Policy(step_limit=2))
    talk = await stage.begin("!call gate\n!say as planned")
    outcome = await at_the_gate(stage, gate, lambda: stage.steer(talk, "!say steered"))
    assert isinstance(outcome, Failed) and outcome.code == "RECURSION_LIMIT"
    assert await stage.followups() == [("!say steered", "held", "queue")]


# --- whatever dies


@pytest.mark.parametrize("point", ["steer.written", "steer.committed"])
async def test_a_death_around_the_delivery_neither_loses_nor_doubles_the_message(
    store: Store, point: str
) -> None:
    gate = Gate()
    stage = Stage(store, assistant(store, FunctionToolbox(gate=gate)))
    talk = await stage.begin("!call gate\n!say as planned")
    await stage.world.post("later", talk)
    stage.probe.point, stage.probe.left = point, 1
    claimed = await stage.claim()
    running = asyncio.create_task(stage.attempt(claimed))
    await within(10, gate.called.wait(), "the call")
    await stage.steer(talk, "!say steered")
    gate.open.set()
    with pytest.raises(Killed):
        await within(10, running, "the death")
    delivered = point == "steer.committed"
    assert await stage.followups() == [
        ("later", "waiting", "queue"),
        ("!say steered", "applied" if delivered else "waiting", "steer"),
    ]
    await stage.world.lose()
    assert await stage.run() == Finished()
    assert [text for role, text in await stage.said(talk) if role == "user"] == [
        "!call gate\n!say as planned",
        "!say steered",
        "later",
    ]
    assert ("assistant", "steered") in await stage.said(talk)
    assert await stage.thread(talk) == (await stage.said(talk))[:-1]
    await check_invariants(stage.world)


async def test_a_model_that_fails_after_the_delivery_reads_the_same_message_again(store: Store) -> None:
    gate = Gate()
    stage = Stage(store, assistant(store, FunctionToolbox(gate=gate)))
    talk = await stage.begin("!call gate\n!say as planned")
    outcome = await at_the_gate(stage, gate, lambda: stage.steer(talk, "!error 401 x1\n!say steered"))
    assert isinstance(outcome, Failed)
    await stage.world.resume(talk)
    assert await stage.run() == Finished()
    users = [text for role, text in await stage.thread(talk) if role == "user"]
    assert users == ["!call gate\n!say as planned", "!error 401 x1\n!say steered"]
    assert (await stage.said(talk))[-1] == ("assistant", "steered")
    await check_invariants(stage.world)


# --- graphs of people's own


class OwnSource:
    """A compiled graph as it comes out of a person's module."""

    input_field: str | None = None
    info = AgentInfo("assistant", "", "langgraph")

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    async def plan(self, run: Any) -> Plan:
        return Plan(self.graph)

    async def warm(self) -> None:
        return None

    async def shape(self) -> Any:
        return self.graph


def loop_graph(gate: Callable[[Any], Awaitable[str]], **more: Any) -> Any:
    """think → act → think … → polish; `think` repeats the newest message once the tool was asked."""

    def think(state: MessagesState) -> dict[str, Any]:
        if not any(isinstance(message, ToolMessage) for message in state["messages"]):
            call = {"name": "gate", "args": {}, "id": "c1"}
            return {"messages": [AIMessage("", tool_calls=[call])]}
        return {"messages": [AIMessage(f"I read {state['messages'][-1].text}")]}

    async def act(state: MessagesState) -> dict[str, Any]:
        return {"messages": [ToolMessage(await gate({}), tool_call_id="c1")]}

    def route(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "act" if isinstance(last, AIMessage) and last.tool_calls else "polish"

    builder = StateGraph(MessagesState)
    builder.add_node("think", think)
    builder.add_node("act", act)
    builder.add_node("polish", lambda state: {})
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", route, ["act", "polish"])
    builder.add_edge("act", "think")
    builder.add_edge("polish", END)
    return builder.compile(**more)


async def test_a_graph_of_ones_own_reads_messages_before_the_node_that_was_seen_to_answer(
    store: Store,
) -> None:
    gate = Gate()
    stage = Stage(store, LangGraphAgent(OwnSource(loop_graph(gate)), store, SystemClock()))
    talk = await stage.begin("hello")
    outcome = await at_the_gate(stage, gate, lambda: stage.steer(talk, "turn left"))
    assert outcome == Finished()
    assert await stage.said(talk) == [
        ("user", "hello"),
        ("assistant", ""),
        ("tool", "through"),
        ("user", "turn left"),
        ("assistant", "I read turn left"),
    ]
    assert await stage.thread(talk) == await stage.said(talk)
    await check_invariants(stage.world)


@pytest.mark.parametrize("hooks", [False, True], ids=["plain", "with a hook before the model"])
async def test_an_agent_made_by_langchain_reads_messages_between_its_turns(store: Store, hooks: bool) -> None:
    gate = Gate()

    @tool
    async def wait() -> str:
        """Wait at the gate."""
        return await gate({})

    class Hook(AgentMiddleware[Any, Any, Any]):
        async def abefore_model(self, state: Any, runtime: Any) -> None:
            return None

    middleware = [Hook()] if hooks else []
    graph = create_agent(ScriptedChatModel(), tools=[wait], middleware=middleware)
    stage = Stage(store, LangGraphAgent(OwnSource(graph), store, SystemClock()))
    talk = await stage.begin("!call wait\n!say as planned")
    assert await at_the_gate(stage, gate, lambda: stage.steer(talk, "!say steered")) == Finished()
    assert await stage.said(talk) == [
        ("user", "!call wait\n!say as planned"),
        ("assistant", ""),
        ("tool", "through"),
        ("user", "!say steered"),
        ("assistant", "steered"),
    ]
    assert await stage.thread(talk) == await stage.said(talk)


async def test_a_message_sent_while_a_question_is_open_is_read_after_its_answer(store: Store) -> None:
    async def ask(_: Any) -> str:
        return f"they said {interrupt('sure?')}"

    stage = Stage(store, LangGraphAgent(OwnSource(loop_graph(ask)), store, SystemClock()))
    talk = await stage.begin("hello")
    assert isinstance(await stage.run(), Parked)
    followup = await stage.steer(talk, "turn left")
    assert followup["when_busy"] == "steer"
    (question,) = await stage.world.rows(Table.REQUESTS, status="open")
    await stage.world.decide(question, Verdict.ANSWER, "yes")
    assert await stage.run() == Finished()
    assert await stage.said(talk) == [
        ("user", "hello"),
        ("assistant", ""),
        ("tool", "they said yes"),
        ("user", "turn left"),
        ("assistant", "I read turn left"),
    ]
    assert await stage.thread(talk) == await stage.said(talk)
    await check_invariants(stage.world)


async def test_after_a_stop_behind_the_delivery_the_next_message_finds_a_thread_in_order(
    store: Store,
) -> None:
    gate = Gate()
    stage = Stage(store, assistant(store, FunctionToolbox(gate=gate)))
    talk = await stage.begin("!call gate\n!say as planned")
    claimed = await stage.claim()
    running = asyncio.create_task(stage.attempt(claimed))
    await within(10, gate.called.wait(), "the call")
    await stage.steer(talk, "!say half\n!silent 30")
    gate.open.set()
    await within(10, stage.notes.spoke.wait(), "its words")
    await stage.world.cancel(claimed.run.id)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await stage.world.lifecycle.end_stopped(claimed.fence, forced=False, unknown_calls=(), document=None)
    await stage.world.post("!say all is well", talk)
    assert await stage.run() == Finished()
    assert [role for role, _ in await stage.thread(talk)] == [
        *("user", "assistant", "tool", "user", "user", "assistant")
    ]
    assert (await stage.said(talk))[-1] == ("assistant", "all is well")
    await check_invariants(stage.world)


@pytest.mark.parametrize("before", ["rewrites", "leaves alone"])
async def test_a_message_enters_a_list_that_its_step_rewrote_or_left_alone(store: Store, before: str) -> None:
    gate = Gate()

    def prepare(state: MessagesState) -> dict[str, Any]:
        old = state["messages"][:-1] if before == "rewrites" else []
        return {"messages": [RemoveMessage(id=str(message.id)) for message in old]}

    async def think(state: MessagesState) -> dict[str, Any]:
        texts = [message.text for message in state["messages"] if message.type == "human"]
        if len(texts) == 2:
            await gate({})
        return {"messages": [AIMessage("I read " + " and ".join(texts))]}

    builder = StateGraph(MessagesState)
    builder.add_node("prepare", prepare)
    builder.add_node("think", think)
    builder.add_edge(START, "prepare")
    builder.add_edge("prepare", "think")
    stage = Stage(store, LangGraphAgent(OwnSource(builder.compile()), store, SystemClock()))
    talk = await stage.begin("one")
    assert await stage.run() == Finished()
    await stage.world.post("two", talk)
    await stage.steer(talk, "three")
    gate.open.set()
    assert await stage.run() == Finished()
    kept = [("user", "one"), ("assistant", "I read one")] if before == "leaves alone" else []
    read = "one and two and three" if kept else "two and three"
    new = [("user", "two"), ("user", "three"), ("assistant", f"I read {read}")]
    assert await stage.thread(talk) == [*kept, *new]
    assert (await stage.said(talk))[-3:] == new
    await check_invariants(stage.world)


async def test_a_message_is_not_swallowed_by_a_node_that_never_answers(store: Store) -> None:
    """`polish` comes after the answer and says nothing: what waits then starts the next run."""
    gate = Gate()
    gate.open.set()
    polishing, let_go = asyncio.Event(), asyncio.Event()

    async def think(state: MessagesState) -> dict[str, Any]:
        polishing.set()
        await let_go.wait()
        return {"messages": [AIMessage(f"I read {state['messages'][-1].text}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("think", think)
    builder.add_node("polish", lambda state: {})
    builder.add_edge(START, "think")
    builder.add_edge("think", "polish")
    stage = Stage(store, LangGraphAgent(OwnSource(builder.compile()), store, SystemClock()))
    talk = await stage.begin("hello")
    running = asyncio.create_task(stage.run())
    await within(10, polishing.wait(), "the answering node")
    await stage.steer(talk, "turn left")
    let_go.set()
    assert await within(10, running, "the end") == Finished()
    assert await stage.followups() == [("turn left", "applied", "queue")]
    assert await stage.run() == Finished()
    assert (await stage.said(talk))[-2:] == [("user", "turn left"), ("assistant", "I read turn left")]


async def test_a_breakpoint_before_the_answering_node_keeps_the_message(store: Store) -> None:
    gate = Gate()
    graph = loop_graph(gate)
    stage = Stage(store, LangGraphAgent(OwnSource(graph), store, SystemClock()))
    talk = await stage.begin("hello")
    claimed = await stage.claim()
    graph.interrupt_before_nodes = ["think"]
    stage.agent._answering.add("think")  # as an earlier run taught it
    gate.open.set()
    await stage.steer(talk, "turn left")
    await stage.attempt(claimed)
    assert await stage.thread(talk) == [("user", "hello"), ("user", "turn left")]
    assert await stage.followups() == [("turn left", "applied", "steer")]


# --- what the engine's checkpoints say


class Joined(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]
    parts: Annotated[list[int], operator.add]


def forked_graph() -> Any:
    builder = StateGraph(Joined)
    for name in ("a", "b", "c", "long", "sent", "join"):
        builder.add_node(name, lambda state, name=name: {"parts": [len(name)]})
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("a", "c")
    builder.add_edge("c", "long")
    builder.add_edge(["b", "long"], "join")
    builder.add_conditional_edges("join", lambda state: [Send("sent", state), Send("sent", state)], ["sent"])
    return builder.compile()


async def test_the_next_nodes_are_read_from_a_checkpoint_as_the_engine_reads_them(room: Any) -> None:
    await room.conversation()
    _, recorder = await room.run()
    graph = forked_graph()
    saver = Checkpointer(recorder)
    mine = graph.copy(update={"checkpointer": saver})
    config: Any = {"configurable": {"thread_id": "c1", "run_id": recorder.fence.run_id}}
    await mine.ainvoke({"messages": [], "parts": []}, config, durability="sync")
    seen: list[set[str]] = []
    async for state in mine.aget_state_history(config):
        found = await saver.aget_tuple(state.config)
        assert found is not None
        sent = {task.name for task in state.tasks if task.path[0] == "__pregel_push"}
        expected = set(state.next) - sent - {START}
        assert set(next_nodes(graph, found.checkpoint, set(graph.nodes) - {START})) == expected
        seen.append(expected)
    assert [names for names in reversed(seen) if names] == [{"a"}, {"b", "c"}, {"long"}, {"join"}]


@pytest.mark.parametrize(
    ("written", "answers"),
    [
        (AIMessage("yes"), True),
        ([ToolMessage("1", tool_call_id="c1"), AIMessage("yes")], True),
        ({"$writes": [[], [AIMessage("yes")]]}, True),
        ([{"role": "assistant", "content": "yes"}], True),
        (("ai", "yes"), True),
        ([("human", "no"), {"role": "user", "content": "no"}, "no"], False),
        ([ToolMessage("1", tool_call_id="c1")], False),
        (None, False),
    ],
)
def test_a_node_that_wrote_an_assistants_message_in_any_form_is_one_that_answers(
    written: Any, answers: bool
) -> None:
    graph, known = loop_graph(Gate()), set[str]()
    entrance = Entrance(None, graph, known)  # type: ignore[arg-type]
    entrance.learn({"name": "think", "result": {"messages": written}})
    entrance.learn({"name": "act", "error": "broken"})
    assert known == ({"think"} if answers else set())


def test_a_call_is_open_until_each_of_its_siblings_has_a_result() -> None:
    calls = [{"name": "t", "args": {}, "id": one} for one in ("c1", "c2")]
    asked = AIMessage("", tool_calls=calls)
    one, two = ToolMessage("1", tool_call_id="c1"), ToolMessage("2", tool_call_id="c2")
    assert has_open_call([asked]) and has_open_call([asked, one]) and has_open_call([asked, two])
    assert not has_open_call([asked, two, one])
    assert not has_open_call([asked, one, two, AIMessage("done")])
    assert not has_open_call([])
