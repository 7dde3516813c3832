"""A graph's own questions: each becomes a request, each answer reaches the graph exactly once, wrong ones never do."""

from __future__ import annotations

import json
import operator
from typing import Annotated, Any, Literal

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.pregel import Pregel
from langgraph.types import Send, interrupt
from pydantic import BaseModel, field_validator
from typing_extensions import TypedDict

from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.statuses import RunStatus, Verdict
from dromos.ports.agent import Failed, Finished, Parked
from dromos.ports.store import Row, Store, Table
from tests.agents.play import Play
from tests.lifecycle.world import check_invariants


class State(TypedDict, total=False):
    task: Any
    notes: Annotated[list[Any], operator.add]
    said: Any


def graph_of(*nodes: Any, **options: Any) -> Pregel:
    """Nodes one after the other; the last step writes the notes as the answer."""
    builder = StateGraph(State)
    names = [node.__name__ for node in nodes]
    for name, node in zip(names, nodes, strict=True):
        builder.add_node(name, node)
    builder.add_node("tell", lambda state: {"said": json.dumps(state.get("notes"))})
    for before, name in zip([START, *names], [*names, "tell"], strict=True):
        builder.add_edge(before, name)
    builder.add_edge("tell", END)
    return builder.compile(**options)


def play(store: Store, *nodes: Any, **options: Any) -> Play:
    return Play(store, graph_of(*nodes, **options), field="task", output="said")


def which(state: State) -> State:
    return {"notes": [interrupt("Which account?")]}


async def told(play: Play, run_id: str) -> Any:
    """What the graph had noted in the end; the run must have completed."""
    run = await play.world.run(run_id)
    assert run.status is RunStatus.COMPLETED, run
    (answer,) = await play.said(run_id)
    return json.loads(answer)


# --- what is asked


async def test_a_question_becomes_a_request_and_its_answer_is_what_the_graph_goes_on_with(
    store: Store,
) -> None:
    stage = play(store, which)
    run_id = await stage.begin()
    outcome = await stage.attempt()
    assert isinstance(outcome, Parked) and outcome.reason is Reason.QUESTION_ASKED
    (question,) = await stage.asked()
    assert (question["kind"], question["prompt"], question["arguments"]) == (
        "question",
        "Which account?",
        None,
    )
    assert (await stage.world.run(run_id)).status is RunStatus.WAITING_INPUT
    await stage.answer("savings")
    assert await stage.attempt() == Finished()
    assert await told(stage, run_id) == ["savings"]
    (question,) = await stage.asked(id=question["id"])
    assert (question["status"], question["consumed_epoch"]) == ("consumed", 3)
    await check_invariants(stage.world)


class Choice(BaseModel):
    account: Literal["savings", "current"]
    amount: int

    @field_validator("amount")
    @classmethod
    def is_round(cls, value: int) -> int:
        if value % 10:
            raise ValueError("must be a multiple of ten")
        return value


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (
            {"question": "Which?", "options": ["a", "b"], "more": 1},
            None,
            {
                "prompt": "Which?",
                "options": ["a", "b"],
                "arguments": {"question": "Which?", "options": ["a", "b"], "more": 1},
            },
        ),
        (["one", 2], None, {"prompt": None, "arguments": {"value": ["one", 2]}}),
        ({"choices": [{"value": 1, "label": "one"}]}, None, {"options": [{"value": 1, "label": "one"}]}),
        ({"options": "no list"}, None, {"options": None, "arguments": {"options": "no list"}}),
        (
            {"when": float("nan"), "who": {1, 2}, 3: "three"},
            None,
            {"arguments": {"when": None, "who": "{1, 2}", "3": "three"}},
        ),
        (Choice(account="savings", amount=10), None, {"arguments": {"account": "savings", "amount": 10}}),
        ("x" * 30_000 + "\ud800", None, {"arguments": None}),
        ("How many?", {"type": "integer"}, {"answer_schema": {"type": "integer"}, "decisions": ["answer"]}),
        ("How many?", {"type": ["integer", "null"]}, {"decisions": ["answer", "deny"]}),
        ("How many?", {"type": "nonsense"}, {"answer_schema": None, "decisions": ["answer", "deny"]}),
        (
            {"prompt": "Go?", "expires_in_s": 60, "default": "no"},
            None,
            {"on_timeout": "default", "default_decision": {"decision": "answer", "answer": "no"}},
        ),
        ({"prompt": "Go?", "expires_in_s": 60}, None, {"on_timeout": "expire", "default_decision": None}),
    ],
)
async def test_whatever_a_graph_asks_with_can_be_read_and_shown(
    sqlite_store: Store, value: Any, schema: Any, expected: dict[str, Any]
) -> None:
    def ask(state: State) -> State:
        return {"notes": [interrupt(value, response_schema=schema)]}

    stage = play(sqlite_store, ask)
    await stage.begin()
    assert isinstance(await stage.attempt(), Parked)
    (question,) = await stage.asked()
    assert {name: question[name] for name in expected} == expected


