"""After every end the next message just works: each call has one result, nothing that was written is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dromos.domain.effects import OUTCOME_UNKNOWN
from dromos.domain.errors import ConversationBusy, NotResumable
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import Recovery, RunStatus, WhenBusy
from dromos.lifecycle.contract import Policy
from dromos.ports.agent import Drained, Failed, Finished
from dromos.ports.store import Store, Table
from tests.lifecycle.world import Engine, World, check_invariants, compose, empty, open_calls

FAILED = Failed(ErrorCode.MODEL_UNAVAILABLE, "connection refused")


async def begun(world: World, conversation_id: str | None = None, text: str = "do it") -> Engine:
    engine = Engine(world, await world.begin_run(text, conversation_id))
    await engine.enter()
    return engine


async def cancelled(world: World, engine: Engine, unknown: tuple[str, ...] = (), **shown: Any) -> Run:
    fence = engine.recorder.fence
    await world.cancel(engine.run.id)
    document = engine.shown(**shown) if shown else None
    return await world.lifecycle.end_stopped(
        fence, forced=bool(unknown), unknown_calls=unknown, document=document
    )


async def input_of(world: World, run_id: str) -> list[tuple[str, str]]:
    (stored,) = await world.rows(Table.RUN_INPUTS, run_id=run_id)
    return [(one["role"], one["content"]) for one in stored["input"]]


# --- results


async def test_a_call_that_fell_silent_is_told_as_one_that_may_have_happened(world: World) -> None:
    engine = await begun(world)
    await engine.say("", calls=["c1"])
    stalled = Failed(ErrorCode.STALLED, "The tool pay showed no sign of work for 300 s.")
    await world.lifecycle.end_attempt(engine.recorder.fence, stalled, None)
    next_one = await begun(world, engine.conversation_id, "and?")
    assert await input_of(world, next_one.run.id) == [("tool", OUTCOME_UNKNOWN), ("user", "and?")]
    await check_invariants(world)


async def test_a_cancelled_call_gets_one_result_at_once_and_the_next_input_brings_it(world: World) -> None:
    engine = await begun(world)
    await engine.say("let me look", calls=["c1", "c2"])
    await engine.pend_result("c1", "found it")
    await cancelled(world, engine)
    assert await open_calls(world, engine.conversation_id) == set()
    next_one = await begun(world, engine.conversation_id, "go on")
    assert await input_of(world, next_one.run.id) == [
        ("tool", "found it"),
        ("tool", "cancelled by the person"),
        ("user", "go on"),
    ]
    await check_invariants(world)


async def test_a_call_that_may_have_happened_is_never_called_cancelled(world: World) -> None:
    engine = await begun(world)
    await engine.say("sending", calls=["c1", "c2"])
    await cancelled(world, engine, unknown=("tool_c2",))
    next_one = await begun(world, engine.conversation_id, "and?")
    assert await input_of(world, next_one.run.id) == [
        ("tool", "cancelled by the person"),
        ("tool", OUTCOME_UNKNOWN),
        ("user", "and?"),
    ]


async def test_calls_of_an_owner_that_vanished_are_unknown_also_when_the_run_is_cancelled_later(
    world: World,
) -> None:
    engine = await begun(world)
    await engine.say("sending", calls=["c1"])
    await world.lose()
    await world.cancel(engine.run.id)
    next_one = await begun(world, engine.conversation_id, "and?")
    assert (await input_of(world, next_one.run.id))[0] == ("tool", OUTCOME_UNKNOWN)
    stopping = await begun(world, None, "other")
    await stopping.say("sending", calls=["c2"])
    await world.cancel(stopping.run.id)
    await world.lose()
    run = await world.run(stopping.run.id)
    assert run.stop is not None and run.stop.unknown_calls == ("tool_c2",)
    (result,) = await world.rows(Table.MESSAGES, conversation_id=run.conversation_id, role="tool")
    assert result["content"] == OUTCOME_UNKNOWN


async def test_an_open_end_is_put_in_order_when_the_next_message_arrives_and_before_it(world: World) -> None:
    engine = await begun(world)
    await engine.say("let me look", calls=["c1", "c2"])
    await engine.pend_result("c2", "found it")
    await world.lifecycle.end_attempt(engine.recorder.fence, FAILED, engine.shown("half an ans"))
    assert await open_calls(world, engine.conversation_id) == {"c1", "c2"}
    next_one = await begun(world, engine.conversation_id, "again")
    assert await input_of(world, next_one.run.id) == [
        ("tool", "did not run: the attempt failed"),
        ("tool", "found it"),
        ("assistant", "half an ans"),
        ("user", "again"),
    ]
    history = await world.history(engine.conversation_id)
    assert [row["role"] for row in history] == [
        *("user", None, "assistant"),
        *("tool", "tool", "assistant", "user", None),
    ]
    events = await world.events()
    told = [event for event in events if event["type"] == "message.created"]
    assert any(event["payload"]["message"]["interrupted"] for event in told)
    await check_invariants(world)


async def test_a_message_that_never_reached_the_thread_is_brought_by_the_next_input(world: World) -> None:
    first = await world.post("one")
    assert first.run is not None
    await world.cancel(first.run.id)
    second = await world.post("two", first.conversation["id"])
    assert second.run is not None
    await world.lifecycle.refuse_work(second.run.id, ErrorCode.CONFIG_INVALID, "no such agent")
    claimed = await world.begin_run("three", first.conversation["id"])
    assert await input_of(world, claimed.run.id) == [("user", "one"), ("user", "two"), ("user", "three")]


async def test_a_graph_that_ends_with_calls_it_never_made_leaves_a_valid_history(world: World) -> None:
    engine = await begun(world)
    await engine.say("over to you", calls=["c1"])
    await world.lifecycle.end_attempt(engine.recorder.fence, Finished(), engine.shown("unrelated"))
    next_one = await begun(world, engine.conversation_id, "ok")
    assert await input_of(world, next_one.run.id) == [
        ("tool", "did not run: the agent ended without making this call"),
        ("user", "ok"),
    ]


# --- text that was cut off


async def test_text_that_was_cut_off_is_kept_and_marked(world: World) -> None:
    engine = await begun(world)
    end = await cancelled(world, engine, text="Once upon a", message_id="m-7")
    assert end.line == "Once upon a"
    row = (await world.history(engine.conversation_id))[-1]
    assert (row["id"], row["content"], row["interrupted"], row["role"]) == (
        "m-7",
        "Once upon a",
        True,
        "assistant",
    )
    created = [event for event in await world.events(run_id=end.id) if event["type"] == "message.created"]
    assert created[-1]["payload"]["message"]["interrupted"] is True
    await check_invariants(world)


@pytest.mark.parametrize("same", ["id", "text"])
async def test_text_that_is_in_the_thread_already_is_not_kept_twice(world: World, same: str) -> None:
    engine = await begun(world)
    message_id = await engine.say("all of it", calls=["c1"])
    shown = {"text": "all of it", "message_id": message_id if same == "id" else "another"}
    await cancelled(world, engine, **shown)
    texts = [row for row in await world.history(engine.conversation_id) if row["role"] == "assistant"]
    assert [(row["content"], row["interrupted"]) for row in texts] == [("all of it", False)]


async def test_text_that_a_later_attempt_redid_is_not_kept(world: World) -> None:
    engine = await begun(world)
    await world.lifecycle.end_attempt(engine.recorder.fence, FAILED, engine.shown("Once upo", "m-1"))
    resumed = await world.resume(engine.conversation_id)
    again = Engine(world, await world.claim())
    await again.say("Once upon a time", calls=["c1"])
    await world.lifecycle.end_attempt(again.recorder.fence, FAILED, None)
    await begun(world, engine.conversation_id, "next")
    assert resumed.resume_of == engine.run.id
    texts = [
        row["content"] for row in await world.history(engine.conversation_id) if row["role"] == "assistant"
    ]
    assert texts == ["Once upon a time"]


async def test_text_survives_a_resume_that_failed_before_it_wrote_anything(world: World) -> None:
    engine = await begun(world)
    await world.lifecycle.end_attempt(engine.recorder.fence, FAILED, engine.shown("Once upo", "m-1"))
    await world.resume(engine.conversation_id)
    again = Engine(world, await world.claim())
    await world.lifecycle.end_attempt(again.recorder.fence, FAILED, None)
    next_one = await begun(world, engine.conversation_id, "next")
    assert await input_of(world, next_one.run.id) == [("assistant", "Once upo"), ("user", "next")]


async def test_an_answer_that_was_only_pending_is_kept_as_text_without_its_calls(world: World) -> None:
    engine = await begun(world)
    await engine.pend_text("I would call", calls=["c9"])
    await cancelled(world, engine, text="I would c")
    texts = [row for row in await world.history(engine.conversation_id) if row["role"] == "assistant"]
    assert [(row["content"], row["tool_calls"], row["interrupted"]) for row in texts] == [
        ("I would call", None, True)
    ]
    await world.post("next", engine.conversation_id)
    await check_invariants(world)


# --- continue


async def test_after_a_failure_continue_resumes_the_thread_with_no_input_of_its_own(world: World) -> None:
    engine = await begun(world)
    await engine.say("step one", calls=["c1"])
    failed = await world.lifecycle.end_attempt(engine.recorder.fence, FAILED, None)
    run = await world.resume(engine.conversation_id)
    assert (run.resume_of, run.retry_of, run.reason) == (failed.id, None, Reason.RESUME_OF)
    assert run.trigger_message_id == failed.trigger_message_id
    assert run.anchor_message_id != failed.anchor_message_id
    claimed = await world.claim()
    (stored,) = await world.rows(Table.RUN_INPUTS, run_id=run.id)
    assert stored["input"] is None
    again = Engine(world, claimed)
    await again.result("c1")
    await again.say("done")
    await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    (message, *_) = await world.history(engine.conversation_id)
    assert message["status"] == "answered"
    assert await world.run(failed.id) == failed, "a run that ended stays as it ended"
    await check_invariants(world)


async def test_a_chain_of_failed_resumes_can_be_resumed(world: World) -> None:
    engine = await begun(world)
    end = await world.lifecycle.end_attempt(engine.recorder.fence, FAILED, None)
    for _ in range(3):
        run = await world.resume(engine.conversation_id)
        assert run.resume_of == end.id
        claimed = await world.claim()
        end = await world.lifecycle.end_attempt(claimed.fence, FAILED, None)
    refused = await world.resume(engine.conversation_id)
    await world.lifecycle.refuse_work(refused.id, ErrorCode.CONFIG_INVALID, "gone")
    assert (await world.resume(engine.conversation_id)).resume_of == refused.id


async def test_where_the_input_never_reached_the_thread_continue_tries_it_again(world: World) -> None:
    claimed = await world.begin_run("hello")
    failed = await world.lifecycle.end_attempt(claimed.fence, FAILED, None)
    run = await world.resume(claimed.run.conversation_id, pending=False)
    assert (run.retry_of, run.reason) == (failed.id, Reason.RETRY_OF)
    await world.claim()
    assert await input_of(world, run.id) == [("user", "hello")]


async def test_after_a_stop_continue_goes_on_from_the_repair(world: World) -> None:
    engine = await begun(world)
    await engine.say("let me look", calls=["c1"])
    stopped = await cancelled(world, engine)
    run = await world.resume(engine.conversation_id)
    assert run.retry_of == stopped.id
    await world.claim()
    assert await input_of(world, run.id) == [("tool", "cancelled by the person")]
    await check_invariants(world)


async def test_there_is_nothing_to_continue_after_success_or_where_nothing_is_pending(world: World) -> None:
    engine = await begun(world)
    await engine.say("done")
    failed = await world.lifecycle.end_attempt(engine.recorder.fence, FAILED, None)
    with pytest.raises(NotResumable) as refused:
        await world.resume(engine.conversation_id, pending=False)
    assert refused.value.current["run"]["id"] == failed.id
    engine = await begun(world, engine.conversation_id)
    with pytest.raises(ConversationBusy):
        await world.resume(engine.conversation_id)
    await world.lifecycle.end_attempt(engine.recorder.fence, Finished(), None)
    with pytest.raises(NotResumable):
        await world.resume(engine.conversation_id)


async def test_a_stop_after_all_work_leaves_nothing_to_continue(world: World) -> None:
    engine = await begun(world)
    await engine.say("done")
    await world.cancel(engine.run.id)
    await world.lifecycle.end_attempt(engine.recorder.fence, Finished(), None)
    view = await world.lifecycle.conversation("anna", engine.conversation_id)
    assert view.continuation is not None and view.continuation.needs_pending
    with pytest.raises(NotResumable):
        await world.resume(engine.conversation_id, pending=False)


async def test_what_a_resumed_run_left_is_put_in_order_when_it_is_cancelled_in_the_queue(
    world: World,
) -> None:
    engine = await begun(world)
    await engine.say("let me look", calls=["c1"])
    await world.lifecycle.end_attempt(engine.recorder.fence, FAILED, engine.shown("and then", "m-2"))
    resumed = await world.resume(engine.conversation_id)
    await world.cancel(resumed.id)
    assert await open_calls(world, engine.conversation_id) == set()
    texts = [row["content"] for row in await world.history(engine.conversation_id) if row["interrupted"]]
    assert texts == ["and then"]
    await check_invariants(world)


# --- whatever happens, in whatever order

ACTIONS = (
    *("say", "say with calls", "say with calls", "result", "pend result", "pend text"),
    *("finish", "fail", "fail with text", "cancel and stop", "cancel and die", "die", "drain"),
    *("continue", "post", "interrupt", "refuse"),
)


class Walk:
    """Does one action after another to one conversation, as far as each is possible."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.conversation_id = ""
        self.engine: Engine | None = None
        self.calls = 0

    async def begin(self) -> None:
        posted = await self.world.post("start")
        self.conversation_id = posted.conversation["id"]

    async def work(self) -> Engine | None:
        """The engine of the live run, claimed if it was queued."""
        await self.world.store.write(lambda tx: tx.change(Table.RUNS, {}, {"not_before": None}))
        for claimed in await self.world.lifecycle.claim("incarnation-1", None, 1):
            await self.world.lifecycle.compose_input(claimed.fence, compose)
            self.engine = Engine(self.world, claimed)
            await self.engine.enter()
        return self.engine

    async def do(self, action: str) -> None:
        world = self.world
        if action in ("post", "interrupt"):
            when_busy = WhenBusy.QUEUE if action == "post" else WhenBusy.INTERRUPT
            await world.post(action, self.conversation_id, when_busy=when_busy)
            return
        if action == "continue":
            try:
                await world.resume(self.conversation_id)
            except (NotResumable, ConversationBusy):
                pass
            return
        last = (await world.runs_of(self.conversation_id))[-1]
        if action == "refuse":
            if last.status is RunStatus.QUEUED:
                await world.lifecycle.refuse_work(last.id, ErrorCode.CONFIG_INVALID, "gone")
            return
        engine = await self.work()
        if engine is None:
            return
        run = await world.run(engine.run.id)
        if run.status is RunStatus.CANCELLING or run.is_final:
            self.engine = None
            if not run.is_final:
                await world.lifecycle.end_stopped(
                    engine.recorder.fence, forced=False, unknown_calls=(), document=None
                )
            return
        await self._at_work(action, engine)

    async def _at_work(self, action: str, engine: Engine) -> None:
        world, fence = self.world, engine.recorder.fence
        missing = sorted(await open_calls(world, self.conversation_id))
        if action.startswith("say") and not missing:
            calls = []
            if action == "say with calls":
                self.calls += 2
                calls = [f"c{self.calls}", f"c{self.calls + 1}"]
            await engine.say(f"text {self.calls}", calls=calls)
        elif action == "result" and missing:
            for call in missing:
                await engine.result(call)
        elif action == "pend result" and missing:
            pending = await world.rows(Table.MESSAGES, tool_call_id=missing[0])
            if not pending:
                await engine.pend_result(missing[0])
        elif action == "pend text" and not missing:
            await engine.pend_text("pending", calls=["never"])
        elif action == "finish" and not missing:
            await world.lifecycle.end_attempt(fence, Finished(), None)
        elif action.startswith("fail"):
            document = engine.shown("half", f"half-{engine.run.id}") if "text" in action else None
            await world.lifecycle.end_attempt(fence, FAILED, document)
        elif action == "cancel and stop":
            await cancelled(world, engine, text="cut", message_id=f"cut-{engine.run.id}")
        elif action == "cancel and die":
            await world.cancel(engine.run.id)
            await world.lose()
        elif action == "die":
            await world.lose()
        elif action == "drain":
            await world.lifecycle.end_attempt(fence, Drained(), None)
        else:
            return
        if action not in ("say", "say with calls", "result", "pend result", "pend text"):
            self.engine = None


@pytest.mark.slow(90)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=st.lists(st.sampled_from(ACTIONS), min_size=3, max_size=25), ask=st.booleans())
async def test_the_history_is_valid_for_the_next_model_call_whatever_happened(
    store: Store, actions: list[str], ask: bool
) -> None:
    await store.write(empty)
    world = await World(store, Policy(recovery=Recovery.ASK if ask else Recovery.AUTO)).begin()
    walk = Walk(world)
    await walk.begin()
    for action in actions:
        await walk.do(action)
        await check_invariants(world)
    # and the next message just works
    while (live := (await world.runs_of(walk.conversation_id))[-1]) and not live.is_final:
        await world.cancel(live.id)
        await world.lose()
    await world.post("the next message", walk.conversation_id)
    assert await walk.work() is not None
    await check_invariants(world)
    assert await open_calls(world, walk.conversation_id) == set()
