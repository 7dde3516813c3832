"""Runs that are taken as they were seen last, and transactions that are begun ahead: nobody may notice either."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from dromos.domain.errors import Duplicate, LeaseLost, StoreUnavailable
from dromos.domain.runs import Run
from dromos.ports.store import Table, Tx
from dromos.store.migrations import check_schema, migrate
from dromos.store.postgres import work
from dromos.store.postgres.store import PostgresStore
from dromos.store.seen import MOST, LatestLife, Seen, SeenRows
from dromos.testing.conformance.rows_of import conversation, put, run, user
from dromos.testing.postgres_server import PostgresServer
from dromos.testing.waiting import eventually
from tests.store.holding import together
from tests.store.severing import SeveringProxy
from tests.store.two_runs import add_two_runs, lock

LONG = 60.0


def _opened(url: str) -> PostgresStore:
    return PostgresStore(url, partial(check_schema, url), writers=1)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations follow each other closely, however slow this machine is."""
    monkeypatch.setattr(work, "AHEAD_S", LONG)
    monkeypatch.setattr(work, "FRESH_S", LONG)
    monkeypatch.setattr(work.WriterWork, "rests_after", LONG)


@pytest.fixture
async def store(emptied_postgres_url: str) -> AsyncIterator[PostgresStore]:
    made = _opened(emptied_postgres_url)
    await add_two_runs(made)
    yield made
    await made.aclose()


def _elsewhere(store: PostgresStore, sql: str) -> list[Any]:
    """What another program does, or sees."""
    with psycopg.connect(store.url, autocommit=True) as other:
        cursor = other.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


def _now(store: PostgresStore) -> datetime:
    told: datetime = _elsewhere(store, "SELECT clock_timestamp()")[0][0]
    return told


def _idle(store: PostgresStore) -> list[Any]:
    return _elsewhere(
        store,
        "SELECT pid FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' "
        "AND datname = current_database()",
    )


