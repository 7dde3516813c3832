"""The checkpointer under real graphs: each message once, fenced, nothing lost, nothing done twice."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Send

from dromos.agents.langgraph.checkpoint_rows import StateNotStorable, StateUnreadable
from dromos.agents.langgraph.checkpointer import Checkpointer
from dromos.domain.errors import LeaseLost
from dromos.domain.statuses import RunStatus
from dromos.ports.agent import Finished
from dromos.ports.store import Table
from tests.agents.graphs import Watched
from tests.agents.kit import history, rows, until_stored
from tests.agents.test_attempts import attempt_of


def config(run_id: str, thread_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id, "run_id": run_id}, "recursion_limit": 50, **more}


def chain(*nodes: Any, schema: Any = MessagesState, saver: Checkpointer | None = None) -> Any:
    """A graph that runs `nodes` one after the other."""
    graph = StateGraph(schema)
    names = [f"n{number}" for number, _ in enumerate(nodes)]
    for name, node in zip(names, nodes, strict=True):
        graph.add_node(name, node)
    for source, target in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(source, target)
    return graph.compile(checkpointer=saver)


def says(*messages: Any) -> Any:
    async def node(state: Any) -> dict[str, Any]:
        return {"messages": list(messages)}

    return node


async def run_graph(graph: Any, value: Any, run_id: str, **more: Any) -> Any:
    return await graph.ainvoke(value, config(run_id, **more), durability="sync")


async def test_a_step_of_one_task_is_one_commit(room):
    await room.conversation()
    run, recorder = await room.run()
    graph = chain(says(AIMessage("a", id="a")), says(AIMessage("b", id="b")), saver=Checkpointer(recorder))

    await run_graph(graph, {"messages": [HumanMessage("hi", id="h")]}, run.id)

    assert recorder.writes == 4  # the input, its taking in, two steps
    assert await rows(room.store, Table.WRITES) == []


async def test_the_checkpoint_of_an_input_is_stored_with_the_next_one_where_no_work_is_done_between(room):
    await room.conversation()
    run, recorder = await room.run()
    seen: list[int] = []

    async def looks(state: Any) -> dict[str, Any]:
        seen.append(len(await rows(room.store, Table.CHECKPOINTS)))
        return {"messages": [AIMessage("a", id="a")]}

    graph = chain(looks, saver=Checkpointer(recorder, entry_node=True))
    await run_graph(graph, {"messages": [HumanMessage("hi", id="h")]}, run.id)

    assert (seen, recorder.writes) == ([2], 2)
    stored = await rows(room.store, Table.CHECKPOINTS, order=("checkpoint_id",))
    assert [(row["source"], row["step"]) for row in stored] == [("input", -1), ("loop", 0), ("loop", 1)]
    assert [row["parent_checkpoint_id"] for row in stored[1:]] == [row["checkpoint_id"] for row in stored[:2]]
    assert await rows(room.store, Table.WRITES) == []


async def test_an_input_alone_is_stored_when_all_is_to_be_settled_or_read(room):
    await room.conversation()
    for number, then in enumerate(("settled", "read")):
        run, recorder = await room.run()
        saver = Checkpointer(recorder, entry_node=True)
        checkpoint = {**empty_checkpoint(), "channel_values": {"__start__": {"n": number}}}
        metadata: Any = {"source": "input", "step": -1}
        stored = await saver.aput(config(run.id), checkpoint, metadata, {"__start__": 1})
        assert len(await rows(room.store, Table.CHECKPOINTS)) == number
        if then == "settled":
            await saver.settled()
        else:
            assert await saver.aget_tuple(stored) is not None
        assert len(await rows(room.store, Table.CHECKPOINTS)) == number + 1


async def test_a_thread_that_is_new_is_read_only_once_something_is_stored(room, monkeypatch):
    await room.conversation()
    run, recorder = await room.run()
    reads, read = [], recorder.read

    async def counted(fn: Any) -> Any:
        reads.append(fn)
        return await read(fn)

    monkeypatch.setattr(recorder, "read", counted)
    saver = Checkpointer(recorder, thread_is_new=True)
    assert await saver.aget_tuple(config(run.id)) is None
    graph = chain(says(AIMessage("a", id="a")), says(AIMessage("b", id="b")), saver=saver)
    await run_graph(graph, {"messages": [HumanMessage("hi", id="h")]}, run.id)
    assert reads == []
    found = await saver.aget_tuple(config(run.id))
    assert [message.id for message in found.checkpoint["channel_values"]["messages"]] == ["h", "a", "b"]
    assert [row["log_seq"] for row in await history(room.store)] == [0, 1, 2]
    assert len(reads) == 1


@pytest.mark.parametrize(("chooses", "commits"), [(False, 2), (True, 3)])
async def test_an_input_waits_for_no_function_of_the_users(room, chooses, commits):
    """The key of a call that such a function makes is made from the checkpoint it stands on."""
    await room.conversation()
    builder = StateGraph(MessagesState)
    builder.add_node("a", says(AIMessage("a", id="a")))
    if chooses:
        builder.add_conditional_edges(START, lambda state: "a")
    else:
        builder.add_edge(START, "a")
    run, recorder = await room.run()
    agent = Watched(room, builder.compile()).agent
    assert await agent.attempt(attempt_of(run, recorder, agent, "hi")) == Finished()
    stored = await rows(room.store, Table.CHECKPOINTS, order=("checkpoint_id",))
    assert [row["source"] for row in stored] == ["input", "loop", "loop"]
    assert recorder.writes == commits


async def test_each_message_is_one_row_however_many_checkpoints_hold_it(room):
    await room.conversation()
    run, recorder = await room.run()
    turns = [AIMessage(f"turn {n}", id=f"t{n}") for n in range(5)]
    graph = chain(*map(says, turns), saver=Checkpointer(recorder))

    await run_graph(graph, {"messages": [{"role": "user", "content": "hi", "id": "h"}]}, run.id)

    stored = await history(room.store)
    assert [row["id"] for row in stored] == ["h", "t0", "t1", "t2", "t3", "t4"]
    assert [row["log_seq"] for row in stored] == [0, 1, 2, 3, 4, 5]
    assert {row["run_id"] for row in stored} == {run.id}
    head = (await rows(room.store, Table.CHECKPOINTS, order=("-checkpoint_id",)))[0]
    assert head["message_count"] == 6
    assert head["run_id"] == run.id
    assert head["metadata"]["run_id"] == run.id
    assert len(head["checkpoint"]) < 400
    conversation = (await rows(room.store, Table.CONVERSATIONS))[0]
    assert (conversation["next_num"], conversation["message_count"]) == (7, 6)


async def test_messages_come_back_equal_in_every_detail(room):
    class Odd(HumanMessage):
        """A class of somebody's own."""

        mood: str = "fine"

    globals()["Odd"] = Odd
    Odd.__qualname__ = "Odd"
    told = [
        HumanMessage("plain", id="1"),
        HumanMessage([{"type": "text", "text": "part"}], id="2", additional_kwargs={"k": [1, 2]}, name="ada"),
        AIMessage(
            "thinking",
            id="3",
            tool_calls=[{"name": "f", "args": {"x": [1.5, None]}, "id": "c1", "type": "tool_call"}],
            usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
            response_metadata={"finish_reason": "stop", "logprobs": {"a": (1, 2)}},
        ),
        ToolMessage("out", id="4", tool_call_id="c1", name="f", status="error", artifact={"rows": [1]}),
        AIMessage("", id="5", invalid_tool_calls=[{"name": "g", "args": "{", "id": "z", "error": "e"}]),
        AIMessage("big", id="6", tool_calls=[{"name": "f", "args": {"x": 2**60}, "id": "c2"}]),
        Odd("own class", id="7", mood="odd"),
    ]
    await room.conversation()
    run, recorder = await room.run()
    await run_graph(chain(says(), saver=Checkpointer(recorder)), {"messages": told}, run.id)

    found = await Checkpointer(room.store).aget_tuple(config(run.id))

    assert found is not None
    restored = found.checkpoint["channel_values"]["messages"]
    expected = [message.model_dump() for message in told]
    expected[2]["response_metadata"]["logprobs"]["a"] = [
        1,
        2,
    ]  # LangGraph's format knows no tuple in a list's place
    assert [message.model_dump() for message in restored] == expected
    assert [type(message) for message in restored] == [type(message) for message in told]


