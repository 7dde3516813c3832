"""`durable(fn)` in nodes: made once, replayed by name and order, asked about; and unchanged outside of a run."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.types import interrupt

from dromos.agents.langgraph.durable import DurableCallFailed, durable, idempotency_key
from dromos.agents.langgraph.pass_calls import PassCalls
from dromos.domain.effects import ReplayClass, ToolPolicy
from dromos.domain.errors import LeaseLost
from dromos.domain.reasons import Reason
from dromos.domain.statuses import Verdict
from dromos.ports.agent import Failed, Finished, Parked
from dromos.ports.store import Table
from dromos.tools.rules import Rule, ToolRules
from tests.agents.play import Play
from tests.agents.test_questions import graph_of, play, told

made: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    made.clear()


async def charge(euros: int, idempotency_key: str = "") -> dict[str, Any]:
    made.append((euros, idempotency_key))
    return {"charged": euros}


def write(line: str) -> str:
    made.append((line, idempotency_key()))
    return f"wrote {line}"


async def calls(play: Play) -> list[tuple[str, str]]:
    rows = await play.world.rows(Table.TOOL_CALLS)
    return sorted((row["tool"], row["status"]) for row in rows)


async def test_a_node_that_is_repeated_repeats_none_of_its_durable_calls(sqlite_store):
    pay, log = durable(charge), durable(write)

    async def node(state: Any) -> Any:
        first = await pay(1)
        second = await pay(2)
        line = await asyncio.to_thread(log, "paid")
        made.append("node")
        if made.count("node") == 1:
            raise LeaseLost("killed at the end of the node")
        return {"notes": [first, second, line]}

    game = play(sqlite_store, node)
    run_id = await game.begin()
    assert await game.attempt() is None
    assert isinstance(await game.attempt(), Finished)

    assert await told(game, run_id) == [{"charged": 1}, {"charged": 2}, "wrote paid"]
    effects = [one for one in made if one != "node"]
    assert [what for what, _ in effects] == [1, 2, "paid"]
    assert {key for _, key in effects} == {row["key"] for row in await game.world.rows(Table.TOOL_CALLS)}
    assert made.count("node") == 2
    assert await calls(game) == [("charge", "done"), ("charge", "done"), ("write", "done")]


async def test_a_plain_node_in_its_thread_waits_for_durable_calls(sqlite_store):
    log = durable(write)

    def node(state: Any) -> Any:
        notes = [log("a"), log("b")]
        made.append("node")
        if made.count("node") == 1:
            raise LeaseLost("killed at the end of the node")
        return {"notes": notes}

    game = play(sqlite_store, node)
    run_id = await game.begin()
    assert await game.attempt() is None
    assert isinstance(await game.attempt(), Finished)
    assert await told(game, run_id) == ["wrote a", "wrote b"]
    assert [one[0] for one in made if one != "node"] == ["a", "b"]


async def test_a_blocking_durable_call_on_the_event_loop_is_refused_with_the_cure(sqlite_store):
    log = durable(write)

    async def node(state: Any) -> Any:
        return {"notes": [log("a")]}

    game = play(sqlite_store, node)
    await game.begin()
    outcome = await game.attempt()
    assert isinstance(outcome, Failed)
    assert "asyncio.to_thread" in outcome.message
    assert made == []


@pytest.mark.case("P66")
@pytest.mark.parametrize("replay", list(ReplayClass))
async def test_a_function_cut_by_a_crash_is_repeated_only_where_that_is_safe(sqlite_store, replay):
    async def work(idempotency_key: str = "") -> str:
        made.append(idempotency_key)
        if len(made) == 1:
            raise LeaseLost("killed in the call")
        return "worked"

    once = durable(work, replay=replay.value)

    async def node(state: Any) -> Any:
        return {"notes": [await once()]}

    game = play(sqlite_store, node)
    run_id = await game.begin()
    assert await game.attempt() is None
    outcome = await game.attempt()
    if replay is ReplayClass.UNSAFE:
        assert isinstance(outcome, Parked)
        assert outcome.reason is Reason.TOOL_OUTCOME_UNKNOWN
        (question,) = await game.asked()
        await game.world.decide(question, Verdict.MARK_DONE, "by hand")
        assert isinstance(await game.attempt(), Finished)
        assert (len(made), await told(game, run_id)) == (1, ["by hand"])
        return
    assert isinstance(outcome, Finished)
    assert made[0] == made[1] != ""
    assert await told(game, run_id) == ["worked"]


async def test_an_error_is_what_came_of_an_unsafe_call_and_a_reason_to_repeat_a_keyed_one(sqlite_store):
    async def flaky() -> str:
        made.append("flaky")
        if made.count("flaky") == 1:
            raise ConnectionError("not now")
        return "well"

    async def broken() -> str:
        made.append("broken")
        raise ValueError("never")

    keyed, unsafe = durable(flaky, replay="keyed"), durable(broken)

    async def node(state: Any) -> Any:
        try:
            await unsafe()
        except DurableCallFailed as failed:
            why = str(failed)
        try:
            well = await keyed()
        except ConnectionError:
            raise LeaseLost("the owner was lost") from None
        return {"notes": [why, well]}

    game = play(sqlite_store, node)
    run_id = await game.begin()
    assert await game.attempt() is None
    assert isinstance(await game.attempt(), Finished)
    assert await told(game, run_id) == ["The tool failed: ValueError: never", "well"]
    assert sorted(made) == ["broken", "flaky", "flaky"]


async def test_a_function_may_need_leave_and_configuration_comes_first(sqlite_store):
    pay, never = durable(charge, name="pay", policy="ask"), durable(charge, name="never", policy="auto")

    async def node(state: Any) -> Any:
        try:
            await never(9)
        except DurableCallFailed as refused:
            why = str(refused)
        return {"notes": [why, *await asyncio.gather(pay(1), pay(2))]}

    rules = ToolRules(rules={"never": Rule(policy=ToolPolicy.DENY)})
    game = Play(sqlite_store, graph_of(node), field="task", output="said", rules=rules)
    run_id = await game.begin()
    assert isinstance(await game.attempt(), Parked)
    assert made == []
    questions = await game.asked()
    assert [one["arguments"]["euros"] for one in questions] == [1, 2]
    for question in questions:
        await game.world.decide(question, Verdict.APPROVE)
    assert isinstance(await game.attempt(), Finished)
    assert sorted(one[0] for one in made) == [1, 2]
    why, *paid = await told(game, run_id)
    assert why == "The call was not made: never is not allowed here."
    assert paid == [{"charged": 1}, {"charged": 2}]


async def test_what_is_not_json_is_refused_before_the_call_and_told_after_it(sqlite_store):
    async def odd(value: Any) -> Any:
        made.append(value)
        return object()

    once = durable(odd)

    async def node(state: Any) -> Any:
        notes = []
        for value in (object(), float("nan"), 2**70, "fine"):
            try:
                await once(value)
            except (TypeError, DurableCallFailed) as why:
                notes.append(f"{type(why).__name__}: {why}")
        return {"notes": notes}

    game = play(sqlite_store, node)
    run_id = await game.begin()
    assert isinstance(await game.attempt(), Finished)
    first, second, third, last = await told(game, run_id)
    assert first.startswith("TypeError: odd is durable, so its arguments have to be JSON")
    assert second.startswith("TypeError: odd")
    assert third.startswith("TypeError: odd") and "64-bit" in third
    assert last.startswith("DurableCallFailed: odd was called, and what it returned is not JSON")
    assert made == ["fine"]


async def test_a_durable_function_may_not_ask_and_the_nodes_own_question_keeps_its_answer(sqlite_store):
    async def asks() -> str:
        return str(interrupt("in the call"))

    asking, pay = durable(asks), durable(charge)

    async def node(state: Any) -> Any:
        try:
            await asking()
        except DurableCallFailed as refused:
            why = str(refused)
        paid = await pay(3)
        return {"notes": [why, paid, interrupt("Which account?")]}

    game = play(sqlite_store, node)
    run_id = await game.begin()
    assert isinstance(await game.attempt(), Parked)
    await game.answer("mine")
    assert isinstance(await game.attempt(), Finished)
    why, paid, account = await told(game, run_id)
    assert "ask in the node" in why
    assert (paid, account) == ({"charged": 3}, "mine")
    assert [one[0] for one in made] == [3]


async def test_a_durable_call_within_another_is_asked_about_and_both_are_made_once(sqlite_store):
    pay = durable(charge, policy="ask")

    async def order(euros: int) -> str:
        made.append(("order", ""))
        return f"paid {(await pay(euros))['charged']}"

    once = durable(order)

    async def node(state: Any) -> Any:
        return {"notes": [await once(4)]}

    game = play(sqlite_store, node)
    run_id = await game.begin()
    assert isinstance(await game.attempt(), Parked)
    (question,) = await game.asked()
    await game.world.decide(question, Verdict.APPROVE)
    assert isinstance(await game.attempt(), Finished)
    assert await told(game, run_id) == ["paid 4"]
    assert [what for what, _ in made] == ["order", "order", 4]
    assert await calls(game) == [("charge", "done"), ("order", "done")]


async def test_the_same_call_with_other_arguments_on_a_replay_is_refused(sqlite_store):
    pay = durable(charge)

    async def node(state: Any) -> Any:
        made.append("node")
        try:
            paid = await pay(made.count("node"))
        except DurableCallFailed as refused:
            return {"notes": [str(refused)]}
        raise LeaseLost(f"killed after {paid}")

    game = play(sqlite_store, node)
    run_id = await game.begin()
    assert await game.attempt() is None
    assert isinstance(await game.attempt(), Finished)
    (why,) = await told(game, run_id)
    assert "used before with other arguments" in why
    assert next(one for one in made if one != "node")[0] == 1
    assert len(made) == 3


async def test_outside_of_a_run_a_durable_function_is_the_function():
    assert await durable(charge)(5) == {"charged": 5}
    assert durable(write)("a") == "wrote a"
    assert made == [(5, ""), ("a", None)]
    assert durable(write).__name__ == "write"

    def node(state: Any) -> Any:
        return {"notes": [durable(write)("in a graph")]}

    values = await graph_of(node).ainvoke({"task": "go"})
    assert values["notes"] == ["wrote in a graph"]


async def test_calls_that_threads_number_at_once_never_share_a_number():
    calls = PassCalls(desk=None)  # type: ignore[arg-type]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            numbers = list(threads.map(lambda _: calls.number("task", 1, "charge"), range(4000)))
    finally:
        sys.setswitchinterval(before)
    assert sorted(numbers) == list(range(4000))


@pytest.mark.parametrize("threaded", [False, True])
async def test_what_an_outer_call_made_within_it_is_not_taken_for_the_nodes_own_call_on_a_replay(
    sqlite_store, threaded
):
    """The outer call is answered from its record then, so nothing within it is called or counted."""
    pay, log = durable(charge), durable(write)

    async def order(euros: int) -> Any:
        return await pay(euros)

    def report(line: str) -> str:
        return log(line)

    outer = durable(report if threaded else order)

    async def node(state: Any) -> Any:
        first = await asyncio.to_thread(outer, "same") if threaded else await outer(1)
        made.append("node")
        if made.count("node") == 1:
            raise LeaseLost("killed between the two")
        return {"notes": [first, await asyncio.to_thread(log, "same") if threaded else await pay(1)]}

    game = play(sqlite_store, node)
    await game.begin()
    assert await game.attempt() is None
    assert isinstance(await game.attempt(), Finished)

    effects = [one for one in made if one != "node"]
    assert len(effects) == 2, "each of the two calls has its effect"
    assert len({key for _, key in effects}) == 2
