"""Questions to a person: decided once, timed out by policy, void at the end, handed on until they are consumed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from dromos.domain.errors import (
    AlreadyDecided,
    Invalid,
    LeaseLost,
    NotFound,
    Refusal,
    RequestClosed,
    VersionConflict,
)
from dromos.domain.machine import Supersede
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.statuses import OnTimeout, RequestStatus, RunStatus, Verdict, WhenBusy
from dromos.lifecycle import requests
from dromos.lifecycle.contract import IdempotencyKey, RunOptions
from dromos.ports.agent import Decided, Drained, Finished, Parked
from dromos.ports.store import Row, Table
from tests.lifecycle.world import OWNER, USER, World, check_invariants

APPROVE, DENY, ANSWER = Verdict.APPROVE, Verdict.DENY, Verdict.ANSWER
CALL: dict[str, Any] = {
    "kind": "approval",
    "tool": "mail__send",
    "tool_call_id": "c1",
    "arguments": {"to": "bob", "text": "hello"},
}
WHICH: dict[str, Any] = {"kind": "question", "prompt": "Which account?"}


async def parked(world: World, *questions: dict[str, Any]) -> list[Row]:
    return await world.park(await world.begin_run(), *questions)


async def status_events(world: World, run_id: str) -> list[Row]:
    return await world.events(run_id=run_id, type="run.status")


# --- deciding


async def test_the_last_decision_puts_the_run_back_into_the_queue_in_its_own_transaction(
    world: World,
) -> None:
    (question,) = await parked(world, WHICH)
    request, run = await world.decide(question, ANSWER, "savings")
    assert (request["status"], request["decided_by"], request["version"]) == ("decided", USER, 2)
    assert request["decision"] == {"decision": "answer", "answer": "savings", "comment": None}
    assert (run.status, run.reason, run.wait) == (RunStatus.QUEUED, Reason.DECISION_RECORDED, None)
    told = (await world.events(run_id=run.id))[-3:]
    assert [event["type"] for event in told] == ["request.closed", "message.updated", "run.status"]
    again = await world.claim()
    assert again.run.reason is Reason.INPUT_RECEIVED
    assert again.decisions == (
        Decided(question["id"], "question", ANSWER, answer="savings", prompt="Which account?"),
    )
    await check_invariants(world)


async def test_a_run_waits_until_every_question_is_decided_each_on_its_own(world: World) -> None:
    call, question = await parked(world, CALL, WHICH)
    before = await world.run(call["run_id"])
    _, run = await world.decide(question, DENY)
    assert run.status is RunStatus.WAITING_INPUT
    assert run.version > before.version, "what devices show of it has changed"
    last = (await status_events(world, run.id))[-1]["payload"]
    assert last["run"]["version"] == run.version
    assert [one["id"] for one in last["requests"]] == [call["id"]]
    _, shown, _ = await world.lifecycle.document(USER, run.id)
    assert [one["id"] for one in shown["requests"]] == [call["id"]]
    assert shown["run_version"] == run.version
    await check_invariants(world)
    _, run = await world.decide(call, APPROVE)
    assert run.status is RunStatus.QUEUED
    again = await world.claim()
    assert [(one.request_id, one.decision, one.tool_call_id) for one in again.decisions] == [
        (call["id"], APPROVE, "c1"),
        (question["id"], DENY, None),
    ]
    assert again.decisions[0].arguments == CALL["arguments"]


async def test_a_second_word_is_refused_with_who_what_and_when_and_the_same_word_is_taken_again(
    world: World,
) -> None:
    (call,) = await parked(world, CALL)
    decided, _ = await world.decide(call, APPROVE)
    same, run = await world.decide(call, APPROVE)
    assert (same["version"], run.status) == (2, RunStatus.QUEUED)
    with pytest.raises(AlreadyDecided, match=f"{USER} approved this at 20") as refused:
        await world.decide(call, DENY)
    shown = refused.value.current["request"]
    assert (shown["decided_by"], shown["decision"]["decision"]) == (USER, "approve")
    assert shown["decided_at"] is not None and decided["decided_at"] is not None
    assert refused.value.current["run"]["status"] == "queued"
    assert len(await world.events(type="request.closed")) == 1


async def test_of_many_at_once_one_decides(world: World) -> None:
    (call,) = await parked(world, CALL)

    async def say(number: int) -> str:
        try:
            await world.decide(call, APPROVE if number % 2 else DENY, comment=f"{number}")
        except AlreadyDecided:
            return "late"
        return "taken"

    said = await asyncio.gather(*(say(number) for number in range(20)))
    (row,) = await world.rows(Table.REQUESTS)
    winners = [number for number, told in enumerate(said) if told == "taken"]
    assert winners == [int(row["comment"])]  # the same word with another comment is another decision
    assert len(await world.events(type="request.closed")) == 1
    run = await world.run(call["run_id"])
    assert (run.status, run.version) == (RunStatus.QUEUED, 4)
    await check_invariants(world)


@pytest.mark.parametrize(
    ("seen", "said", "code", "place"),
    [
        ({"request_version": 7}, APPROVE, "version_conflict", None),
        ({"arguments_sha256": None}, APPROVE, "version_conflict", None),
        ({"arguments_sha256": "0" * 64}, DENY, "version_conflict", None),
        ({}, ANSWER, "validation_failed", "/decision"),
    ],
)
async def test_a_decision_names_what_was_seen_and_says_what_may_be_said(
    world: World, seen: dict[str, Any], said: Verdict, code: str, place: str | None
) -> None:
    (call,) = await parked(world, CALL)
    with pytest.raises(Refusal) as refused:
        await world.decide(call, said, **seen)
    assert refused.value.code == code
    assert [fault.path for fault in refused.value.faults] == ([place] if place else [])
    assert refused.value.current["request"]["version"] == 1
    assert (await world.run(call["run_id"])).status is RunStatus.WAITING_INPUT
    assert await world.events(type="request.closed") == []


@pytest.mark.parametrize(
    ("asked", "answer", "fits"),
    [
        ({}, "anything", True),
        ({}, {"a": [1]}, True),
        ({}, None, False),
        ({"options": ["red", "blue"]}, "blue", True),
        ({"options": ["red", "blue"]}, "green", False),
        ({"options": [{"value": 1, "label": "one"}]}, 1, True),
        ({"options": [{"value": 1, "label": "one"}]}, "one", False),
        ({"answer_schema": {"type": "integer", "minimum": 3}}, 3, True),
        ({"answer_schema": {"type": "integer", "minimum": 3}}, 2, False),
        ({"answer_schema": {"type": ["string", "null"]}}, None, True),
        ({"answer_schema": {"type": "string"}, "options": ["red"]}, "green", True),
    ],
)
async def test_an_answer_fits_its_options_or_its_schema(
    world: World, asked: dict[str, Any], answer: Any, fits: bool
) -> None:
    (question,) = await parked(world, WHICH | asked)
    if fits:
        request, _ = await world.decide(question, ANSWER, answer)
        assert request["decision"]["answer"] == answer
    else:
        with pytest.raises(Invalid) as refused:
            await world.decide(question, ANSWER, answer)
        assert [fault.path for fault in refused.value.faults] == ["/answer"]


async def test_nobody_elses_question_is_found_nor_one_of_a_conversation_that_is_erased(world: World) -> None:
    (question,) = await parked(world)
    await world.lifecycle.ensure_user("bob", "Bob")
    for user, request_id in (("bob", question["id"]), (USER, question["run_id"])):
        with pytest.raises(NotFound):
            await world.lifecycle.request(user, request_id)
    with pytest.raises(NotFound):
        await world.decide(question, DENY, user="bob")
    assert await world.lifecycle.requests("bob", 10, None) == ([], None)
    assert await world.lifecycle.delete_conversation(USER, question["conversation_id"])
    with pytest.raises(NotFound):
        await world.decide(question, DENY)
    assert await world.rows(Table.REQUESTS) == []


async def test_a_decision_with_a_key_is_answered_alike_to_each_repeat(world: World) -> None:
    (question,) = await parked(world, WHICH)
    key = IdempotencyKey("POST /v1/requests/{request_id}/decision", "k1", "digest")
    await world.decide(question, ANSWER, "savings", key=key)
    again = await world.claim()
    await world.lifecycle.end_attempt(again.fence, Finished(), None)
    await world.decide(question, ANSWER, "savings", key=key)
    stored = await world.rows(Table.IDEMPOTENCY, key="k1")
    assert [row["answer"] for row in stored] == ['["decided","queued"]']


@pytest.mark.case("P46")
async def test_a_question_is_answerable_for_days_and_lists_page_over_all_conversations(world: World) -> None:
    asked = [(await parked(world, WHICH))[0] for _ in range(5)]
    long_ago = asked[0]["opened_at"] - timedelta(days=7)
    where = {"id": asked[0]["id"]}
    await world.store.write(lambda tx: tx.change(Table.REQUESTS, where, {"opened_at": long_ago}))
    assert await world.lifecycle.sweep() == 0
    first, cursor = await world.lifecycle.requests(USER, 2, None)
    await world.decide(asked[1], DENY)  # what is answered meanwhile shifts nothing
    rest, end = await world.lifecycle.requests(USER, 10, cursor)
    assert [row["id"] for row in [*first, *rest]] == [row["id"] for row in asked]
    assert end is None
    _, run = await world.decide(asked[0], ANSWER, "at last")
    assert run.status is RunStatus.QUEUED
    with pytest.raises(Invalid):
        await world.lifecycle.requests(USER, 2, "no such cursor")


# --- too late


async def expire(world: World, *requests: Row) -> None:
    """Their time is over, by the database's clock."""
    for request in requests:
        where = {"id": request["id"]}
        await world.store.write(
            lambda tx, where=where: tx.change(Table.REQUESTS, where, {"expires_at": tx.now()})
        )  # type: ignore[misc]