async def test_a_replaced_message_is_a_new_row_in_the_place_of_the_old_one(room):
    await room.conversation()
    run, recorder = await room.run()
    graph = chain(
        says(AIMessage("first", id="a"), AIMessage("second", id="b")),
        says(AIMessage("better", id="a")),
        says(AIMessage("third", id="c")),
        saver=Checkpointer(recorder),
    )

    await run_graph(graph, {"messages": [HumanMessage("hi", id="h")]}, run.id)

    visible = await history(room.store, hidden=False)
    assert [(row["id"], row["content"]) for row in visible] == [
        ("h", "hi"),
        ("a", "better"),
        ("b", "second"),
        ("c", "third"),
    ]
    hidden = await history(room.store, hidden=True)
    assert [(row["id"], row["content"]) for row in hidden] == [("a", "first")]
    state = await graph.aget_state(config(run.id))
    assert [message.content for message in state.values["messages"]] == ["hi", "better", "second", "third"]
    before = [s async for s in graph.aget_state_history(config(run.id)) if s.metadata["step"] == 1]
    assert [m.content for m in before[0].values["messages"]] == ["hi", "first", "second"]


async def test_a_removed_message_leaves_the_thread_and_stays_in_the_history(room):
    await room.conversation()
    run, recorder = await room.run()
    graph = chain(
        says(AIMessage("a", id="a"), AIMessage("b", id="b")),
        says(RemoveMessage(id="a"), AIMessage("c", id="c")),
        saver=Checkpointer(recorder),
    )

    await run_graph(graph, {"messages": [HumanMessage("hi", id="h")]}, run.id)

    reopened = await Checkpointer(room.store).aget_tuple(config(run.id))
    assert reopened is not None
    assert [m.id for m in reopened.checkpoint["channel_values"]["messages"]] == ["h", "b", "c"]
    assert [row["id"] for row in await history(room.store, hidden=False)] == ["h", "a", "b", "c"]