class TestAsSeen:
    @pytest.mark.parametrize("within", ["c1", None])
    async def test_a_run_that_was_locked_before_is_not_waited_for(
        self, hurried: None, store: PostgresStore, within: str | None
    ) -> None:
        def note(name: str, tx: Tx) -> Run | None:
            found = tx.lock_run("r1", within=within)
            tx.put(Table.USERS, user(name))
            return found

        first = await store.write(partial(note, "bob"))
        before = store.statistics.figures()
        assert await store.write(partial(note, "cyd")) == first
        after = store.statistics.figures()
        assert after.round_trips - before.round_trips == 1
        assert after.retries == before.retries
        assert await store.read(lambda tx: tx.count(Table.USERS, {})) == 3

    @pytest.mark.parametrize(
        "change", ["UPDATE runs SET model = 'other'", "UPDATE conversations SET title = 'other'"]
    )
    async def test_what_another_program_changed_is_seen(
        self, hurried: None, store: PostgresStore, change: str
    ) -> None:
        def look(tx: Tx) -> tuple[Any, Any]:
            found = lock(1, tx)
            row = tx.lock(Table.CONVERSATIONS, {"id": "c1"})
            assert row is not None
            return found.model, row["title"]

        before = await store.write(look)
        _elsewhere(store, change)
        after = await store.write(look)
        assert after != before and "other" in after
        assert store.statistics.figures().retries == 1
        assert await store.write(look) == after
        assert store.statistics.figures().retries == 1

    async def test_what_a_lock_waits_for_is_seen(self, hurried: None, store: PostgresStore) -> None:
        took: list[str | None] = []

        def look(tx: Tx) -> None:
            took.append(lock(1, tx).model)
            tx.put(Table.USERS, user("bob"))

        await store.write(partial(lock, 1))
        with psycopg.connect(store.url) as other:
            other.execute("UPDATE runs SET model = 'other' WHERE id = 'r1'")
            looking = asyncio.ensure_future(store.write(look))
            blocked = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            await eventually(lambda: _elsewhere(store, blocked), what="the lock is waited for")
            other.commit()
        await looking
        assert took == [run().model, "other"]

    async def test_an_error_that_was_decided_on_what_is_no_more_is_not_told(
        self, hurried: None, store: PostgresStore
    ) -> None:
        def only_the_fourth(tx: Tx) -> int:
            found = lock(1, tx)
            if found.epoch != 4:
                raise LeaseLost(f"epoch {found.epoch}")
            return found.epoch

        with pytest.raises(LeaseLost):
            await store.write(only_the_fourth)
        with pytest.raises(LeaseLost):
            await store.write(only_the_fourth)
        _elsewhere(store, "UPDATE runs SET epoch = 4 WHERE id = 'r1'")
        assert await store.write(only_the_fourth) == 4

    async def test_a_run_that_is_gone_is_not_found(self, hurried: None, store: PostgresStore) -> None:
        await store.write(partial(lock, 1))
        _elsewhere(store, "DELETE FROM runs WHERE id = 'r1'")
        assert await store.write(lambda tx: tx.lock_run("r1", within="c1")) is None
        assert await store.write(lambda tx: tx.lock_run("r1")) is None

    @pytest.mark.parametrize("change", ["swap", "set", "upsert", "change", "by another column"])
    async def test_own_writes_are_no_reason_to_do_anything_twice(
        self, hurried: None, store: PostgresStore, change: str
    ) -> None:
        def write(tx: Tx) -> None:
            found = lock(1, tx)
            match change:
                case "swap":
                    tx.swap_run(found, replace(found, model="mine"))
                case "set":
                    tx.set(Table.RUNS, {"id": "r1"}, {"model": "mine"})
                case "upsert":
                    tx.upsert(Table.CONVERSATIONS, conversation("c1", title="mine"))
                    tx.change(Table.RUNS, {"id": "r1"}, {"model": "mine"})
                case "change":
                    tx.change(Table.RUNS, {"id": "r1"}, {"model": "mine"})
                case _:
                    tx.change(Table.RUNS, {"conversation_id": "c1"}, {"model": "mine"})

        for _ in range(3):
            await store.write(write)
            assert (await store.write(partial(lock, 1))).model == "mine"
            assert (await store.write(lambda tx: tx.lock_run("r1"))).model == "mine"  # type: ignore[union-attr]
        assert store.statistics.figures().retries == 0

    async def test_a_group_in_which_one_is_no_longer_as_it_was_is_done_right(
        self, hurried: None, store: PostgresStore
    ) -> None:
        took: dict[int, list[str | None]] = {1: [], 2: []}

        def note(number: int, tx: Tx) -> None:
            took[number].append(lock(number, tx).model)
            tx.put(Table.USERS, user(f"of {number}"))

        for number in (1, 2):
            await store.write(partial(lock, number))
        _elsewhere(store, "UPDATE runs SET model = 'other' WHERE id = 'r2'")
        await together(store, [partial(note, 1), partial(note, 2)])
        assert took[2][-1] == "other" and took[1][-1] == run().model
        assert await store.read(lambda tx: tx.count(Table.USERS, {})) == 3

    async def test_the_conversation_may_be_written_by_who_holds_it(
        self, hurried: None, store: PostgresStore
    ) -> None:
        def count(tx: Tx) -> int:
            lock(1, tx)
            row = tx.lock(Table.CONVERSATIONS, {"id": "c1"})
            assert row is not None
            tx.set(Table.CONVERSATIONS, {"id": "c1"}, {"next_num": row["next_num"] + 1})
            return int(row["next_num"])

        numbers = [await store.write(count) for _ in range(4)]
        assert numbers == list(range(numbers[0], numbers[0] + 4))
        assert store.statistics.figures().retries == 0

    @pytest.mark.parametrize("commits", [True, False])
    async def test_what_an_operation_wrote_itself_is_not_kept(
        self, hurried: None, store: PostgresStore, commits: bool
    ) -> None:
        def write_and_lock(tx: Tx) -> None:
            lock(1, tx)
            tx.change(Table.RUNS, {"id": "r1"}, {"model": "mine"})
            assert lock(1, tx).model == "mine"
            if not commits:
                raise LookupError

        for turn in range(2):
            with nullcontext() if commits else pytest.raises(LookupError):
                await store.write(write_and_lock)
            await put(store, Table.USERS, user(f"u{turn}"))
            assert (await store.write(partial(lock, 1))).model == ("mine" if commits else None)
        assert store.statistics.figures().retries == 0

    async def test_what_one_of_a_group_wrote_is_not_kept_where_the_group_is_taken_back(
        self, hurried: None, store: PostgresStore
    ) -> None:
        calls: Counter[str] = Counter()

        def write(tx: Tx) -> None:
            calls["write"] += 1
            lock(1, tx)
            tx.change(Table.RUNS, {"id": "r1"}, {"model": "mine"})

        def look(tx: Tx) -> None:
            calls["look"] += 1
            assert lock(1, tx).model == "mine"

        def be_refused(tx: Tx) -> None:
            tx.put(Table.USERS, user("ada"))

        done = await together(store, [write, look, be_refused])
        assert [type(one) for one in done] == [type(None), type(None), Duplicate]
        assert calls == {"write": 2, "look": 2}, "at first together, then with care"

    def test_only_so_many_are_kept_and_not_for_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = SeenRows()
        keys = [(Table.RUNS, f"r{number}") for number in range(MOST + 1)]
        rows.keep({key: Seen((), "1") for key in keys[:-1]})
        assert rows.get(keys[0]) is not None
        rows.keep({keys[-1]: Seen((), "1")})
        assert rows.get(keys[0]) is None and rows.get(keys[-1]) is not None
        monkeypatch.setattr("dromos.store.seen.KEPT_S", 0.0)
        assert rows.get(keys[-1]) is None

    def test_of_another_server_nothing_is_taken(self) -> None:
        latest, key = LatestLife(), (Table.RUNS, "r1")
        first = latest.of("first")
        first.keep({key: Seen((), "1")})
        assert latest.of("first").get(key) is not None
        assert latest.of("second").get(key) is None
        first.keep({key: Seen((), "1")})  # by whoever has not noticed
        assert latest.of("second").get(key) is None


