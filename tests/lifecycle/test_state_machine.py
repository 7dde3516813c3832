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
from hypothesis import HealthCheck, settings
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
from dromos.domain.machine import ExceedBudget, Resume, WithdrawAgent
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Fence, Run
from dromos.domain.statuses import Recovery, WhenBusy
from dromos.lifecycle.contract import Policy, Posted
from dromos.ports.agent import Drained, Failed, Finished, Outcome, Parked, TryLater
from dromos.ports.store import Store, Table, Tx
from tests.lifecycle.reference import EDGES, END_OF_CAUSE, Reference, RunState, Talk, Waiting
from tests.lifecycle.world import USER, Engine, World, check_invariants, compose, empty

T = TypeVar("T")
FULL = os.environ.get("FULL") == "1"
OWNERS = ("owner-a", "owner-b")
OUTCOMES: dict[str, tuple[Outcome, str]] = {
    "finish": (Finished(), "completed"),
    "fail": (Failed(ErrorCode.AGENT_FAILURE, "broken"), "failed"),
    "later": (TryLater(Reason.RETRY_BACKOFF, 0.0, {}, "again"), "queued"),
    "drain": (Drained(), "queued"),
    "park": (Parked(Reason.QUESTION_ASKED, ({"kind": "question", "prompt": "?"},)), "waiting_input"),
}
REFUSALS = {
    *("already_ended", "invalid_transition", "conversation_busy", "run_not_resumable"),
    *("version_conflict", "not_found", "lease_lost"),
}


