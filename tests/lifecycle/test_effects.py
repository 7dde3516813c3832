"""Calls of agents outside in the journal: begun once, told once, asked about where nobody knows."""

from __future__ import annotations

import pytest

from dromos.domain.effects import ReplayClass, ToolPolicy, ToolRule, adapter_call_key
from dromos.domain.errors import IdempotencyKeyReused, InvalidTransition, OwnershipLost, RunNotActive
from dromos.domain.reasons import Reason
from dromos.domain.statuses import RunStatus, Verdict
from dromos.lifecycle.adapters import SessionClaim
from dromos.lifecycle.contract import Policy
from dromos.ports.store import Store, Table
from tests.lifecycle.session import Session, result, said, silent_for
from tests.lifecycle.world import World, check_invariants


async def taken_over(world: World, session: Session) -> SessionClaim:
    """The adapter was silent for too long; its run is claimed anew."""
    await silent_for(world, 31)
    await world.lifecycle.sweep()
    await world.store.write(lambda tx: tx.change(Table.RUNS, {}, {"not_before": None}))
    return await session.take()


async def test_a_call_is_made_once_and_its_repeat_is_told_what_came_of_it(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    told = await session.effect(claim, "intent", "c1")
    run = claim.run
    key = adapter_call_key(run.conversation_id, run.trigger_message_id or "", "c1")
    assert (told["state"], told["key"], told["outcome"]) == ("make", key, None)
    outcome = {"text": "sent", "result": {"id": 7}}
    for _ in range(2):
        stored = await session.effect(claim, "outcome", "c1", **outcome)
        assert stored["outcome"] == {"text": "sent", "is_error": False, "structured": {"id": 7}}
    again = await session.effect(claim, "intent", "c1")
    assert (again["state"], again["outcome"]["structured"]) == ("done", {"id": 7})

    later = await taken_over(world, session)
    again = await session.effect(later, "intent", "c1")
    assert (again["state"], again["key"], again["outcome"]["text"]) == ("done", key, "sent")
    with pytest.raises(OwnershipLost):
        await session.effect(claim, "intent", "c2")
    await session.end(later, answer="done")
    with pytest.raises(RunNotActive):
        await session.effect(later, "intent", "c3")
    await check_invariants(world)


async def test_a_keyed_call_is_made_again_under_its_key_after_a_crash_and_an_unsafe_one_is_not(
    world: World,
) -> None:
    session = Session(world)
    claim = await session.begin()
    keyed = await session.effect(claim, "intent", "k", replay="keyed")
    await session.effect(claim, "intent", "u")
    later = await taken_over(world, session)

    again = await session.effect(later, "intent", "k", replay="keyed")
    assert (again["state"], again["key"]) == ("make", keyed["key"])
    unknown = await session.effect(later, "intent", "u")
    assert (unknown["state"], unknown["outcome"]) == ("unknown", None)
    assert (await world.run(later.run.id)).status is RunStatus.RUNNING


@pytest.mark.parametrize("verdict", [Verdict.RETRY, Verdict.MARK_DONE, Verdict.SKIP])
async def test_a_call_of_which_nobody_knows_is_asked_about_and_goes_as_the_person_says(
    world: World, verdict: Verdict
) -> None:
    session = Session(world)
    await session.effect(await session.begin(), "intent", "u")
    claim = await taken_over(world, session)

    parked = await session.effect(claim, "intent", "u", ask=True)

    assert (parked["state"], parked["run"]["status"]) == ("parked", "waiting_input")
    assert parked["run"]["reason"] == Reason.TOOL_OUTCOME_UNKNOWN
    (shown,) = parked["requests"]
    assert (shown["kind"], shown["tool"], shown["arguments"]) == (
        "tool_outcome_unknown",
        "send_mail",
        {"to": "anna"},
    )
    with pytest.raises(OwnershipLost):
        await session.effect(claim, "outcome", "u", text="late")
    (question,) = await world.rows(Table.REQUESTS)
    await world.decide(question, verdict, "by hand" if verdict is Verdict.MARK_DONE else None)
    back = await session.take()
    told = await session.effect(back, "intent", "u", ask=True)
    if verdict is Verdict.RETRY:
        assert told["state"] == "make"
        await session.effect(back, "outcome", "u", text="sent")
    else:
        assert told["state"] == "done"
        assert told["outcome"]["is_error"] is (verdict is Verdict.SKIP)
        assert ("by hand" in told["outcome"]["text"]) is (verdict is Verdict.MARK_DONE)
    await session.end(back, answer="done")
    await check_invariants(world)


async def test_a_word_on_a_call_waits_for_the_call_though_another_question_comes_first(world: World) -> None:
    session = Session(world)
    await session.effect(await session.begin(), "intent", "u")
    claim = await taken_over(world, session)
    await session.effect(claim, "intent", "u", ask=True)
    (question,) = await world.rows(Table.REQUESTS)
    await world.decide(question, Verdict.RETRY)

    claim = await session.take()
    await session.park(claim)
    (open_one,) = await world.rows(Table.REQUESTS, status="open")
    await world.decide(open_one, Verdict.ANSWER, "this one")
    claim = await session.take()
    assert (await session.effect(claim, "intent", "u"))["state"] == "make"


async def test_a_call_id_belongs_to_one_call_of_its_turn(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.effect(claim, "intent", "c1")
    for other in ({"arguments": {"to": "berta"}}, {"tool": "pay"}):
        with pytest.raises(IdempotencyKeyReused):
            await session.effect(claim, "intent", "c1", **other)
    await session.effect(claim, "outcome", "c1", text="sent")
    await session.end(claim, answer="done")

    next_turn = await session.begin("again", claim.run.conversation_id)
    assert (await session.effect(next_turn, "intent", "c1"))["state"] == "make"


async def test_an_outcome_needs_an_intent_of_its_attempt_and_is_told_once(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    with pytest.raises(InvalidTransition):
        await session.effect(claim, "outcome", "c1", text="sent")
    await session.effect(claim, "intent", "c1", replay="keyed")
    await session.effect(claim, "outcome", "c1", text="sent")
    with pytest.raises(InvalidTransition):
        await session.effect(claim, "outcome", "c1", text="something else")
    await session.effect(claim, "intent", "c2", replay="keyed")
    later = await taken_over(world, session)
    with pytest.raises(InvalidTransition):
        await session.effect(later, "outcome", "c2", text="sent")


async def test_while_the_run_is_stopped_outcomes_are_taken_and_no_call_is_begun(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.effect(claim, "intent", "c1")
    await world.lifecycle.request_cancel(claim.run.user_id, claim.run.id)
    with pytest.raises(InvalidTransition):
        await session.effect(claim, "intent", "c2")
    stored = await session.effect(claim, "outcome", "c1", text="sent")
    assert stored["state"] == "done"
    assert (await session.end(claim, "cancelled"))["status"] == "cancelled"
    await check_invariants(world)


async def test_continue_after_a_crash_goes_on_with_the_same_calls(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.effect(claim, "intent", "c1")
    await session.effect(claim, "outcome", "c1", text="sent")
    await session.end(claim, "failed", error_message="no luck")
    await world.resume(claim.run.conversation_id)
    again = await session.take()
    assert again.run.resume_of == claim.run.id
    told = await session.effect(again, "intent", "c1")
    assert (told["state"], told["outcome"]["text"]) == ("done", "sent")


@pytest.mark.parametrize("verdict", [Verdict.APPROVE, Verdict.DENY])
async def test_a_call_that_configuration_wants_leave_for_is_asked_about_first(
    store: Store, verdict: Verdict
) -> None:
    def rule(tool: str, own: ReplayClass) -> ToolRule:
        return ToolRule(ToolPolicy.DENY if tool == "wipe" else ToolPolicy.ASK, own)

    policy = Policy(tool_rule=rule, approval_expires=3600.0)
    world = await World(store, policy).begin()
    session = Session(world)
    claim = await session.begin()
    refused = await session.effect(claim, "intent", "w", tool="wipe")
    assert (refused["state"], refused["outcome"]["is_error"]) == ("done", True)
    assert (await session.effect(claim, "intent", "c1"))["state"] == "ask"
    parked = await session.effect(claim, "intent", "c1", ask=True)
    assert (parked["state"], parked["run"]["reason"]) == ("parked", Reason.APPROVAL_REQUIRED)
    (question,) = await world.rows(Table.REQUESTS)
    assert (question["kind"], question["on_timeout"]) == ("approval", "deny")
    assert question["expires_at"] is not None
    await world.decide(question, verdict)
    back = await session.take()
    told = await session.effect(back, "intent", "c1")
    if verdict is Verdict.APPROVE:
        assert told["state"] == "make"
        await session.effect(back, "outcome", "c1", text="sent")
    else:
        assert (told["state"], told["outcome"]["is_error"]) == ("done", True)
        assert "denied by a person" in told["outcome"]["text"]
    await session.end(back, answer="done")
    await check_invariants(world)


async def test_a_result_is_taken_from_the_turn_that_made_the_call_though_ids_come_again(world: World) -> None:
    session = Session(world)
    first = await session.begin()
    for call_id in ("c1", "c2"):
        await session.effect(first, "intent", call_id)
        await session.effect(first, "outcome", call_id, text=f"{call_id} of the first turn")
    await session.messages(first, said("one", "c1"), result("c1"))
    await session.end(first, answer="done")
    second = await session.begin("more", first.run.conversation_id)
    await session.messages(second, said("two", "c1", "c2"))
    await session.effect(second, "intent", "c1", arguments={"to": "bob"})
    await session.effect(second, "outcome", "c1", text="c1 of the second turn")

    await world.cancel(second.run.id)
    await session.end(second, "cancelled")

    results = {
        row["tool_call_id"]: row["content"]
        for row in await world.history(second.run.conversation_id)
        if row["role"] == "tool" and row["run_id"] == second.run.id
    }
    assert results == {"c1~2": "c1 of the second turn", "c2": "cancelled by the person"}
    await check_invariants(world)


async def test_a_look_at_a_call_that_nobody_allowed_takes_no_leave_away(store: Store) -> None:
    """Only the question that is asked anew makes an earlier word void."""
    world = await World(store, Policy(tool_rule=lambda tool, own: ToolRule(ToolPolicy.ASK, own))).begin()
    session = Session(world)
    await session.effect(await session.begin(), "intent", "c1", ask=True)
    (question,) = await world.rows(Table.REQUESTS)
    await world.decide(question, Verdict.APPROVE)
    back = await session.take()

    other = await session.effect(back, "intent", "c1", arguments={"to": "bob"})

    assert other["state"] == "ask"
    (kept,) = await world.rows(Table.REQUESTS)
    assert kept["status"] == "decided"
    assert (await session.effect(back, "intent", "c1"))["state"] == "make"