async def test_a_declined_question_gives_the_graph_none(store: Store) -> None:
    stage = play(store, which)
    run_id = await stage.begin()
    await stage.attempt()
    (question,) = await stage.asked()
    await stage.world.decide(question, Verdict.DENY, comment="none of your business")
    await stage.attempt()
    assert await told(stage, run_id) == [None]


# --- several questions


def twice(state: State) -> State:
    return {"notes": [interrupt("first?"), interrupt("second?")]}


async def test_a_node_that_asks_twice_gets_each_answer_at_its_place(store: Store) -> None:
    stage = play(store, twice)
    run_id = await stage.begin()
    await stage.attempt()
    await stage.answer("one")
    await stage.attempt()
    assert [row["prompt"] for row in await stage.asked()] == ["second?"]
    await stage.answer("two")
    await stage.attempt()
    assert await told(stage, run_id) == ["one", "two"]
    assert {row["status"] for row in await stage.asked(run_id=run_id)} == {"consumed"}


def branches() -> Pregel:
    builder = StateGraph(State)
    builder.add_node("ask", lambda task: {"notes": [[task["n"], interrupt(f"number {task['n']}?")]]})
    builder.add_node("free", lambda task: {"notes": [["free", task["n"]]]})
    builder.add_node(
        "tell", lambda state: {"said": json.dumps(sorted(state["notes"], key=lambda note: str(note[0])))}
    )
    builder.add_conditional_edges(
        START, lambda _: [*(Send("ask", {"n": n}) for n in range(3)), Send("free", {"n": 9})], ["ask", "free"]
    )
    builder.add_edge("ask", "tell")
    builder.add_edge("free", "tell")
    builder.add_edge("tell", END)
    return builder.compile()


async def test_parallel_questions_are_decided_each_on_its_own_and_the_last_lets_the_run_go_on(
    store: Store,
) -> None:
    stage = Play(store, branches(), field="task", output="said")
    run_id = await stage.begin()
    await stage.attempt()
    asked = await stage.asked()
    assert sorted(row["prompt"] for row in asked) == ["number 0?", "number 1?", "number 2?"]
    assert len({row["engine_id"] for row in asked}) == 3
    for row in sorted(asked, key=lambda row: row["prompt"], reverse=True):
        assert (await stage.world.run(run_id)).status is RunStatus.WAITING_INPUT
        await stage.world.decide(row, Verdict.ANSWER, f"answer to {row['prompt']}")
    await stage.attempt()
    assert await told(stage, run_id) == [
        *([n, f"answer to number {n}?"] for n in range(3)),
        ["free", 9],
    ]


def nested() -> Pregel:
    inner = StateGraph(State)
    inner.add_node("ask", twice)
    inner.add_edge(START, "ask")
    inner.add_edge("ask", END)
    return graph_of_inner(inner.compile())


def graph_of_inner(inner: Pregel) -> Pregel:
    async def call(state: State) -> State:
        made = await inner.ainvoke({"task": state.get("task")})
        return {"notes": made["notes"]}

    return graph_of(call)


