"""The worker: one owner at a time, every attempt has an end, stops and drains reach the engine."""

from __future__ import annotations

import asyncio
import gc
from datetime import datetime, timedelta
from typing import Any

import pytest

from dromos.domain.errors import LeaseLost, StoreUnavailable
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus
from dromos.ports.agent import Attempt, Drained, Failed, Finished, Outcome, TryLater
from dromos.ports.store import Table, Tx
from dromos.testing.waiting import eventually, within
from tests.worker.conftest import USER, Stage


async def finish(attempt: Attempt) -> Outcome:
    return Finished("done")


async def hang(attempt: Attempt) -> Outcome:
    await asyncio.Event().wait()
    raise AssertionError("never")


async def test_a_message_becomes_a_completed_run_with_its_line(stage: Stage) -> None:
    _, puppet = await stage.worker(finish)
    _, run_id, _ = await stage.post("hello")
    run = await stage.end(run_id)
    assert (run.status, run.reason, run.line, run.attempt) == (
        RunStatus.COMPLETED,
        Reason.FINISHED,
        "done",
        1,
    )
    assert puppet.attempts[0].input == ["hello"]


async def test_an_unknown_agent_ends_the_run_and_names_the_known_ones(stage: Stage) -> None:
    await stage.worker(finish)
    _, run_id, _ = await stage.post("hello", agent="nobody")
    run = await stage.end(run_id)
    assert (run.status, run.error_code) == (RunStatus.FAILED, ErrorCode.CONFIG_INVALID)
    assert "puppet" in (run.error_message or "") and "dromos.toml" in (run.error_message or "")


async def test_an_adapter_that_raises_still_gives_its_run_an_end(stage: Stage) -> None:
    async def explode(attempt: Attempt) -> Outcome:
        raise RuntimeError("boom \ud800")

    await stage.worker(explode)
    _, run_id, _ = await stage.post("hello")
    run = await stage.end(run_id)
    assert (run.status, run.error_code) == (RunStatus.FAILED, ErrorCode.AGENT_FAILURE)
    assert run.error_message == "RuntimeError: boom \ufffd"


async def test_a_stop_cuts_the_engine_and_the_run_ends_cancelled(stage: Stage) -> None:
    _, puppet = await stage.worker(hang)
    _, run_id, _ = await stage.post("hello")
    await within(5, puppet.began.wait())
    cancelled = await stage.lifecycle.request_cancel(USER, run_id)
    assert cancelled.status is RunStatus.CANCELLING
    run = await stage.end(run_id)
    assert run.status is RunStatus.CANCELLED
    assert run.stop is not None and run.stop.outcome == "acknowledged"


async def test_an_engine_that_will_not_let_go_is_forced_and_its_calls_are_named(stage: Stage) -> None:
    released = asyncio.Event()

    async def stubborn(attempt: Attempt) -> Outcome:
        attempt.unknown_calls.append("send_invoice")
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return Failed(ErrorCode.AGENT_FAILURE, "too late")

    _, puppet = await stage.worker(stubborn, stop_deadline=0.2)
    _, run_id, _ = await stage.post("hello")
    await within(5, puppet.began.wait())
    await stage.lifecycle.request_cancel(USER, run_id)
    run = await stage.end(run_id)
    released.set()
    assert run.status is RunStatus.CANCELLED and run.stop is not None
    assert (run.stop.outcome, run.stop.unknown_calls) == ("forced", ("send_invoice",))


async def test_work_that_was_done_before_the_stop_arrived_is_kept_but_the_stop_decides(stage: Stage) -> None:
    async def done_at_the_cut(attempt: Attempt) -> Outcome:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Finished("all done")
        raise AssertionError("never")

    _, puppet = await stage.worker(done_at_the_cut)
    _, run_id, _ = await stage.post("hello")
    await within(5, puppet.began.wait())
    await stage.lifecycle.request_cancel(USER, run_id)
    run = await stage.end(run_id)
    assert run.status is RunStatus.CANCELLED and run.stop is not None
    assert run.stop.outcome == "after_work_done"


async def test_waiting_follow_ups_become_runs_in_order_without_a_pause(stage: Stage) -> None:
    gate = asyncio.Event()
    seen: list[Any] = []

    async def waits(attempt: Attempt) -> Outcome:
        seen.append(attempt.input)
        await gate.wait()
        return Finished()

    _, puppet = await stage.worker(waits)
    conversation, _, _ = await stage.post("one")
    await within(5, puppet.began.wait())
    assert (await stage.post("two", conversation))[2] is not None
    assert (await stage.post("three", conversation))[2] is not None
    gate.set()

    for _ in range(3):
        runs, _ = await stage.lifecycle.runs(USER, [], conversation, 10, None)
        await stage.end(runs[0].id)
    assert [i[-1] for i in seen] == ["one", "two", "three"]
    assert len(runs) == 3


