"""A person's stop: accepted durably, ended once, repeated without harm."""

from __future__ import annotations

import asyncio

import pytest

from dromos.domain.errors import AlreadyEnded
from dromos.domain.machine import ExceedBudget
from dromos.domain.reasons import ErrorCode
from dromos.domain.statuses import RunStatus
from dromos.lifecycle.contract import Policy
from dromos.ports.agent import Failed, Finished
from dromos.ports.store import Store
from tests.lifecycle.test_attempts import QUESTION
from tests.lifecycle.world import USER, Engine, World, check_invariants


async def test_a_queued_run_is_cancelled_at_once_and_a_repeat_is_accepted(world: World) -> None:
    posted = await world.post("hello")
    assert posted.run is not None
    first = await world.lifecycle.request_cancel(USER, posted.run.id, comment="never\x00mind")
    assert (first.status, first.reason) == (RunStatus.CANCELLED, "cancelled_by_user")
    assert first.stop is not None and first.stop.comment == "never\ufffdmind"
    again = await world.lifecycle.request_cancel(USER, posted.run.id)
    assert again == first
    await check_invariants(world)


async def test_a_parked_run_is_cancelled_at_once(world: World) -> None:
    claimed = await world.begin_run()
    await world.lifecycle.end_attempt(claimed.fence, QUESTION, None)
    assert (await world.cancel(claimed.run.id)).status is RunStatus.CANCELLED
    await check_invariants(world)


async def test_a_running_run_is_told_to_stop_and_ends_when_its_owner_has_put_things_in_order(
    world: World,
) -> None:
    claimed = await world.begin_run()
    stopping = await world.cancel(claimed.run.id)
    assert stopping.status is RunStatus.CANCELLING
    assert (await world.cancel(claimed.run.id)) == stopping
    ended = await world.lifecycle.end_stopped(
        claimed.fence, forced=True, unknown_calls=["send_mail"], document=None
    )
    assert (ended.status, ended.reason) == (RunStatus.CANCELLED, "cancel_requested")
    assert ended.stop is not None
    assert (ended.stop.outcome, ended.stop.unknown_calls) == ("forced", ("send_mail",))
    assert (await world.cancel(claimed.run.id)) == ended
    await check_invariants(world)


async def test_a_run_that_ended_otherwise_says_so(world: World) -> None:
    claimed = await world.begin_run()
    await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    with pytest.raises(AlreadyEnded) as refused:
        await world.cancel(claimed.run.id)
    assert refused.value.current["run"]["status"] == "completed"


@pytest.mark.parametrize("outcome", [Finished("finished"), Failed(ErrorCode.TOOL_FAILED, "x")])
async def test_work_that_was_done_before_the_stop_reached_it_is_kept(
    world: World, outcome: Finished | Failed
) -> None:
    claimed = await world.begin_run()
    engine = Engine(world, claimed)
    await engine.enter()
    await engine.say("here is the answer")
    await world.cancel(claimed.run.id)
    ended = await world.lifecycle.end_attempt(claimed.fence, outcome, None)
    assert ended.status is RunStatus.CANCELLED
    assert ended.stop is not None
    assert ended.stop.outcome == ("after_work_done" if isinstance(outcome, Finished) else "acknowledged")
    history = await world.history(claimed.run.conversation_id)
    assert [row["content"] for row in history if row["role"] == "assistant"] == ["here is the answer"]
    await check_invariants(world)


async def test_a_stop_and_an_end_at_the_same_moment_agree(world: World) -> None:
    for _ in range(8):
        claimed = await world.begin_run()
        results = await asyncio.gather(
            world.cancel(claimed.run.id),
            world.lifecycle.end_attempt(claimed.fence, Finished(), None),
            return_exceptions=True,
        )
        run = await world.run(claimed.run.id)
        accepted = not isinstance(results[0], BaseException)
        assert run.status is (RunStatus.CANCELLED if accepted else RunStatus.COMPLETED)
        if not accepted:
            assert isinstance(results[0], AlreadyEnded)
        assert not isinstance(results[1], BaseException)
    await check_invariants(world)


@pytest.mark.case("P17")
async def test_a_stop_whose_owner_died_is_carried_out_by_the_sweep(world: World) -> None:
    claimed = await world.begin_run()
    await world.cancel(claimed.run.id)
    await world.lose()
    ended = await world.run(claimed.run.id)
    assert (ended.status, ended.crashes) == (RunStatus.CANCELLED, 0)
    assert ended.stop is not None and ended.stop.outcome == "forced"
    runs, _ = await world.lifecycle.runs(USER, ["queued", "running", "cancelling"], None, 10, None)
    assert runs == []
    assert (await world.post("next", claimed.run.conversation_id)).run is not None


async def test_a_stop_that_takes_too_long_is_forced_though_its_owner_lives(store: Store) -> None:
    world = await World(store, Policy(stop_deadline=-5)).begin()
    claimed = await world.begin_run()
    await world.cancel(claimed.run.id)
    await world.lifecycle.note_waiting_for(claimed.fence, "send_mail", 15)
    assert await world.lifecycle.sweep() == 1
    ended = await world.run(claimed.run.id)
    assert ended.stop is not None
    assert (ended.status, ended.stop.outcome) == (RunStatus.CANCELLED, "forced")
    assert ended.stop.unknown_calls == ("send_mail",)


async def test_a_budget_that_is_used_up_interrupts_the_run(world: World) -> None:
    claimed = await world.begin_run()
    await world.command(claimed.run.id, ExceedBudget())
    ended = await world.lifecycle.end_stopped(claimed.fence, forced=False, unknown_calls=(), document=None)
    assert (ended.status, ended.reason) == (RunStatus.INTERRUPTED, "budget_exceeded")
