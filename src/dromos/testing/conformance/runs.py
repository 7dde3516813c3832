"""Runs: stored whole, changed only by compare-and-swap, at most one live one in a conversation, claimed once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from dromos.domain.errors import Duplicate, LeaseLost, LostRace
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Run, Stop, Wait
from dromos.domain.statuses import LIVE, OwnerKind, Recovery, RunStatus
from dromos.ports.store import In, Le, Ne, Table, Tx
from dromos.testing.conformance import Backend
from dromos.testing.conformance.rows_of import (
    NOON,
    a_user_with,
    attempt_of,
    checkpoint,
    conversation,
    lease,
    message,
    put,
    run,
)

RUNNING = RunStatus.RUNNING


def _everything() -> Run:
    """A run in which no field has its default."""
    later = NOON + timedelta(seconds=1)
    return Run(
        id="r1",
        user_id="ada",
        conversation_id="c1",
        agent="assistant",
        created_at=NOON,
        status=RunStatus.CANCELLING,
        reason=Reason.CANCEL_REQUESTED,
        error_code=ErrorCode.MODEL_AUTH,
        error_message="Wrong key",
        attempt=2,
        crashes=1,
        epoch=3,
        version=9,
        owner_id="w1",
        owner_kind=OwnerKind.WORKER,
        wait=Wait("backoff", later, "taken over"),
        not_before=later,
        stop=Stop(
            cause=Reason.CANCEL_REQUESTED,
            by="user",
            accepted_at=NOON,
            comment="enough",
            delivered_at=later,
            forced_at=later,
            outcome="forced",
            waiting_for={"tool": "pay", "since": "x", "until": "y"},
            unknown_calls=("call-1", "call-2"),
        ),
        trigger_message_id="m1",
        anchor_message_id="m2",
        resume_of="r0",
        retry_of="r00",
        parent_run_id="p1",
        session_id="s1",
        backend_policy={"order": ["a", "b"]},
        model="openai:x",
        model_used="openai:y",
        budget={"tokens": 100},
        step_limit=25,
        recovery=Recovery.ASK,
        deadline_at=later,
        queue_deadline_at=later,
        tries={"MODEL_AUTH": 2},
        steps=4,
        usage={"input_tokens": 10},
        cost={"usd": 0.25},
        line="Calling pay",
        document_version=17,
        started_at=NOON,
        finished_at=later,
        renewed_at=later,
        quiet_since=later,
    )


class TestOneRun:
    async def test_a_run_comes_back_equal(self, backend: Backend) -> None:
        await backend.store.write(lambda tx: tx.insert_run(_everything()))
        await backend.store.write(lambda tx: tx.insert_run(run("r2", "c2")))
        assert await backend.store.read(lambda tx: tx.load_run("r1")) == _everything()
        assert await backend.store.read(lambda tx: tx.load_run("r2")) == run("r2", "c2")
        assert await backend.store.write(lambda tx: tx.lock_run("r1")) == _everything()
        assert await backend.store.read(lambda tx: tx.load_run("r9")) is None

    async def test_a_swap_replaces_every_field(self, backend: Backend) -> None:
        before = run()
        await backend.store.write(lambda tx: tx.insert_run(before))
        await backend.store.write(lambda tx: tx.swap_run(before, _everything()))
        assert await backend.store.read(lambda tx: tx.load_run("r1")) == _everything()
        back = replace(before, version=10)
        await backend.store.write(lambda tx: tx.swap_run(_everything(), back))
        assert await backend.store.read(lambda tx: tx.load_run("r1")) == back

    @pytest.mark.parametrize(
        "stale",
        [{"status": RunStatus.QUEUED}, {"version": 4}, {"epoch": 1}, {"id": "r9"}],
        ids=lambda change: next(iter(change)),
    )
    async def test_a_swap_from_another_state_loses_the_race(
        self, backend: Backend, stale: dict[str, object]
    ) -> None:
        stored = run(status=RUNNING, version=5, epoch=2, owner_id="w1")
        await backend.store.write(lambda tx: tx.insert_run(stored))
        believed = replace(stored, **stale)  # type: ignore[arg-type]
        with pytest.raises(LostRace):
            await backend.store.write(
                lambda tx: tx.swap_run(believed, replace(believed, version=99, line="x"))
            )
        with pytest.raises(LostRace):
            await backend.store.write(lambda tx: tx.swap_run(believed, believed))
        assert await backend.store.read(lambda tx: tx.load_run("r1")) == stored

    async def test_a_swap_that_is_the_last_word_of_an_operation_is_not_lost_unnoticed(
        self, backend: Backend
    ) -> None:
        stored = run(status=RUNNING, version=5)
        await backend.store.write(lambda tx: tx.insert_run(stored))
        stale = replace(stored, version=4)

        def operation(tx: Tx, number: int = 0) -> None:
            assert tx.load_run("r1") == stored
            tx.put(Table.CONVERSATIONS, conversation(f"c{number}"))
            tx.swap_run(stale, replace(stale, version=99))

        with pytest.raises(LostRace):
            await backend.store.write(operation)
        # also where it shares a commit
        several = (backend.store.write(partial(operation, number=number)) for number in range(5))
        outcomes = await asyncio.gather(*several, return_exceptions=True)
        assert [type(one) for one in outcomes] == [LostRace] * 5
        assert await backend.store.read(lambda tx: tx.count(Table.CONVERSATIONS, {})) == 0

    async def test_of_many_swaps_from_one_state_exactly_one_wins(self, backend: Backend) -> None:
        stored = run()
        await backend.store.write(lambda tx: tx.insert_run(stored))
        there = await backend.elsewhere()

        async def claim(number: int) -> str | None:
            store = (backend.store, there)[number % 2]
            claimed = replace(stored, status=RUNNING, version=2, epoch=1, owner_id=f"w{number}")
            try:
                await store.write(lambda tx: tx.swap_run(stored, claimed))
            except LostRace:
                return None
            return claimed.owner_id

        winners = [owner for owner in await asyncio.gather(*map(claim, range(12))) if owner is not None]
        kept = await backend.store.read(lambda tx: tx.load_run("r1"))
        assert kept is not None and winners == [kept.owner_id]

    async def test_runs_are_found_by_condition_and_order(self, backend: Backend) -> None:
        statuses = list(RunStatus)

        def fill(tx: Tx) -> None:
            for number, status in enumerate(statuses):
                made = NOON + timedelta(seconds=number)
                tx.insert_run(
                    run(f"r{number}", f"c{number}", status=status, created_at=made, not_before=made)
                )

        await backend.store.write(fill)

        async def found(where: dict[str, object], limit: int | None = None) -> list[RunStatus]:
            runs = await backend.store.read(
                lambda tx: tx.find_runs(where, order=["-created_at"], limit=limit)
            )
            return [one.status for one in reversed(runs)]

        assert await found({}) == statuses
        assert await found({}, limit=2) == statuses[-2:]
        assert await found({"status": RUNNING}) == [RUNNING]
        assert await found({"status": "running"}) == [RUNNING]
        assert await found({"status": In(sorted(LIVE))}) == [status for status in statuses if status in LIVE]
        assert await found({"status": In(["completed", "queued"])}) == [RunStatus.QUEUED, RunStatus.COMPLETED]
        assert await found({"status": In([])}) == []
        assert await found({"status": Ne(RUNNING), "not_before": Le(NOON + timedelta(seconds=2))}) == [
            RunStatus.QUEUED,
            RunStatus.WAITING_INPUT,
        ]


class TestOneLiveRun:
    @pytest.mark.parametrize("status", sorted(LIVE))
    async def test_a_conversation_has_at_most_one_live_run(self, backend: Backend, status: RunStatus) -> None:
        await backend.store.write(lambda tx: tx.insert_run(run("r1", status=status)))
        with pytest.raises(Duplicate) as refused:
            await backend.store.write(lambda tx: tx.insert_run(run("r2")))
        assert refused.value.constraint == "uq_runs_live_conversation"
        with pytest.raises(Duplicate) as refused:
            await backend.store.write(lambda tx: tx.insert_run(run("r1", "c2")))
        assert refused.value.constraint == "pk_runs"

    async def test_ended_runs_do_not_count(self, backend: Backend) -> None:
        for number, status in enumerate(sorted(set(RunStatus) - LIVE)):
            ended = run(f"r{number}", status=status)
            await backend.store.write(lambda tx, ended=ended: tx.insert_run(ended))  # type: ignore[misc]
        await backend.store.write(lambda tx: tx.insert_run(run("live")))

    async def test_an_end_and_the_next_run_fit_into_one_operation(self, backend: Backend) -> None:
        first = run()
        await backend.store.write(lambda tx: tx.insert_run(first))

        def succeed(tx: Tx) -> None:
            tx.swap_run(first, replace(first, status=RunStatus.CANCELLED, version=2))
            tx.insert_run(run("r2"))

        await backend.store.write(succeed)
        assert await backend.store.read(lambda tx: tx.count(Table.RUNS, {"status": "queued"})) == 1

    async def test_of_many_starts_in_one_conversation_one_wins(self, backend: Backend) -> None:
        there = await backend.elsewhere()

        async def start(number: int) -> str:
            store = (backend.store, there)[number % 2]
            try:
                await store.write(lambda tx: tx.insert_run(run(f"r{number}")))
            except Duplicate as refused:
                return refused.constraint
            return "started"

        outcomes = await asyncio.gather(*map(start, range(10)))
        assert sorted(outcomes) == ["started"] + ["uq_runs_live_conversation"] * 9


class TestClaims:
    async def test_claimable_are_queued_runs_that_are_due_oldest_first(self, backend: Backend) -> None:
        def fill(tx: Tx) -> None:
            now = tx.now()
            tx.put(Table.CONVERSATIONS, conversation("going", state="deleting"))
            for number, (conversation_id, not_before) in enumerate(
                [
                    ("c1", None),
                    ("c2", now - timedelta(seconds=1)),
                    ("c3", now + timedelta(hours=1)),
                    ("going", None),
                ]
            ):
                made = NOON - timedelta(seconds=number)
                tx.insert_run(run(f"r{number + 1}", conversation_id, created_at=made, not_before=not_before))
            tx.insert_run(run("other", "c5", agent="poet", created_at=NOON + timedelta(seconds=1)))
            tx.insert_run(run("busy", "c6", status=RUNNING))
            tx.insert_run(run("done", "c7", status=RunStatus.COMPLETED))

        await backend.store.write(fill)

        async def ids(agents: list[str] | None, limit: int) -> list[str]:
            return [one.id for one in await backend.store.write(lambda tx: tx.claimable(agents, limit))]

        assert await ids(None, 10) == ["r2", "r1", "other"]
        assert await ids(None, 1) == ["r2"]
        assert await ids(["poet"], 10) == ["other"]
        assert await ids(["poet", "assistant"], 10) == ["r2", "r1", "other"]
        assert await ids([], 10) == []

    async def test_a_run_that_became_due_while_the_operation_ran_waits_for_the_next(
        self, backend: Backend
    ) -> None:
        def operation(tx: Tx) -> list[Run]:
            tx.insert_run(run("soon", "c1", not_before=tx.now() + timedelta(microseconds=1)))
            return tx.claimable(None, 10)

        assert await backend.store.write(operation) == [], "by the operation's own time it is not due"
        found = await backend.store.write(lambda tx: (tx.claimable(None, 10), tx.now()))
        assert all(one.not_before is not None and one.not_before <= found[1] for one in found[0])

    async def test_whether_a_run_waits_is_asked_of_the_same_rows_without_holding_them(
        self, backend: Backend
    ) -> None:
        def fill(tx: Tx) -> None:
            now = tx.now()
            tx.put(Table.CONVERSATIONS, conversation("going", state="deleting"))
            tx.insert_run(run("later", "c1", agent="later", not_before=now + timedelta(hours=1)))
            tx.insert_run(run("due", "c2", agent="due", not_before=now - timedelta(seconds=1)))
            tx.insert_run(run("of bob", "c3", agent="poet", user_id="bob"))
            tx.insert_run(run("erased", "going", agent="erased"))
            tx.insert_run(run("taken", "c4", agent="taken", status=RUNNING))

        await backend.store.write(fill)

        async def waits(*agents: str, user: str = "ada") -> bool:
            return await backend.store.read(lambda tx: tx.any_claimable(agents, user))

        assert await waits("due")
        assert await waits("later", "due")
        assert not await waits("later", "erased", "taken", "poet")
        assert await waits("poet", user="bob")
        assert not await waits()

    async def test_claims_leave_out_agents_and_other_people_and_prefer_the_owners_last_runs(
        self, backend: Backend
    ) -> None:
        def fill(tx: Tx) -> None:
            for number, (name, agent, user, last_owner) in enumerate(
                [
                    ("first", "poet", "ada", None),
                    ("of bob", "poet", "bob", None),
                    ("graph", "assistant", "ada", None),
                    ("mine", "poet", "ada", "s1"),
                    ("theirs", "poet", "ada", "s2"),
                ]
            ):
                made = NOON + timedelta(seconds=number)
                attempt = 0 if last_owner is None else 2
                tx.insert_run(
                    run(name, f"c of {name}", agent=agent, user_id=user, created_at=made, attempt=attempt)
                )
                if last_owner is not None:
                    tx.put(Table.RUN_ATTEMPTS, attempt_of(name, 1, "s3"))
                    tx.put(Table.RUN_ATTEMPTS, attempt_of(name, 2, last_owner))

        await backend.store.write(fill)

        async def ids(agents: list[str] | None, **asked: Any) -> list[str]:
            return [one.id for one in await backend.store.write(lambda tx: tx.claimable(agents, 10, **asked))]

        assert await ids(None, without=["poet"]) == ["graph"]
        assert await ids(None, without=["nobody"]) == ["first", "of bob", "graph", "mine", "theirs"]
        assert await ids(["poet"], user_id="bob") == ["of bob"]
        assert await ids(["poet"], user_id="ada", own_first="s1") == ["mine", "first", "theirs"]
        assert await ids(["poet"], user_id="ada", own_first="s3") == ["first", "mine", "theirs"]

    async def test_runs_are_claimed_by_one_of_many_claimers_each(self, backend: Backend) -> None:
        def fill(tx: Tx) -> None:
            for number in range(30):
                tx.insert_run(run(f"r{number:02}", f"c{number}", created_at=NOON + timedelta(seconds=number)))

        await backend.store.write(fill)
        there = await backend.elsewhere()

        async def claim_all(number: int) -> list[str]:
            store, mine = (backend.store, there)[number % 2], []

            def claim(tx: Tx) -> list[str]:
                chosen = tx.claimable(None, 2)
                for one in chosen:
                    tx.swap_run(
                        one,
                        replace(
                            one,
                            status=RUNNING,
                            version=one.version + 1,
                            epoch=one.epoch + 1,
                            owner_id=f"w{number}",
                        ),
                    )
                return [one.id for one in chosen]

            while claimed := await store.write(claim):
                mine += claimed
            return mine

        claimed = await asyncio.gather(*map(claim_all, range(6)))
        assert sorted(run_id for mine in claimed for run_id in mine) == [
            f"r{number:02}" for number in range(30)
        ]

    @pytest.mark.case("P137")
    async def test_orphans_are_owned_runs_without_a_lease_that_is_valid_by_the_databases_clock(
        self, backend: Backend
    ) -> None:
        def fill(tx: Tx) -> None:
            now = tx.now()
            tx.put(Table.LEASES, lease("valid", lease_until=now + timedelta(minutes=1)))
            tx.put(Table.LEASES, lease("expired", lease_until=now - timedelta(milliseconds=10)))
            tx.put(Table.LEASES, lease("endless", lease_until=None))
            for number, (name, owner, status) in enumerate(
                [
                    ("kept", "valid", RUNNING),
                    ("late", "expired", RUNNING),
                    ("embedded", "endless", RUNNING),
                    ("vanished", "nobody", RunStatus.CANCELLING),
                    ("strange", None, RUNNING),
                    ("queued", None, RunStatus.QUEUED),
                    ("parked", "expired", RunStatus.WAITING_INPUT),
                    ("ended", "expired", RunStatus.COMPLETED),
                ]
            ):
                made = NOON + timedelta(seconds=number)
                tx.insert_run(run(name, f"c of {name}", status=status, owner_id=owner, created_at=made))

        await backend.store.write(fill)
        orphans = await backend.store.write(lambda tx: tx.orphans(10))
        assert [one.id for one in orphans] == ["late", "vanished", "strange"]
        assert [one.id for one in await backend.store.write(lambda tx: tx.orphans(1))] == ["late"]

    async def test_a_run_of_an_adapter_session_is_an_orphan_by_its_own_last_sign_of_life(
        self, backend: Backend
    ) -> None:
        def fill(tx: Tx) -> None:
            tx.put(Table.LEASES, lease("endless", lease_until=None))
            for number, (name, status, ago) in enumerate(
                [("silent", RUNNING, 60), ("stopping", RunStatus.CANCELLING, 31), ("alive", RUNNING, 5)]
            ):
                tx.insert_run(
                    run(
                        name,
                        f"c of {name}",
                        status=status,
                        owner_id="endless",
                        owner_kind=OwnerKind.ADAPTER,
                        renewed_at=NOON - timedelta(seconds=ago),
                        created_at=NOON + timedelta(seconds=number),
                    )
                )

        await backend.store.write(fill)

        async def ids(until: datetime | None) -> list[str]:
            return [one.id for one in await backend.store.write(lambda tx: tx.orphans(10, until))]

        assert await ids(None) == []
        assert await ids(NOON - timedelta(seconds=30)) == ["silent", "stopping"]
        assert await ids(NOON) == ["silent", "stopping", "alive"]

    @pytest.mark.case("P137")
    async def test_a_renewed_lease_ends_ttl_seconds_after_the_databases_now(self, backend: Backend) -> None:
        await put(backend.store, Table.LEASES, lease("w1", lease_until=NOON))
        await backend.store.write(lambda tx: tx.insert_run(run(status=RUNNING, owner_id="w1")))
        assert len(await backend.store.write(lambda tx: tx.orphans(10))) == 1
        keeper = backend.lease_keeper()
        before = await backend.store.read(lambda tx: tx.now())
        assert await asyncio.to_thread(keeper.renew, "w1", 60.0) is True
        after = await backend.store.read(lambda tx: tx.now())
        row = await backend.store.read(lambda tx: tx.first(Table.LEASES, {"owner_id": "w1"}))
        assert row is not None
        assert before <= row["renewed_at"] <= after
        assert row["lease_until"] - row["renewed_at"] == pytest.approx(
            timedelta(seconds=60), abs=timedelta(seconds=1)
        )
        assert await backend.store.write(lambda tx: tx.orphans(10)) == []
        assert await asyncio.to_thread(keeper.renew, "somebody else", 60.0) is False

    @pytest.mark.case("P10")
    async def test_of_two_recoverers_with_the_same_stale_list_one_takes_the_run(
        self, backend: Backend
    ) -> None:
        await backend.store.write(lambda tx: tx.insert_run(run(status=RUNNING, owner_id="dead", epoch=1)))
        there = await backend.elsewhere()
        seen_by_a = await backend.store.write(lambda tx: tx.orphans(10))
        seen_by_b = await there.write(lambda tx: tx.orphans(10))
        assert seen_by_a == seen_by_b

        def take(tx: Tx, before: Run, owner: str) -> Run:
            after = replace(before, epoch=before.epoch + 1, version=before.version + 1, owner_id=owner)
            tx.swap_run(before, after)
            tx.put(Table.MESSAGES, message("c1", after.version, name=owner))
            return after

        taken = await backend.store.write(lambda tx: take(tx, seen_by_a[0], "a"))
        done = replace(taken, status=RunStatus.COMPLETED, version=taken.version + 1, owner_id=None)
        await backend.store.write(lambda tx: tx.swap_run(taken, done))
        with pytest.raises(LostRace):
            await there.write(lambda tx: take(tx, seen_by_b[0], "b"))
        rows = await backend.store.read(lambda tx: tx.find(Table.MESSAGES, {}, columns=["name"]))
        assert rows == [{"name": "a"}]


class TestFence:
    """Two incarnations in one test: the older one was paused while the run was taken over."""

    async def _taken_over(self, backend: Backend) -> tuple[Run, Run]:
        await a_user_with(backend.store, "c1")
        old = run(status=RUNNING, owner_id="old", epoch=1, version=2)
        new = replace(old, owner_id="new", epoch=3, version=4)
        await backend.store.write(lambda tx: tx.insert_run(old))
        await backend.store.write(lambda tx: tx.swap_run(old, new))
        return old, new

    @pytest.mark.case("P74")
    async def test_a_stale_writers_messages_never_mix_with_the_winners(self, backend: Backend) -> None:
        old, new = await self._taken_over(backend)
        there = await backend.elsewhere()

        def append(tx: Tx, mine: Run, num: int) -> None:
            tx.put(Table.MESSAGES, message("c1", num, name=mine.owner_id))
            tx.swap_run(mine, replace(mine, version=mine.version + 1))

        await there.write(lambda tx: append(tx, new, 1))
        with pytest.raises(LostRace):
            await backend.store.write(lambda tx: append(tx, old, 2))
        rows = await backend.store.read(lambda tx: tx.find(Table.MESSAGES, {}, columns=["name"]))
        assert rows == [{"name": "new"}]

    @pytest.mark.case("P75")
    async def test_a_refused_checkpoint_leaves_one_tip(self, backend: Backend) -> None:
        old, new = await self._taken_over(backend)
        there = await backend.elsewhere()
        await put(backend.store, Table.CHECKPOINTS, checkpoint("c1", "k1"))

        def save(tx: Tx, mine: Run, checkpoint_id: str) -> None:
            tx.put(
                Table.CHECKPOINTS, checkpoint("c1", checkpoint_id, parent_checkpoint_id="k1", run_id=mine.id)
            )
            stored = tx.lock_run(mine.id)
            if stored is None or stored.epoch != mine.epoch:
                raise LeaseLost(f"run {mine.id} has another owner")

        async def attempt(store_number: int, mine: Run, checkpoint_id: str) -> bool:
            try:
                await (backend.store, there)[store_number].write(lambda tx: save(tx, mine, checkpoint_id))
            except LeaseLost:
                return False
            return True

        saved = await asyncio.gather(attempt(0, old, "k2 old"), attempt(1, new, "k2 new"))
        assert list(saved) == [False, True]
        rows = await backend.store.read(
            lambda tx: tx.find(Table.CHECKPOINTS, {"parent_checkpoint_id": "k1"}, columns=["checkpoint_id"])
        )
        assert rows == [{"checkpoint_id": "k2 new"}]