class Lives(RuleBasedStateMachine):
    """Any number of conversations of one person, two owners, every door of the lifecycle."""

    store: Store
    runner: asyncio.Runner
    edges: Counter[tuple[str, str]]
    refusals: Counter[str]

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
        front = False
        if live is not None and when_busy is WhenBusy.INTERRUPT and live.status != "cancelling":
            at_once = self.reference.stop(live, "superseded")
            front = not at_once
        assert (posted.run is not None) == at_once
        if posted.run is not None:
            self.reference.started(talk, posted.run.id)
        else:
            assert posted.followup is not None and live is not None
            waiting = Waiting(
                posted.followup["id"], text, during_stop=live.status == "cancelling" and not front
            )
            open_ones = [one for one in talk.waiting if one.status in ("waiting", "held")]
            place = talk.waiting.index(open_ones[0]) if front and open_ones else len(talk.waiting)
            talk.waiting.insert(place, waiting)

    @precondition(lambda self: len(self.reference.talks) < 3)
    @rule()
    def a_message_opens_a_conversation(self) -> None:
        self.posted(None, "hello", WhenBusy.QUEUE)

    @rule(
        data=st.data(),
        when_busy=st.sampled_from([*[WhenBusy.QUEUE] * 3, WhenBusy.STEER, *[WhenBusy.INTERRUPT] * 2]),
    )
    def a_message(self, data: st.DataObject, when_busy: WhenBusy) -> None:
        self.posted(self.talk(data), f"message {len(self.stored)}", when_busy)

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

    @rule(data=st.data())
    def a_continue(self, data: st.DataObject) -> None:
        talk = self.talk(data)
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
    @rule(data=st.data(), action=st.sampled_from(["send", "discard", "edit"]))
    def a_follow_up(self, data: st.DataObject, action: str) -> None:
        pairs = [(talk, one) for talk in self.reference.talks.values() for one in talk.waiting]
        talk, one = data.draw(st.sampled_from(pairs), label="follow-up")
        is_open = one.status in ("waiting", "held")
        if action == "edit":
            self.refused(self.lifecycle.change_followup(USER, one.id, -1, content="lost"), "version_conflict")
        elif action == "discard" and one.status != "applied":
            self.do(self.lifecycle.discard_followup(USER, one.id))
            one.status = "discarded"
        elif action == "discard" or not is_open:
            work = self.lifecycle.discard_followup(USER, one.id) if action == "discard" else self.send(one)
            self.refused(work, "version_conflict")
        else:
            posted = self.do(self.send(one))
            live = self.reference.live(talk)
            assert (posted.run is None) == (live is not None)
            if live is None:
                one.status = "applied"
                self.reference.started(talk, posted.run.id)
            elif one.status == "held":
                one.status, one.during_stop = "waiting", live.status == "cancelling"
                talk.waiting.remove(one)
                talk.waiting.append(one)

    async def send(self, one: Waiting) -> Any:
        out: list[Any] = []

        def encode(posted: Any) -> tuple[int, str]:
            out.append(posted)
            return 201, "{}"

        await self.lifecycle.send_followup(USER, one.id, "assistant", encode, None)
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

    @precondition(lambda self: self.has("queued", "running"))
    @rule(data=st.data(), owner=st.sampled_from(OWNERS), name=st.sampled_from([*sorted(OUTCOMES), "park"]))
    def work_goes_on(self, data: st.DataObject, owner: str, name: str) -> None:
        if self.has("queued"):
            self.a_claim(owner, True)
        else:
            self.an_attempt_ends(data, name)

    @precondition(lambda self: self.has("running", "queued"))
    @rule(data=st.data(), owner=st.sampled_from(OWNERS))
    def work_goes_on_to_a_question(self, data: st.DataObject, owner: str) -> None:
        self.work_goes_on(data, owner, "park")

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

    @rule(data=st.data())
    def the_last_question_is_answered(self, data: st.DataObject) -> None:
        run = self.run(data, *(("waiting_input",) if self.has("waiting_input") else ()))
        if run.status != "waiting_input":
            self.refused(
                self.world.command(run.id, Resume()),
                "already_ended" if run.is_final else "invalid_transition",
            )
            return
        where = {"run_id": run.id, "status": "open"}
        self.do(self.store.write(lambda tx: tx.change(Table.REQUESTS, where, {"status": "decided"})))
        self.do(self.world.command(run.id, Resume()))
        run.status = "queued"

    @rule(data=st.data(), deadline=st.sampled_from(["queue", "run", "run", "input"]))
    def a_deadline_passes(self, data: st.DataObject, deadline: str) -> None:
        fitting = {"queue": ["queued"], "run": ["running", "waiting_input"], "input": ["waiting_input"]}[
            deadline
        ]
        run = self.run(data, *(fitting if self.has(*fitting) else ()))
        self.do(self.store.write(lambda tx: _pass_deadline(tx, run.id, deadline)))
        due = {
            "queue": run.status == "queued" and run.attempt == 0,
            "run": run.status in ("queued", "running", "waiting_input"),
            "input": run.status == "waiting_input",
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
        rows = self.do(self.world.rows(Table.RUN_FOLLOWUPS))
        assert {row["id"]: row["status"] for row in rows} == {
            one.id: one.status for talk in self.reference.talks.values() for one in talk.waiting
        }
        for talk in self.reference.talks.values():
            in_order = sorted(
                (row for row in rows if row["conversation_id"] == talk.id), key=lambda r: r["position"]
            )
            waiting = [row["id"] for row in in_order if row["status"] in ("waiting", "held")]
            assert waiting == [one.id for one in talk.waiting if one.status in ("waiting", "held")]
            live = self.reference.live(talk)
            pointed = {row["run_id"] for row in in_order if row["status"] == "waiting"}
            assert pointed <= {live.id if live else None}, "what waits points at the live run"

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.do(check_invariants(self.world))


def _pass_deadline(tx: Tx, run_id: str, deadline: str) -> None:
    if deadline == "input":
        past = {"expires_at": tx.now(), "on_timeout": "expire"}
        tx.change(Table.REQUESTS, {"run_id": run_id, "status": "open"}, past)
    else:
        column = {"queue": "queue_deadline_at", "run": "deadline_at"}[deadline]
        tx.change(Table.RUNS, {"id": run_id}, {column: tx.now()})


def _forget_deadlines(tx: Tx) -> None:
    tx.change(Table.RUNS, {}, {"queue_deadline_at": None, "deadline_at": None})
    tx.change(Table.REQUESTS, {}, {"expires_at": None})


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.mark.promise("L1")
@pytest.mark.slow(1800 if FULL else 90)
def test_random_lives_agree_with_the_reference(opened_store: Store, runner: asyncio.Runner) -> None:
    edges: Counter[tuple[str, str]] = Counter()
    refusals: Counter[str] = Counter()

    class LivesHere(Lives):
        pass

    LivesHere.store, LivesHere.runner = opened_store, runner
    LivesHere.edges, LivesHere.refusals = edges, refusals
    run_state_machine_as_test(
        LivesHere,
        settings=settings(
            max_examples=600 if FULL else 60,
            stateful_step_count=80 if FULL else 60,
            derandomize=not FULL,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert set(edges) == EDGES, "every edge of the table was taken"
    assert set(refusals) >= REFUSALS, "every refusal was seen"