@pytest.mark.parametrize("how", ["as a node", "called by a node"])
async def test_a_graph_inside_a_graph_asks_through_it(store: Store, how: str) -> None:
    inner = StateGraph(State)
    inner.add_node("ask", twice)
    inner.add_edge(START, "ask")
    inner.add_edge("ask", END)
    if how == "as a node":
        builder = StateGraph(State)
        builder.add_node("inside", inner.compile())
        builder.add_node("tell", lambda state: {"said": json.dumps(state["notes"])})
        builder.add_edge(START, "inside")
        builder.add_edge("inside", "tell")
        builder.add_edge("tell", END)
        graph = builder.compile()
    else:
        graph = graph_of_inner(inner.compile())
    stage = Play(store, graph, field="task", output="said")
    run_id = await stage.begin()
    for answer in ("one", "two"):
        await stage.attempt()
        await stage.answer(answer)
    await stage.attempt()
    assert await told(stage, run_id) == ["one", "two"]
    assert {row["status"] for row in await stage.asked(run_id=run_id)} == {"consumed"}
    await check_invariants(stage.world)


# --- exactly once, whatever dies when


@pytest.mark.slow(60)
@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("shape", ["twice", "branches", "nested"])
async def test_an_answer_reaches_the_graph_once_wherever_its_owner_is_lost(
    store: Store, shape: str, after: bool
) -> None:
    graph = {"twice": lambda: graph_of(twice), "branches": branches, "nested": nested}[shape]()
    stage = Play(store, graph, field="task", output="said")
    fatal = 0
    survived = False
    while not survived:
        fatal += 1
        run_id = await stage.begin()
        survived, rounds = True, 0
        while not (await stage.world.run(run_id)).is_final:
            rounds += 1
            assert rounds < 20
            if await stage.attempt(fatal=fatal, after=after) is None:
                survived = False
                await stage.attempt()
            for row in await stage.asked():
                await stage.world.decide(row, Verdict.ANSWER, f"answer to {row['prompt']}")
        notes = await told(stage, run_id)
        if shape == "branches":
            assert notes == [*([n, f"answer to number {n}?"] for n in range(3)), ["free", 9]]
        else:
            assert notes == ["answer to first?", "answer to second?"]
        requests = await stage.asked(run_id=run_id)
        assert [row["status"] for row in requests] == ["consumed"] * len(requests)
        assert len(requests) == (3 if shape == "branches" else 2), "nobody is asked twice"
    assert fatal > 3
    await check_invariants(stage.world)


async def test_a_step_that_fails_behind_its_answer_goes_on_with_it_and_does_not_ask_again(
    store: Store,
) -> None:
    broken = [True]

    def ask(state: State) -> State:
        first = interrupt("first?")
        if broken[0]:
            raise ValueError("broken")
        return {"notes": [first, interrupt("second?")]}

    stage = play(store, ask)
    run_id = await stage.begin()
    await stage.attempt()
    await stage.answer("one")
    assert isinstance(await stage.attempt(), Failed)
    broken[0] = False
    conversation = (await stage.world.run(run_id)).conversation_id
    again = await stage.world.resume(conversation)
    assert again.resume_of == run_id
    await stage.attempt()
    assert [row["prompt"] for row in await stage.asked()] == ["second?"], (
        "the first answer was kept, and kept apart"
    )
    await stage.answer("two")
    await stage.attempt()
    assert await told(stage, again.id) == ["one", "two"]
    await check_invariants(stage.world)


