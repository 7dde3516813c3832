"""Stops and cuts with calls under way: what is closed at once, what is waited for in sight, what is known at last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from dromos.domain.effects import NOT_SENT, Call, Make, ReplayClass, ToolPolicy, ToolRule
from dromos.domain.errors import StoreUnavailable
from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.stalls import StallLimits, StallPolicy
from dromos.domain.statuses import RunStatus
from dromos.ports.agent import Attempt, Drained, Finished, Outcome, Parked
from dromos.ports.journal import Journal, NeedsPerson, Sent, Suspended
from dromos.ports.meter import NoMeter
from dromos.ports.store import Row, Table
from dromos.ports.tool import ToolOutcome
from dromos.ports.wakeup import run_topic
from dromos.testing.waiting import eventually, within
from tests.worker.conftest import USER, Stage

READ, KEYED, UNSAFE = ReplayClass


@dataclass
class Tools:
    """What an agent does here: it calls these tools side by side, and waits for a call that was cut off as engines do.

    A tool ends when the test opens it. `calls` are those that were really made, `cut` those that heard of a cut.
    """

    kinds: dict[str, ReplayClass]
    open: dict[str, asyncio.Event] = field(default_factory=dict)
    began: dict[str, asyncio.Event] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    reachable: asyncio.Event | None = None  # until it is set, nothing can be sent

    def __post_init__(self) -> None:
        for name in self.kinds:
            self.open[name], self.began[name] = asyncio.Event(), asyncio.Event()

    async def at_work(self) -> None:
        for name, began in self.began.items():
            await within(5, began.wait(), f"{name} to begin")

    async def play(self, attempt: Attempt) -> Outcome:
        try:
            results = await asyncio.gather(*(self.call(attempt, name) for name in self.kinds))
        except asyncio.CancelledError:
            assert attempt.desk is not None
            await attempt.desk.in_flight.over()
            raise
        except NeedsPerson as needs:
            return Parked(Reason(needs.asked["kind"]), (needs.asked,))
        if attempt.drain.is_set():
            return Drained()
        return Finished(" ".join(result.text for result in results))

    async def call(self, attempt: Attempt, name: str) -> ToolOutcome:
        async def execute(leave: Make, sent: Sent) -> ToolOutcome:
            if self.reachable is not None:
                self.began[name].set()
                await self.reachable.wait()
            sent()
            self.calls.append(name)
            self.began[name].set()
            try:
                await self.open[name].wait()
            except asyncio.CancelledError:
                self.cut.append(name)
                raise
            return ToolOutcome(f"{name} is done")

        desk = attempt.desk
        assert desk is not None
        rule = ToolRule(ToolPolicy.AUTO, self.kinds[name])
        call = Call(f"{attempt.run.conversation_id}/{name}", name, f"call-{name}", {}, rule)
        return await desk.gate.call(call, execute, desk)


def stop_of(run: Run) -> tuple[str | None, tuple[str, ...]]:
    assert run.stop is not None
    return run.stop.outcome, run.stop.unknown_calls


async def journal(stage: Stage) -> dict[str, str]:
    rows: list[Row] = await stage.store.read(lambda tx: tx.find(Table.TOOL_CALLS, {}))
    return {row["tool"]: row["status"] for row in rows}


async def begun(stage: Stage, play: Callable[[Attempt], Awaitable[Outcome]], **options: Any) -> Any:
    worker, puppet = await stage.worker(play, **options)
    conversation, run_id, _ = await stage.post("hello")
    await within(5, puppet.began.wait(), "the attempt")
    return worker, puppet, conversation, run_id


@asynccontextmanager
async def reader(stage: Stage, conversation: str) -> Any:
    """What a device that looks at the conversation is told of the stop, as it comes."""
    heard = asyncio.Event()
    subscription = stage.live.subscribe(conversation, heard.set)

    async def waits_for(tool: str | None) -> dict[str, Any]:
        while True:
            heard.clear()
            for frame in subscription.take_nowait():
                told = orjson.loads(frame.data)
                if frame.event == "run.server" and "stop" in told:
                    waiting_for = told["stop"]["waiting_for"]
                    if (waiting_for or {}).get("tool") == tool:
                        return dict(told)
            await heard.wait()

    try:
        yield lambda tool: within(5, waits_for(tool), f"word that {tool} is waited for")
    finally:
        subscription.close()


async def test_an_unsafe_call_is_waited_for_in_sight_and_then_the_next_one(stage: Stage) -> None:
    tools = Tools({"pay": UNSAFE, "mail": UNSAFE})
    _, _, conversation, run_id = await begun(stage, tools.play)
    await tools.at_work()

    async with reader(stage, conversation) as told:
        await stage.lifecycle.request_cancel(USER, run_id)
        first = await told("pay")
        run = await stage.lifecycle.run(USER, run_id)
        assert run.status is RunStatus.CANCELLING and run.stop is not None
        assert first["run_version"] == run.version
        assert run.stop.waiting_for == first["stop"]["waiting_for"]
        assert first["stop"]["waiting_for"]["since"] < first["stop"]["waiting_for"]["until"]
        assert run.stop.delivered_at is not None
        tools.open["pay"].set()
        await told("mail")
        tools.open["mail"].set()
        run = await stage.end(run_id)

    assert run.status is RunStatus.CANCELLED and run.stop is not None
    assert (stop_of(run), run.stop.waiting_for) == (("acknowledged", ()), None)
    assert await journal(stage) == {"pay": "done", "mail": "done"}
    assert tools.cut == []


async def test_calls_that_may_be_repeated_are_closed_at_once(stage: Stage) -> None:
    tools = Tools({"look": READ, "put": KEYED})
    *_, run_id = await begun(stage, tools.play)
    await tools.at_work()
    before = time.monotonic()
    await stage.lifecycle.request_cancel(USER, run_id)
    run = await stage.end(run_id)
    assert time.monotonic() - before < 1.5
    assert sorted(tools.cut) == ["look", "put"]
    assert stop_of(run) == ("acknowledged", ("put",)), "what only reads leaves nothing to be known"


async def test_after_the_deadline_exactly_the_calls_without_an_outcome_are_named(stage: Stage) -> None:
    tools = Tools({"look": READ, "put": KEYED, "pay": UNSAFE, "mail": UNSAFE})
    worker, _, _, run_id = await begun(stage, tools.play, stop_deadline=0.4, slots=1)
    await tools.at_work()
    await stage.lifecycle.request_cancel(USER, run_id)
    tools.open["mail"].set()
    run = await stage.end(run_id)
    outcome, unknown = stop_of(run)
    assert (run.status, outcome) == (RunStatus.CANCELLED, "forced")
    assert sorted(unknown) == ["pay", "put"]
    assert "pay" in tools.cut, "what was waited for in vain is told to stop"
    assert (await journal(stage))["mail"] == "done"
    await eventually(lambda: worker.running == 0, what="a free slot for the next run")


class Late(NoMeter):
    """Counts what comes too late."""

    writes = 0

    def late_write(self) -> None:
        self.writes += 1


@pytest.mark.case("P12")
async def test_a_run_whose_worker_ignores_the_stop_stays_cancelled_when_the_work_ends_later(
    stage: Stage,
) -> None:
    gate = asyncio.Event()

    async def deaf(attempt: Attempt) -> Outcome:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return Finished("a late success")

    late = Late()
    stage.lifecycle.meter = late
    worker, _, _, run_id = await begun(stage, deaf, stop_deadline=0.2)
    await stage.lifecycle.request_cancel(USER, run_id)
    ended = await stage.end(run_id)
    assert (ended.status, stop_of(ended)[0]) == (RunStatus.CANCELLED, "forced")
    events = await stage.lifecycle.run_events(USER, run_id)
    with capture_logs() as lines:
        gate.set()
        await eventually(lambda: worker.running == 0 and late.writes, what="the end of the late work")
    assert await stage.lifecycle.run(USER, run_id) == ended
    assert await stage.lifecycle.run_events(USER, run_id) == events
    told = [(one["event"], one["run_id"]) for one in lines if one["log_level"] == "warning"]
    assert told == [("attempt.late_result", run_id)], "it is logged"
    assert late.writes == 1, "and counted"


async def test_a_stop_is_carried_out_though_the_database_goes_away_in_the_middle(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = Tools({"pay": UNSAFE})
    _, _, conversation, run_id = await begun(stage, tools.play)
    await tools.at_work()
    store, away, asked = stage.store, asyncio.Event(), asyncio.Event()

    def unless_away(real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def operation(fn: Any, *args: Any) -> Any:
            if away.is_set():
                asked.set()
                raise StoreUnavailable("the database is away: start it")
            return await real(fn, *args)

        return operation

    monkeypatch.setattr(store, "write", unless_away(store.write))
    monkeypatch.setattr(store, "read", unless_away(store.read))
    async with reader(stage, conversation) as told:
        await stage.lifecycle.request_cancel(USER, run_id)
        await told("pay")
    away.set()
    tools.open["pay"].set()
    await within(5, asked.wait(), "somebody to find the database away")
    away.clear()
    run = await stage.end(run_id)
    assert (run.status, stop_of(run)) == (RunStatus.CANCELLED, ("acknowledged", ()))
    assert await journal(stage) == {"pay": "done"}


async def test_a_drain_waits_for_an_unsafe_call_and_the_next_owner_does_not_make_it_again(
    stage: Stage,
) -> None:
    tools = Tools({"pay": UNSAFE})
    worker, _, _, run_id = await begun(stage, tools.play)
    await tools.at_work()
    draining = asyncio.create_task(worker.drain())
    await asyncio.sleep(0)
    tools.open["pay"].set()
    await within(5, draining, "the drain")
    run = await stage.lifecycle.run(USER, run_id)
    assert (run.status, run.reason, run.crashes) == (RunStatus.QUEUED, Reason.DRAINED, 0)
    await stage.worker(tools.play)
    run = await stage.end(run_id)
    assert (run.status, run.line, tools.calls) == (RunStatus.COMPLETED, "pay is done", ["pay"])


async def test_a_call_cut_by_the_end_of_a_drain_is_asked_about_and_never_repeated(stage: Stage) -> None:
    tools = Tools({"pay": UNSAFE})
    worker, _, _, run_id = await begun(stage, tools.play, drain=0.1, stop_deadline=30.0)
    await tools.at_work()
    before = time.monotonic()
    await worker.drain()
    assert time.monotonic() - before < 2.1, "a process ends within its drain and two seconds"
    run = await stage.lifecycle.run(USER, run_id)
    assert (run.status, run.reason, run.crashes) == (RunStatus.QUEUED, Reason.DRAINED, 0)
    await stage.worker(tools.play)
    run = await stage.until(run_id, RunStatus.WAITING_INPUT)
    assert (run.reason, tools.calls) == (Reason.TOOL_OUTCOME_UNKNOWN, ["pay"])


async def test_an_engine_that_does_not_let_go_is_handed_back_in_time_all_the_same(stage: Stage) -> None:
    gate = asyncio.Event()

    async def deaf(attempt: Attempt) -> Outcome:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return Finished()

    worker, _, _, run_id = await begun(stage, deaf, drain=0.1, stop_deadline=30.0)
    before = time.monotonic()
    await worker.drain()
    assert time.monotonic() - before < 2.6
    run = await stage.lifecycle.run(USER, run_id)
    assert (run.status, run.reason, run.crashes) == (RunStatus.QUEUED, Reason.DRAINED, 0)
    gate.set()


async def test_a_drain_that_is_over_cuts_a_stop_that_still_waits(stage: Stage) -> None:
    tools = Tools({"pay": UNSAFE})
    worker, _, conversation, run_id = await begun(stage, tools.play, drain=0.1, stop_deadline=30.0)
    await tools.at_work()
    async with reader(stage, conversation) as told:
        await stage.lifecycle.request_cancel(USER, run_id)
        await told("pay")
    before = time.monotonic()
    await worker.drain()
    assert time.monotonic() - before < 2.1
    run = await stage.lifecycle.run(USER, run_id)
    assert (run.status, stop_of(run)) == (RunStatus.CANCELLED, ("forced", ("pay",)))


@pytest.mark.parametrize(("kind", "tries"), [(UNSAFE, 1), (KEYED, 2)])
async def test_a_stalled_step_is_tried_again_only_where_nothing_is_unknown(
    stage: Stage, kind: ReplayClass, tries: int
) -> None:
    tools = Tools({"pay": kind})

    async def play(attempt: Attempt) -> Outcome:
        if attempt.run.attempt > 1:
            tools.open["pay"].set()
        attempt.live.set("/current", {"kind": "tool", "name": "pay"})
        return await tools.play(attempt)

    stall = StallPolicy(StallLimits(0.15, 0.15, "retry"))
    *_, run_id = await begun(stage, play, stop_deadline=0.2, stall=stall)
    run = await stage.end(run_id)
    if kind is UNSAFE:
        assert (run.status, run.reason) == (RunStatus.FAILED, Reason.STALLED)
        assert "pay" in (run.error_message or "") and "may have happened" in (run.error_message or "")
    else:
        assert run.status is RunStatus.COMPLETED
    assert tools.calls == ["pay"] * tries


async def test_a_stalled_unsafe_call_that_ends_while_it_is_cut_is_known_and_the_step_goes_on(
    stage: Stage,
) -> None:
    tools = Tools({"pay": UNSAFE})

    async def play(attempt: Attempt) -> Outcome:
        attempt.live.set("/current", {"kind": "tool", "name": "pay"})
        try:
            return await tools.play(attempt)
        finally:
            attempt.live.touch()

    def ends_late() -> None:
        tools.open["pay"].set()

    stall = StallPolicy(StallLimits(0.15, 0.15, "retry"))
    *_, run_id = await begun(stage, play, stall=stall)
    asyncio.get_running_loop().call_later(0.6, ends_late)  # after the cut, before anybody gives up
    run = await stage.end(run_id)
    assert (run.status, run.line, tools.calls) == (RunStatus.COMPLETED, "pay is done", ["pay"])
    assert run.attempt == 2


async def test_a_call_that_parked_itself_leaves_nothing_unknown(stage: Stage) -> None:
    parked = asyncio.Event()

    async def play(attempt: Attempt) -> Outcome:
        async def execute(leave: Make, sent: Sent) -> ToolOutcome:
            raise Suspended

        desk = attempt.desk
        assert desk is not None
        call = Call(f"{attempt.run.id}/ask", "ask", "call-ask", {}, ToolRule(ToolPolicy.AUTO, UNSAFE))
        with pytest.raises(Suspended):
            await desk.gate.call(call, execute, desk)
        parked.set()
        await asyncio.Event().wait()
        raise AssertionError("never")

    *_, run_id = await begun(stage, play)
    await within(5, parked.wait(), "the call to park itself")
    await stage.lifecycle.request_cancel(USER, run_id)
    assert stop_of(await stage.end(run_id)) == ("acknowledged", ())


async def test_what_an_owner_that_lost_its_run_still_waits_for_is_cut_at_the_deadline(stage: Stage) -> None:
    tools = Tools({"pay": UNSAFE})
    _, _, _, run_id = await begun(stage, tools.play, stop_deadline=0.2)
    await tools.at_work()
    await stage.store.write(lambda tx: tx.change(Table.RUNS, {"id": run_id}, {"epoch": 7}))
    stage.wakeup.notify(run_topic(run_id))
    await eventually(lambda: tools.cut == ["pay"], what="the cut of the call")
    assert await journal(stage) == {"pay": "intent"}


# --- between the record of a call and its request


async def test_a_call_that_was_not_sent_is_not_sent_after_a_stop_and_is_known_not_to_be_made(
    stage: Stage,
) -> None:
    tools = Tools({"pay": UNSAFE}, reachable=asyncio.Event())
    *_, run_id = await begun(stage, tools.play)
    await tools.at_work()
    await stage.lifecycle.request_cancel(USER, run_id)
    run = await stage.end(run_id)
    assert tools.reachable is not None
    tools.reachable.set()
    assert (run.status, stop_of(run), tools.calls) == (RunStatus.CANCELLED, ("acknowledged", ()), [])
    (row,) = await stage.store.read(lambda tx: tx.find(Table.TOOL_CALLS, {}))
    assert (row["status"], row["outcome"]["text"]) == ("done", NOT_SENT)


async def test_an_owner_that_lost_its_run_sends_nothing_any_more(stage: Stage) -> None:
    tools = Tools({"pay": UNSAFE}, reachable=asyncio.Event())
    worker, _, _, run_id = await begun(stage, tools.play, stop_deadline=60.0)
    await tools.at_work()
    await stage.store.write(lambda tx: tx.change(Table.RUNS, {"id": run_id}, {"epoch": 7}))
    stage.wakeup.notify(run_topic(run_id))
    await eventually(lambda: worker.running == 0, what="the end of the attempt, long before its deadline")
    assert tools.reachable is not None
    tools.reachable.set()
    assert tools.calls == []
    assert await journal(stage) == {"pay": "intent"}, "what became of it is for the next owner to ask"


async def test_a_cut_while_the_record_of_a_call_is_written_leaves_no_call_unknown(stage: Stage) -> None:
    written, goes_on = asyncio.Event(), asyncio.Event()
    tools = Tools({"pay": UNSAFE})

    class Slow:
        """A journal that is slow to tell what it wrote."""

        def __init__(self, journal: Journal) -> None:
            self._journal = journal

        def __getattr__(self, name: str) -> Any:
            return getattr(self._journal, name)

        async def begin(self, *asked: Any) -> Any:
            move = await self._journal.begin(*asked)
            written.set()
            await goes_on.wait()
            return move

    async def play(attempt: Attempt) -> Outcome:
        assert attempt.desk is not None
        slow: Any = Slow(attempt.desk.journal)
        return await tools.play(replace(attempt, desk=replace(attempt.desk, journal=slow)))

    _, _, conversation, run_id = await begun(stage, play)
    await within(5, written.wait(), "the record of the call")
    async with reader(stage, conversation) as told:
        await stage.lifecycle.request_cancel(USER, run_id)
        await told("pay")
    goes_on.set()
    run = await stage.end(run_id)
    assert (stop_of(run), tools.calls) == (("acknowledged", ()), [])
    assert await journal(stage) == {"pay": "done"}