async def test_an_answer_is_too_late_from_its_moment_on_also_before_the_sweep(world: World) -> None:
    (question,) = await parked(world, WHICH | {"expires_in_s": 3600})
    await expire(world, question)
    with pytest.raises(RequestClosed, match="was over at"):
        await world.decide(question, ANSWER, "too late")
    assert await world.lifecycle.sweep() == 1
    with pytest.raises(RequestClosed):
        await world.decide(question, ANSWER, "too late")
    run = await world.run(question["run_id"])
    assert (run.status, run.reason) == (RunStatus.EXPIRED, Reason.INPUT_DEADLINE)
    await check_invariants(world)


@pytest.mark.case("P46")
@pytest.mark.parametrize(
    ("asked", "policy", "default", "decision"),
    [
        (CALL, OnTimeout.DENY, None, {"decision": "deny", "comment": "nobody answered in time"}),
        (CALL, OnTimeout.DEFAULT, {"decision": "approve"}, {"decision": "approve"}),
        (WHICH, OnTimeout.DEFAULT, {"decision": "answer", "answer": "savings"}, {"answer": "savings"}),
    ],
)
async def test_a_policy_answers_where_nobody_did_and_the_run_goes_on(
    world: World, asked: dict[str, Any], policy: OnTimeout, default: Any, decision: dict[str, Any]
) -> None:
    how = {"expires_in_s": 60, "on_timeout": policy.value, "default": default}
    (request,) = await parked(world, asked | how)
    await expire(world, request)
    assert await world.lifecycle.sweep() == 1
    (row,) = await world.rows(Table.REQUESTS)
    assert row["status"] == RequestStatus.DECIDED
    assert row["decided_by"] == "policy"
    assert decision.items() <= row["decision"].items()
    run = await world.run(request["run_id"])
    assert (run.status, run.reason) == (RunStatus.QUEUED, Reason.DEFAULT_DECISION)
    assert len(await world.events(type="request.closed")) == 1
    with pytest.raises(AlreadyDecided, match="The policy"):
        await world.decide(row, DENY, request_version=1)
    assert (await world.claim()).decisions[0].decision == row["decision"]["decision"]