async def test_an_answer_that_the_engine_lost_in_a_failure_is_given_again_from_the_record(
    store: Store,
) -> None:
    broken = [False]

    def ask(state: State) -> State:
        first = interrupt("first?")
        if broken[0]:
            broken[0] = False
            raise ValueError("broken")
        return {"notes": [first, interrupt("second?"), interrupt("third?")]}

    stage = play(store, ask)
    run_id = await stage.begin()
    for answer in ("one", "two"):
        await stage.attempt()
        await stage.answer(answer)
    await stage.attempt()
    await stage.answer("three")
    broken[0] = True  # the next try gets as far as the first answer only, and keeps no more than that
    assert isinstance(await stage.attempt(), Failed)
    again = await stage.world.resume((await stage.world.run(run_id)).conversation_id)
    outcome = await stage.attempt()
    if isinstance(outcome, Parked):
        assert [row["prompt"] for row in await stage.asked()] == ["third?"]
        await stage.answer("three")
        await stage.attempt()
    assert await told(stage, again.id) == ["one", "two", "three"]


# --- wrong answers


async def test_an_answer_that_the_graphs_own_check_refuses_is_asked_for_anew_and_spoils_nothing(
    store: Store,
) -> None:
    def ask(state: State) -> State:
        choice = interrupt("Which, and how much?", response_schema=Choice)
        return {"notes": [choice.account, choice.amount]}

    stage = play(store, ask, which)
    run_id = await stage.begin()
    await stage.attempt()
    (first,) = await stage.asked()
    assert first["decisions"] == ["answer"], "the graph could do nothing with a refusal"
    await stage.answer({"account": "savings", "amount": 15})
    outcome = await stage.attempt()
    assert isinstance(outcome, Parked)
    (second,) = await stage.asked()
    assert second["replaces"] == first["id"]
    assert "multiple of ten" in second["prompt"] and "Which, and how much?" in second["prompt"]
    assert (await stage.asked(id=first["id"]))[0]["status"] == "void"
    await stage.answer({"account": "savings", "amount": 20})
    await stage.attempt()
    await stage.answer("joint")
    await stage.attempt()
    assert await told(stage, run_id) == ["savings", 20, "joint"]
    await check_invariants(stage.world)


async def test_what_has_changed_since_it_was_shown_is_asked_anew(store: Store) -> None:
    stage = play(store, which)
    await stage.begin()
    await stage.attempt()
    (question,) = await stage.asked()
    await stage.answer("savings")
    where = {"id": question["id"]}
    await store.write(lambda tx: tx.change(Table.REQUESTS, where, {"arguments": {"account": "another"}}))
    await stage.attempt()
    (again,) = await stage.asked()
    assert again["replaces"] == question["id"]
    assert "changed" in again["prompt"]


# --- around it


async def test_a_run_whose_owner_was_lost_before_it_could_park_asks_without_working_again(
    store: Store,
) -> None:
    worked: list[str] = []

    def ask(state: State) -> State:
        worked.append("once")
        return {"notes": [interrupt("Which account?")]}

    stage = play(store, ask)
    await stage.begin()
    assert isinstance(await stage.attempt(parks=False), Parked)
    assert isinstance(await stage.attempt(), Parked)
    assert worked == ["once"]
    assert len(await stage.asked()) == 1


async def test_continue_after_a_failure_asks_what_was_open(store: Store) -> None:
    """A question and a failure in one step: the failed run asks nothing, the one that continues it does."""
    broken = [True]

    def ask(state: State) -> State:
        return {"notes": [interrupt("Which account?")]}

    def fail(state: State) -> State:
        if broken[0]:
            raise ValueError("broken")
        return {"notes": ["fine"]}

    builder = StateGraph(State)
    for node in (ask, fail):
        builder.add_node(node.__name__, node)
        builder.add_edge(START, node.__name__)
        builder.add_edge(node.__name__, "tell")
    builder.add_node("tell", lambda state: {"said": json.dumps(sorted(state["notes"]))})
    builder.add_edge("tell", END)
    stage = Play(store, builder.compile(), field="task", output="said")
    run_id = await stage.begin()
    outcome = await stage.attempt()
    assert isinstance(outcome, Failed) and outcome.code is ErrorCode.AGENT_FAILURE
    assert await stage.asked() == []
    broken[0] = False
    again = await stage.world.resume((await stage.world.run(run_id)).conversation_id)
    assert isinstance(await stage.attempt(), Parked)
    await stage.answer("savings")
    await stage.attempt()
    assert await told(stage, again.id) == ["fine", "savings"]