async def test_a_drain_hands_back_without_counting_a_crash_and_the_next_worker_goes_on(stage: Stage) -> None:
    async def until_drained(attempt: Attempt) -> Outcome:
        await attempt.drain.wait()
        return Drained()

    worker, puppet = await stage.worker(until_drained)
    _, run_id, _ = await stage.post("hello")
    await within(5, puppet.began.wait())
    await worker.drain()
    run = await stage.lifecycle.run(USER, run_id)
    assert (run.status, run.reason, run.crashes) == (RunStatus.QUEUED, Reason.DRAINED, 0)
    await stage.worker(finish)
    assert (await stage.end(run_id)).attempt == 2


async def test_a_drain_does_not_wait_for_ever_for_an_engine_in_the_middle_of_a_step(stage: Stage) -> None:
    worker, puppet = await stage.worker(hang, drain=0.1)
    _, run_id, _ = await stage.post("hello")
    await within(5, puppet.began.wait())
    await within(5, worker.drain(), "the drain")
    run = await stage.lifecycle.run(USER, run_id)
    assert (run.status, run.reason, run.crashes) == (RunStatus.QUEUED, Reason.DRAINED, 0)


async def test_a_retry_that_gives_the_slot_back_comes_again_when_it_is_due(stage: Stage) -> None:
    async def later_once(attempt: Attempt) -> Outcome:
        if attempt.run.attempt == 1:
            return TryLater(Reason.RATE_LIMITED, 0.1, {"MODEL_RATE_LIMITED": 1}, "asks the model again")
        return Finished(str(attempt.run.tries))

    await stage.worker(later_once, slots=1)
    _, run_id, _ = await stage.post("hello")
    run = await stage.end(run_id)
    assert (run.attempt, run.crashes, run.line) == (2, 0, "{'MODEL_RATE_LIMITED': 1}")


@pytest.mark.case("P74")
async def test_a_frozen_owner_that_wakes_up_can_write_nothing(stage: Stage) -> None:
    refused: list[str] = []
    go = asyncio.Event()

    async def zombie(attempt: Attempt) -> Outcome:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue  # it does not even notice that it is being stopped
        try:
            await attempt.recorder.write(lambda tx, run: None)
        except LeaseLost:
            refused.append("write")
            raise
        return Finished("zombie")

    worker, puppet = await stage.worker(zombie)
    _, run_id, _ = await stage.post("hello")
    await within(5, puppet.began.wait())
    await stage.store.write(lambda tx: tx.remove(Table.LEASES, {"owner_id": worker.owner_id}))
    await stage.worker(finish)
    await stage.lifecycle.sweep()
    run = await stage.end(run_id)
    go.set()
    await eventually(lambda: not worker.running, what="the end of the zombie")
    assert refused == ["write"]
    assert (run.line, run.attempt, run.crashes) == ("done", 2, 1)
    assert (await stage.lifecycle.run(USER, run_id)).line == "done"


async def test_a_lost_lease_stops_the_attempts_and_the_worker_goes_on_as_a_new_incarnation(
    stage: Stage,
) -> None:
    worker, puppet = await stage.worker(hang, lease=3.0)
    first = worker.owner_id
    _, run_id, _ = await stage.post("hello")
    await within(5, puppet.began.wait())
    puppet.play = finish
    await stage.store.write(lambda tx: tx.remove(Table.LEASES, {"owner_id": first}))
    run = await stage.end(run_id)
    assert run.status is RunStatus.COMPLETED and run.crashes == 1
    assert worker.owner_id not in ("", first)


async def test_a_worker_whose_store_is_away_when_it_takes_a_new_incarnation_tries_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, _ = await stage.worker(finish, lease=3.0)
    register, away, back = stage.lifecycle.register_owner, asyncio.Event(), asyncio.Event()

    async def away_once(*owner: Any) -> None:
        if not away.is_set():
            away.set()
            raise StoreUnavailable("the database is away: start it")
        await register(*owner)
        back.set()

    monkeypatch.setattr(stage.lifecycle, "register_owner", away_once)
    first = worker.owner_id
    await stage.store.write(lambda tx: tx.remove(Table.LEASES, {"owner_id": first}))
    await within(10, back.wait(), "a new incarnation")
    _, run_id, _ = await stage.post("hello")
    assert (await stage.end(run_id)).status is RunStatus.COMPLETED
    assert worker.owner_id not in ("", first)