async def test_the_persons_row_is_taken_into_the_thread_and_keeps_its_number(room):
    await room.conversation()
    run, recorder = await room.run()

    def post(tx: Any) -> None:
        tx.put(
            Table.MESSAGES,
            {
                "conversation_id": "c1",
                "num": 1,
                "position": 1,
                "id": "m1",
                "role": "user",
                "kind": "text",
                "content": "hi",
                "status": "pending",
                "created_at": tx.now(),
            },
        )
        tx.change(Table.CONVERSATIONS, {"id": "c1"}, {"next_num": 2})

    await room.store.write(post)
    graph = chain(says(AIMessage("yo", id="a")), saver=Checkpointer(recorder))
    value = {"messages": [{"role": "user", "content": "hi", "id": "m1"}]}
    await run_graph(graph, value, run.id)

    stored = await history(room.store)
    assert [(row["num"], row["id"], row["log_seq"]) for row in stored] == [(1, "m1", 0), (2, "a", 1)]
    assert stored[0]["status"] == "pending"  # the trigger's status belongs to the lifecycle
    assert await rows(room.store, Table.CHECKPOINT_BLOBS) == []  # the input names the row
    first = [s async for s in graph.aget_state_history(config(run.id))][-1]
    tup = await Checkpointer(room.store).aget_tuple(first.config)
    assert tup is not None
    assert tup.checkpoint["channel_values"]["__start__"] == value


async def test_a_second_run_goes_on_where_the_first_one_ended(room):
    await room.conversation()
    for turn in range(3):
        run, recorder = await room.run()
        graph = chain(says(AIMessage(f"a{turn}", id=f"a{turn}")), saver=Checkpointer(recorder))
        await run_graph(graph, {"messages": [HumanMessage(f"h{turn}", id=f"h{turn}")]}, run.id)

    stored = await history(room.store)
    assert [row["id"] for row in stored] == ["h0", "a0", "h1", "a1", "h2", "a2"]
    assert [row["log_seq"] for row in stored] == list(range(6))
    steps = await rows(room.store, Table.CHECKPOINTS, order=("checkpoint_id",))
    assert [row["step"] for row in steps] == list(range(-1, 8))


class Fanned(MessagesState):
    pass