async def test_a_stop_while_it_waits_voids_the_question_and_continue_asks_it_again(store: Store) -> None:
    stage = play(store, which)
    run_id = await stage.begin("the first thing")
    await stage.attempt()
    (question,) = await stage.asked()
    await stage.world.cancel(run_id)
    assert (await stage.asked(id=question["id"]))[0]["status"] == "void"
    again = await stage.world.resume(question["conversation_id"])
    assert again.retry_of == run_id
    await stage.attempt()
    (second,) = await stage.asked()
    assert second["run_id"] == again.id
    await stage.answer("savings")
    await stage.attempt()
    assert await told(stage, again.id) == ["savings"]


async def test_a_message_after_a_stop_begins_afresh_and_leaves_the_old_question_behind(store: Store) -> None:
    stage = play(store, which)
    run_id = await stage.begin("the first thing")
    await stage.attempt()
    await stage.world.cancel(run_id)
    conversation = (await stage.world.run(run_id)).conversation_id
    second = await stage.begin("the second thing", conversation_id=conversation)
    await stage.attempt()
    (question,) = await stage.asked()
    assert question["run_id"] == second
    await stage.answer("savings")
    await stage.attempt()
    assert await told(stage, second) == ["savings"]


async def test_a_question_of_the_first_release_is_answered_all_the_same(store: Store) -> None:
    stage = play(store, which)
    run_id = await stage.begin()
    await stage.attempt()
    (question,) = await stage.asked()
    old: Row = {"engine_id": None, "decisions": None, "arguments": {"interrupt": question["engine_id"]}}
    where = {"id": question["id"]}
    await store.write(lambda tx: tx.change(Table.REQUESTS, where, old))
    await stage.answer("savings")
    await stage.attempt()
    assert await told(stage, run_id) == ["savings"]


# --- breakpoints


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
async def test_a_breakpoint_is_an_approval_that_no_takeover_goes_past(store: Store, after: bool) -> None:
    def prepare(state: State) -> State:
        return {"notes": ["prepared"]}

    def send(state: State) -> State:
        return {"notes": ["sent"]}

    def report(state: State) -> State:
        return {"notes": ["reported"]}

    stage = play(store, prepare, send, report, interrupt_before=["send"], interrupt_after=["send"])
    for fatal in range(1, 6):
        run_id = await stage.begin()
        asked = 0
        while not (await stage.world.run(run_id)).is_final:
            if await stage.attempt(fatal=fatal, after=after) is None:
                await stage.attempt()
            for row in await stage.asked():
                assert (row["kind"], row["arguments"]) == ("approval", {"next": [["send", "report"][asked]]})
                asked += 1
                await stage.world.decide(row, Verdict.APPROVE)
        assert await told(stage, run_id) == ["prepared", "sent", "reported"]
        assert asked == 2
        assert {row["status"] for row in await stage.asked(run_id=run_id)} == {"consumed"}


async def test_a_breakpoint_that_is_denied_ends_the_run_and_continue_asks_again(store: Store) -> None:
    stage = play(store, which, interrupt_before=["which"])
    run_id = await stage.begin()
    assert isinstance(await stage.attempt(), Parked)
    (leave,) = await stage.asked()
    await stage.world.decide(leave, Verdict.DENY, comment="not now")
    outcome = await stage.attempt()
    assert isinstance(outcome, Failed) and outcome.message == "It may not go on with which: not now"
    again = await stage.world.resume((await stage.world.run(run_id)).conversation_id)
    await stage.attempt()
    (leave,) = await stage.asked()
    assert "go on with which" in leave["prompt"]
    await stage.world.decide(leave, Verdict.APPROVE)
    await stage.attempt()
    await stage.answer("savings")
    await stage.attempt()
    assert await told(stage, again.id) == ["savings"]
    await check_invariants(stage.world)
