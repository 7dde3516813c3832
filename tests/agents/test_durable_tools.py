"""Tools of a person's own agent through the gate: recorded, replayed, asked about; and unchanged outside of a run."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolArg, InjectedToolCallId, StructuredTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt

from dromos.agents.langgraph.durable import DurableTools, durable, idempotency_key
from dromos.agents.langgraph.durable.results import outcome_of, result_of
from dromos.agents.langgraph.durable.turns import put_in_order
from dromos.agents.langgraph.scripted.chat_model import ScriptedChatModel
from dromos.domain.effects import ReplayClass, ToolPolicy, call_key
from dromos.domain.errors import LeaseLost
from dromos.domain.reasons import Reason
from dromos.domain.statuses import Verdict
from dromos.ports.agent import Finished, Parked
from dromos.ports.store import Table
from dromos.tools.rules import Rule, ToolRules
from tests.agents.graphs import Watched
from tests.agents.kit import rows
from tests.agents.play import Play

made: list[Any] = []
"""What the tools of a test did, in order."""


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    made.clear()


@tool
async def send_mail(to: str, runtime: ToolRuntime) -> str:
    """Send a mail."""
    made.append((to, runtime.config["configurable"].get("idempotency_key")))
    return f"sent to {to}"


@tool
def count(n: int) -> str:
    """Count, in a thread."""
    made.append((n, idempotency_key(), threading.current_thread() is threading.main_thread()))
    return f"counted {n}"


def agent(*tools: Any, middleware: list[Any] | None = None, **options: Any) -> Any:
    durable = [DurableTools(**options)] if middleware is None else middleware
    return create_agent(ScriptedChatModel(), list(tools), middleware=durable)


async def results(play: Play) -> list[Any]:
    rows = await play.world.rows(Table.MESSAGES, role="tool")
    return [row["content"] for row in sorted(rows, key=lambda row: (row["position"], row["num"]))]


async def until_finished(play: Play, **options: Any) -> Any:
    async with asyncio.timeout(15):
        while (outcome := await play.attempt(**options)) is None:
            options = {}
    return outcome


async def test_a_call_is_recorded_under_the_key_of_its_place_and_the_tool_gets_that_key(sqlite_store):
    play = Play(sqlite_store, agent(send_mail, count))
    await play.begin('!call send_mail {"to":"anna"}\n!call count {"n":1}\n!say done')

    assert isinstance(await play.attempt(), Finished)
    calls = {row["tool"]: row for row in await play.world.rows(Table.TOOL_CALLS)}
    (asked,) = [row for row in await play.world.rows(Table.MESSAGES, role="assistant") if row["tool_calls"]]

    expected = [call_key(asked["conversation_id"], asked["id"], position) for position in (0, 1)]
    assert [calls["send_mail"]["key"], calls["count"]["key"]] == expected
    assert sorted(made, key=str) == sorted([("anna", expected[0]), (1, expected[1], False)], key=str)
    assert calls["send_mail"]["outcome"] == {"text": "sent to anna", "is_error": False, "structured": None}
    assert {row["status"] for row in calls.values()} == {"done"}
    assert sorted(await results(play)) == ["counted 1", "sent to anna"]


@pytest.mark.case("P66")
@pytest.mark.parametrize("replay", ["read", "keyed", "unsafe", None])
async def test_a_call_cut_by_a_crash_is_repeated_only_where_that_is_safe(sqlite_store, replay):
    @tool
    async def work(x: int) -> str:
        """Work, and crash the first time."""
        made.append(idempotency_key())
        if len(made) == 1:
            raise LeaseLost("the worker was killed in the call")
        return "worked"

    play = Play(sqlite_store, agent(work, replay={"work": replay} if replay else {}))
    await play.begin('!call work {"x":1}\n!say done')
    assert await play.attempt() is None

    outcome = await play.attempt()

    if replay in ("read", "keyed"):
        assert isinstance(outcome, Finished)
        assert len(made) == 2
        assert made[0] == made[1]
        return
    assert isinstance(outcome, Parked)
    assert outcome.reason is Reason.TOOL_OUTCOME_UNKNOWN
    assert len(made) == 1
    (question,) = await play.asked()
    await play.world.decide(question, Verdict.MARK_DONE, "it was done by hand")
    assert isinstance(await play.attempt(), Finished)
    assert (len(made), await results(play)) == (1, ["it was done by hand"])


@pytest.mark.case("P65")
async def test_an_approved_call_whose_worker_died_before_its_outcome_is_asked_about_not_repeated(
    sqlite_store,
):
    @tool
    def pay(euros: int) -> str:
        """Pay, and lose the worker the first time."""
        made.append(euros)
        if len(made) == 1:
            raise LeaseLost("the worker was killed after the line was written")
        return f"paid {euros}"

    play = Play(sqlite_store, agent(pay, policy={"pay": "ask"}))
    await play.begin('!call pay {"euros":7}\n!say done')
    assert isinstance(await play.attempt(), Parked)
    assert made == []
    (question,) = await play.asked()
    assert (question["kind"], question["tool"], question["arguments"]) == ("approval", "pay", {"euros": 7})
    await play.world.decide(question, Verdict.APPROVE)

    assert await play.attempt() is None
    assert made == [7]
    parked = await play.attempt()
    assert isinstance(parked, Parked)
    assert parked.reason is Reason.TOOL_OUTCOME_UNKNOWN
    assert made == [7]
    (unknown,) = await play.asked()
    await play.world.decide(unknown, Verdict.RETRY)
    assert isinstance(await play.attempt(), Finished)
    assert (made, await results(play)) == ([7, 7], ["paid 7"])


@pytest.mark.case("P67")
async def test_wherever_an_attempt_ends_each_call_of_many_steps_has_one_effect_under_one_key(sqlite_store):
    """A keyed tool that remembers, in a run that loses its owner at every single write, before and after it."""
    answers: dict[str, str] = {}

    @tool
    async def step(n: int, idempotency_key: Annotated[str, InjectedToolArg]) -> str:
        """One step."""
        made.append((n, idempotency_key))
        return answers.setdefault(idempotency_key, f"step {n}, effect {len(answers)}")

    script = "".join(f'!call step {{"n":{n}}}\n!say step {n}\n' for n in range(1, 11)) + "!say done"
    play = Play(sqlite_store, agent(step, replay={"step": "keyed"}))
    await play.begin(script)
    outcome, fatal = None, 2
    async with asyncio.timeout(18):
        while outcome is None:
            outcome = await play.attempt(fatal=fatal, after=bool(fatal % 2))
            fatal = 2 + (fatal - 1) % 6
    assert isinstance(outcome, Finished)
    keys: dict[int, set[str]] = {}
    for n, key in made:
        keys.setdefault(n, set()).add(key)
    assert sorted(keys) == list(range(1, 11))
    assert {len(one) for one in keys.values()} == {1}
    assert len(made) > 10, "no attempt was cut in a call"
    assert len(answers) == 10
    assert await results(play) == [f"step {n}, effect {n - 1}" for n in range(1, 11)]


async def test_a_recorded_outcome_is_given_again_with_its_artifact_and_the_call_is_not_made(sqlite_store):
    @tool(response_format="content_and_artifact")
    async def look(q: str) -> tuple[list[dict[str, Any]], Any]:
        """Look."""
        made.append(q)
        return [{"type": "text", "text": f"found {q}"}], {"rows": [1, 2], "q": q}

    play = Play(sqlite_store, agent(look))
    await play.begin('!call look {"q":"bees"}\n!say done')
    fatal = 2
    async with asyncio.timeout(15):
        while (outcome := await play.attempt(fatal=fatal, after=True)) is None:
            fatal = fatal + 1 if not made else 50
    assert isinstance(outcome, Finished)
    assert made == ["bees"]
    (row,) = await play.world.rows(Table.MESSAGES, role="tool")
    assert row["content"] == [{"type": "text", "text": "found bees"}]


async def test_what_the_server_is_configured_with_comes_before_what_the_agent_says(sqlite_store):
    rules = ToolRules(
        rules={"send_mail": Rule(policy=ToolPolicy.DENY), "cou*": Rule(replay=ReplayClass.KEYED)}
    )
    graph = agent(send_mail, count, policy={"*": "auto"}, replay={"count": "unsafe"})
    play = Play(sqlite_store, graph, rules=rules)
    await play.begin('!call send_mail {"to":"anna"}\n!call count {"n":1}\n!say done')

    assert isinstance(await play.attempt(), Finished)

    assert [one[0] for one in made] == [1]
    assert "send_mail is not allowed here." in "".join(await results(play))
    calls = {row["tool"]: row["replay"] for row in await play.world.rows(Table.TOOL_CALLS)}
    assert calls == {"send_mail": "unsafe", "count": "keyed"}


async def test_an_edited_call_is_made_with_the_persons_arguments_which_the_schema_must_take(sqlite_store):
    play = Play(sqlite_store, agent(send_mail, policy={"send_*": "ask"}))
    await play.begin('!call send_mail {"to":"anna"}\n!say done')
    assert isinstance(await play.attempt(), Parked)
    (question,) = await play.asked()
    assert question["answer_schema"]["required"] == ["to"]
    assert "runtime" not in question["answer_schema"]["properties"]
    await play.world.decide(question, Verdict.EDIT, arguments={"to": "berta"})

    assert isinstance(await play.attempt(), Finished)
    assert [to for to, _ in made] == ["berta"]
    (told,) = await results(play)
    assert told.endswith("sent to berta")
    assert "changed the arguments" in told


async def test_a_tool_that_asks_by_itself_lets_go_and_goes_on_with_the_answer(sqlite_store):
    @tool
    async def book(city: str) -> str:
        """Book."""
        made.append("begun")
        day = interrupt(f"Which day in {city}?")
        made.append(day)
        return f"booked {day}"

    play = Play(sqlite_store, agent(book))
    await play.begin('!call book {"city":"Oslo"}\n!say done')
    parked = await play.attempt()
    assert isinstance(parked, Parked)
    (call,) = await play.world.rows(Table.TOOL_CALLS)
    assert call["status"] == "parked"

    await play.answer("Monday")
    assert isinstance(await play.attempt(), Finished)
    assert made == ["begun", "begun", "Monday"]
    assert await results(play) == ["booked Monday"]
    (call,) = await play.world.rows(Table.TOOL_CALLS)
    assert (call["status"], call["tries"]) == ("done", 2)


async def test_a_tool_that_fails_is_a_result_the_model_reads_and_is_not_called_again(sqlite_store):
    @tool
    def fail(x: int) -> str:
        """Fail."""
        made.append(x)
        raise RuntimeError("no luck")

    play = Play(sqlite_store, agent(fail, send_mail))
    await play.begin('!call fail {"x":1}\n!call send_mail {"to":5}\n!say done')
    assert isinstance(await until_finished(play, fatal=8), Finished)
    assert made == [1]
    told = "".join(await results(play))
    assert "The tool failed: RuntimeError: no luck" in told
    assert "to" in told


class Notes(AgentState):
    note: str


@tool
async def note(text: str, call_id: Annotated[str, InjectedToolCallId]) -> Command:
    """Note something in the state."""
    made.append(text)
    return Command(update={"note": text, "messages": [ToolMessage(f"noted {text}", tool_call_id=call_id)]})


async def test_a_command_is_rebuilt_from_the_record(sqlite_store):
    class Reading(AgentMiddleware[Any, Any]):
        state_schema = Notes

        def after_agent(self, state: Any, runtime: Any) -> None:
            made.append(("in the state", state.get("note")))

    graph = agent(note, middleware=[DurableTools(), Reading()])
    play = Play(sqlite_store, graph)
    await play.begin('!call note {"text":"a"}\n!say done')
    fatal = 2
    async with asyncio.timeout(15):
        while await play.attempt(fatal=fatal, after=True) is None:
            fatal = fatal + 1 if not made else 50
    assert made == ["a", ("in the state", "a")]
    assert await results(play) == ["noted a"]


def call_of(name: str = "t") -> Any:
    return {"name": name, "args": {}, "id": "c1", "type": "tool_call"}


def test_what_is_kept_of_a_result_comes_back_equal():
    plain = ToolMessage("text", name="t", tool_call_id="c1", artifact={"n": [1, None]})
    blocks = ToolMessage(
        [{"type": "text", "text": "a"}, {"type": "image", "url": "u"}], name="t", tool_call_id="c1"
    )
    failed = ToolMessage("no", name="t", tool_call_id="c1", status="error")
    command = Command(
        update={"n": 1.5, "messages": [plain, HumanMessage("hi", id="h1")]},
        goto=["a", Send("b", {"x": [AIMessage("y", id="a1")]})],
        graph=Command.PARENT,
    )
    for result in (plain, blocks, failed, command, [plain, command]):
        assert result_of(outcome_of(result), call_of()) == result
    assert outcome_of(failed).is_error
    assert outcome_of(command).text == "text"


def test_what_cannot_be_kept_is_said():
    update = {"messages": [ToolMessage("done", tool_call_id="c1")], "odd": object()}
    for odd in (update, {"odd": float("nan")}, {"odd": {1: 2}}, {"odd": {"$message": 1}}):
        outcome = outcome_of(Command(update=odd))
        assert outcome.structured is None
        again = result_of(outcome, call_of())
        assert isinstance(again, ToolMessage)
        assert "is not made again" in again.text
    assert "done" in outcome_of(Command(update=update)).text
    lost = outcome_of(ToolMessage("x", tool_call_id="c1", artifact=object()))
    assert (lost.text, lost.structured) == ("x", None)


def test_ids_that_a_server_gives_twice_become_the_messages_own():
    first = AIMessage("", id="chatcmpl-1", tool_calls=[call_of()])
    again = AIMessage("", id="chatcmpl-1", tool_calls=[call_of(), {**call_of(), "id": None}])
    put_in_order(first, [])
    assert (first.id, first.tool_calls[0]["id"]) == ("chatcmpl-1", "c1")
    put_in_order(again, [HumanMessage("x"), first, ToolMessage("r", tool_call_id="c1", id="r1")])
    assert again.id is None
    ids = [call["id"] for call in again.tool_calls]
    assert len({"c1", *ids}) == 3
    assert all(ids)


async def test_several_calls_in_one_task_are_each_recorded_and_asked_about_together(sqlite_store):
    @tool
    async def slow(n: int) -> str:
        """Take some time."""
        began.set()
        await release.wait()
        made.append(("slow", n))
        return f"slow {n}"

    began, release = asyncio.Event(), asyncio.Event()

    async def let_go() -> None:
        await began.wait()
        release.set()

    calls = [
        {"name": "send_mail", "args": {"to": "anna"}, "id": "a"},
        {"name": "slow", "args": {"n": 1}, "id": "b"},
        {"name": "send_mail", "args": {"to": "berta"}, "id": "c"},
        {"name": "count", "args": {"n": 2}, "id": "d"},
    ]

    def model(state: Any) -> Any:
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage("done")]}
        return {"messages": [AIMessage("", tool_calls=[{**call, "type": "tool_call"} for call in calls])]}

    durable = DurableTools({"send_mail": "ask"})
    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    node = ToolNode([send_mail, slow, count], awrap_tool_call=durable.awrap_tool_call)
    builder.add_node("tools", node)
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END]
    )
    builder.add_edge("tools", "model")
    play = Play(sqlite_store, builder.compile())
    await play.begin("go")

    outcome, _ = await asyncio.gather(play.attempt(), let_go())

    assert isinstance(outcome, Parked)
    assert [one[0] for one in made if one[0] == "slow"] == ["slow"]
    assert len(made) == 2
    questions = await play.asked()
    assert sorted(one["arguments"]["to"] for one in questions) == ["anna", "berta"]
    for question in questions:
        verdict = Verdict.APPROVE if question["arguments"]["to"] == "anna" else Verdict.DENY
        await play.world.decide(question, verdict)
    assert isinstance(await play.attempt(), Finished)
    assert len(made) == 3
    told = await results(play)
    assert told[0] == "sent to anna"
    assert told[1] == "slow 1"
    assert "denied" in told[2]
    assert told[3] == "counted 2"
    assert len(await play.world.rows(Table.TOOL_CALLS)) == 4


async def test_an_agent_that_a_plain_node_calls_and_waits_for_in_its_thread_is_recorded_too(sqlite_store):
    inner = agent(send_mail_sync, count)

    def work(state: Any) -> Any:
        return {"messages": inner.invoke({"messages": state["messages"]})["messages"]}

    builder = StateGraph(MessagesState)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    builder.add_edge("work", END)
    play = Play(sqlite_store, builder.compile())
    await play.begin('!call send_mail_sync {"to":"anna"}\n!call count {"n":1}\n!say done')
    assert isinstance(await play.attempt(), Finished)
    calls = await play.world.rows(Table.TOOL_CALLS)
    assert {(row["tool"], row["status"]) for row in calls} == {("send_mail_sync", "done"), ("count", "done")}
    assert {one[1] for one in made} == {row["key"] for row in calls}


@tool
def send_mail_sync(to: str) -> str:
    """Send a mail, in a thread."""
    made.append((to, idempotency_key()))
    return f"sent to {to}"


async def test_a_tool_of_a_server_gets_the_key_its_schema_asks_for_and_the_model_never_sees_it(sqlite_store):
    async def call_server(**arguments: Any) -> tuple[str, Any]:
        made.append(arguments)
        return "created", {"structured_content": {"id": 1}}

    schema = {
        "type": "object",
        "properties": {"title": {"type": "string"}, "idempotency_key": {"type": "string"}},
        "required": ["title", "idempotency_key"],
    }
    create = StructuredTool(
        name="create",
        description="Create.",
        args_schema=schema,
        coroutine=call_server,
        response_format="content_and_artifact",
        metadata={"readOnlyHint": False, "idempotentHint": True},
    )
    shown: list[Any] = []

    class Watching(ScriptedChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            shown.extend(one.tool_call_schema for one in tools)
            return super().bind_tools(tools, **options)

    graph = create_agent(Watching(), [create], middleware=[DurableTools()])
    play = Play(sqlite_store, graph)
    await play.begin('!call create {"title":"a","idempotency_key":"mine"}\n!say done')
    assert isinstance(await play.attempt(), Finished)
    (row,) = await play.world.rows(Table.TOOL_CALLS)
    assert made == [{"title": "a", "idempotency_key": row["key"]}]
    assert (row["arguments"], row["replay"]) == ({"title": "a"}, "keyed")
    assert row["outcome"]["structured"] == {"structured_content": {"id": 1}}
    assert shown
    assert all(list(one["properties"]) == ["title"] and one["required"] == ["title"] for one in shown)


async def test_outside_of_a_run_calls_pass_through_unchanged():
    graph = agent(send_mail, count, policy={"*": "deny"})
    said = HumanMessage('!call send_mail {"to":"anna"}\n!call count {"n":1}\n!say done')

    waited = await graph.ainvoke({"messages": [said]})
    assert sorted(made, key=str) == sorted([("anna", None), (1, None, False)], key=str)
    assert waited["messages"][-1].text == "done"
    made.clear()
    blocking = await asyncio.to_thread(
        agent(send_mail_sync, count, policy={"*": "deny"}).invoke,
        {"messages": [HumanMessage('!call send_mail_sync {"to":"anna"}\n!say done')]},
    )
    assert made == [("anna", None)]
    assert blocking["messages"][-1].text == "done"


async def test_a_stop_waits_for_an_unsafe_tool_in_its_thread_and_keeps_what_came_of_it(sqlite_room):
    begun, release = threading.Event(), threading.Event()

    @tool
    def slow(n: int) -> str:
        """Take time in a thread."""
        begun.set()
        release.wait(10)
        return f"slow {n}"

    await sqlite_room.conversation()
    watched = Watched(sqlite_room, agent(slow))
    attempt = await watched.begin('!call slow {"n":1}\n!say done')
    work = asyncio.create_task(watched.agent.attempt(attempt))
    await asyncio.to_thread(begun.wait, 10)
    work.cancel()
    done, _ = await asyncio.wait({work}, timeout=0.05)
    assert not done
    assert attempt.desk is not None
    assert attempt.desk.in_flight.tools == ["slow"]
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    (row,) = await rows(sqlite_room.store, Table.TOOL_CALLS)
    assert (row["status"], row["outcome"]["text"]) == ("done", "slow 1")
    assert attempt.unknown_calls == []


async def test_what_no_database_takes_is_cleaned_in_arguments_and_results(store):
    @tool
    async def dirty(text: str) -> str:
        """Answer with a NUL."""
        made.append(text)
        return "r\x00 \ud800"

    calls = [{**call_of("dirty"), "args": {"text": "a\x00\udce9", "n": float("nan")}}]

    def model(state: Any) -> Any:
        last = state["messages"][-1]
        return {
            "messages": [
                AIMessage("done") if isinstance(last, ToolMessage) else AIMessage("", tool_calls=calls)
            ]
        }

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([dirty], awrap_tool_call=DurableTools().awrap_tool_call))
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END]
    )
    builder.add_edge("tools", "model")
    play = Play(store, builder.compile())
    await play.begin("go")
    assert isinstance(await play.attempt(), Finished)
    assert made == ["a\ufffd\ufffd"]
    (row,) = await play.world.rows(Table.TOOL_CALLS)
    assert (row["arguments"], row["outcome"]["text"]) == (
        {"text": "a\ufffd\ufffd", "n": None},
        "r\ufffd \ufffd",
    )


async def test_a_durable_call_within_a_durable_tool_is_recorded_and_asked_about_by_itself(sqlite_store):
    async def pay(euros: int) -> str:
        made.append(("pay", euros, idempotency_key()))
        return "paid"

    def note_down(text: str) -> str:
        made.append(("note", text, idempotency_key()))
        return "noted"

    pay_once, note_once = durable(pay, policy="ask"), durable(note_down)

    @tool
    async def order(n: int) -> str:
        """Order, with calls inside."""
        return f"{await pay_once(n)} {await asyncio.to_thread(note_once, 'ordered')}"

    play = Play(sqlite_store, agent(order))
    await play.begin('!call order {"n":3}\n!say done')
    assert isinstance(await play.attempt(), Parked)
    (question,) = await play.asked()
    assert (question["tool"], question["arguments"]) == ("pay", {"euros": 3})
    await play.world.decide(question, Verdict.APPROVE)
    assert isinstance(await play.attempt(), Finished)
    assert [one[:2] for one in made] == [("pay", 3), ("note", "ordered")]
    assert await results(play) == ["paid noted"]
    kept = {row["tool"]: row["key"] for row in await play.world.rows(Table.TOOL_CALLS)}
    assert sorted(kept) == ["note_down", "order", "pay"]
    assert [one[2] for one in made] == [kept["pay"], kept["note_down"]]