class TestAhead:
    async def test_a_transaction_that_was_begun_ahead_locks_nothing(
        self, hurried: None, store: PostgresStore
    ) -> None:
        await store.write(partial(lock, 1))
        assert len(_idle(store)) == 1
        held = _elsewhere(
            store,
            "SELECT locktype FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE state LIKE 'idle in%'",
        )
        assert {kind for (kind,) in held} <= {"virtualxid", "transactionid"}
        assert _elsewhere(store, "SELECT id FROM runs FOR UPDATE NOWAIT") == [("r1",), ("r2",)]

    async def test_it_is_given_up_where_nothing_comes(self, store: PostgresStore) -> None:
        for _ in range(20):
            await store.write(partial(lock, 1))
        await eventually(lambda: not _idle(store), what="no transaction is idle")
        assert (await store.write(partial(lock, 1))).id == "r1"

    @pytest.mark.parametrize("slept", [600.0, 3600.0])
    async def test_its_clock_goes_on_and_it_is_not_used_after_a_while(
        self, hurried: None, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, slept: float
    ) -> None:
        monkeypatch.setattr(work, "FRESH_S", 2000.0)
        elapsed = work._elapsed
        for turn in range(3):
            await put(store, Table.USERS, user(f"u{turn}"))
            began = _now(store)
            monkeypatch.setattr(work, "_elapsed", lambda turn=turn: elapsed() + slept * (turn + 1))
            told, real = await store.write(lambda tx: tx.now()), _now(store)
            if slept < work.FRESH_S:  # as if so much had passed since
                assert began + timedelta(seconds=slept - 60) < told < real + timedelta(seconds=slept)
            else:  # it was begun anew, and the database says that no time has passed
                assert began <= told <= real
        assert await store.read(lambda tx: tx.count(Table.USERS, {})) == 4

    async def test_it_may_be_lost(self, hurried: None, store: PostgresStore) -> None:
        for turn in range(3):
            await put(store, Table.USERS, user(f"u{turn}"))
            assert _elsewhere(store, f"SELECT pg_terminate_backend({_idle(store)[0][0]}, 10000)")
        assert await store.write(lambda tx: tx.count(Table.USERS, {})) == 4

    @pytest.mark.parametrize("group", [1, 2])
    async def test_where_it_cannot_begin_the_commit_before_it_counts(
        self, hurried: None, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, group: int
    ) -> None:
        calls = 0
        right = work._CLOCK_AND_NUMBER

        def note(name: str, tx: Tx) -> None:
            nonlocal calls
            calls += 1
            tx.put(Table.USERS, user(name))
            monkeypatch.setattr(work, "_CLOCK_AND_NUMBER", "SELECT 1 / (random() * 0)::int, ''")

        await store.write(partial(lock, 1))
        await together(store, [partial(note, f"u{number}") for number in range(group)])
        assert calls == group
        monkeypatch.setattr(work, "_CLOCK_AND_NUMBER", right)
        await put(store, Table.USERS, user("last"))
        assert await store.read(lambda tx: tx.count(Table.USERS, {})) == group + 2

    @pytest.mark.parametrize("taken", [True, False])
    @pytest.mark.slow(60)
    async def test_its_number_may_be_another_transactions_behind_a_crash(
        self, hurried: None, taken: bool
    ) -> None:
        with PostgresServer(durable=True) as server:
            url = server.url()
            migrate(url)
            store = _opened(url)
            await put(store, Table.USERS, user("ada"))
            await put(store, Table.USERS, user("bob"))
            assert len(_idle(store)) == 1
            await asyncio.to_thread(_crash, url)
            other = _opened(url)
            if taken:
                await put(other, Table.USERS, user("cyd"))
                with pytest.raises(StoreUnavailable, match="cannot be found out"):
                    await put(store, Table.USERS, user("dan"))
            else:
                await put(store, Table.USERS, user("dan"))
            dans = await other.read(lambda tx: tx.count(Table.USERS, {"id": "dan"}))
            assert dans == (0 if taken else 1)
            await store.aclose()
            await other.aclose()

    @pytest.mark.parametrize("lost", ["lose_commit", "lose_answer_to_commit"])
    async def test_what_became_of_a_commit_is_found_out_behind_it_too(
        self, hurried: None, emptied_postgres_url: str, lost: str
    ) -> None:
        with SeveringProxy(emptied_postgres_url) as proxy:
            store = _opened(proxy.url)
            await add_two_runs(store)

            def count(tx: Tx) -> int:
                lock(1, tx)
                row = tx.lock(Table.USERS, {"id": "ada"})
                assert row is not None
                tx.set(Table.USERS, {"id": "ada"}, {"first_seq": row["first_seq"] + 1})
                return int(row["first_seq"])

            start = await store.write(count)
            for turn in range(3):
                getattr(proxy, lost)()
                assert await store.write(count) == start + 2 * turn + 1
                assert await store.write(count) == start + 2 * turn + 2
            assert proxy.lost == 3
            await store.aclose()


def _crash(url: str) -> None:
    """One process of the server dies; the server starts anew by itself. Returns when it is there again."""
    with closing(psycopg.connect(url, autocommit=True)) as dying:
        os.kill(dying.info.backend_pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while _answers(lambda: dying.execute("SELECT 1")):
            assert time.monotonic() < deadline, "the process did not die"
    while not _answers(lambda: psycopg.connect(url).close()):
        assert time.monotonic() < deadline, "the server did not come back"


def _answers(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except psycopg.Error:
        return False
    return True
