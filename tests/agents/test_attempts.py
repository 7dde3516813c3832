"""Attempts of the assistant with the scripted model: outcomes, retries, stops, drains, limits, continuation."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from dromos.domain.effects import call_key
from dromos.domain.errors import LeaseLost, StoreUnavailable
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.retries import DEFAULT_POLICIES, RetryPolicy
from dromos.domain.runs import Fence, Run
from dromos.domain.statuses import RunStatus
from dromos.ports.agent import Attempt, Drained, Failed, Finished, InputMessage, TryLater
from dromos.ports.meter import NoMeter
from dromos.ports.store import Table
from dromos.ports.tool import ToolOutcome
from tests.agents.kit import FunctionToolbox, LiveNotes, assistant, desk, history, rows, until, until_stored

FAST = {
    ErrorCode.MODEL_RATE_LIMITED: RetryPolicy(5, (0.01,), honours_retry_after=True),
    ErrorCode.MODEL_BAD_RESPONSE: RetryPolicy(5, (0.01,), honours_retry_after=True),
    ErrorCode.MODEL_UNAVAILABLE: RetryPolicy(2, (0.01,)),
}


def attempt_of(run: Run, recorder: Any, agent: Any, *texts: str) -> Attempt:
    messages = [InputMessage(f"{run.id}-m{n}", "user", text) for n, text in enumerate(texts)]
    return Attempt(
        run,
        agent.compose(messages) if texts else None,
        recorder,
        LiveNotes(),
        asyncio.Event(),
        desk=desk(recorder),
    )


async def talk(room: Any, agent: Any, text: str, **changes: Any) -> tuple[Any, Attempt]:
    run, recorder = await room.run(**changes)
    attempt = attempt_of(run, recorder, agent, text)
    return await agent.attempt(attempt), attempt


async def said(room: Any) -> list[tuple[str, str]]:
    return [(row["role"], row["content"]) for row in await history(room.store, hidden=False)]


async def test_a_chat_is_answered_and_shown_while_it_is_written(room):
    await room.conversation()
    agent = assistant(room.store)

    outcome, attempt = await talk(room, agent, "!say Hello there")

    assert outcome == Finished()
    assert await said(room) == [("user", "!say Hello there"), ("assistant", "Hello there")]
    stored = (await history(room.store))[-1]
    assert attempt.live.texts == {stored["id"]: "Hello there"}
    assert attempt.live.values["/model"] == "scripted"
    assert attempt.live.values["/current"] is None
    assert attempt.live.values["/usage"]["model_calls"] == 1
    steps = await rows(room.store, Table.RUN_STEPS)
    assert [(row["kind"], row["status"], row["num"]) for row in steps] == [("model", "done", 1)]
    heads = await rows(room.store, Table.CHECKPOINTS, order=("-checkpoint_id",))
    assert steps[0]["checkpoint_id"] == heads[0]["checkpoint_id"]
    assert await agent.pending("c1") == ()


async def test_parallel_calls_are_one_task_each_and_a_failing_one_does_not_cancel_its_siblings(room):
    await room.conversation()
    release = asyncio.Event()

    async def slow(arguments: Any) -> str:
        await release.wait()
        return "slow is done"

    def broken(arguments: Any) -> str:
        release.set()
        raise ValueError("boom")

    toolbox = FunctionToolbox(slow=slow, broken=broken)
    agent = assistant(room.store, toolbox)

    outcome, attempt = await talk(room, agent, '!call slow {"x":1}\n!call broken\n!call missing\n!say fine')

    assert outcome == Finished()
    results = [row for row in await history(room.store) if row["role"] == "tool"]
    told = {row["name"]: row for row in results}
    assert len(results) == 3
    assert {name: row["status"] for name, row in told.items()} == {
        "slow": None,
        "broken": "error",
        "missing": "error",
    }
    assert "boom" in told["broken"]["content"]
    asked = next(row for row in await history(room.store) if row["tool_calls"])
    contexts = {name: context for name, _, context in toolbox.calls}
    assert contexts["slow"].idempotency_key == call_key("c1", asked["id"], 0)
    assert contexts["missing"].idempotency_key == call_key("c1", asked["id"], 2)
    assert contexts["slow"].run_id == attempt.run.id
    kinds = [row["kind"] for row in await rows(room.store, Table.RUN_STEPS, order=("num",))]
    assert kinds == ["model", "tool", "tool", "tool", "model"]


async def test_calls_of_models_and_tools_are_counted_by_their_outcome(sqlite_room):
    class Tally(NoMeter):
        def __init__(self) -> None:
            self.seen: Counter[str] = Counter()

        def model_call(self, outcome: str) -> None:
            self.seen[f"model {outcome}"] += 1

        def tool_call(self, outcome: str) -> None:
            self.seen[f"tool {outcome}"] += 1

    await sqlite_room.conversation()
    tally = Tally()
    toolbox = FunctionToolbox(work=lambda arguments: "ok")
    agent = assistant(sqlite_room.store, toolbox, meter=tally, policies=FAST)

    outcome, _ = await talk(sqlite_room, agent, "!call work\n!call missing\n!error 503 x1\n!say done")

    assert outcome == Finished()
    assert tally.seen == {"model done": 2, "model failed": 1, "tool done": 1, "tool failed": 1}


@pytest.mark.case("P85")
@pytest.mark.case("P86")
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("!error 401", ErrorCode.MODEL_AUTH),
        ("!error 403", ErrorCode.MODEL_AUTH),
        ("!error 429", ErrorCode.MODEL_RATE_LIMITED),
        ("!error 503", ErrorCode.MODEL_BAD_RESPONSE),
        ("!error 404", ErrorCode.MODEL_UNAVAILABLE),
        ("!error 400", ErrorCode.AGENT_FAILURE),
        ("!say half\n!break", ErrorCode.MODEL_BAD_RESPONSE),
    ],
)
async def test_a_models_failure_is_one_outcome_with_its_code(sqlite_room, script, code):
    await sqlite_room.conversation()

    outcome, _ = await talk(sqlite_room, assistant(sqlite_room.store, policies=FAST), script)

    assert isinstance(outcome, Failed)
    assert outcome.code is code
    steps = await rows(sqlite_room.store, Table.RUN_STEPS)
    assert steps and {row["status"] for row in steps} == {"failed"}
    errors = await rows(sqlite_room.store, Table.WRITES, channel="__error__")
    assert len(errors) == 1


async def test_a_failure_that_passes_by_is_tried_again_inside_the_step(room):
    await room.conversation()
    toolbox = FunctionToolbox(once=lambda arguments: "done")

    outcome, attempt = await talk(
        room, assistant(room.store, toolbox, policies=FAST), "!call once\n!error 503 x2\n!say made it"
    )

    assert outcome == Finished()
    assert len(toolbox.calls) == 1
    assert (await said(room))[-1] == ("assistant", "made it")
    retries = [value for path, value in attempt.live.told if path == "/retries"]
    assert [value["count"] for value in retries] == [1, 2]
    assert retries[-1]["last"]["code"] == "MODEL_BAD_RESPONSE"
    assert retries[-1]["last"]["of_attempts"] == 5


async def test_a_long_rate_limit_gives_the_slot_back_with_the_count(sqlite_room):
    await sqlite_room.conversation()
    agent = assistant(sqlite_room.store)

    outcome, _ = await talk(sqlite_room, agent, "!error 429 retry-after=30")

    assert isinstance(outcome, TryLater)
    assert (outcome.reason, outcome.delay) == (Reason.RATE_LIMITED, 30.0)
    assert outcome.tries == {"MODEL_RATE_LIMITED": 1}


async def test_the_count_of_tries_is_the_runs_and_ends_with_the_policy(sqlite_room):
    await sqlite_room.conversation()
    agent = assistant(sqlite_room.store, policies=FAST)

    first, attempt = await talk(sqlite_room, agent, "!error 503")
    assert isinstance(first, Failed)
    assert len(await rows(sqlite_room.store, Table.RUN_STEPS)) == 5
    run = await sqlite_room.change(attempt.run, epoch=2, attempt=2, tries={"MODEL_BAD_RESPONSE": 3})

    again = replace(attempt, run=run, recorder=_again(attempt, 2))
    assert isinstance(await agent.attempt(again), Failed)

    assert len(await rows(sqlite_room.store, Table.RUN_STEPS)) == 5 + 2  # the fourth try and the fifth


async def test_a_taken_over_run_goes_on_and_repeats_no_finished_call(room):
    await room.conversation()
    toolbox = FunctionToolbox(add=lambda arguments: "sum")
    agent = assistant(room.store, toolbox, policies={})
    script = "!call add\n!error 503 x1\n!say after all"
    first, attempt = await talk(room, agent, script)
    assert isinstance(first, Failed)

    run = await room.change(attempt.run, epoch=2, attempt=2)
    again = Attempt(
        run, attempt.input, _again(attempt, 2), LiveNotes(), asyncio.Event(), desk=desk(_again(attempt, 2))
    )
    assert await agent.attempt(again) == Finished()
    third = await room.change(run, epoch=3, attempt=3)
    assert (
        await agent.attempt(
            replace(again, run=third, recorder=_again(attempt, 3), desk=desk(_again(attempt, 3)))
        )
        == Finished()
    )

    assert len(toolbox.calls) == 1
    assert [role for role, _ in await said(room)] == ["user", "assistant", "tool", "assistant"]
    steps = await rows(room.store, Table.RUN_STEPS, order=("num",))
    assert [row["attempt"] for row in steps] == [1, 1, 1, 2]
    assert [row["num"] for row in steps] == [1, 2, 3, 4]


def _again(attempt: Attempt, epoch: int) -> Any:
    recorder: Any = attempt.recorder
    return type(recorder)(recorder.store, Fence(attempt.run.id, epoch, "c1"))


@pytest.mark.promise("S3")
async def test_continue_after_a_failure_adds_only_what_is_missing(room):
    await room.conversation()
    agent = assistant(room.store, policies={})
    first, failed = await talk(room, agent, "!error 503 x1\n!say now it works")
    assert isinstance(first, Failed)
    assert await agent.pending("c1") == ("model",)
    before = len(await rows(room.store, Table.CHECKPOINTS))

    run, recorder = await room.run(resume_of=failed.run.id)
    outcome = await agent.attempt(attempt_of(run, recorder, agent))

    assert outcome == Finished()
    checkpoints = await agent.checkpoints("c1")
    assert len(checkpoints) == before + 1
    assert [summary.run_id for summary in checkpoints] == [failed.run.id, failed.run.id, run.id]
    assert [summary.step for summary in checkpoints] == [-1, 0, 1]
    assert [summary.next for summary in checkpoints] == [("__start__",), ("model",), ()]
    assert checkpoints[-1].last_message is not None
    assert checkpoints[-1].last_message["content"] == "now it works"


class _Away:
    """A recorder whose database is away for some of the next writes."""

    def __init__(self, recorder: Any, refusals: int) -> None:
        self.recorder, self.refusals, self.fence = recorder, refusals, recorder.fence

    async def write(self, fn: Any, **how: Any) -> Any:
        if self.recorder.writes > 0 and self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("no connection to the database: start it")
        return await self.recorder.write(fn, **how)

    async def read(self, fn: Any) -> Any:
        return await self.recorder.read(fn)


@pytest.mark.parametrize("refusals", [1, 4, 5])
async def test_a_database_that_comes_back_costs_the_run_nothing(room, refusals):
    await room.conversation()
    quick = {code: replace(policy, delays=(0.01,)) for code, policy in DEFAULT_POLICIES.items()}
    agent = assistant(room.store, policies=quick)
    run, recorder = await room.run()

    outcome = await agent.attempt(attempt_of(run, _Away(recorder, refusals), agent, "!say still here"))

    if refusals == 5:
        assert outcome == Failed(ErrorCode.INTERNAL, "no connection to the database: start it")
        assert await agent.pending("c1") == ("model",)
    else:
        assert outcome == Finished()
        assert await said(room) == [("user", "!say still here"), ("assistant", "still here")]


@pytest.mark.case("P140")
async def test_the_step_limit_keeps_the_work_and_continue_has_a_fresh_one(room):
    await room.conversation()
    toolbox = FunctionToolbox(work=lambda arguments: "ok")
    agent = assistant(room.store, toolbox)
    script = "\n".join(["!call work", "!say a"] * 4 + ["!say the end"])

    outcome, limited = await talk(room, agent, script, step_limit=5)

    assert isinstance(outcome, Failed)
    assert outcome.code is ErrorCode.RECURSION_LIMIT
    assert "continue" in outcome.message.lower()
    assert len(await rows(room.store, Table.CHECKPOINTS)) == 2 + 5
    done = len(toolbox.calls)
    assert done == 2
    run, recorder = await room.run(resume_of=limited.run.id, step_limit=25)
    assert await agent.attempt(attempt_of(run, recorder, agent)) == Finished()
    asked = [call["id"] for row in await history(room.store) for call in row["tool_calls"] or ()]
    answered = [row["tool_call_id"] for row in await history(room.store) if row["role"] == "tool"]
    assert asked == answered


async def test_exactly_as_many_steps_as_allowed_are_enough(sqlite_room):
    await sqlite_room.conversation()
    agent = assistant(sqlite_room.store, FunctionToolbox(work=lambda arguments: "ok"))

    outcome, _ = await talk(sqlite_room, agent, "!call work\n!say done", step_limit=3)

    assert outcome == Finished()


async def test_a_stop_closes_the_model_call_at_once_and_keeps_what_was_done(room):
    await room.conversation()
    agent = assistant(room.store)
    run, recorder = await room.run()
    attempt = attempt_of(run, recorder, agent, "!tokens 3\n!silent 600")
    task = asyncio.create_task(agent.attempt(attempt))
    async with asyncio.timeout(10):
        await attempt.live.spoke.wait()
        await room.change(run, status=RunStatus.CANCELLING)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert attempt.unknown_calls == []
    steps = await rows(room.store, Table.RUN_STEPS)
    assert [(row["kind"], row["status"]) for row in steps] == [("model", "cancelled")]
    assert await agent.pending("c1") == ("model",)


async def test_a_stop_names_the_calls_whose_outcome_nobody_knows(room):
    await room.conversation()
    started = asyncio.Event()
    waiting = 0
    cancelled: list[str] = []

    def hang(name: str) -> Any:
        async def tool(arguments: Any) -> str:
            nonlocal waiting
            waiting += 1
            if waiting == 2:
                started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(name)
                raise
            return ""

        return tool

    toolbox = FunctionToolbox(read_only=["look"], look=hang("look"), pay=hang("pay"), quick=lambda a: "ok")
    agent = assistant(room.store, toolbox)
    run, recorder = await room.run()
    attempt = attempt_of(run, recorder, agent, "!call look\n!call pay\n!call quick")
    task = asyncio.create_task(agent.attempt(attempt))
    async with asyncio.timeout(10):
        await started.wait()
        await until_stored(room.store, name="quick")
        await room.change(run, status=RunStatus.CANCELLING)
        task.cancel()  # a stop: what only reads is cut, what has effects is waited for
        await until(lambda: cancelled == ["look"])
        assert not task.done()
        task.cancel()  # the stop's time is over
        with pytest.raises(asyncio.CancelledError):
            await task

    await until(lambda: sorted(cancelled) == ["look", "pay"])
    assert attempt.unknown_calls == ["pay"]
    steps = {row["name"]: row["status"] for row in await rows(room.store, Table.RUN_STEPS, kind="tool")}
    assert steps == {"look": "cancelled", "pay": "unknown", "quick": "done"}
    quick = (await history(room.store, name="quick"))[0]
    head = (await rows(room.store, Table.CHECKPOINTS, order=("-checkpoint_id",)))[0]
    assert (quick["content"], quick["pending_of"]) == ("ok", head["checkpoint_id"])


async def test_a_drain_ends_at_the_next_step_and_the_next_attempt_goes_on(room):
    await room.conversation()
    toolbox = FunctionToolbox()
    agent = assistant(room.store, toolbox)
    run, recorder = await room.run()
    attempt = attempt_of(run, recorder, agent, "!call work\n!say rest")
    toolbox.tools["work"] = lambda arguments: attempt.drain.set() or "ok"

    assert await agent.attempt(attempt) == Drained()

    assert [role for role, _ in await said(room)] == ["user", "assistant", "tool"]
    later = await room.change(run, epoch=2, attempt=2)
    again = replace(attempt, run=later, recorder=_again(attempt, 2), drain=asyncio.Event())
    assert await agent.attempt(again) == Finished()
    assert len(toolbox.calls) == 1


async def test_a_drain_does_not_wait_for_a_retry(sqlite_room):
    await sqlite_room.conversation()
    agent = assistant(sqlite_room.store, policies={ErrorCode.MODEL_BAD_RESPONSE: RetryPolicy(5, (9.0,))})
    run, recorder = await sqlite_room.run()
    attempt = attempt_of(run, recorder, agent, "!error 503")
    attempt.drain.set()

    async with asyncio.timeout(5):
        assert await agent.attempt(attempt) == Drained()


async def test_a_lost_lease_ends_the_attempt_without_a_word(room):
    await room.conversation()
    run, recorder = await room.run()
    toolbox = FunctionToolbox()
    agent = assistant(room.store, toolbox)
    attempt = attempt_of(run, recorder, agent, "!call lose\n!say never")

    async def lose(arguments: Any) -> str:
        await room.change(run, epoch=2)
        return "x"

    toolbox.tools["lose"] = lose
    with pytest.raises(LeaseLost):
        await agent.attempt(attempt)

    assert [role for role, _ in await said(room)] == ["user", "assistant"]


async def test_a_call_id_that_the_thread_already_has_is_replaced(sqlite_room, monkeypatch):
    await sqlite_room.conversation()
    from dromos.agents.langgraph.scripted import engine

    monkeypatch.setattr(engine, "_number_calls", _always_the_same(engine))
    toolbox = FunctionToolbox(work=lambda arguments: "ok")
    agent = assistant(sqlite_room.store, toolbox)

    outcome, _ = await talk(sqlite_room, agent, "!call work\n!call work\n!say between\n!call work\n!say end")

    assert outcome == Finished()
    asked = [call["id"] for row in await history(sqlite_room.store) for call in row["tool_calls"] or ()]
    answered = [row["tool_call_id"] for row in await history(sqlite_room.store) if row["role"] == "tool"]
    assert len(set(asked)) == 3
    assert sorted(asked) == sorted(answered)


def _always_the_same(engine: Any) -> Any:
    def number(calls: Any, history: Any) -> Any:
        for index, call in enumerate(calls):
            yield engine.CallPiece(index, "same", call.tool, "{}")

    return number


@pytest.mark.case("P131")
async def test_a_character_split_over_two_chunks_becomes_one(sqlite_room, monkeypatch):
    await sqlite_room.conversation()
    from dromos.agents.langgraph.scripted import engine

    monkeypatch.setattr(engine, "_pieces", lambda text: iter(["go \ud83d", "\ude00 on", " \udce9"]))

    outcome, attempt = await talk(sqlite_room, assistant(sqlite_room.store), "!say x")

    assert outcome == Finished()
    assert list(attempt.live.texts.values()) == ["go 😀 on \ufffd"]
    assert (await said(sqlite_room))[-1] == ("assistant", "go 😀 on \ufffd")


async def test_structured_results_stay_with_the_message(sqlite_room):
    await sqlite_room.conversation()
    toolbox = FunctionToolbox(data=lambda arguments: ToolOutcome("three", structured={"n": 3}))
    agent = assistant(sqlite_room.store, toolbox)

    await talk(sqlite_room, agent, "!call data\n!say ok")

    from dromos.agents.langgraph.checkpointer import Checkpointer

    found = await Checkpointer(sqlite_room.store).aget_tuple({"configurable": {"thread_id": "c1"}})
    assert found is not None
    tool_message = found.checkpoint["channel_values"]["messages"][2]
    assert tool_message.artifact == {"n": 3}
