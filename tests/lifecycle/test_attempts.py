"""Claims, what an owner may write, and how its attempt ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dromos.domain.errors import AlreadyEnded, InvalidTransition, LeaseLost
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Fence
from dromos.domain.statuses import RunStatus
from dromos.lifecycle.contract import Claimed, RunOptions
from dromos.ports.agent import Drained, Failed, Finished, InputMessage, Outcome, Parked, TryLater
from dromos.ports.live import DocumentSnapshot
from dromos.ports.store import Table
from dromos.ports.wakeup import WORK, run_topic
from tests.lifecycle.world import OWNER, USER, Engine, World, check_invariants, compose

QUESTION = Parked(Reason.QUESTION_ASKED, ({"kind": "question", "prompt": "which one?"},))


@pytest.mark.promise("L9")
async def test_two_owners_race_for_one_run_and_one_wins(world: World) -> None:
    await world.lifecycle.register_owner("b", "adapter", "host", 2, 30)
    posted = await world.post("race")
    assert posted.run is not None
    results = await asyncio.gather(*(world.lifecycle.claim(owner, None, 8) for owner in (OWNER, "b") * 5))
    (claimed,) = [one for result in results for one in result]
    run = await world.run(posted.run.id)
    assert run == claimed.run
    assert (run.status, run.epoch, run.attempt) == (RunStatus.RUNNING, 1, 1)
    assert len(await world.rows(Table.RUN_ATTEMPTS)) == 1


async def test_an_owner_without_a_valid_lease_gets_no_work(world: World) -> None:
    await world.post("work")
    assert await world.lifecycle.claim("nobody", None, 1) == []
    await world.lifecycle.register_owner("late", "adapter", "host", 2, -1)
    assert await world.lifecycle.claim("late", None, 1) == []
    assert len(await world.lifecycle.claim(OWNER, None, 1)) == 1


async def test_a_claim_takes_only_runs_of_the_agents_it_names(world: World) -> None:
    await world.post("work")
    assert await world.lifecycle.claim(OWNER, ["other"], 5) == []
    assert len(await world.lifecycle.claim(OWNER, ["other", "assistant"], 5)) == 1


async def test_the_input_is_made_once_and_a_takeover_finds_it(world: World) -> None:
    claimed = await world.begin_run("question")
    made = await world.lifecycle.compose_input(claimed.fence, lambda messages: "never called")
    assert [(one["role"], one["content"]) for one in made] == [("user", "question")]
    await world.lose()
    again = await world.claim()
    assert again.composed
    assert again.input == made
    assert again.run.attempt == 2


async def test_the_claim_can_make_the_input_in_its_own_transaction(world: World) -> None:
    await world.post("question")
    (claimed,) = await world.lifecycle.claim(OWNER, None, 1, {"assistant": compose})
    assert claimed.composed
    assert [one["content"] for one in claimed.input] == ["question"]
    (stored,) = await world.rows(Table.RUN_INPUTS)
    assert stored["input"] == claimed.input


async def test_only_the_first_claim_of_the_first_run_begins_a_conversation(world: World) -> None:
    async def claims() -> Claimed:
        (claimed,) = await world.lifecycle.claim(OWNER, None, 1, {"assistant": compose})
        return claimed

    posted = await world.post("one")
    assert (await claims()).begins
    await world.lose()
    taken_over = await claims()
    assert (taken_over.run.attempt, taken_over.begins) == (2, False)
    await world.lifecycle.end_attempt(taken_over.fence, Failed(ErrorCode.MODEL_AUTH, "key"), None)
    await world.resume(posted.conversation["id"], pending=False)
    again = await claims()
    assert (again.run.retry_of, again.begins) == (taken_over.run.id, False)
    await world.lifecycle.end_attempt(again.fence, Finished(), None)
    await world.post("two", posted.conversation["id"])
    assert not (await claims()).begins


async def test_an_agent_that_cannot_make_its_input_holds_up_nobody_elses_run(world: World) -> None:
    await world.post("one", options=RunOptions(agent="broken"))
    await world.post("two")

    def broken(messages: list[InputMessage]) -> Any:
        raise KeyError("field")

    one, two = await world.lifecycle.claim(OWNER, None, 2, {"assistant": compose, "broken": broken})
    assert (one.composed, two.composed) == (False, True)
    with pytest.raises(KeyError):
        await world.lifecycle.compose_input(one.fence, broken)


async def test_crash_points_lie_on_both_sides_of_the_commit(world: World) -> None:
    reached: list[tuple[str, int]] = []

    class Counting:
        def reach(self, point: str) -> None:
            reached.append((point, len(world.wakeups.topics)))

    world.wakeups.topics.clear()
    world.lifecycle.probe = Counting()
    await world.post("hello")
    assert reached == [("post_message.written", 0), ("post_message.committed", 0)]
    assert world.wakeups.topics


@pytest.mark.parametrize(
    ("outcome", "status", "reason"),
    [
        (Finished("all done"), RunStatus.COMPLETED, Reason.FINISHED),
        (Failed(ErrorCode.MODEL_UNAVAILABLE, "refused"), RunStatus.FAILED, Reason.MODEL_ERROR),
        (Failed(ErrorCode.TOOL_FAILED, "broke"), RunStatus.FAILED, Reason.TOOL_ERROR),
        (
            TryLater(Reason.RATE_LIMITED, 30.0, {"MODEL_RATE_LIMITED": 1}, "try 2 of 5"),
            RunStatus.QUEUED,
            None,
        ),
        (Drained(), RunStatus.QUEUED, Reason.DRAINED),
        (QUESTION, RunStatus.WAITING_INPUT, Reason.QUESTION_ASKED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Outcome) else str(value),
)
async def test_each_outcome_of_an_attempt_has_its_edge(
    world: World, outcome: Outcome, status: RunStatus, reason: Reason | None
) -> None:
    claimed = await world.begin_run()
    after = await world.lifecycle.end_attempt(claimed.fence, outcome, None)
    assert (after.status, after.reason) == (status, reason or after.reason)
    assert after == await world.run(after.id)
    assert after.owner_id is None
    (attempt,) = await world.rows(Table.RUN_ATTEMPTS)
    assert attempt["ended_at"] is not None
    assert attempt["reason"] == after.reason
    await check_invariants(world)
    with pytest.raises(LeaseLost):
        await world.lifecycle.end_attempt(claimed.fence, Finished(), None)


@pytest.mark.promise("L9")
@pytest.mark.parametrize(
    ("outcome", "shown"),
    [(Finished(), "answered"), (Failed(ErrorCode.AGENT_FAILURE, "x"), "failed")],
)
async def test_the_message_that_started_a_run_shows_how_it_goes(
    world: World, outcome: Outcome, shown: str
) -> None:
    posted = await world.post("hello")
    claimed = await world.claim()
    await world.lifecycle.end_attempt(claimed.fence, outcome, None)
    updates = [event["payload"]["message"] for event in await world.events(type="message.updated")]
    assert [update["status"] for update in updates] == ["working", shown]
    assert posted.message is not None
    assert {update["id"] for update in updates} == {posted.message["id"]}
    (stored, _) = await world.history(posted.conversation["id"])
    assert stored["status"] == shown


async def test_waiting_for_a_rate_limit_keeps_the_counts_and_says_until_when(world: World) -> None:
    claimed = await world.begin_run()
    later = TryLater(Reason.RATE_LIMITED, 30.0, {"MODEL_RATE_LIMITED": 2}, "try 3 of 5")
    after = await world.lifecycle.end_attempt(claimed.fence, later, None)
    assert after.tries == {"MODEL_RATE_LIMITED": 2}
    assert after.wait is not None
    assert (after.wait.reason, after.wait.then) == ("rate_limited", "try 3 of 5")
    assert after.not_before == after.wait.until
    assert await world.lifecycle.claim(OWNER, None, 1) == []
    assert after.crashes == 0


async def test_the_end_tells_the_last_answer_the_line_and_the_threads_count(world: World) -> None:
    claimed = await world.begin_run("add one and one")
    engine = Engine(world, claimed)
    await engine.enter()
    await engine.say("I need a tool", calls=["c1"])
    await engine.result("c1", "2")
    answer_id = await engine.say("\nIt is two.\nAsk me more.")
    document = engine.shown(
        "It is two.", answer_id, usage={"input": 10, "output": 4}, model="scripted", steps=[]
    )
    end = await world.lifecycle.end_attempt(claimed.fence, Finished(), document)
    assert end.line == "It is two."
    assert (end.usage, end.model_used, end.document_version) == (
        {"input": 10, "output": 4},
        "scripted",
        document.version,
    )
    *_, answer, updated, last = await world.events(run_id=end.id)
    assert (answer["type"], updated["type"], last["type"]) == (
        "message.created",
        "message.updated",
        "run.status",
    )
    assert answer["payload"]["message"]["id"] == answer_id
    assert last["payload"]["conversation"]["message_count"] == 4
    (conversation,) = await world.rows(Table.CONVERSATIONS)
    assert conversation["message_count"] == 4
    (saved,) = await world.rows(Table.RUN_DOCUMENTS)
    assert saved["content"]["model"] == "scripted"


async def test_the_number_of_events_does_not_grow_with_the_steps(world: World) -> None:
    counts = []
    for steps in (1, 20):
        claimed = await world.begin_run(f"{steps} steps")
        engine = Engine(world, claimed)
        await engine.enter()
        for number in range(steps):
            await engine.say(f"step {number}", calls=[f"c{steps}-{number}"])
            await engine.result(f"c{steps}-{number}")
        await engine.say("done")
        await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
        counts.append(len(await world.events(run_id=claimed.run.id)))
    assert counts[0] == counts[1] == 8


@pytest.mark.case("P86")
async def test_a_run_that_failed_cannot_finish_too(world: World) -> None:
    claimed = await world.begin_run()
    failed = await world.lifecycle.end_attempt(claimed.fence, Failed(ErrorCode.AGENT_FAILURE, "x"), None)
    for outcome in (Finished(), Failed(ErrorCode.INTERNAL, "y"), Drained(), QUESTION):
        with pytest.raises(LeaseLost):
            await world.lifecycle.end_attempt(claimed.fence, outcome, None)
    with pytest.raises(LeaseLost):
        await world.lifecycle.end_stopped(claimed.fence, forced=True, unknown_calls=(), document=None)
    assert await world.run(failed.id) == failed
    await check_invariants(world)


async def test_a_run_nobody_can_start_fails_while_it_is_queued(world: World) -> None:
    posted = await world.post("hello")
    assert posted.run is not None
    await world.lifecycle.refuse_work(posted.run.id, ErrorCode.CONFIG_INVALID, "no such agent: assistant")
    run = await world.run(posted.run.id)
    assert (run.status, run.reason, run.error_code) == (
        RunStatus.FAILED,
        "config_invalid",
        ErrorCode.CONFIG_INVALID,
    )
    assert run.line == "no such agent: assistant"
    with pytest.raises(AlreadyEnded) as refused:
        await world.lifecycle.refuse_work(posted.run.id, ErrorCode.CONFIG_INVALID, "again")
    assert refused.value.current["run"]["id"] == run.id


async def test_a_claimed_run_cannot_be_refused_any_more(world: World) -> None:
    claimed = await world.begin_run()
    with pytest.raises(InvalidTransition) as refused:
        await world.lifecycle.refuse_work(claimed.run.id, ErrorCode.CONFIG_INVALID, "late")
    assert refused.value.current["run"]["status"] == "running"


# --- what may be written


@pytest.mark.parametrize("while_cancelling", [False, True])
async def test_a_write_passes_only_at_its_epoch(world: World, while_cancelling: bool) -> None:
    claimed = await world.begin_run()
    for epoch in (claimed.fence.epoch - 1, claimed.fence.epoch + 1):
        recorder = world.lifecycle.recorder(Fence(claimed.run.id, epoch))
        with pytest.raises(LeaseLost):
            await recorder.write(lambda tx, run: None, while_cancelling=while_cancelling)
    recorder = world.lifecycle.recorder(claimed.fence)
    assert await recorder.write(lambda tx, run: run, while_cancelling=while_cancelling) == claimed.run


async def test_while_a_run_stops_only_what_belongs_to_the_stop_is_written(world: World) -> None:
    claimed = await world.begin_run()
    await world.cancel(claimed.run.id)
    recorder = world.lifecycle.recorder(claimed.fence)
    with pytest.raises(LeaseLost):
        await recorder.write(lambda tx, run: None)
    assert (await recorder.write(lambda tx, run: run.status, while_cancelling=True)) is RunStatus.CANCELLING
    snapshot = DocumentSnapshot(claimed.run.id, 5, {"text": {"message_id": "m", "length": 1, "content": "x"}})
    await world.lifecycle.save_document(claimed.fence, snapshot)
    run = await world.lifecycle.note_waiting_for(claimed.fence, "send_mail", 15)
    assert run.stop is not None and run.stop.waiting_for is not None
    assert run.stop.waiting_for["tool"] == "send_mail"
    assert (await world.run(run.id)).stop == run.stop
    with pytest.raises(LeaseLost):
        await world.lifecycle.note_tries(claimed.fence, {"STALLED": 1})


async def test_a_refused_write_leaves_nothing_and_cannot_be_swallowed(world: World) -> None:
    claimed = await world.begin_run()
    await world.lose()
    recorder = world.lifecycle.recorder(claimed.fence)
    swallowed = False

    async def careless_agent() -> None:
        nonlocal swallowed
        try:
            await recorder.write(lambda tx, run: tx.change(Table.RUNS, {"id": run.id}, {"line": "late"}))
        except Exception:
            swallowed = True

    with pytest.raises(LeaseLost):
        await careless_agent()
    assert not swallowed
    assert (await world.run(claimed.run.id)).line is None


async def test_the_counts_of_retries_are_kept_with_the_run(world: World) -> None:
    claimed = await world.begin_run()
    await world.lifecycle.note_tries(claimed.fence, {"MODEL_BAD_RESPONSE": 2})
    assert (await world.run(claimed.run.id)).tries == {"MODEL_BAD_RESPONSE": 2}


# --- wake-ups


async def test_every_change_wakes_whom_it_concerns_after_the_commit(world: World) -> None:
    def woken() -> set[str]:
        topics = set(world.wakeups.topics)
        world.wakeups.topics.clear()
        return topics

    person = f"user:{USER}"
    posted = await world.post("hello")
    assert posted.run is not None
    assert woken() >= {person, WORK}
    claimed = await world.claim()
    assert woken() == {person}
    await world.cancel(posted.run.id)
    assert woken() == {person, run_topic(posted.run.id)}
    await world.post("next", posted.conversation["id"])
    assert woken() == {person}
    await world.lifecycle.end_stopped(claimed.fence, forced=False, unknown_calls=(), document=None)
    assert woken() >= {person, WORK}


# --- parking


async def test_a_parked_run_shows_its_question_and_gives_its_owner_free(world: World) -> None:
    claimed = await world.begin_run()
    call: dict[str, Any] = {
        "kind": "approval",
        "tool": "mail",
        "tool_call_id": "c1",
        "arguments": {"to": "bob"},
    }
    parked = Parked(Reason.APPROVAL_REQUIRED, (call, {"kind": "question", "prompt": "sure?"}))
    run = await world.lifecycle.end_attempt(claimed.fence, parked, None)
    assert run.wait is not None and run.wait.reason == "input"
    opened = await world.events(type="request.opened")
    assert [event["payload"]["request"]["kind"] for event in opened] == ["approval", "question"]
    assert opened[0]["payload"]["request"]["arguments_sha256"]
    last = (await world.events(run_id=run.id))[-1]
    assert len(last["payload"]["requests"]) == 2
    items, _ = await world.lifecycle.conversations(USER, 10, None)
    assert items[0]["open_requests"] == 2
    assert items[0]["status"] == "waiting_input"
    await world.cancel(run.id)
    closed = await world.events(type="request.closed")
    assert [event["payload"]["request"]["status"] for event in closed] == ["void", "void"]
    await check_invariants(world)


async def test_a_run_parks_on_at_least_one_request(world: World) -> None:
    claimed = await world.begin_run()
    with pytest.raises(ValueError):
        await world.lifecycle.end_attempt(claimed.fence, Parked(Reason.QUESTION_ASKED, ()), None)
    assert (await world.run(claimed.run.id)).status is RunStatus.RUNNING


async def test_parking_while_a_stop_is_accepted_ends_the_run_instead(world: World) -> None:
    claimed = await world.begin_run()
    await world.cancel(claimed.run.id)
    end = await world.lifecycle.end_attempt(claimed.fence, QUESTION, None)
    assert end.status is RunStatus.CANCELLED
    assert await world.rows(Table.REQUESTS) == []
