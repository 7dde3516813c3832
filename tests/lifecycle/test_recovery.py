"""Lost owners, stale writers and deadlines, with two incarnations in one test."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from dromos.domain.errors import LeaseLost
from dromos.domain.reasons import Reason
from dromos.domain.statuses import Recovery, RunStatus
from dromos.lifecycle import reap
from dromos.lifecycle.contract import Policy, RunOptions
from dromos.lifecycle.documents import standing
from dromos.ports.agent import Drained, Finished, Parked
from dromos.ports.probe import Point
from dromos.ports.store import Store, Table
from tests.lifecycle.world import OWNER, USER, Engine, World, check_invariants


@pytest.mark.case("P01")
async def test_after_a_restart_the_run_under_way_is_recovered_and_a_new_one_starts_at_once(
    world: World,
) -> None:
    first = await world.begin_run("one")
    await world.lifecycle.register_owner("incarnation-2", "worker", "host", 2, None)
    await world.lifecycle.sweep()
    second = await world.post("two")
    claimed = await world.lifecycle.claim("incarnation-2", None, 5)
    assert second.run is not None
    assert [one.run.id for one in claimed] == [first.run.id, second.run.id]
    assert claimed[0].run.reason == "reclaimed"
    assert (await world.run(first.run.id)).crashes == 1
    await check_invariants(world)


@pytest.mark.case("P04")
@pytest.mark.parametrize("left", ["no owner", "no lease", "a lease without expiry", "an expired lease"])
async def test_a_running_row_without_a_live_owner_is_found_by_the_first_sweep(
    world: World, left: str
) -> None:
    claimed = await world.begin_run("one")
    if left == "no owner":
        await world.store.write(
            lambda tx: tx.change(Table.RUNS, {"id": claimed.run.id}, {"owner_id": None, "owner_kind": None})
        )
    if left == "no lease":
        await world.lifecycle.retire_owner(OWNER)
    if left == "an expired lease":
        await world.store.write(
            lambda tx: tx.change(
                Table.LEASES, {"owner_id": OWNER}, {"lease_until": tx.now() - timedelta(seconds=1)}
            )
        )
    # the data is now served by a worker that renews its lease, as with several workers
    await world.lifecycle.register_owner("worker-2", "worker", "host", 2, 10)
    assert await world.lifecycle.sweep() == 1
    run = await world.run(claimed.run.id)
    assert (run.status, run.reason, run.crashes) == (RunStatus.QUEUED, "owner_lost", 1)
    assert await world.lifecycle.sweep() == 0


@pytest.mark.case("P03")
@pytest.mark.case("P19")
async def test_a_run_that_loses_three_owners_fails_and_its_conversation_is_free(world: World) -> None:
    posted = await world.post("deadly")
    assert posted.run is not None
    conversation_id = posted.conversation["id"]
    await world.post("waits", conversation_id)
    for crash in range(1, 4):
        await world.store.write(lambda tx: tx.change(Table.RUNS, {}, {"not_before": None}))
        claimed = await world.claim()
        assert claimed.run.attempt == crash
        await world.lose()
    run = await world.run(posted.run.id)
    assert (run.status, run.reason, run.crashes, run.attempt) == (
        RunStatus.FAILED,
        "attempts_exhausted",
        3,
        3,
    )
    assert run.error_message is not None and "3 times" in run.error_message
    (held,) = await world.rows(Table.RUN_FOLLOWUPS)
    assert held["status"] == "held"
    again = await world.post("next", conversation_id)
    assert again.run is not None
    await check_invariants(world)


async def test_the_second_take_over_waits_two_seconds_by_the_databases_clock(world: World) -> None:
    await world.begin_run("deadly")
    await world.lose()
    await world.claim()
    await world.lose()
    assert await world.lifecycle.claim(OWNER, None, 1) == []
    (run,) = await world.store.read(lambda tx: tx.find_runs({}))
    assert run.wait is not None and run.wait.reason == "backoff"


@pytest.mark.case("P19")
async def test_a_stop_works_between_two_crashes_and_drains_count_none(world: World) -> None:
    posted = await world.post("deadly")
    assert posted.run is not None
    claimed = await world.claim()
    await world.lifecycle.end_attempt(claimed.fence, Drained(), None)
    await world.claim()
    await world.lose()
    run = await world.run(posted.run.id)
    assert (run.attempt, run.crashes) == (2, 1)
    assert (await world.cancel(posted.run.id)).status is RunStatus.CANCELLED


@pytest.mark.case("P14")
async def test_each_attempt_has_its_own_times_and_reason(world: World) -> None:
    posted = await world.post("hello")
    assert posted.run is not None
    await world.claim()
    await world.lose()
    claimed = await world.claim()
    running = await world.run(posted.run.id)
    assert (running.reason, running.finished_at, running.error_code) == ("reclaimed", None, None)
    end = await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    first, second = await world.lifecycle.run_attempts(USER, posted.run.id)
    assert [first["reason"], second["reason"]] == ["owner_lost", "finished"]
    assert first["started_at"] <= first["ended_at"] <= second["started_at"] <= second["ended_at"]
    assert (end.reason, end.started_at) == ("finished", first["started_at"])


async def test_where_recovery_asks_a_lost_run_waits_for_a_person(store: Store) -> None:
    world = await World(store, Policy(recovery=Recovery.ASK)).begin()
    claimed = await world.begin_run("one")
    await world.lose()
    run = await world.run(claimed.run.id)
    assert (run.status, run.reason, run.crashes) == (RunStatus.INTERRUPTED, "owner_lost", 1)
    drained = await world.begin_run("two")
    assert (await world.lifecycle.end_attempt(drained.fence, Drained(), None)).status is RunStatus.INTERRUPTED
    await check_invariants(world)


@pytest.mark.case("P10")
async def test_of_two_sweeps_with_the_same_stale_list_the_later_one_does_nothing(world: World) -> None:
    other = World(world.store)
    claimed = await world.begin_run("one")
    await world.lifecycle.retire_owner(OWNER)
    stale = await world.store.write(
        lambda tx: reap.list_orphans(tx, Policy())
    )  # the second recoverer stands here, holding its list
    assert stale == [claimed.run.id]

    await other.lifecycle.register_owner("b", "worker", "host", 2, None)
    await other.lifecycle.sweep()
    taken = await other.claim("b")
    done = await other.lifecycle.end_attempt(taken.fence, Finished(), None)

    assert not await world.lifecycle._change(Point.REAP, lambda change: reap.reap_run(change, stale[0]))
    assert await world.lifecycle.claim(OWNER, None, 5) == []
    assert await world.run(claimed.run.id) == done
    assert done.attempt == 2


async def test_many_sweeps_at_once_move_a_run_once(world: World) -> None:
    claimed = await world.begin_run("one")
    await world.lifecycle.retire_owner(OWNER)
    moved = await asyncio.gather(*(World(world.store).lifecycle.sweep() for _ in range(6)))
    assert sum(moved) == 1
    assert (await world.run(claimed.run.id)).crashes == 1
    await check_invariants(world)


@pytest.mark.case("P74")
async def test_a_stale_writer_is_refused_and_the_history_is_that_of_the_winner(world: World) -> None:
    first = await world.begin_run("one")
    frozen = Engine(world, first)
    await frozen.enter()
    await frozen.say("from the first")
    await world.lose()
    second = Engine(world, await world.claim())
    await second.enter()
    await second.say("from the second")
    for write in (frozen.say("too late"), frozen.pend_result("c1"), frozen.enter()):
        with pytest.raises(LeaseLost):
            await write
    with pytest.raises(LeaseLost):
        await world.lifecycle.save_document(first.fence, frozen.shown("too late"))
    with pytest.raises(LeaseLost):
        await world.lifecycle.end_attempt(first.fence, Finished(), frozen.shown("too late"))
    await second.say("done")
    history = await world.history(first.run.conversation_id)
    texts = [row["content"] for row in history if row["role"] == "assistant"]
    assert texts == ["from the first", "from the second", "done"]
    assert await world.rows(Table.RUN_DOCUMENTS) == []


@pytest.mark.case("P75")
async def test_two_writers_on_one_thread_leave_one_line_of_checkpoints(world: World) -> None:
    await world.lifecycle.register_owner("b", "adapter", "host", 2, 30)
    first = await world.begin_run("one")
    a = Engine(world, first)
    await a.enter()
    await world.store.write(lambda tx: tx.remove(Table.LEASES, {"owner_id": OWNER}))
    await world.lifecycle.sweep()
    (taken,) = await world.lifecycle.claim("b", None, 1)
    b = Engine(world, taken)
    results = await asyncio.gather(
        *(engine.say(f"{name} {n}") for n in range(5) for name, engine in (("a", a), ("b", b))),
        return_exceptions=True,
    )
    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 5
    assert all(isinstance(result, LeaseLost) for result in refused)
    texts = [
        row["content"] for row in await world.history(first.run.conversation_id) if row["role"] == "assistant"
    ]
    assert sorted(texts) == [f"b {n}" for n in range(5)]
    places = [row["log_seq"] for row in await world.rows(Table.MESSAGES) if row["log_seq"] is not None]
    assert sorted(places) == list(range(6))


@pytest.mark.case("P137")
async def test_only_the_databases_clock_judges_a_lease(world: World) -> None:
    """The lifecycle has no clock of its own to be wrong: ports.Clock is not among what it is built with."""
    assert not any("clock" in name for name in vars(world.lifecycle))
    await world.lifecycle.register_owner("a", "worker", "host", 1, 5)
    await world.lifecycle.retire_owner(OWNER)
    await world.post("one")
    (claimed,) = await world.lifecycle.claim("a", None, 1)
    (lease,) = await world.rows(Table.LEASES, owner_id="a")
    now = await world.store.read(lambda tx: tx.now())
    assert timedelta(seconds=4) < lease["lease_until"] - now <= timedelta(seconds=5)
    assert await world.lifecycle.sweep() == 0
    assert (await world.run(claimed.run.id)).status is RunStatus.RUNNING
    await world.store.write(lambda tx: tx.change(Table.LEASES, {"owner_id": "a"}, {"lease_until": tx.now()}))
    assert await world.lifecycle.sweep() == 1


async def test_an_embedded_server_knows_that_every_other_worker_is_dead_and_no_adapter(world: World) -> None:
    await world.lifecycle.register_owner("session", "adapter", "far", 9, 30)
    await world.lifecycle.register_owner("incarnation-2", "worker", "host", 2, None)
    owners = {row["owner_id"] for row in await world.rows(Table.LEASES)}
    assert owners == {"session", "incarnation-2"}


async def test_workers_with_leases_leave_each_other_alone(world: World) -> None:
    await world.lifecycle.register_owner("a", "worker", "host", 1, 10)
    await world.lifecycle.register_owner("b", "worker", "host", 2, 10)
    assert {row["owner_id"] for row in await world.rows(Table.LEASES)} == {"a", "b"}


# --- deadlines


async def test_a_run_that_waits_too_long_for_a_worker_expires(store: Store) -> None:
    world = await World(store, Policy(queue_deadline=0)).begin()
    posted = await world.post("late")
    assert posted.run is not None
    assert await world.lifecycle.sweep() == 1
    run = await world.run(posted.run.id)
    assert (run.status, run.reason) == (RunStatus.EXPIRED, "queue_deadline")
    await check_invariants(world)


@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING_INPUT])
async def test_a_run_past_its_deadline_expires_wherever_it_stands(world: World, status: RunStatus) -> None:
    posted = await world.post("late", options=RunOptions(deadline_s=0))
    assert posted.run is not None
    claimed = None
    if status is not RunStatus.QUEUED:
        claimed = await world.claim()
    if status is RunStatus.WAITING_INPUT and claimed is not None:
        parked = Parked(Reason.QUESTION_ASKED, ({"kind": "question", "prompt": "?"},))
        await world.lifecycle.end_attempt(claimed.fence, parked, None)
    assert await world.lifecycle.sweep() == 1
    run = await world.run(posted.run.id)
    if status is RunStatus.RUNNING and claimed is not None:
        assert run.status is RunStatus.CANCELLING
        run = await world.lifecycle.end_stopped(claimed.fence, forced=False, unknown_calls=(), document=None)
    assert (run.status, run.reason) == (RunStatus.EXPIRED, "run_deadline")
    await check_invariants(world)


async def test_a_question_with_a_deadline_expires_its_run(world: World) -> None:
    claimed = await world.begin_run()
    now = await world.store.read(lambda tx: tx.now())
    question = {"kind": "question", "prompt": "?", "expires_at": now, "on_timeout": "expire"}
    await world.lifecycle.end_attempt(claimed.fence, Parked(Reason.QUESTION_ASKED, (question,)), None)
    assert await world.lifecycle.sweep() == 1
    run = await world.run(claimed.run.id)
    assert (run.status, run.reason) == (RunStatus.EXPIRED, "input_deadline")


# --- retention


async def test_old_events_leave_as_a_prefix_and_a_cursor_in_it_is_reset(store: Store) -> None:
    world = await World(store, Policy(event_retention_days=1)).begin()
    await world.post("old")
    before = await world.events()
    cut = before[3]["seq"]
    long_ago = before[0]["at"] - timedelta(days=3)
    for event in before[:cut]:
        where = {"user_id": USER, "seq": event["seq"]}
        await store.write(lambda tx, where=where: tx.change(Table.EVENTS, where, {"at": long_ago}))  # type: ignore[misc]
    await world.post("new")
    assert await world.lifecycle.sweep() == cut
    kept = [event["seq"] for event in await world.events()]
    assert kept[0] == cut + 1
    page = await world.lifecycle.events_after(USER, cut - 1, 10)
    assert page.reset
    assert (page.first, page.events) == (cut + 1, [])
    assert [row["seq"] for row in (await world.lifecycle.events_after(USER, cut, 100)).events] == kept
    assert await world.lifecycle.sweep() == 0


async def test_what_a_lost_owner_showed_and_never_saved_is_older_than_what_stands(world: World) -> None:
    claimed = await world.begin_run("hello")
    engine = Engine(world, claimed)
    await world.lifecycle.save_document(claimed.fence, engine.shown("saved"))
    shown = engine.shown("saved").version + 40
    await world.lifecycle.retire_owner(OWNER)
    await world.lifecycle.sweep()
    run, _, saved = await world.lifecycle.document(USER, claimed.run.id)
    assert saved is not None
    version, content = standing(run, saved)
    assert version == run.document_version > shown
    assert content["text"]["content"] == "saved"