def fan_out(*nodes: Any, saver: Checkpointer) -> Any:
    graph = StateGraph(Fanned)
    names = [f"n{number}" for number, _ in enumerate(nodes)]
    for name, node in zip(names, nodes, strict=True):
        graph.add_node(name, node)
    graph.add_conditional_edges(START, lambda state: [Send(name, state) for name in names], names)
    return graph.compile(checkpointer=saver)


async def test_a_finished_sibling_is_a_row_before_its_step_ends_and_never_runs_again(room):
    await room.conversation()
    run, recorder = await room.run()
    done = 0
    fail = True

    async def quick(state: Any) -> dict[str, Any]:
        nonlocal done
        done += 1
        return {"messages": [ToolMessage("result", id="q", tool_call_id="c1")]}

    async def slow(state: Any) -> dict[str, Any]:
        async with asyncio.timeout(5):
            await until_stored(room.store, id="q")
        seen.extend(await history(room.store, id="q"))
        if fail:
            raise RuntimeError("no")
        return {"messages": [ToolMessage("late", id="s", tool_call_id="c2")]}

    seen: list[Any] = []
    graph = fan_out(quick, slow, saver=Checkpointer(recorder))
    value = {"messages": [HumanMessage("hi", id="h")]}
    with pytest.raises(RuntimeError):
        await run_graph(graph, value, run.id)

    head = (await rows(room.store, Table.CHECKPOINTS, order=("-checkpoint_id",)))[0]
    assert [(row["pending_of"], row["log_seq"]) for row in seen] == [(head["checkpoint_id"], None)]
    errors = await rows(room.store, Table.WRITES, channel="__error__")
    assert len(errors) == 1
    fail = False
    again = await room.change(run, epoch=2)
    graph = fan_out(
        quick, slow, saver=Checkpointer(type(recorder)(room.store, type(recorder.fence)(run.id, 2, "c1")))
    )
    result = await run_graph(graph, value, again.id)

    assert done == 1
    assert [message.id for message in result["messages"]] == ["h", "q", "s"]
    stored = await history(room.store)
    assert [(row["id"], row["log_seq"], row["pending_of"]) for row in stored if row["id"] == "q"] == [
        ("q", 1, None)
    ]
    assert sorted(row["id"] for row in stored) == ["h", "q", "s"]
    assert await rows(room.store, Table.WRITES, channel="__error__") == errors


async def test_a_sibling_that_replaces_a_message_shows_it_once_before_and_after_its_step(room):
    await room.conversation()
    run, recorder = await room.run()
    meanwhile: list[Any] = []

    async def edits(state: Any) -> dict[str, Any]:
        return {"messages": [HumanMessage("edited", id="h")]}

    async def waits(state: Any) -> dict[str, Any]:
        async with asyncio.timeout(5):
            await until_stored(room.store, id="h", content="edited")
        meanwhile.extend(await history(room.store, hidden=False))
        return {"messages": [AIMessage("answer", id="a")]}

    graph = fan_out(edits, waits, saver=Checkpointer(recorder))
    await run_graph(graph, {"messages": [HumanMessage("first", id="h")]}, run.id)

    assert [row["content"] for row in meanwhile] == ["first"]
    assert [row["content"] for row in await history(room.store, hidden=False)] == ["edited", "answer"]
    reopened = await Checkpointer(room.store).aget_tuple(config(run.id))
    assert reopened is not None
    assert [m.content for m in reopened.checkpoint["channel_values"]["messages"]] == ["edited", "answer"]


async def test_an_old_epoch_writes_nothing(room):
    await room.conversation()
    run, recorder = await room.run()

    async def taken_over(state: Any) -> dict[str, Any]:
        await room.change(run, epoch=2)
        return {"messages": [AIMessage("zombie", id="z")]}

    graph = chain(taken_over, says(AIMessage("never", id="n")), saver=Checkpointer(recorder))
    with pytest.raises(LeaseLost):
        await run_graph(graph, {"messages": [HumanMessage("hi", id="h")]}, run.id)

    assert [row["id"] for row in await history(room.store)] == ["h"]
    assert await rows(room.store, Table.WRITES) == []