async def test_one_question_that_ends_the_run_in_time_voids_the_others(world: World) -> None:
    one, two, three = await parked(
        world,
        WHICH | {"expires_in_s": 60, "on_timeout": "deny"},
        CALL | {"expires_in_s": 60},
        WHICH,
    )
    await expire(world, one, two)
    assert await world.lifecycle.sweep() == 1
    rows = await world.rows(Table.REQUESTS)
    assert [row["status"] for row in rows] == ["void", "expired", "void"]
    closed = await world.events(type="request.closed")
    assert [event["payload"]["request"]["id"] for event in closed] == [two["id"], one["id"], three["id"]]
    assert (await world.run(one["run_id"])).status is RunStatus.EXPIRED
    await check_invariants(world)


async def test_a_policy_that_answers_one_of_two_leaves_the_run_waiting(world: World) -> None:
    one, two = await parked(world, WHICH | {"expires_in_s": 60, "on_timeout": "deny"}, CALL)
    await expire(world, one)
    assert await world.lifecycle.sweep() == 1
    assert await world.lifecycle.sweep() == 0
    _, run = await world.decide(two, APPROVE)
    assert (run.status, run.reason) == (RunStatus.QUEUED, Reason.DECISION_RECORDED)
    await check_invariants(world)


# --- void