async def test_a_worker_measures_how_late_it_looks_by_the_database_s_clock(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was frozen or asleep heard no adapter: it says so before it judges any."""
    monkeypatch.setattr("dromos.worker.service.SWEEP_SECONDS", 0.05)
    told: list[tuple[datetime | None, datetime]] = []
    note, swept = stage.lifecycle.note_presence, asyncio.Event()

    async def heard(owner_id: str, due: datetime | None = None) -> datetime:
        told.append((due, await note(owner_id, due)))
        if len(told) == 3:
            swept.set()
        return told[-1][1]

    monkeypatch.setattr(stage.lifecycle, "note_presence", heard)
    await stage.worker(finish)
    await within(10, swept.wait(), "its start and a sweep")
    (start, at), (before, _), (behind, _) = told[:3]
    assert (start, behind) == (None, None)
    assert before == at + timedelta(seconds=0.05)


async def test_an_engine_that_learns_of_the_lost_lease_by_itself_is_no_fault_in_the_log(stage: Stage) -> None:
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context["message"]))

    async def refused(attempt: Attempt) -> Outcome:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise LeaseLost("another owner has it") from None
        raise AssertionError("never")

    worker, puppet = await stage.worker(refused, lease=3.0)
    first = worker.owner_id
    _, run_id, _ = await stage.post("hello")
    await within(5, puppet.began.wait())
    puppet.play = finish
    await stage.store.write(lambda tx: tx.remove(Table.LEASES, {"owner_id": first}))
    await stage.end(run_id)
    gc.collect()
    assert faults == []


async def test_no_more_runs_than_slots_are_under_way(stage: Stage) -> None:
    open_gate, most = asyncio.Event(), 0

    async def count(attempt: Attempt) -> Outcome:
        nonlocal most
        most = max(most, worker.running)
        await open_gate.wait()
        return Finished()

    worker, puppet = await stage.worker(count, slots=2)
    posted = [await stage.post(f"m{n}") for n in range(5)]
    await within(5, puppet.began.wait())
    open_gate.set()
    for _, run_id, _ in posted:
        await stage.end(run_id)
    assert most == 2


async def test_a_write_refused_by_a_stop_ends_the_run_at_once_even_without_a_wake_up(stage: Stage) -> None:
    stopped = asyncio.Event()

    async def writes(attempt: Attempt) -> Outcome:
        await stopped.wait()
        await attempt.recorder.write(lambda tx, run: None)
        return Finished()

    _, puppet = await stage.worker(writes)
    _, run_id, _ = await stage.post("hello")
    await within(5, puppet.began.wait())
    deaf = stage.wakeup.notify
    stage.wakeup.notify = lambda topic, news=(): None if topic.startswith("run:") else deaf(topic)  # type: ignore[method-assign]
    await stage.lifecycle.request_cancel(USER, run_id)
    stopped.set()
    assert (await stage.end(run_id)).status is RunStatus.CANCELLED


@pytest.mark.slow(30)
async def test_a_stop_whose_wake_up_was_lost_is_seen_by_the_next_sweep(stage: Stage) -> None:
    _, puppet = await stage.worker(hang)
    _, run_id, _ = await stage.post("hello")
    await within(5, puppet.began.wait())
    deaf = stage.wakeup.notify
    stage.wakeup.notify = lambda topic, news=(): None if topic.startswith("run:") else deaf(topic)  # type: ignore[method-assign]
    await stage.lifecycle.request_cancel(USER, run_id)
    run = await stage.end(run_id)
    assert run.status is RunStatus.CANCELLED and run.stop is not None
    assert run.stop.outcome == "acknowledged"


async def test_an_ended_run_says_how_many_steps_it_took(stage: Stage) -> None:
    async def two_steps(attempt: Attempt) -> Outcome:
        def store(tx: Tx, run: Run) -> None:
            for num in (1, 2):
                tx.put(
                    Table.RUN_STEPS,
                    {
                        "run_id": run.id,
                        "id": f"s{num}",
                        "conversation_id": run.conversation_id,
                        "num": num,
                        "attempt": run.attempt,
                        "kind": "model",
                        "name": "m",
                        "status": "done",
                        "started_at": tx.now(),
                    },
                )

        await attempt.recorder.write(store)
        return Finished()

    await stage.worker(two_steps)
    _, run_id, _ = await stage.post("hello")
    assert (await stage.end(run_id)).steps == 2


async def test_tries_that_were_noted_are_counted_on_by_the_next_owner(stage: Stage) -> None:
    async def notes(attempt: Attempt) -> Outcome:
        if attempt.run.attempt == 1:
            await attempt.note_tries({"MODEL_BAD_RESPONSE": 3})
            await attempt.drain.wait()
            return Drained()
        return Finished(str(dict(attempt.run.tries)))

    worker, puppet = await stage.worker(notes)
    _, run_id, _ = await stage.post("hello")
    await within(5, puppet.began.wait())
    await worker.drain()
    await stage.worker(notes)
    assert (await stage.end(run_id)).line == "{'MODEL_BAD_RESPONSE': 3}"
