"""Random lives of runs on a real database, compared step by step with a small reference.

`FULL=1` walks much longer and never the same way twice.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dromos.domain.errors import LeaseLost, Refusal
from dromos.domain.machine import ExceedBudget, WithdrawAgent
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Fence, Run
from dromos.domain.statuses import Recovery, RequestStatus, Verdict, WhenBusy
from dromos.lifecycle import requests
from dromos.lifecycle.contract import Policy, Posted
from dromos.ports.agent import Drained, Failed, Finished, Outcome, Parked, TryLater
from dromos.ports.store import Store, Table, Tx
from tests.lifecycle.reference import EDGES, END_OF_CAUSE, Asked, Reference, RunState, Talk, Waiting
from tests.lifecycle.world import USER, Engine, World, check_invariants, compose, empty

T = TypeVar("T")
FULL = os.environ.get("FULL") == "1"
BATCHES = 6
"""Batches of lives at most: chance decides how soon every edge and every refusal was seen."""
OWNERS = ("owner-a", "owner-b")


def _asking(policy: str) -> dict[str, Any]:
    """An approval with a policy for the day its time is over, which is far away."""
    default = {"decision": "approve"} if policy == "default" else None
    return {"kind": "approval", "expires_in_s": 3600, "on_timeout": policy, "default": default}


OUTCOMES: dict[str, tuple[Outcome, str]] = {
    "finish": (Finished(), "completed"),
    "fail": (Failed(ErrorCode.AGENT_FAILURE, "broken"), "failed"),
    "later": (TryLater(Reason.RETRY_BACKOFF, 0.0, {}, "again"), "queued"),
    "drain": (Drained(), "queued"),
    "park": (Parked(Reason.APPROVAL_REQUIRED, (_asking("deny"),)), "waiting_input"),
    "park on two": (Parked(Reason.QUESTION_ASKED, (_asking("expire"), _asking("default"))), "waiting_input"),
}
REFUSALS = {
    *("already_ended", "invalid_transition", "conversation_busy", "run_not_resumable"),
    *("version_conflict", "not_found", "lease_lost", "already_decided", "request_closed"),
}


class Lives(RuleBasedStateMachine):
    """Any number of conversations of one person, two owners, every door of the lifecycle."""

    store: Store
    runner: asyncio.Runner
    edges: Counter[tuple[str, str]]
    refusals: Counter[str]
    read = 0  # messages that runs read while they worked

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def refused(self, work: Coroutine[Any, Any, Any], *codes: str) -> None:
        """The step must be refused, with one of these codes."""
        try:
            self.do(work)
        except Refusal as refusal:
            told = refusal.code
        except LeaseLost:
            told = "lease_lost"
        else:
            told = "done"
        assert told in codes
        self.refusals[told] += 1

    @initialize(asks=st.booleans())
    def begin(self, asks: bool) -> None:
        self.do(self.store.write(empty))
        policy = Policy(recovery=Recovery.ASK if asks else Recovery.AUTO)
        self.world = World(self.store, policy)
        self.lifecycle = self.world.lifecycle
        self.reference = Reference(asks)
        self.stored: dict[str, str] = {}
        self.texts = 0
        self.do(self.lifecycle.ensure_user(USER, "Anna"))
        for owner in OWNERS:
            self.do(self.lifecycle.register_owner(owner, "worker", "host", 1, 3600))
        self.posted(None, "first", WhenBusy.QUEUE)

    # --- choosing

    def talk(self, data: st.DataObject) -> Talk:
        return data.draw(st.sampled_from(list(self.reference.talks.values())), label="conversation")

    def run(self, data: st.DataObject, *statuses: str) -> RunState:
        """A run in one of `statuses` (all), rare statuses as often as common ones."""
        present = {run.status for run in self.reference.runs.values()}
        status = data.draw(
            st.sampled_from(sorted(present & set(statuses) if statuses else present)), label="status"
        )
        runs = [run for run in self.reference.runs.values() if run.status == status]
        return data.draw(st.sampled_from(runs), label="run")

    def has(self, *statuses: str) -> bool:
        return any(run.status in statuses for run in self.reference.runs.values())

    # --- a person

    def posted(self, talk: Talk | None, text: str, when_busy: WhenBusy) -> None:
        posted: Posted = self.do(self.world.post(text, talk.id if talk else None, when_busy=when_busy))
        if talk is None:
            talk = Talk(posted.conversation["id"])
            self.reference.talks[talk.id] = talk
        live = self.reference.live(talk)
        at_once = live is None
        mode, during_stop = when_busy.value, live is not None and live.status == "cancelling"
        if live is not None and when_busy is WhenBusy.INTERRUPT and not during_stop:
            at_once = self.reference.stop(live, "superseded")
        elif when_busy is WhenBusy.STEER and during_stop:
            mode = "queue"
        assert (posted.run is not None) == at_once
        if posted.run is not None:
            talk.said.append(text)
            self.reference.started(talk, posted.run.id)
        else:
            assert posted.followup is not None
            assert (posted.followup["when_busy"], posted.followup["asked"] or mode) == (mode, when_busy)
            waiting = Waiting(posted.followup["id"], text, "waiting", during_stop, mode, when_busy.value)
            self.reference.accepted(talk, waiting)

    @precondition(lambda self: len(self.reference.talks) < 3)
    @rule()
    def a_message_opens_a_conversation(self) -> None:
        self.posted(None, "hello", WhenBusy.QUEUE)

    @rule(
        data=st.data(),
        when_busy=st.sampled_from([*[WhenBusy.QUEUE] * 3, *[WhenBusy.STEER, WhenBusy.INTERRUPT] * 2]),
    )
    def a_message(self, data: st.DataObject, when_busy: WhenBusy) -> None:
        self.texts += 1
        self.posted(self.talk(data), f"message {self.texts}", when_busy)

    @rule(data=st.data())
    def a_message_that_rejects_waiting(self, data: st.DataObject) -> None:
        talk = self.talk(data)
        if self.reference.live(talk) is None:
            self.posted(talk, "not busy", WhenBusy.REJECT)
        else:
            self.refused(self.world.post("no", talk.id, when_busy=WhenBusy.REJECT), "conversation_busy")

    @rule(data=st.data())
    def a_stop(self, data: st.DataObject) -> None:
        run = self.run(data)
        if run.is_final and not run.stopped_by_person:
            self.refused(self.world.cancel(run.id), "already_ended")
            return
        self.do(self.world.cancel(run.id))
        if not run.is_final:
            self.reference.stop(run, "cancel_requested")

    @rule(data=st.data(), busy=st.booleans())
    def a_continue(self, data: st.DataObject, busy: bool) -> None:
        talks = list(self.reference.talks.values())
        fitting = [one for one in talks if (self.reference.live(one) is not None) == busy]
        talk = data.draw(st.sampled_from(fitting or talks), label="conversation")
        way = self.reference.way_to_continue(talk)
        if self.reference.live(talk) is not None:
            self.refused(self.world.resume(talk.id), "conversation_busy")
        elif way is None:
            self.refused(self.world.resume(talk.id), "run_not_resumable")
        else:
            run = self.do(self.world.resume(talk.id))
            last = talk.runs[-1]
            assert {"resume_of": run.resume_of, "retry_of": run.retry_of}[way] == last
            self.reference.started(talk, run.id, run.resume_of)

    @precondition(lambda self: any(talk.waiting for talk in self.reference.talks.values()))
    @rule(
        data=st.data(),
        action=st.sampled_from(["send", "discard", "edit", "move"]),
        stale=st.sampled_from([False, False, True]),
    )
    def a_follow_up(self, data: st.DataObject, action: str, stale: bool) -> None:
        pairs = [(talk, one) for talk in self.reference.talks.values() for one in talk.waiting]
        talk, one = data.draw(st.sampled_from(pairs), label="follow-up")
        (row,) = self.do(self.world.rows(Table.RUN_FOLLOWUPS, id=one.id))
        version = row["version"] - stale
        if action == "discard" and one.status == "discarded":
            self.do(self.lifecycle.discard_followup(USER, one.id, version))
        elif stale or not one.is_open:
            self.refused(self.acts(action, one, version, 0), "version_conflict")
        elif action == "discard":
            self.do(self.acts(action, one, version, 0))
            one.status = "discarded"
        elif action == "edit":
            self.do(self.acts(action, one, version, 0))
            one.text += ", better"
        elif action == "move":
            place = data.draw(st.integers(0, len([1 for other in talk.waiting if other.is_open]) - 1))
            self.do(self.acts(action, one, version, place))
            self.reference.moved(talk, one, place)
        else:
            posted = self.do(self.send(one, version))
            live = self.reference.live(talk)
            assert (posted.run is None) == (live is not None)
            if live is None:
                self.reference.applied(talk, one)
                self.reference.started(talk, posted.run.id)
            elif one.status == "held":
                one.status, one.during_stop = "waiting", live.status == "cancelling"
                talk.waiting.remove(one)
                talk.waiting.append(one)

    async def acts(self, action: str, one: Waiting, version: int, place: int) -> None:
        if action == "send":
            await self.send(one, version)
        elif action == "discard":
            await self.lifecycle.discard_followup(USER, one.id, version)
        elif action == "edit":
            text = f"{one.text}, better"
            await self.lifecycle.change_followup(USER, one.id, version, content=text)
        else:
            await self.lifecycle.change_followup(USER, one.id, version, position=place)

    async def send(self, one: Waiting, version: int) -> Any:
        out: list[Any] = []

        def encode(posted: Any) -> tuple[int, str]:
            out.append(posted)
            return 201, "{}"

        await self.lifecycle.send_followup(USER, one.id, "assistant", encode, None, version)
        return out[-1]

    @precondition(lambda self: len(self.reference.talks) > 1)
    @rule(data=st.data())
    def a_deletion(self, data: st.DataObject) -> None:
        talk = self.talk(data)
        if self.has_owner(talk):
            return  # its own tests; here the run would be gone from every list
        assert self.do(self.lifecycle.delete_conversation(USER, talk.id))
        self.refused(self.world.post("gone", talk.id), "not_found")
        for run_id in talk.runs:
            for one in self.reference.questions(self.reference.runs[run_id], *RequestStatus):
                del self.reference.asked[one.id]
            del self.reference.runs[run_id]
            self.stored.pop(run_id, None)
        del self.reference.talks[talk.id]

    def has_owner(self, talk: Talk) -> bool:
        live = self.reference.live(talk)
        return live is not None and live.owner is not None

    # --- owners

    @precondition(lambda self: self.has("queued"))
    @rule(owner=st.sampled_from(OWNERS), enters=st.booleans())
    def a_claim(self, owner: str, enters: bool) -> None:
        self.do(self.store.write(lambda tx: tx.change(Table.RUNS, {}, {"not_before": None})))
        (claimed,) = self.do(self.lifecycle.claim(owner, None, 1, {"assistant": compose}))
        run = self.reference.runs[claimed.run.id]
        assert run.status == "queued"
        self.reference.claimed(run, owner)
        if enters and run.resume_of is None:
            self.do(Engine(self.world, claimed).enter())
            self.reference.talks[run.conversation].head = run.id

    @precondition(lambda self: bool(self.reference.runs))
    @rule(data=st.data(), name=st.sampled_from(sorted(OUTCOMES)))
    def an_attempt_ends(self, data: st.DataObject, name: str) -> None:
        outcome, status = OUTCOMES[name]
        run = self.run(data, *(("running", "cancelling") if self.has("running", "cancelling") else ()))
        work = self.lifecycle.end_attempt(self.fence(run), outcome, None)
        if run.status not in ("running", "cancelling"):
            self.refused(work, "lease_lost")
            return
        self.do(work)
        asks = name == "drain" and self.reference.asks
        self.reference.owner_is_done(run, "interrupted" if asks else status)
        for row in self.do(self.world.rows(Table.REQUESTS, run_id=run.id, status="open")):
            self.reference.asked[row["id"]] = Asked(row["id"], run.id, row["on_timeout"])

    @precondition(lambda self: self.has("queued", "running"))
    @rule(data=st.data(), owner=st.sampled_from(OWNERS), name=st.sampled_from([*sorted(OUTCOMES), "park"]))
    def work_goes_on(self, data: st.DataObject, owner: str, name: str) -> None:
        if self.has("queued"):
            self.a_claim(owner, True)
        else:
            self.an_attempt_ends(data, name)

    @precondition(lambda self: self.has("running", "queued"))
    @rule(data=st.data(), owner=st.sampled_from(OWNERS), name=st.sampled_from(["park", "park on two"]))
    def work_goes_on_to_a_question(self, data: st.DataObject, owner: str, name: str) -> None:
        if self.has("running"):
            self.an_attempt_ends(data, name)
        else:
            self.a_claim(owner, True)

    @precondition(lambda self: self.has("running", "cancelling"))
    @rule(data=st.data(), forced=st.booleans())
    def a_stop_is_carried_out(self, data: st.DataObject, forced: bool) -> None:
        run = self.run(data, "running", "cancelling")
        work = self.lifecycle.end_stopped(self.fence(run), forced=forced, unknown_calls=(), document=None)
        if run.status == "running":
            self.refused(work, "invalid_transition")
        else:
            self.do(work)
            self.reference.owner_is_done(run, "")

    @rule(data=st.data(), cancelling=st.booleans(), stale=st.booleans())
    def a_write(self, data: st.DataObject, cancelling: bool, stale: bool) -> None:
        run = self.run(data)
        fence = self.fence(run)
        fence = Fence(fence.run_id, fence.epoch - 1) if stale else fence
        work = self.lifecycle.recorder(fence).write(lambda tx, run: run.id, while_cancelling=cancelling)
        takes = ("running", "cancelling") if cancelling else ("running",)
        if not stale and run.status in takes:
            assert self.do(work) == run.id
        else:
            self.refused(work, "lease_lost")

    @rule(data=st.data(), stale=st.booleans())
    def an_owner_reads_what_steers_its_run(self, data: st.DataObject, stale: bool) -> None:
        run = self.run(data, *(("running",) if self.has("running") else ()))
        fence = self.fence(run)
        fence = Fence(fence.run_id, fence.epoch - 1) if stale else fence
        work = self.lifecycle.steering(fence).write(lambda tx, run, take: take())
        if stale or run.status != "running":
            self.refused(work, "lease_lost")
            return
        talk = self.reference.talks[run.conversation]
        read = [message.content for message in self.do(work)]
        assert read == self.reference.read_while_at_work(talk)
        type(self).read += len(read)

    @rule(owner=st.sampled_from(OWNERS))
    def an_owner_dies(self, owner: str) -> None:
        self.do(self.lifecycle.retire_owner(owner))
        mine = [run for run in self.reference.runs.values() if run.owner == owner]
        assert self.do(self.lifecycle.sweep()) == len(mine)
        for run in mine:
            self.reference.owner_is_lost(run)
        self.do(self.lifecycle.register_owner(owner, "worker", "host", 1, 3600))

    # --- policies

    @rule(data=st.data(), why=st.sampled_from(["nobody can start it", "the agent is removed"]))
    def a_queued_run_is_given_up(self, data: st.DataObject, why: str) -> None:
        run = self.run(data)
        if why == "the agent is removed":
            work, status = self.world.command(run.id, WithdrawAgent()), "interrupted"
        else:
            work, status = self.refuse(run.id), "failed"
        if run.status == "queued":
            self.do(work)
            self.reference.end(run, status, open_end=status == "failed")
        else:
            self.refused(work, "already_ended" if run.is_final else "invalid_transition")

    async def refuse(self, run_id: str) -> Run:
        await self.lifecycle.refuse_work(run_id, ErrorCode.CONFIG_INVALID, "no such agent")
        return await self.world.run(run_id)

    @precondition(lambda self: self.has("running", "waiting_input"))
    @rule(data=st.data())
    def the_budget_is_used_up(self, data: st.DataObject) -> None:
        run = self.run(data, "running", "waiting_input", "cancelling")
        work = self.world.command(run.id, ExceedBudget())
        if run.status == "waiting_input":
            self.refused(work, "invalid_transition")
        else:
            self.do(work)
            self.reference.stop(run, "budget_exceeded")

    # --- questions

    def question(self, data: st.DataObject, *statuses: str) -> Asked:
        """A question, by preference in one of `statuses`."""
        asked = list(self.reference.asked.values())
        fitting = [one for one in asked if one.status in statuses] or asked
        return data.draw(st.sampled_from(fitting), label="question")

    @precondition(lambda self: bool(self.reference.asked))
    @rule(data=st.data(), said=st.sampled_from([Verdict.APPROVE, Verdict.DENY]), fresh=st.booleans())
    def a_person_decides(self, data: st.DataObject, said: Verdict, fresh: bool) -> None:
        one = self.question(data, *(("open",) if fresh else ()))
        work = self.world.decide(one.id, said)
        if one.status in ("void", "expired"):
            self.refused(work, "request_closed")
        elif one.status != "open" and (one.said, one.by) != (said, USER):
            self.refused(work, "already_decided")
        else:
            request, _ = self.do(work)
            assert request["decision"]["decision"] == said
            if one.status == "open":
                self.reference.decided(one, said, USER)

    @precondition(lambda self: any(one.status == "open" for one in self.reference.asked.values()))
    @rule(data=st.data())
    def a_question_was_changed_meanwhile(self, data: st.DataObject) -> None:
        one = self.question(data, "open")
        self.refused(self.world.decide(one.id, Verdict.DENY, request_version=99), "version_conflict")

    @precondition(lambda self: any(one.status == "open" for one in self.reference.asked.values()))
    @rule(data=st.data(), early=st.booleans())
    def nobody_answers_in_time(self, data: st.DataObject, early: bool) -> None:
        one = self.question(data, "open")
        where = {"id": one.id}
        self.do(self.store.write(lambda tx: tx.change(Table.REQUESTS, where, {"expires_at": tx.now()})))
        if early:
            self.refused(self.world.decide(one.id, Verdict.APPROVE), "request_closed")
        assert self.do(self.lifecycle.sweep()) == 1
        self.reference.timed_out(one)

    @precondition(lambda self: any(one.status == "decided" for one in self.reference.asked.values()))
    @rule(data=st.data(), stale=st.booleans())
    def an_owner_consumes_a_decision(self, data: st.DataObject, stale: bool) -> None:
        one = self.question(data, "decided")
        run = self.reference.runs[one.run]
        fence = self.fence(run)
        fence = Fence(fence.run_id, fence.epoch - 1) if stale else fence
        work = self.lifecycle.recorder(fence).write(lambda tx, run: requests.consume(tx, run, [one.id]))
        if stale or run.status != "running":
            self.refused(work, "lease_lost")
        else:
            assert self.do(work) == 1
            one.status = "consumed"

    @rule(data=st.data(), deadline=st.sampled_from(["queue", "run", "run"]))
    def a_deadline_passes(self, data: st.DataObject, deadline: str) -> None:
        fitting = {"queue": ["queued"], "run": ["running", "waiting_input"]}[deadline]
        run = self.run(data, *(fitting if self.has(*fitting) else ()))
        self.do(self.store.write(lambda tx: _pass_deadline(tx, run.id, deadline)))
        due = {
            "queue": run.status == "queued" and run.attempt == 0,
            "run": run.status in ("queued", "running", "waiting_input"),
        }[deadline]
        assert self.do(self.lifecycle.sweep()) == due
        if due and run.status == "running":
            self.reference.stop(run, "run_deadline")
        elif due:
            self.reference.end(run, "expired")
        self.do(self.store.write(_forget_deadlines))

    # --- comparing

    def fence(self, run: RunState) -> Fence:
        return Fence(run.id, self.do(self.world.run(run.id)).epoch)

    @invariant()
    def the_database_says_what_the_reference_says(self) -> None:
        runs = self.do(self.store.read(lambda tx: tx.find_runs({}, order=("created_at", "id"))))
        for run in runs:  # successors that the last step had to start
            if run.id not in self.reference.runs:
                assert run.reason == "created_from_followup"
                self.reference.succeeded(self.reference.talks[run.conversation_id], run.id)
        for talk in self.reference.talks.values():
            assert self.reference.successor_is_due(talk) is None, "what waited had to start the next run"
        assert {run.id: run.status.value for run in runs} == {
            run.id: run.status for run in self.reference.runs.values()
        }
        for run in runs:
            before = self.stored.get(run.id, "queued")
            if run.status != before:
                edge = (before, run.status.value)
                assert edge in EDGES, "I1"
                self.edges[edge] += 1
            self.stored[run.id] = run.status.value
            assert run.crashes == self.reference.runs[run.id].crashes
            if run.stop is not None and run.is_final and run.status != "completed":
                assert run.stop.cause.value in END_OF_CAUSE
        asked = self.do(self.world.rows(Table.REQUESTS))
        assert {row["id"]: (row["status"], row["decided_by"]) for row in asked} == {
            one.id: (one.status, one.by) for one in self.reference.asked.values()
        }, "I6"
        for run in runs:
            still_open = self.reference.questions(self.reference.runs[run.id], "open")
            assert bool(still_open) == (run.status == "waiting_input"), "I7"
        rows = self.do(self.world.rows(Table.RUN_FOLLOWUPS))
        told = [(row["id"], row["status"], row["content"], row["when_busy"]) for row in rows]
        assert sorted(told) == sorted(
            (one.id, one.status, one.text, one.mode)
            for talk in self.reference.talks.values()
            for one in talk.waiting
        )
        for talk in self.reference.talks.values():
            in_order = sorted(
                (row for row in rows if row["conversation_id"] == talk.id), key=lambda r: r["position"]
            )
            waiting = [row["id"] for row in in_order if row["status"] in ("waiting", "held")]
            assert waiting == [one.id for one in talk.waiting if one.status in ("waiting", "held")]
            live = self.reference.live(talk)
            pointed = {row["run_id"] for row in in_order if row["status"] == "waiting"}
            assert pointed <= {live.id if live else None}, "what waits points at the live run"
            said = self.do(self.world.history(talk.id))
            assert [row["content"] for row in said if row["role"] == "user"] == talk.said

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.do(check_invariants(self.world))


def _pass_deadline(tx: Tx, run_id: str, deadline: str) -> None:
    column = {"queue": "queue_deadline_at", "run": "deadline_at"}[deadline]
    tx.change(Table.RUNS, {"id": run_id}, {column: tx.now()})


def _forget_deadlines(tx: Tx) -> None:
    tx.change(Table.RUNS, {}, {"queue_deadline_at": None, "deadline_at": None})


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.mark.promise("L1")
@pytest.mark.slow(1800 if FULL else 240)
def test_random_lives_agree_with_the_reference(opened_store: Store, runner: asyncio.Runner) -> None:
    edges: Counter[tuple[str, str]] = Counter()
    refusals: Counter[str] = Counter()

    class LivesHere(Lives):
        pass

    LivesHere.store, LivesHere.runner = opened_store, runner
    LivesHere.edges, LivesHere.refusals = edges, refusals
    for number in range(1 if FULL else BATCHES):
        run_state_machine_as_test(
            LivesHere if FULL else seed(number)(LivesHere),
            settings=settings(
                max_examples=600 if FULL else 45,
                stateful_step_count=80 if FULL else 60,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        if set(edges) == EDGES and set(refusals) >= REFUSALS and LivesHere.read:
            break
    assert set(edges) == EDGES, "every edge of the table was taken"
    assert set(refusals) >= REFUSALS, "every refusal was seen"
    assert LivesHere.read, "some messages were read while the run was at work"