@pytest.mark.parametrize("end", ["cancel", "supersede", "interrupt", "deadline"])
async def test_every_end_voids_what_is_open_and_what_was_decided_for_nobody(world: World, end: str) -> None:
    posted = await world.post("one", options=RunOptions(deadline_s=3600))
    claimed = await world.claim()
    open_one, decided = await world.park(claimed, CALL, WHICH)
    await world.decide(decided, ANSWER, "savings")
    run_id = claimed.run.id
    if end == "cancel":
        await world.cancel(run_id)
    elif end == "supersede":
        await world.command(run_id, Supersede())
    elif end == "interrupt":
        await world.post("instead", posted.conversation["id"], when_busy=WhenBusy.INTERRUPT)
    else:
        where = {"id": run_id}
        await world.store.write(lambda tx: tx.change(Table.RUNS, where, {"deadline_at": tx.now()}))
        assert await world.lifecycle.sweep() == 1
    assert {row["status"] for row in await world.rows(Table.REQUESTS)} == {"void"}
    with pytest.raises(RequestClosed, match="no longer asked"):
        await world.decide(open_one, APPROVE)
    assert await world.lifecycle.requests(USER, 10, None) == ([], None)
    told = await world.events(run_id=run_id)
    closed = [event["payload"]["request"] for event in told if event["type"] == "request.closed"]
    assert [(one["id"], one["status"]) for one in closed] == [
        (decided["id"], "decided"),
        (open_one["id"], "void"),
    ]
    await check_invariants(world)


async def test_a_message_while_a_question_is_open_waits_and_neither_answers_nor_drops_it(
    world: World,
) -> None:
    (question,) = await parked(world, WHICH)
    posted = await world.post("savings", question["conversation_id"])
    assert posted.run is None and posted.followup is not None
    assert (await world.rows(Table.REQUESTS))[0]["status"] == "open"
    _, run = await world.decide(question, ANSWER, "savings")
    assert run.status is RunStatus.QUEUED
    again = await world.claim()
    await world.lifecycle.end_attempt(again.fence, Finished(), None)
    newest = (await world.runs_of(question["conversation_id"]))[-1]
    assert newest.reason is Reason.CREATED_FROM_FOLLOWUP


# --- handed on until consumed


