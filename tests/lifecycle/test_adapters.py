"""Owners outside of this process: they claim by person and name, write by token, and leave the history in order."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dromos.domain.effects import NO_RESULT
from dromos.domain.errors import (
    IdempotencyKeyReused,
    Invalid,
    InvalidTransition,
    OtherRun,
    OwnershipLost,
    Refusal,
    RunNotActive,
    UnknownToken,
    VersionConflict,
)
from dromos.domain.machine import Supersede
from dromos.domain.reasons import Reason
from dromos.domain.runs import Fence
from dromos.domain.statuses import OwnerKind, RunStatus, Verdict, WhenBusy
from dromos.lifecycle import adapters, reports
from dromos.lifecycle.adapters import SessionClaim
from dromos.ports.agent import Finished
from dromos.ports.live import DocumentSnapshot
from dromos.ports.store import Table, Tx
from tests.lifecycle.session import Json, Session, result, said, silent_for
from tests.lifecycle.world import OWNER, USER, World, check_invariants, open_calls


async def shown(world: World, claim: SessionClaim, text: str, message_id: str = "live-1") -> None:
    """The document of the run shows this text, as a patch would have left it."""
    part = {"message_id": message_id, "length": len(text), "content": text}
    snapshot = DocumentSnapshot(claim.run.id, (claim.run.epoch << 32) + 1, {"text": part})
    await world.lifecycle.save_document(Fence(claim.run.id, claim.run.epoch), snapshot)


async def words(world: World, conversation_id: str) -> list[tuple[str, Any]]:
    rows = await world.history(conversation_id)
    return [(row["role"], row["content"]) for row in rows if row["kind"] != "run"]


# --- claiming


async def test_a_claim_takes_the_oldest_run_and_brings_what_its_agent_needs(world: World) -> None:
    session = Session(world)
    posted = await world.post("first")
    await world.post("second")
    claim = await session.take()
    assert posted.run is not None
    assert claim.run.id == posted.run.id
    assert (claim.run.status, claim.run.epoch, claim.run.attempt) == (RunStatus.RUNNING, 1, 1)
    assert (claim.run.owner_id, claim.run.owner_kind) == ("session-1", OwnerKind.ADAPTER)
    assert (claim.input, claim.history, claim.progress) == ("first", [], [])
    assert (claim.decisions, claim.session_id) == ((), None)
    assert claim.run.renewed_at is not None
    assert claim.lease_until - claim.run.renewed_at == timedelta(seconds=30)
    await check_invariants(world)


async def test_a_session_gets_its_own_persons_runs_of_the_agents_it_names_and_no_others(world: World) -> None:
    await world.lifecycle.ensure_user("bob", "Bob")
    await world.post("private", user="bob")
    assert await Session(world).claim() is None
    assert await Session(world, user="bob", agents=("writer",)).claim() is None
    assert (await Session(world, user="bob").take()).input == "private"


async def test_a_worker_leaves_the_agents_of_adapters_alone_and_their_runs_wait(world: World) -> None:
    posted = await world.post("hello")
    assert posted.run is not None
    assert await world.lifecycle.claim(OWNER, None, 8, without=["assistant"]) == []
    assert (await world.run(posted.run.id)).status is RunStatus.QUEUED
    assert (await Session(world).take()).run.id == posted.run.id


async def test_runs_whose_last_owner_was_this_session_come_first_where_it_asks_so(world: World) -> None:
    one, two = Session(world, "one"), Session(world, "two")
    mine = await one.begin("mine")
    await one.park(mine)
    older = await two.begin("older")
    await two.park(older)
    other = await world.post("never claimed")
    for run in (mine.run, older.run):
        (question,) = await world.rows(Table.REQUESTS, run_id=run.id)
        await world.decide(question, Verdict.ANSWER, "this one")
    first = await two.take(own_first=True)
    assert first.run.id == older.run.id
    rest = [(await two.take(own_first=True)).run.id for _ in range(2)]
    assert other.run is not None
    assert rest == [mine.run.id, other.run.id], "then the oldest"


async def test_of_two_sessions_that_race_for_one_run_one_gets_it(world: World) -> None:
    await world.post("one for all")
    claims = await asyncio.gather(*(Session(world, f"session-{number}").claim() for number in range(6)))
    won = [claim for claim in claims if claim is not None]
    assert len(won) == 1
    assert (await world.run(won[0].run.id)).attempt == 1


async def test_a_claim_whose_answer_was_lost_is_repeated_with_its_key_and_gets_the_same_run_and_token(
    world: World,
) -> None:
    session = Session(world)
    await world.post("one")
    await world.post("two")
    first = await session.take(key="k1")
    again = await session.take(key="k1")
    assert (again.run.id, again.token, again.input) == (first.run.id, first.token, "one")
    assert (await world.run(first.run.id)).attempt == 1
    await session.renew(again)
    other = await session.take(key="k2")
    assert (other.input, other.token == first.token) == ("two", False)
    with pytest.raises(IdempotencyKeyReused):
        await session.claim(key="k1", body='{"wait_s": 30}')
    assert await Session(world, "another session").claim(key="k1") is None, "a key is its session's"
    await session.end(first)
    ended = await session.take(key="k1")
    assert (ended.run.status, ended.token) == (RunStatus.COMPLETED, first.token)


async def test_the_same_claim_made_twice_at_once_claims_once(world: World) -> None:
    session = Session(world)
    await world.post("one")
    await world.post("two")
    claims = await asyncio.gather(*(session.take(key="same") for _ in range(4)))
    assert len({(claim.run.id, claim.token) for claim in claims}) == 1
    left = await world.store.read(lambda tx: tx.count(Table.RUNS, {"status": "queued"}))
    assert left == 1


async def test_asking_for_a_claim_again_is_a_sign_of_life(world: World) -> None:
    session = Session(world)
    await world.post("one")
    first = await session.take(key="k1")
    await silent_for(world, 29)
    await session.take(key="k1")
    assert await world.lifecycle.sweep() == 0
    assert first.run.renewed_at is not None
    renewed = (await world.run(first.run.id)).renewed_at
    assert renewed is not None
    assert renewed >= first.run.renewed_at


async def test_no_row_of_any_table_holds_a_token_that_can_be_read(world: World) -> None:
    session = Session(world)
    await world.post("one")
    claim = await session.take(key="k1")
    await session.messages(claim, said("here"), key="m1")
    rows = {table: await world.rows(table) for table in Table}
    assert rows[Table.RUN_TOKENS]
    assert claim.token.removeprefix("drt_") not in repr(rows)
    assert claim.token not in repr(rows)
    assert len(claim.token) >= 43, "256 bits"


async def test_whether_a_run_waits_is_seen_without_claiming_it(world: World) -> None:
    ask = adapters.ClaimAsk(USER, ["assistant"], "session-1")
    assert not await world.lifecycle.outside.waiting(ask)
    posted = await world.post("hello")
    assert posted.run is not None
    assert await world.lifecycle.outside.waiting(ask)
    assert not await world.lifecycle.outside.waiting(adapters.ClaimAsk(USER, ["writer"], "session-1"))
    assert not await world.lifecycle.outside.waiting(adapters.ClaimAsk("bob", ["assistant"], "session-1"))

    def later(tx: Tx) -> None:
        tx.change(Table.RUNS, {}, {"not_before": tx.now() + timedelta(hours=1)})

    await world.store.write(later)
    assert not await world.lifecycle.outside.waiting(ask)
    assert (await world.run(posted.run.id)).status is RunStatus.QUEUED


# --- tokens


async def every_call(session: Session, claim: SessionClaim) -> list[type[BaseException] | None]:
    """What each call for the run is refused with; None: it is taken."""
    calls = (
        session.renew(claim),
        session.steps(claim, {"id": "s", "kind": "step", "name": "s", "status": "done"}),
        session.messages(claim, said("late")),
        session.park(claim),
        session.end(claim),
    )
    outcomes: list[type[BaseException] | None] = []
    for call in calls:
        try:
            await call
            outcomes.append(None)
        except Refusal as refusal:
            outcomes.append(type(refusal))
    return outcomes


def with_token(claim: SessionClaim, token: str, run_id: str | None = None) -> SessionClaim:
    return replace(claim, token=token, run=replace(claim.run, id=run_id or claim.run.id))


async def test_every_call_checks_the_token_first_then_the_run_then_the_epoch(world: World) -> None:
    session = Session(world)
    mine, other = await session.begin("one"), await session.begin("two")
    unknown = [UnknownToken] * 5
    assert await every_call(session, with_token(mine, "drt_guessed")) == unknown
    assert await every_call(session, with_token(mine, "")) == unknown
    assert await every_call(session, with_token(mine, "\udcff\x00")) == unknown
    assert await every_call(session, with_token(mine, other.token)) == [OtherRun] * 5
    assert await every_call(session, with_token(mine, mine.token, "no-such-run")) == [OtherRun] * 5
    assert (await world.run(mine.run.id)).version == mine.run.version, "nothing was written"
    await session.end(mine)
    assert await every_call(session, mine) == [RunNotActive] * 5
    assert await every_call(session, with_token(mine, other.token)) == [OtherRun] * 5, "the token comes first"
    await session.park(other)
    assert await every_call(session, other) == [OwnershipLost] * 5
    await check_invariants(world)


async def test_a_refusal_tells_the_run_that_ended(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.end(claim, "failed", error_message="no luck")
    with pytest.raises(RunNotActive) as refused:
        await session.renew(claim)
    assert refused.value.current["run"]["error_message"] == "no luck"


@pytest.mark.case("P74")
async def test_the_next_owners_epoch_shuts_the_last_one_out_while_its_token_still_names_the_run(
    world: World,
) -> None:
    first = await Session(world, "one").begin()
    await silent_for(world, 31)
    await world.lifecycle.sweep()
    second = await Session(world, "two").take()
    assert (second.run.id, second.run.epoch) == (first.run.id, first.run.epoch + 2)
    assert await every_call(Session(world, "one"), first) == [OwnershipLost] * 5
    (old,) = await world.rows(Table.RUN_TOKENS, epoch=first.run.epoch)
    assert old["spent_at"] is not None
    assert (await Session(world, "two").end(second))["status"] == "completed"


async def test_a_spent_token_is_forgotten_after_a_day_and_a_living_one_never(world: World) -> None:
    session = Session(world)
    ended, living = await session.begin("one"), await session.begin("two")
    await session.end(ended)

    def a_day_ago(tx: Tx) -> None:
        then = tx.now() - timedelta(hours=24, seconds=1)
        tx.change(Table.RUN_TOKENS, {}, {"created_at": then})
        tx.change(Table.RUN_TOKENS, {"run_id": ended.run.id}, {"spent_at": then})

    await world.store.write(a_day_ago)
    await world.lifecycle.sweep()
    with pytest.raises(UnknownToken):
        await session.renew(ended)
    await session.renew(living)


async def test_a_run_that_was_erased_leaves_no_token_behind(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    assert not await world.lifecycle.delete_conversation(USER, claim.run.conversation_id)
    assert (await session.renew(claim))["stop"]["cause"] == "cancel_requested"
    assert (await session.end(claim, "cancelled"))["status"] == "cancelled"
    await world.lifecycle.sweep()
    assert await world.rows(Table.RUN_TOKENS) == []
    assert await every_call(session, claim) == [UnknownToken] * 5


# --- keeping a run alive


async def test_a_renewal_says_until_when_and_leaves_the_runs_version_alone(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    before = await world.run(claim.run.id)
    told = await session.renew(claim)
    after = await world.run(claim.run.id)
    assert (told["stop"], told["steer"]) == (None, [])
    assert after.version == before.version
    assert after.renewed_at is not None
    assert told["lease_until"] == (after.renewed_at + timedelta(seconds=30)).isoformat(
        timespec="microseconds"
    ).replace("+00:00", "Z")


async def test_a_renewal_tells_of_a_stop_how_long_there_is_and_that_it_was_heard(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await world.cancel(claim.run.id)
    told = await session.renew(claim)
    assert (told["stop"]["cause"], told["stop"]["by"]) == ("cancel_requested", "user")
    assert 14 < told["stop"]["deadline_s"] <= 15
    heard = await world.run(claim.run.id)
    assert heard.stop is not None
    assert heard.stop.delivered_at is not None
    await session.renew(claim)
    assert (await world.run(claim.run.id)).version == heard.version, "heard once"


@pytest.mark.case("P137")
async def test_a_session_keeps_each_run_alive_by_itself(world: World) -> None:
    session = Session(world)
    kept, forgotten = await session.begin("one"), await session.begin("two")
    await silent_for(world, 31)
    await session.renew(kept)
    await world.lifecycle.sweep()
    assert (await world.run(kept.run.id)).status is RunStatus.RUNNING
    lost = await world.run(forgotten.run.id)
    assert (lost.status, lost.reason, lost.crashes) == (RunStatus.QUEUED, Reason.OWNER_LOST, 1)


async def test_a_server_that_was_away_gives_every_session_its_whole_grace_again(world: World) -> None:
    claim = await Session(world).begin()
    await silent_for(world, 3600)
    await world.lifecycle.register_owner("incarnation-2", "worker", "host", 2, None)  # the server is back
    assert await world.lifecycle.sweep() == 0, "an embedded server takes no adapter's run at its start"
    assert (await world.run(claim.run.id)).status is RunStatus.RUNNING
    document = (await world.lifecycle.document(USER, claim.run.id))[1]
    since = await world.rows(Table.LEASES, owner_id="incarnation-2")
    assert document["owner"]["takeover_at"] > document["owner"]["seen_at"]
    await Session(world).renew(claim)

    def long_ago(tx: Tx) -> None:
        then = tx.now() - timedelta(seconds=31)
        tx.change(Table.LEASES, {"owner_id": since[0]["owner_id"]}, {"started_at": then})
        tx.change(Table.RUNS, {"id": claim.run.id}, {"renewed_at": then})

    await world.store.write(long_ago)
    assert await world.lifecycle.sweep() == 1
    assert (await world.run(claim.run.id)).status is RunStatus.QUEUED


async def test_a_server_that_slept_gives_every_session_its_whole_grace_again(world: World) -> None:
    """Its process never ended: it was frozen, or its machine slept, and nobody could be renewed meanwhile."""
    claim = await Session(world).begin()
    await silent_for(world, 3600)
    now = await world.lifecycle.note_presence(OWNER)
    await world.lifecycle.note_presence(OWNER, now - timedelta(seconds=9))  # late, as a busy server is
    assert await world.lifecycle.sweep() == 1
    again = await Session(world).take()
    assert again.run.id == claim.run.id
    await silent_for(world, 3600)
    await world.lifecycle.note_presence(OWNER, now - timedelta(seconds=3600))
    assert await world.lifecycle.sweep() == 0
    await Session(world).renew(again)
    assert (await world.run(claim.run.id)).status is RunStatus.RUNNING


async def test_a_sweep_of_a_server_that_lost_its_own_lease_in_its_sleep_takes_nobodys_run(
    world: World,
) -> None:
    claim = await Session(world).begin()
    await silent_for(world, 3600)
    await world.store.write(
        lambda tx: tx.change(Table.LEASES, {}, {"lease_until": tx.now() - timedelta(seconds=1)})
    )
    await world.lifecycle.sweep()
    assert (await world.run(claim.run.id)).status is RunStatus.RUNNING


async def test_one_server_of_several_that_starts_anew_gives_nobody_more_time(world: World) -> None:
    await world.lifecycle.register_owner("old", "worker", "a", 1, 60)
    claim = await Session(world).begin()
    await silent_for(world, 31)
    await world.lifecycle.register_owner("new", "worker", "b", 2, 60)
    await world.lifecycle.sweep()
    assert (await world.run(claim.run.id)).status is RunStatus.QUEUED


async def test_a_sign_that_the_agent_moved_shows_in_the_document_at_the_version_the_adapter_knows(
    world: World,
) -> None:
    session = Session(world)
    claim = await session.begin()
    first = (await session.renew(claim))["document_version"]
    assert first >> 32 == claim.run.epoch
    assert (await session.renew(claim))["document_version"] == first, "nothing moved"
    moved = await session.renew(claim, activity=True, document_version=first)
    assert moved["document_version"] == first + 1
    run, _, saved = await world.lifecycle.document(USER, claim.run.id)
    assert saved is not None
    assert (saved["version"], run.document_version) == (first + 1, first + 1)
    assert saved["content"]["activity_at"] is not None
    stale = await session.renew(claim, activity=True, document_version=first)
    assert stale["document_version"] == first + 1, "its own patch is on its way"
    assert run.version == claim.run.version, "no device is told a new version of the run"


# --- ending


async def test_a_run_ends_with_its_answer_as_the_last_message_and_the_session_is_kept(world: World) -> None:
    session = Session(world)
    claim = await session.begin("name a prime")
    run = await session.end(claim, answer="Seven.", session_id="agent-7", line="Seven.\nof course")
    assert (run["status"], run["reason"], run["line"]) == ("completed", "finished", "Seven.")
    assert run["session_id"] == "agent-7"
    assert await words(world, claim.run.conversation_id) == [
        ("user", "name a prime"),
        ("assistant", "Seven."),
    ]
    (conversation,) = await world.rows(Table.CONVERSATIONS)
    assert conversation["message_count"] == 2
    told = [event for event in await world.events(run_id=run["id"]) if event["type"] == "message.created"]
    assert told[-1]["payload"]["message"]["content"] == "Seven."
    following = await session.begin("and another", claim.run.conversation_id)
    assert following.session_id == "agent-7"
    assert [row["content"] for row in following.history] == ["name a prime", "Seven."]
    await check_invariants(world)


async def test_an_answer_that_was_sent_as_a_message_is_not_stored_twice(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.messages(claim, said("Seven.", id="m1"))
    await session.end(claim, answer="Seven.\n")
    assert await words(world, claim.run.conversation_id) == [("user", "hello"), ("assistant", "Seven.")]


async def test_what_was_only_shown_live_becomes_the_answer_under_the_id_it_was_shown_with(
    world: World,
) -> None:
    session = Session(world)
    claim = await session.begin()
    await shown(world, claim, "Seven, live.")
    run = await session.end(claim)
    (message,) = [row for row in await world.history(claim.run.conversation_id) if row["role"] == "assistant"]
    assert (message["id"], message["content"], message["interrupted"]) == ("live-1", "Seven, live.", False)
    assert run["line"] == "Seven, live."


async def test_a_failure_keeps_a_known_code_and_an_unknown_one_in_its_words(world: World) -> None:
    session = Session(world)
    known = await session.end(
        await session.begin(), "failed", error_code="MODEL_AUTH", error_message="bad key"
    )
    assert (known["status"], known["reason"], known["error_code"]) == ("failed", "model_error", "MODEL_AUTH")
    unknown = await session.end(await session.begin(), "failed", error_code="OOPS", error_message="it broke")
    assert (unknown["reason"], unknown["error_code"]) == ("adapter_error", "ADAPTER_ERROR")
    assert unknown["error_message"] == "OOPS: it broke"
    silent = await session.end(await session.begin(), "failed")
    assert silent["error_code"] == "ADAPTER_ERROR"
    assert silent["error_message"]


async def test_cancelled_is_taken_only_where_a_stop_was_accepted(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    with pytest.raises(InvalidTransition) as refused:
        await session.end(claim, "cancelled")
    assert refused.value.current["run"]["status"] == "running"
    await shown(world, claim, "I was just")
    await world.cancel(claim.run.id)
    run = await session.end(claim, "cancelled")
    assert (run["status"], run["stop"]["outcome"]) == ("cancelled", "acknowledged")
    rows = await world.history(claim.run.conversation_id)
    assert [(row["content"], row["interrupted"]) for row in rows if row["role"] == "assistant"] == [
        ("I was just", True)
    ]
    await check_invariants(world)


@pytest.mark.parametrize(("to", "outcome"), [("completed", "after_work_done"), ("failed", "acknowledged")])
@pytest.mark.case("P86")
async def test_a_stop_decides_the_end_whatever_the_adapter_reports(
    world: World, to: str, outcome: str
) -> None:
    session = Session(world)
    claim = await session.begin()
    await world.cancel(claim.run.id)
    run = await session.end(claim, to, **({"answer": "done all the same"} if to == "completed" else {}))
    assert (run["status"], run["stop"]["outcome"]) == ("cancelled", outcome)
    if to == "completed":
        assert (await words(world, claim.run.conversation_id))[-1] == ("assistant", "done all the same")


async def test_work_that_was_done_before_a_newer_message_took_over_ends_interrupted_and_that_message_goes_on(
    world: World,
) -> None:
    session = Session(world)
    claim = await session.begin()
    await world.post("no, this", claim.run.conversation_id, when_busy=WhenBusy.INTERRUPT)
    run = await session.end(claim, answer="too late")
    assert (run["status"], run["reason"]) == ("interrupted", "superseded")
    following = await session.take()
    assert following.input == "no, this"
    assert [row["content"] for row in following.history] == ["hello", "too late"]


@pytest.mark.case("P70")
async def test_the_end_reported_twice_with_one_key_is_answered_twice_and_happens_once(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    first = await session.end(claim, answer="once", key="e1")
    assert await session.end(claim, answer="once", key="e1") == first
    assert await words(world, claim.run.conversation_id) == [("user", "hello"), ("assistant", "once")]
    with pytest.raises(RunNotActive):
        await session.end(claim, answer="once", key="e2")


async def test_follow_ups_start_the_next_run_when_an_adapters_run_ends(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await world.post("and then", claim.run.conversation_id)
    await session.end(claim, answer="first")
    following = await session.take()
    assert following.input == "and then"
    assert [row["content"] for row in following.history] == ["hello", "first"]
    await check_invariants(world)


# --- owners that vanish


async def test_a_run_whose_session_fell_silent_goes_on_with_another_one_and_knows_what_was_done(
    world: World,
) -> None:
    first = Session(world, "one")
    claim = await first.begin()
    await first.renew(claim, session_id="agent-7")
    await first.messages(claim, said("let me look", "c1"), result("c1", "found"))
    await silent_for(world, 31)
    await world.lifecycle.sweep()
    again = await Session(world, "two").take()
    assert (again.run.reason, again.run.attempt, again.input) == (Reason.RECLAIMED, 2, "hello")
    assert again.session_id == "agent-7"
    assert [(row["role"], row["content"]) for row in again.progress] == [
        ("assistant", "let me look"),
        ("tool", "found"),
    ]
    assert again.history == []


async def test_where_recovery_asks_a_lost_session_ends_its_run_for_a_person_to_continue(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.messages(claim, said("half way", "c1"))
    await session.renew(claim, session_id="agent-7")
    await world.store.write(lambda tx: tx.change(Table.RUNS, {"id": claim.run.id}, {"recovery": "ask"}))
    await silent_for(world, 31)
    await world.lifecycle.sweep()
    ended = await world.run(claim.run.id)
    assert (ended.status, ended.reason) == (RunStatus.INTERRUPTED, Reason.ADAPTER_DISCONNECTED)
    run = await world.resume(claim.run.conversation_id, pending=False)
    assert run.resume_of == claim.run.id
    again = await session.take()
    assert (again.input, again.session_id) == (None, "agent-7")
    assert [(row["role"], row["content"]) for row in again.history] == [
        ("user", "hello"),
        ("assistant", "half way"),
        ("tool", "outcome unknown: this call was under way when the run stopped and may have happened"),
    ]
    await session.end(again, answer="done")
    await check_invariants(world)


@pytest.mark.case("P19")
async def test_a_run_that_loses_its_third_session_fails(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    for _ in range(3):
        await silent_for(world, 31)
        await world.lifecycle.sweep()
        await world.store.write(lambda tx: tx.change(Table.RUNS, {"id": claim.run.id}, {"not_before": None}))
        await session.claim()
    run = await world.run(claim.run.id)
    assert (run.status, run.error_code, run.crashes) == (RunStatus.FAILED, "ATTEMPTS_EXHAUSTED", 3)


async def test_a_stop_that_the_session_never_heard_is_forced(world: World) -> None:
    claim = await Session(world).begin()
    await world.cancel(claim.run.id)
    await silent_for(world, 31)
    await world.lifecycle.sweep()
    run = await world.run(claim.run.id)
    assert run.stop is not None
    assert (run.status, run.stop.outcome) == (RunStatus.CANCELLED, "forced")


async def test_a_session_that_renews_for_ever_and_does_not_stop_is_ended_all_the_same(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await world.cancel(claim.run.id)

    def long_ago(tx: Tx) -> None:
        (row,) = tx.find(Table.RUNS, {"id": claim.run.id}, columns=("stop",))
        then = (tx.now() - timedelta(seconds=21)).isoformat(timespec="microseconds")
        stop = {**row["stop"], "accepted_at": then.replace("+00:00", "Z")}
        tx.change(Table.RUNS, {"id": claim.run.id}, {"stop": stop})

    await world.store.write(long_ago)
    assert (await session.renew(claim))["stop"]["deadline_s"] == 0
    await world.lifecycle.sweep()
    assert (await world.run(claim.run.id)).status is RunStatus.CANCELLED
    with pytest.raises(RunNotActive):
        await session.renew(claim)


async def test_a_worker_and_a_session_of_the_same_name_are_not_mixed_up(world: World) -> None:
    claim = await Session(world, OWNER).begin()
    assert await world.lifecycle.owned_by(OWNER) == {}
    await silent_for(world, 31)
    await world.lifecycle.sweep()
    assert (await world.run(claim.run.id)).status is RunStatus.QUEUED, (
        "the worker's lease keeps nothing of it"
    )


async def test_continue_goes_on_with_the_agents_own_session_whatever_the_end_was(world: World) -> None:
    session = Session(world)
    claim = await session.begin("write a poem")
    await shown(world, claim, "Roses are")
    await world.cancel(claim.run.id)
    await session.end(claim, "cancelled", session_id="agent-7")
    run = await world.resume(claim.run.conversation_id, pending=False)
    assert (run.reason, run.resume_of) == (Reason.RESUME_OF, claim.run.id)
    again = await session.take()
    assert (again.input, again.session_id) == (None, "agent-7")
    assert [row["content"] for row in again.history] == ["write a poem", "Roses are"]
    await check_invariants(world)


async def test_a_run_that_no_session_ever_had_is_tried_again_with_its_own_input(world: World) -> None:
    posted = await world.post("hello")
    assert posted.run is not None
    await world.cancel(posted.run.id)
    run = await world.resume(posted.run.conversation_id, pending=False)
    assert run.retry_of == posted.run.id
    claim = await Session(world).take()
    assert (claim.input, claim.history) == ("hello", [])


# --- what is reported


async def test_steps_are_kept_in_the_order_of_their_first_report_and_updated_by_id(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    first = {"id": "s1", "kind": "model", "name": "gpt", "status": "running"}
    second = {"id": "s2", "kind": "tool", "name": "search", "status": "done", "summary": "{}", "ms": 8}
    assert await session.steps(claim, first, second) == 2
    done = {**first, "status": "done", "ms": 812, "usage": {"input": 9, "output": 4}}
    assert await session.steps(claim, done, {**second, "id": "s3"}) == 3
    rows = await world.lifecycle.run_steps(USER, claim.run.id)
    assert [(row["id"], row["status"], row["ms"]) for row in rows] == [
        ("s1", "done", 812),
        ("s2", "done", 8),
        ("s3", "done", 8),
    ]
    assert rows[0]["usage"] == {"input": 9, "output": 4, "cached": 0, "reasoning": 0}
    assert rows[0]["started_at"] <= rows[2]["started_at"]
    assert (await session.end(claim, answer="x"))["steps"] == 3


async def test_a_step_that_still_runs_ends_with_its_run(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.steps(claim, {"id": "s1", "kind": "tool", "name": "search", "status": "running"})
    await session.end(claim, "failed")
    (row,) = await world.lifecycle.run_steps(USER, claim.run.id)
    assert row["status"] == "unknown"


async def test_a_run_keeps_a_bounded_number_of_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MAX_STEPS", 3)
    session = Session(world)
    claim = await session.begin()
    step = {"kind": "step", "name": "n", "status": "done"}
    await session.steps(claim, *({**step, "id": f"s{number}"} for number in range(3)))
    with pytest.raises(Invalid) as refused:
        await session.steps(claim, {**step, "id": "s1"}, {**step, "id": "s9"})
    assert refused.value.faults[0].code == "too_many_steps"
    assert await session.steps(claim, {**step, "id": "s1"}) == 3, "known ones may still change"


async def test_messages_take_their_place_in_the_history_in_the_order_they_are_sent(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    stored = await session.messages(
        claim,
        said("let me look", "c1", "c2", id="m1"),
        result("c2", "two"),
        result("c1", "one"),
        said("found it"),
    )
    assert stored[0]["id"] == "m1"
    assert [one.get("tool_call_id") for one in stored] == [None, "c2", "c1", None]
    assert [one.get("name") for one in stored] == [None, "tool_c2", "tool_c1", None]
    await session.end(claim)
    assert await words(world, claim.run.conversation_id) == [
        ("user", "hello"),
        ("assistant", "let me look"),
        ("tool", "two"),
        ("tool", "one"),
        ("assistant", "found it"),
    ]
    await check_invariants(world)


async def test_a_call_without_result_gets_one_before_anything_else_is_stored(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.messages(claim, said("two calls", "c1", "c2"), result("c1"))
    await session.messages(claim, said("going on", "c3"))
    run = await session.end(claim, answer="the end")
    assert run["status"] == "completed"
    assert await words(world, claim.run.conversation_id) == [
        ("user", "hello"),
        ("assistant", "two calls"),
        ("tool", "fine"),
        ("tool", NO_RESULT),
        ("assistant", "going on"),
        ("tool", NO_RESULT),
        ("assistant", "the end"),
    ]
    assert await open_calls(world, claim.run.conversation_id) == set()
    await check_invariants(world)


async def test_a_call_that_is_open_at_the_end_gets_a_result_too(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.messages(claim, said("one more", "c1"))
    await session.end(claim)
    assert await open_calls(world, claim.run.conversation_id) == set()
    assert (await words(world, claim.run.conversation_id))[-1][0] == "tool"
    await check_invariants(world)


async def test_a_result_that_fits_no_open_call_is_refused_and_nothing_of_its_batch_is_stored(
    world: World,
) -> None:
    session = Session(world)
    claim = await session.begin()
    with pytest.raises(Invalid) as refused:
        await session.messages(claim, said("look", "c1"), result("c1"), result("c1", "again"))
    assert refused.value.faults[0].path == "/messages/2/tool_call_id"
    with pytest.raises(Invalid):
        await session.messages(claim, result("c9"))
    assert await words(world, claim.run.conversation_id) == [("user", "hello")]


async def test_a_message_sent_twice_under_one_id_is_stored_once_and_other_words_are_refused(
    world: World,
) -> None:
    session = Session(world)
    claim = await session.begin()
    first = await session.messages(claim, said("look", "c1", id="m1"), result("c1", id="m2"))
    again = await session.messages(claim, said("look", "c1", id="m1"), result("c1", id="m2"), said("on"))
    assert again[:2] == first
    assert len(await words(world, claim.run.conversation_id)) == 4
    with pytest.raises(VersionConflict) as refused:
        await session.messages(claim, said("other words", id="m1"))
    assert refused.value.code == "message_conflict"
    user = next(row for row in await world.history(claim.run.conversation_id) if row["role"] == "user")
    with pytest.raises(VersionConflict):
        await session.messages(claim, said("hello", id=user["id"]))


async def test_messages_without_ids_are_repeated_safely_with_a_key(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    first = await session.messages(claim, said("once"), key="m1")
    assert await session.messages(claim, said("once"), key="m1") == first
    assert len(await words(world, claim.run.conversation_id)) == 2


async def test_a_call_id_that_was_used_before_is_made_new_and_its_result_still_finds_it(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.messages(claim, said("first", "call_0"), result("call_0", "one"))
    stored = await session.messages(
        claim, said("second", "call_0"), result("call_0", "two"), said("third", "call_0")
    )
    assert [one["tool_calls"][0]["id"] for one in stored if one.get("tool_calls")] == ["call_0~2", "call_0~3"]
    assert stored[1]["tool_call_id"] == "call_0~2"
    await session.end(claim)
    await check_invariants(world)


async def test_what_a_stopping_run_still_tells_is_kept_and_it_asks_nothing_more(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.messages(claim, said("calling", "c1"))
    await world.cancel(claim.run.id)
    await session.messages(claim, result("c1", "it did happen"), said("I was", interrupted=True))
    await session.steps(claim, {"id": "s1", "kind": "tool", "name": "t", "status": "done"})
    with pytest.raises(InvalidTransition):
        await session.park(claim)
    await session.end(claim, "cancelled")
    assert await words(world, claim.run.conversation_id) == [
        ("user", "hello"),
        ("assistant", "calling"),
        ("tool", "it did happen"),
        ("assistant", "I was"),
    ]
    await check_invariants(world)


async def test_while_a_run_stops_nothing_whole_and_nothing_new_is_taken_and_the_answer_tells_of_the_stop(
    world: World,
) -> None:
    session = Session(world)
    claim = await session.begin()
    before = said("before the stop", "c1", id="m1")
    await session.messages(claim, before)
    running: Json = {"id": "s1", "kind": "tool", "name": "t", "status": "running"}
    await session.steps(claim, running)
    await world.cancel(claim.run.id)
    begun = {**running, "id": "s2"}
    for late in (
        session.messages(claim, said("a whole answer")),
        session.messages(claim, said("calling again", "c2")),
        session.messages(claim, result("c1", "happened"), said("and on")),
        session.steps(claim, {**running, "status": "done"}, begun),
    ):
        with pytest.raises(InvalidTransition) as refused:
            await late
        assert refused.value.current["run"]["stop"]["cause"] == "cancel_requested"
    assert await words(world, claim.run.conversation_id) == [
        ("user", "hello"),
        ("assistant", "before the stop"),
    ]
    assert [row["status"] for row in await world.rows(Table.RUN_STEPS)] == ["running"], "nothing of a call"
    assert (await session.messages(claim, before))[0]["id"] == "m1", "a repeat brings nothing new"
    await session.steps(claim, running)
    await session.steps(claim, {**running, "status": "failed"}, {**begun, "status": "unknown"})
    with pytest.raises(InvalidTransition):
        await session.steps(claim, running)
    await session.messages(claim, result("c1", "happened"))
    await session.end(claim, "completed", answer="done before I heard")
    run = await world.run(claim.run.id)
    assert run.stop is not None
    assert (run.status, run.stop.outcome) == (RunStatus.CANCELLED, "after_work_done")
    assert (await words(world, claim.run.conversation_id))[2:] == [
        ("tool", "happened"),
        ("assistant", "done before I heard"),
    ]
    await check_invariants(world)


# --- asking a person


async def test_a_run_that_asks_is_given_back_and_comes_again_with_the_answer(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    call = {
        "kind": "approval",
        "prompt": "Send it?",
        "tool": "mail",
        "tool_call_id": "c1",
        "arguments": {"to": "bob"},
    }
    parked = await session.park(claim, call, {"kind": "question", "prompt": "Which account?"})
    assert (parked["run"]["status"], parked["run"]["reason"]) == ("waiting_input", "approval_required")
    assert [one["prompt"] for one in parked["requests"]] == ["Send it?", "Which account?"]
    with pytest.raises(OwnershipLost):
        await session.renew(claim)
    assert await session.claim() is None
    approval, question = await world.rows(Table.REQUESTS, run_id=claim.run.id)
    await world.decide(approval, Verdict.APPROVE)
    await world.decide(question, Verdict.ANSWER, "savings")
    again = await session.take()
    assert (again.run.reason, again.input) == (Reason.INPUT_RECEIVED, "hello")
    assert [adapters.decided_json(one) for one in again.decisions] == [
        {
            "request_id": approval["id"],
            "kind": "approval",
            "tool": "mail",
            "tool_call_id": "c1",
            "prompt": "Send it?",
            "arguments": {"to": "bob"},
            "decision": {"decision": "approve", "answer": None, "comment": None},
        },
        {
            "request_id": question["id"],
            "kind": "question",
            "tool": None,
            "tool_call_id": None,
            "prompt": "Which account?",
            "arguments": None,
            "decision": {"decision": "answer", "answer": "savings", "comment": None},
        },
    ]
    await check_invariants(world)


async def test_a_decision_is_told_to_every_owner_until_one_goes_on(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.park(claim)
    (question,) = await world.rows(Table.REQUESTS, run_id=claim.run.id)
    await world.decide(question, Verdict.ANSWER, "this")
    first = await session.take()
    await session.renew(first)
    await session.messages(first, said("hm"))
    await silent_for(world, 31)
    await world.lifecycle.sweep()
    second = await session.take()
    assert [one.answer for one in second.decisions] == ["this"], "the first owner never went on"
    await session.park(second, {"kind": "question", "prompt": "and now?"})
    (consumed, following) = await world.rows(Table.REQUESTS, run_id=claim.run.id)
    assert (consumed["status"], consumed["consumed_epoch"]) == ("consumed", second.run.epoch)
    await world.decide(following, Verdict.ANSWER, "that")
    third = await session.take()
    assert [one.answer for one in third.decisions] == ["that"]
    await session.end(third, answer="fine")
    assert [row["status"] for row in await world.rows(Table.REQUESTS)] == ["consumed", "consumed"]
    await check_invariants(world)


async def test_a_question_with_a_default_names_the_answer_and_an_approval_the_word(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    soon = (await world.store.read(lambda tx: tx.now()) + timedelta(hours=1)).isoformat()
    await session.park(
        claim,
        {"kind": "question", "prompt": "q", "expires_at": soon, "on_timeout": "default", "default": 7},
        {"kind": "approval", "prompt": "a", "expires_at": soon, "on_timeout": "default", "default": "deny"},
    )
    question, approval = await world.rows(Table.REQUESTS, run_id=claim.run.id)
    assert question["default_decision"] == {"decision": "answer", "answer": 7}
    assert approval["default_decision"] == {"decision": "deny", "answer": None}


async def test_a_question_that_cannot_be_asked_leaves_the_run_with_its_owner(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    with pytest.raises(Invalid):
        await session.park(claim, {"kind": "question", "prompt": "q", "on_timeout": "deny"})
    assert (await session.renew(claim))["stop"] is None


# --- steering


async def test_what_a_person_sends_to_steer_is_told_once_with_the_next_renewal(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await world.post("rather in blue", claim.run.conversation_id, when_busy=WhenBusy.STEER)
    told = await session.renew(claim)
    assert [one["content"] for one in told["steer"]] == ["rather in blue"]
    assert (await session.renew(claim))["steer"] == []
    await session.end(claim, answer="blue it is")
    assert await words(world, claim.run.conversation_id) == [
        ("user", "hello"),
        ("user", "rather in blue"),
        ("assistant", "blue it is"),
    ]
    assert await session.claim() is None, "it started no run of its own"
    await check_invariants(world)


async def test_a_renewal_whose_answer_was_lost_tells_again_with_its_key_what_was_sent_to_steer(
    world: World,
) -> None:
    session = Session(world)
    claim = await session.begin()
    await world.post("rather in blue", claim.run.conversation_id, when_busy=WhenBusy.STEER)
    first = await session.renew(claim, key="r1")
    assert await session.renew(claim, key="r1") == first
    assert len(first["steer"]) == 1
    plain = await session.renew(claim, key="r2")
    assert plain["steer"] == []
    assert {row["key"] for row in await world.rows(Table.IDEMPOTENCY)} == {"r1"}, "nothing else is kept"


async def test_a_message_to_steer_never_comes_between_a_call_and_its_result(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await session.messages(claim, said("calling", "c1"))
    await world.post("rather in blue", claim.run.conversation_id, when_busy=WhenBusy.STEER)
    assert (await session.renew(claim))["steer"] == []
    await session.messages(claim, result("c1"))
    assert len((await session.renew(claim))["steer"]) == 1
    await session.end(claim, answer="done")
    await check_invariants(world)


async def test_a_takeover_is_told_what_was_sent_to_steer_the_last_owner(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await world.post("rather in blue", claim.run.conversation_id, when_busy=WhenBusy.STEER)
    await session.renew(claim)
    await silent_for(world, 31)
    await world.lifecycle.sweep()
    again = await Session(world, "two").take()
    assert [(row["role"], row["content"]) for row in again.progress] == [("user", "rather in blue")]


# --- history


async def test_a_long_history_is_cut_to_its_newest_part_and_begins_with_a_person(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "HISTORY_LIMIT", 4)
    session = Session(world)
    claim = await session.begin("one")
    await session.messages(claim, said("calling", "c1"), result("c1"))
    await session.end(claim, answer="first")
    claim = await session.begin("two", claim.run.conversation_id)
    await session.end(claim, answer="second")
    claim = await session.begin("three", claim.run.conversation_id)
    assert [row["content"] for row in claim.history] == ["two", "second"]


async def test_a_superseded_session_hears_why(world: World) -> None:
    session = Session(world)
    claim = await session.begin()
    await world.command(claim.run.id, Supersede())
    assert (await session.renew(claim))["stop"]["cause"] == "superseded"


async def test_a_graphs_conversation_goes_on_with_an_adapter(world: World) -> None:
    """An agent that moved out of the process still reads what was said before."""
    before = await world.begin_run("hello")
    await world.lifecycle.end_attempt(before.fence, Finished("done"), None)
    claim = await Session(world).begin("and now", before.run.conversation_id)
    assert [row["content"] for row in claim.history] == ["hello"]