async def test_a_run_that_is_being_stopped_writes_nothing_more(room):
    await room.conversation()
    run, recorder = await room.run()

    async def stopped(state: Any) -> dict[str, Any]:
        await room.change(run, status=RunStatus.CANCELLING)
        return {"messages": [AIMessage("late", id="z")]}

    with pytest.raises(LeaseLost):
        await run_graph(
            chain(stopped, saver=Checkpointer(recorder)), {"messages": [HumanMessage("hi")]}, run.id
        )


async def test_checkpoints_and_whoever_locks_conversation_and_run_never_wait_for_each_other_in_a_circle(room):
    await room.conversation()
    run, recorder = await room.run()
    graph = chain(*(says(AIMessage("x", id=f"a{n}")) for n in range(40)), saver=Checkpointer(recorder))
    finished = asyncio.Event()

    def look(tx: Any) -> None:
        tx.lock(Table.CONVERSATIONS, {"id": "c1"})
        tx.lock_run(run.id)

    async def contend() -> int:
        rounds = 0
        while not finished.is_set():
            await room.store.write(look)
            rounds += 1
        return rounds

    rivals = [asyncio.create_task(contend()) for _ in range(3)]
    try:
        async with asyncio.timeout(15):
            await run_graph(graph, {"messages": [HumanMessage("hi", id="h")]}, run.id)
    finally:
        finished.set()
        rounds = await asyncio.gather(*rivals)

    assert min(rounds) > 1
    assert len(await history(room.store)) == 41


async def test_messages_of_a_subgraph_are_stored_but_not_shown(room):
    await room.conversation()
    run, recorder = await room.run()
    inner = chain(says(AIMessage("inner", id="i")))
    outer = StateGraph(MessagesState)
    outer.add_node("sub", inner)
    outer.add_edge(START, "sub")
    graph = outer.compile(checkpointer=Checkpointer(recorder))

    await run_graph(graph, {"messages": [HumanMessage("hi", id="h")]}, run.id)

    assert [row["id"] for row in await history(room.store, hidden=False)] == ["h", "i"]
    inside = await history(room.store, hidden=True)
    assert {row["ns"].split(":")[0] for row in inside} == {"sub"}


async def test_a_plain_function_may_invoke_another_graph_with_a_blocking_call(room):
    await room.conversation()
    run, recorder = await room.run()
    inner = chain(lambda state: {"messages": [AIMessage("from inside", id="i")]})

    def calls(state: Any) -> dict[str, Any]:
        return {"messages": inner.invoke({"messages": [HumanMessage("q", id="q")]})["messages"][-1:]}

    result = await run_graph(
        chain(calls, saver=Checkpointer(recorder)), {"messages": [HumanMessage("hi", id="h")]}, run.id
    )

    assert [message.id for message in result["messages"]] == ["h", "i"]


class Deltas(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=3)]


@pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning")
async def test_a_delta_channel_is_rebuilt_from_what_is_kept(room):
    await room.conversation()
    for turn in range(3):
        run, recorder = await room.run()
        nodes = [says(AIMessage(f"{turn}.{n}", id=f"{turn}.{n}")) for n in range(2)]
        graph = chain(*nodes, schema=Deltas, saver=Checkpointer(recorder))
        await run_graph(graph, {"messages": [HumanMessage(f"h{turn}", id=f"h{turn}")]}, run.id)

    state = await graph.aget_state(config(run.id))

    assert [message.id for message in state.values["messages"]] == [
        name for turn in range(3) for name in (f"h{turn}", f"{turn}.0", f"{turn}.1")
    ]


class Marker:
    """A value of a class that will be gone."""

    def __init__(self, word: str) -> None:
        self.word = word

    def model_dump(self) -> dict[str, str]:
        return {"word": self.word}


class WithMarker(MessagesState):
    marker: Any
    log: Annotated[list[str], operator.add]