async def test_a_decision_is_handed_to_each_claim_until_one_says_that_it_is_consumed(world: World) -> None:
    (question,) = await parked(world, WHICH)
    await world.decide(question, ANSWER, "savings")
    first = await world.claim()
    assert len(first.decisions) == 1
    await world.lose()
    second = await world.claim()
    assert second.decisions == first.decisions
    recorder = world.lifecycle.recorder(second.fence)
    ids = [question["id"]]
    assert await recorder.write(lambda tx, run: requests.consume(tx, run, ids)) == 1
    assert await recorder.write(lambda tx, run: requests.consume(tx, run, ids)) == 0
    (row,) = await world.rows(Table.REQUESTS)
    assert (row["status"], row["consumed_epoch"]) == ("consumed", second.run.epoch)
    await world.lifecycle.end_attempt(second.fence, Drained(), None)
    third = await world.claim()
    assert third.decisions == ()
    await world.lifecycle.end_attempt(third.fence, Finished(), None)
    assert (await world.rows(Table.REQUESTS))[0]["status"] == "consumed"
    with pytest.raises(AlreadyDecided):
        await world.decide(question, DENY)
    same, _ = await world.decide(question, ANSWER, "savings")
    assert same["status"] == "consumed"


async def test_an_owner_that_lost_its_run_consumes_nothing(world: World) -> None:
    (question,) = await parked(world, WHICH)
    await world.decide(question, ANSWER, "savings")
    stale = await world.claim()
    await world.lose()
    recorder = world.lifecycle.recorder(stale.fence)
    with pytest.raises(LeaseLost):
        await recorder.write(lambda tx, run: requests.consume(tx, run, [question["id"]]))
    assert (await world.rows(Table.REQUESTS))[0]["status"] == "decided"


async def test_asking_anew_voids_the_decision_that_could_not_be_used(world: World) -> None:
    (question,) = await parked(world, WHICH)
    await world.decide(question, ANSWER, "no such account")
    again = await world.claim(OWNER)
    (second,) = await world.park(again, WHICH | {"replaces": question["id"]})
    assert second["replaces"] == question["id"]
    first = (await world.rows(Table.REQUESTS, id=question["id"]))[0]
    assert (first["status"], first["decision"]["answer"]) == ("void", "no such account")
    await world.decide(second, ANSWER, "savings")
    assert [one.request_id for one in (await world.claim()).decisions] == [second["id"]]
    await check_invariants(world)


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ({"kind": "riddle"}, "/requests/1/kind"),
        (WHICH | {"options": []}, "/requests/1/options"),
        (WHICH | {"answer_schema": {"type": "nonsense"}}, "/requests/1/answer_schema"),
        (WHICH | {"answer_schema": {"$ref": "https://example.org/x"}}, "/requests/1/answer_schema"),
        (WHICH | {"on_timeout": "deny"}, "/requests/1/on_timeout"),
        (WHICH | {"expires_in_s": 60, "on_timeout": "default"}, "/requests/1/default"),
        (
            WHICH | {"expires_in_s": 60, "on_timeout": "default", "default": {"decision": "approve"}},
            "/requests/1/default/decision",
        ),
        (WHICH | {"expires_in_s": -1}, "/requests/1/expires_in_s"),
        (
            WHICH | {"decisions": ["answer"], "expires_in_s": 60, "on_timeout": "deny"},
            "/requests/1/on_timeout",
        ),
        (WHICH | {"prompt": "x" * 20_000}, "/requests/1/prompt"),
    ],
)
async def test_what_cannot_be_asked_ends_the_run_and_says_why(
    world: World, asked: dict[str, Any], place: str
) -> None:
    claimed = await world.begin_run()
    outcome = Parked(Reason.QUESTION_ASKED, (WHICH, asked))
    run = await world.lifecycle.end_attempt(claimed.fence, outcome, None)
    assert (run.status, run.error_code) == (RunStatus.FAILED, ErrorCode.AGENT_FAILURE)
    assert place in (run.error_message or "")
    assert await world.rows(Table.REQUESTS) == []
    await check_invariants(world)


async def test_a_question_may_narrow_what_can_be_said(world: World) -> None:
    (question,) = await parked(world, WHICH | {"decisions": ["answer"]})
    with pytest.raises(Invalid, match="takes answer"):
        await world.decide(question, DENY)
    with pytest.raises(VersionConflict):
        await world.decide(question, ANSWER, "x", request_version=2)
    await world.decide(question, ANSWER, "savings")
