"""Stalls: silence of a model or a tool is seen whatever the lease does, and a slow agent that moves is left alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Run
from dromos.domain.stalls import StallLimits, StallPolicy
from dromos.domain.statuses import RunStatus
from dromos.live import LiveHub
from dromos.ports.agent import Attempt, Finished, Outcome
from dromos.ports.live import LiveSubscription
from dromos.ports.store import Table, Tx
from dromos.testing.waiting import within
from dromos.worker.stall import ActivePen, watch_for_stall
from tests.worker.conftest import USER, Clock, Stage

MODEL = {"kind": "model", "name": "scripted"}
TOOL = {"kind": "tool", "name": "pay"}


class Hands:
    """A monotonic clock that the test moves; a watch that waits for real time never wakes by it."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at


def policy(kind: str, model: float | None = 0.15, tool: float | None = 0.15) -> StallPolicy:
    return StallPolicy(StallLimits(model, tool, kind))  # type: ignore[arg-type]


async def stalled_at(stage: Stage, conversation_id: str, run_id: str) -> dict[str, Any]:
    """Wait until the document says that the run is stalled; returns its content."""
    shown = asyncio.Event()
    subscription: LiveSubscription = stage.live.subscribe(conversation_id, shown.set)
    try:

        async def look() -> dict[str, Any]:
            while True:
                shown.clear()
                snapshot = stage.live.snapshot(run_id)
                if snapshot is not None and snapshot.content["stall"]:
                    return dict(snapshot.content)
                await shown.wait()
                subscription.take_nowait()

        return await within(5, look(), "the run is shown as stalled")
    finally:
        subscription.close()


def silent(current: dict[str, Any], go: asyncio.Event) -> Any:
    async def play(attempt: Attempt) -> Outcome:
        attempt.live.set("/current", current)
        await go.wait()
        attempt.live.text("m", "moving again")
        return Finished("done")

    return play


@pytest.mark.case("P15")
@pytest.mark.parametrize(("current", "kind"), [(MODEL, "model"), (TOOL, "tool")])
async def test_a_silent_call_is_shown_as_stalled_although_its_lease_is_renewed(
    stage: Stage, current: dict[str, Any], kind: str
) -> None:
    go = asyncio.Event()
    await stage.worker(silent(current, go), lease=9.0, stall=policy("flag"))
    conversation_id, run_id, _ = await stage.post("hello")
    content = await stalled_at(stage, conversation_id, run_id)
    assert content["stall"]["kind"] == kind
    assert content["stall"]["since"].endswith("Z")
    assert (await stage.lifecycle.run(USER, run_id)).status is RunStatus.RUNNING
    go.set()
    run = await stage.end(run_id)
    assert run.status is RunStatus.COMPLETED
    _, _, saved = await stage.lifecycle.document(USER, run_id)
    assert saved is not None and saved["content"]["stall"] is None


@pytest.mark.case("P15")
async def test_the_policy_fail_ends_a_stalled_run_with_its_own_reason(stage: Stage) -> None:
    await stage.worker(silent(MODEL, asyncio.Event()), lease=9.0, stall=policy("fail"))
    _, run_id, _ = await stage.post("hello")
    run = await stage.end(run_id)
    assert (run.status, run.reason, run.error_code) == (RunStatus.FAILED, Reason.STALLED, ErrorCode.STALLED)
    assert "scripted" in (run.error_message or "") and "Continue" in (run.error_message or "")


@pytest.mark.case("P16")
async def test_a_stalled_step_is_tried_again_once_and_then_fails(stage: Stage) -> None:
    _, puppet = await stage.worker(silent(MODEL, asyncio.Event()), stall=policy("retry"))
    _, run_id, _ = await stage.post("hello")
    run = await stage.end(run_id)
    assert (run.status, run.reason) == (RunStatus.FAILED, Reason.STALLED)
    assert [attempt.run.attempt for attempt in puppet.attempts] == [1, 2]
    assert run.crashes == 0
    attempts = await stage.lifecycle.run_attempts(USER, run_id)
    assert [row["reason"] for row in attempts] == ["stalled", "stalled"]


async def test_a_step_that_commits_between_two_stalls_starts_the_count_again(stage: Stage) -> None:
    async def play(attempt: Attempt) -> Outcome:
        if attempt.run.attempt == 2:

            def commit(tx: Tx, run: Run) -> None:
                tx.change(Table.RUNS, {"id": run.id}, {"tries": {}})

            await attempt.recorder.write(commit)
        if attempt.run.attempt == 3:
            return Finished("done")
        attempt.live.set("/current", MODEL)
        await asyncio.Event().wait()
        raise AssertionError("never")

    await stage.worker(play, stall=policy("retry"))
    _, run_id, _ = await stage.post("hello")
    assert (await stage.end(run_id)).status is RunStatus.COMPLETED