@pytest.mark.case("P72")
async def test_a_value_whose_class_is_gone_is_an_error_that_names_the_field(room, monkeypatch):
    await room.conversation()
    run, recorder = await room.run()

    async def marks(state: Any) -> dict[str, Any]:
        return {"marker": Marker("kept" * 50), "log": ["x"]}

    graph = chain(marks, schema=WithMarker, saver=Checkpointer(recorder))
    await run_graph(graph, {"messages": [HumanMessage("hi", id="h")]}, run.id)
    reader = Checkpointer(room.store)
    kept = Marker
    monkeypatch.delitem(globals(), "Marker")

    with pytest.raises(StateUnreadable, match=r"marker: its class .*Marker cannot be used") as caught:
        await reader.aget_tuple(config(run.id))
    assert caught.value.field == "marker"

    monkeypatch.setitem(globals(), "Marker", kept)
    found = await reader.aget_tuple(config(run.id))
    assert found is not None
    assert found.checkpoint["channel_values"]["marker"].word == "kept" * 50


async def test_a_value_that_cannot_be_stored_names_its_field(room):
    await room.conversation()
    run, recorder = await room.run()

    async def node(state: Any) -> dict[str, Any]:
        return {"marker": lambda: None}

    with pytest.raises(StateNotStorable, match="marker"):
        await run_graph(
            chain(node, schema=WithMarker, saver=Checkpointer(recorder)),
            {"messages": [HumanMessage("hi", id="h")]},
            run.id,
        )


@pytest.mark.case("P131")
async def test_text_that_no_database_takes_is_replaced_in_memory_and_in_the_store_alike(room):
    await room.conversation()
    run, recorder = await room.run()
    seen: list[str] = []

    async def looks(state: Any) -> dict[str, Any]:
        seen.extend(message.content for message in state["messages"])
        return {}

    dirty = ToolMessage("a\x00b \udce9 \ud83d\ude00", id="t", tool_call_id="c")
    graph = chain(says(dirty), looks, saver=Checkpointer(recorder))
    await run_graph(graph, {"messages": [HumanMessage("hi", id="h")]}, run.id)

    clean = "a\ufffdb \ufffd 😀"
    assert seen == ["hi", clean]
    assert (await history(room.store))[1]["content"] == clean


async def test_copy_prune_and_delete_keep_messages_and_checkpoints_together(room):
    await room.conversation()
    await room.conversation("c2")
    run, recorder = await room.run()
    saver = Checkpointer(recorder)
    graph = chain(says(AIMessage("a", id="a")), says(AIMessage("b", id="b")), saver=saver)
    await run_graph(graph, {"messages": [HumanMessage("hi", id="h")]}, run.id)

    await saver.acopy_thread("c1", "c2")
    await saver.aprune(["c1"])

    for thread in ("c1", "c2"):
        found = await Checkpointer(room.store).aget_tuple(config(run.id, thread))
        assert found is not None
        assert [m.id for m in found.checkpoint["channel_values"]["messages"]] == ["h", "a", "b"]
    assert len(await rows(room.store, Table.CHECKPOINTS, thread_id="c1")) == 1
    assert len(await rows(room.store, Table.CHECKPOINTS, thread_id="c2")) == 4
    await saver.adelete_thread("c1")
    assert await rows(room.store, Table.CHECKPOINTS, thread_id="c1") == []
    assert await history(room.store, "c1") == []


@pytest.mark.case("P109")
@pytest.mark.slow(90)
async def test_a_thousand_messages_grow_the_file_by_less_than_three_mebibytes(sqlite_room, tmp_path):
    room = sqlite_room
    await room.conversation()
    run, recorder = await room.run()
    file = tmp_path / "dromos.db"

    async def grow(state: Any) -> dict[str, Any]:
        number = len(state["messages"])
        return {"messages": [AIMessage(f"{number} ".ljust(216, "x"), id=f"message-{number:026}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("grow", grow)
    graph.add_edge(START, "grow")
    graph.add_conditional_edges("grow", lambda s: END if len(s["messages"]) >= 1000 else "grow")
    compiled = graph.compile(checkpointer=Checkpointer(recorder))
    settings = config(run.id)
    settings["recursion_limit"] = 1100
    before = _size(file)

    result = await compiled.ainvoke(
        {"messages": [HumanMessage("x" * 216, id="h")]}, settings, durability="sync"
    )

    assert len(result["messages"]) == 1000
    assert len(await rows(room.store, Table.CHECKPOINTS)) == 1001
    await room.store.aclose()
    assert _size(file) - before <= 3 * 2**20


def _size(file: Any) -> int:
    return sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*"))
