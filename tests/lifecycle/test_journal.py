"""The journal of tool calls on both databases: what is kept, under which fence, and for how long."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dromos.domain.effects import Ask, Call, Make, Replay, ReplayClass, Settle, ToolPolicy, ToolRule
from dromos.domain.errors import LeaseLost
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus, Verdict
from dromos.lifecycle.contract import Claimed
from dromos.ports.agent import Failed, Finished, Parked
from dromos.ports.store import Row, Table, Tx
from tests.lifecycle.world import Engine, World

UNSAFE = ToolRule()
FORBIDDEN = ToolRule(ToolPolicy.DENY)
KEYED = ToolRule(replay=ReplayClass.KEYED)
PAID = {"text": "paid", "is_error": False, "structured": None}


def pay(rule: ToolRule = UNSAFE, amount: int = 1, key: str = "key-1") -> Call:
    return Call(key, "pay", "c1", {"amount": amount}, rule)


async def record_steps(world: World, claimed: Claimed) -> None:
    """A model call and a tool call, as the engine keeps them."""

    def write(tx: Tx, run: Run) -> None:
        for num, kind in enumerate(("model", "tool"), 1):
            step = {"run_id": run.id, "id": kind, "conversation_id": run.conversation_id, "num": num}
            step |= {"attempt": run.attempt, "kind": kind, "name": kind, "status": "done"}
            tx.put(Table.RUN_STEPS, {**step, "started_at": tx.now()})

    await world.lifecycle.recorder(claimed.fence).write(write)


async def test_a_call_is_known_from_its_intent_on_and_never_made_again_after_its_outcome(
    world: World,
) -> None:
    claimed = await world.begin_run()
    journal = world.lifecycle.journal(claimed.fence)

    assert await journal.begin(pay()) == Make({"amount": 1})
    (row,) = await world.rows(Table.TOOL_CALLS)
    assert (row["status"], row["epoch"], row["outcome"]) == ("intent", claimed.run.epoch, None)
    await journal.settle("key-1", PAID)

    assert await journal.begin(pay()) == Replay(PAID)
    await journal.settle("key-1", PAID)  # whoever was not told that it is on disk
    with pytest.raises(LeaseLost):
        await journal.settle("key-1", {**PAID, "text": "paid twice"})
    (row,) = await world.rows(Table.TOOL_CALLS)
    assert (row["status"], row["outcome"], row["tries"]) == ("done", PAID, 1)


async def test_a_key_that_comes_again_with_other_arguments_is_refused_and_changes_nothing(
    world: World,
) -> None:
    claimed = await world.begin_run()
    journal = world.lifecycle.journal(claimed.fence)
    await journal.begin(pay())

    move = await journal.begin(pay(amount=2))

    assert isinstance(move, Replay) and move.outcome["is_error"]
    assert "other arguments" in move.outcome["text"]
    (row,) = await world.rows(Table.TOOL_CALLS)
    assert (row["arguments"], row["status"]) == ({"amount": 1}, "intent")


async def test_an_owner_that_lost_its_run_can_neither_begin_nor_settle(world: World) -> None:
    claimed = await world.begin_run()
    old = world.lifecycle.journal(claimed.fence)
    await old.begin(pay())
    await world.lose()
    later = await world.claim()

    with pytest.raises(LeaseLost):
        await old.settle("key-1", PAID)
    with pytest.raises(LeaseLost):
        await old.begin(pay(key="key-2"))
    new = world.lifecycle.journal(later.fence)
    assert isinstance(await new.begin(pay()), Ask)
    assert isinstance(await new.begin(pay(KEYED)), Ask), "what was begun as unsafe stays so"
    (row,) = await world.rows(Table.TOOL_CALLS)
    assert (row["tries"], row["replay"]) == (1, "unsafe")


async def test_a_call_with_a_key_is_made_again_by_the_next_owner_under_its_epoch(world: World) -> None:
    claimed = await world.begin_run()
    await world.lifecycle.journal(claimed.fence).begin(pay(KEYED))
    await world.lose()
    later = await world.claim()

    assert await world.lifecycle.journal(later.fence).begin(pay(KEYED)) == Make({"amount": 1})
    (row,) = await world.rows(Table.TOOL_CALLS)
    assert (row["tries"], row["epoch"]) == (2, later.run.epoch)


async def test_work_that_was_done_before_its_stop_still_names_what_nobody_knows(world: World) -> None:
    claimed = await world.begin_run()
    await world.lifecycle.journal(claimed.fence).begin(pay())
    await world.cancel(claimed.run.id)

    ended = await world.lifecycle.end_attempt(claimed.fence, Finished(), None)

    assert ended.stop is not None
    assert (ended.stop.outcome, ended.stop.unknown_calls) == ("after_work_done", ("pay",))


async def test_a_stop_of_a_run_that_nobody_owns_names_what_its_owner_left_unknown(world: World) -> None:
    claimed = await world.begin_run()
    await world.lifecycle.journal(claimed.fence).begin(pay())
    await world.lose()

    ended = await world.cancel(claimed.run.id)

    assert (ended.status, ended.stop and ended.stop.unknown_calls) == (RunStatus.CANCELLED, ("pay",))


async def test_what_became_forbidden_while_it_was_parked_is_settled_by_the_next_owner(world: World) -> None:
    claimed = await world.begin_run()
    journal = world.lifecycle.journal(claimed.fence)
    await journal.begin(pay())
    await journal.park("key-1", {"asked": 1})
    await world.lose()
    later = world.lifecycle.journal((await world.claim()).fence)

    move = await later.begin(pay(FORBIDDEN))

    assert isinstance(move, Settle) and "not allowed" in move.outcome["text"]
    (row,) = await world.rows(Table.TOOL_CALLS)
    assert (row["status"], row["outcome"]) == ("done", move.outcome)
    assert await later.begin(pay(FORBIDDEN)) == Replay(move.outcome)


async def test_a_record_is_kept_for_a_week_behind_the_end_and_as_long_as_a_step_may_ask_for_it(
    world: World,
) -> None:
    claimed = await world.begin_run()
    journal = world.lifecycle.journal(claimed.fence)
    engine = Engine(world, claimed)
    await engine.enter()
    await engine.say("pay", calls=["c1"])
    await journal.begin(pay())
    await journal.settle("key-1", PAID)
    await record_steps(world, claimed)
    await world.lifecycle.end_attempt(claimed.fence, Failed(ErrorCode.AGENT_FAILURE, "away"), None)

    async def a_week_later(*runs: Row) -> list[Row]:
        """What is left where the call was begun, and these runs ended, a week and a day ago."""
        then = (await world.store.read(lambda tx: tx.now())) - timedelta(days=8)

        def age(tx: Tx) -> None:
            tx.change(Table.TOOL_CALLS, {}, {"keep_until": then + timedelta(days=7)})
            for run in runs:
                tx.change(Table.RUNS, run, {"finished_at": then})

        await world.store.write(age)
        await world.lifecycle.sweep()
        return await world.rows(Table.TOOL_CALLS)

    (row,) = await a_week_later({"id": claimed.run.id})
    assert row["keep_until"] > row["ended_at"], "a run that failed can be continued where it stood"

    resumed = await world.resume(claimed.run.conversation_id)
    going_on = await world.claim()
    assert going_on.run.id == resumed.id
    again = world.lifecycle.journal(going_on.fence)
    assert len(await a_week_later()) == 1
    assert await again.begin(pay()) == Replay(PAID)
    await again.begin(pay(key="key-2"))  # and nobody ever says what came of it
    await Engine(world, going_on).result("c1", "paid")
    await record_steps(world, going_on)
    await world.lifecycle.end_attempt(going_on.fence, Finished(), None)
    ended_at = (await world.run(resumed.id)).finished_at
    assert ended_at is not None
    for row in await a_week_later():
        assert row["keep_until"] == ended_at + timedelta(days=7)
    assert await a_week_later({"id": resumed.id}) == []


async def test_a_persons_word_makes_a_call_known_until_it_is_used_up(world: World) -> None:
    """A tool that became free meanwhile must not pass a no that somebody said before."""
    claimed = await world.begin_run()
    asked = {
        "kind": "approval",
        "prompt": "May it?",
        "call_key": "key-1",
        "tool": "pay",
        "arguments": {"amount": 1},
    }
    await world.lifecycle.end_attempt(claimed.fence, Parked(Reason.APPROVAL_REQUIRED, (asked,)), None)
    (request,) = await world.rows(Table.REQUESTS)
    await world.decide(request, Verdict.DENY)
    journal = world.lifecycle.journal((await world.claim()).fence)

    assert await journal.known("key-1") and not await journal.known("key-2")
    move = await journal.begin(pay(ToolRule(replay=ReplayClass.READ)))
    assert isinstance(move, Settle) and "denied by a person" in move.outcome["text"]