async def test_a_stalled_call_that_may_have_happened_is_never_made_again(stage: Stage) -> None:
    async def play(attempt: Attempt) -> Outcome:
        attempt.live.set("/current", TOOL)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            attempt.unknown_calls.append("pay")
            raise
        raise AssertionError("never")

    _, puppet = await stage.worker(play, stall=policy("retry"))
    _, run_id, _ = await stage.post("hello")
    run = await stage.end(run_id)
    assert (run.status, run.reason) == (RunStatus.FAILED, Reason.STALLED)
    assert "pay" in (run.error_message or "") and "may have happened" in (run.error_message or "")
    assert len(puppet.attempts) == 1


async def test_a_step_that_does_not_let_go_is_never_made_a_second_time_beside_itself(stage: Stage) -> None:
    done = asyncio.Event()

    async def play(attempt: Attempt) -> Outcome:
        attempt.live.set("/current", TOOL)
        while not done.is_set():
            try:
                await done.wait()
            except asyncio.CancelledError:
                continue  # as a tool would that must not be cut
        return Finished("late")

    _, puppet = await stage.worker(play, stall=policy("retry"), stop_deadline=0.2)
    _, run_id, _ = await stage.post("hello")
    run = await stage.end(run_id)
    done.set()
    assert (run.status, run.reason) == (RunStatus.FAILED, Reason.STALLED)
    assert len(puppet.attempts) == 1


async def test_a_stop_wins_over_a_stall(stage: Stage) -> None:
    async def play(attempt: Attempt) -> Outcome:
        await stage.lifecycle.request_cancel(USER, attempt.run.id)
        attempt.live.set("/current", MODEL)
        await asyncio.Event().wait()
        raise AssertionError("never")

    await stage.worker(play, stall=policy("fail", model=0.05))
    _, run_id, _ = await stage.post("hello")
    assert (await stage.end(run_id)).status is RunStatus.CANCELLED


@pytest.mark.case("P16")
async def test_a_slow_agent_that_moves_is_never_flagged() -> None:
    hands, hub = Hands(), LiveHub()
    pen = ActivePen(hub.open("r", "c", 1, {}), hands.monotonic)
    flags: list[str] = []
    pen.flag = lambda stall, since: flags.append(since)  # type: ignore[method-assign]

    class Moved(Clock):
        def monotonic(self) -> float:
            return hands.at

    pen.set("/current", MODEL)
    watch = asyncio.create_task(watch_for_stall(pen, StallLimits(10.0, 10.0, "fail"), Moved()))
    for _ in range(15):  # a token every four seconds for a minute
        hands.at += 4.0
        pen.text("m", "word ")
        pen.turned.set()  # the watch looks at every token, sooner than it would by itself
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not watch.done()
    assert flags == []
    hands.at += 10.0
    pen.turned.set()
    stall = await within(5, watch)
    assert (stall.kind, stall.name, stall.silent, len(flags)) == ("model", "scripted", 10.0, 1)


async def test_a_model_that_sends_nothing_to_show_is_seen_to_be_active() -> None:
    hands, hub = Hands(), LiveHub()
    pen = ActivePen(hub.open("r", "c", 1, {}), hands.monotonic)
    assert not pen.changed
    hands.at = 3.0
    pen.touch()
    assert pen.changed, "there is something to save: when the agent moved last"
    pen.note_activity(Clock())
    pen.changed = False
    assert not pen.changed
    assert pen.snapshot().content["activity_at"]


async def test_an_agent_with_nothing_under_way_is_not_silent() -> None:
    hands, hub = Hands(), LiveHub()
    pen = ActivePen(hub.open("r", "c", 1, {}), hands.monotonic)

    class Moved(Clock):
        def monotonic(self) -> float:
            return hands.at

    watch = asyncio.create_task(watch_for_stall(pen, StallLimits(1.0, None, "fail"), Moved()))
    hands.at = 1000.0
    pen.turned.set()
    await asyncio.sleep(0)
    pen.set("/current", TOOL)  # no limit for tools
    hands.at = 2000.0
    await asyncio.sleep(0)
    assert not watch.done()
    pen.set("/current", MODEL)
    hands.at = 2002.0
    pen.turned.set()
    assert (await within(5, watch)).silent == 2.0


async def test_own_limits_of_an_agent_win() -> None:
    own = StallLimits(1.0, 2.0, "fail")
    both = StallPolicy(StallLimits(), {"mine": own})
    assert both.of("mine") is own
    assert both.of("other") == StallLimits()
