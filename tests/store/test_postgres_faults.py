"""PostgreSQL that goes away, comes back, gives way or refuses: nothing is lost, done twice, or left unsaid."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace

import psycopg
import pytest

from dromos.domain.errors import StoreUnavailable
from dromos.ports.store import ReadTx, Table, Tx
from dromos.store.migrations import check_schema
from dromos.store.opening import open_store
from dromos.store.postgres import connections, work
from dromos.store.postgres.connections import Link, is_on_this_machine, place
from dromos.store.postgres.store import PostgresStore
from dromos.testing.conformance.rows_of import event, lease, put, user
from dromos.testing.postgres_server import PostgresServer
from dromos.testing.processes import free_port
from dromos.testing.waiting import eventually
from tests.store.severing import SeveringProxy


def _store(url: str, writers: int = 2) -> PostgresStore:
    return PostgresStore(url, partial(check_schema, url), writers=writers)


@pytest.fixture
async def store(emptied_postgres_url: str) -> AsyncIterator[PostgresStore]:
    made = _store(emptied_postgres_url)
    yield made
    await made.aclose()


def _terminate_all(url: str) -> int:
    """End every other connection to the database, as an administrator or a pooler does."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return len(cursor.fetchall())


def _add(tx: Tx) -> int:
    row = tx.lock(Table.USERS, {"id": "ada"})
    assert row is not None
    tx.change(Table.USERS, {"id": "ada"}, {"first_seq": row["first_seq"] + 1})
    return int(row["first_seq"])


def _sum(tx: ReadTx) -> int:
    row = tx.first(Table.USERS, {"id": "ada"})
    assert row is not None
    return int(row["first_seq"]) - 1


class TestLostConnections:
    @pytest.mark.case("P107")
    async def test_connections_that_were_closed_while_idle_are_replaced_unnoticed(
        self, store: PostgresStore
    ) -> None:
        await put(store, Table.USERS, user())
        await put(store, Table.LEASES, lease("w1"))
        keeper = store.lease_keeper()
        assert await asyncio.to_thread(keeper.renew, "w1", 10.0)
        for turn in range(3):
            assert await store.read(_sum) == turn
            assert await asyncio.to_thread(_terminate_all, store.url) >= 2
            assert await asyncio.to_thread(keeper.renew, "w1", 10.0)
            assert await store.write(_add) == turn + 1
        assert await store.read(_sum) == 3
        keeper.close()

    @pytest.mark.case("P107")
    @pytest.mark.slow(60)
    async def test_work_goes_on_exactly_once_while_all_connections_are_ended_again_and_again(
        self, store: PostgresStore
    ) -> None:
        await put(store, Table.USERS, user())
        done = asyncio.Event()

        async def work_on() -> None:
            for _ in range(40):
                await store.write(_add)
                await store.write(lambda tx: tx.append_events("ada", [event()]))
                await store.read(_sum)

        async def harass() -> int:
            ended = 0
            while not done.is_set():
                commits = store.statistics.figures().commits
                ended += await asyncio.to_thread(_terminate_all, store.url)
                await eventually(
                    lambda commits=commits: done.is_set() or store.statistics.figures().commits > commits,  # type: ignore[misc]
                    what="progress",
                )
            return ended

        harassing = asyncio.ensure_future(harass())
        await asyncio.gather(*(work_on() for _ in range(8)))
        done.set()
        assert await harassing > 10
        assert store.statistics.figures().retries > 0
        assert await store.read(_sum) == 320
        events = await store.read(lambda tx: tx.find(Table.EVENTS, {}, order=["seq"], columns=["seq"]))
        assert [row["seq"] for row in events] == list(range(1, 321))

    async def test_an_operation_whose_connection_dies_inside_it_runs_again(
        self, store: PostgresStore
    ) -> None:
        await put(store, Table.USERS, user())
        calls = 0

        def die_once(tx: Tx) -> int:
            nonlocal calls
            calls += 1
            value = _add(tx)
            if calls == 1:
                _terminate_all(store.url)
                tx.count(Table.USERS, {})
            return value

        assert await store.write(die_once) == 1
        assert calls == 2
        assert await store.read(_sum) == 1

    @pytest.mark.parametrize("lost", ["lose_commit", "lose_answer_to_commit"])
    async def test_what_became_of_a_commit_without_answer_is_found_out(
        self, emptied_postgres_url: str, lost: str
    ) -> None:
        with SeveringProxy(emptied_postgres_url) as proxy:
            store = _store(proxy.url, writers=1)
            await put(store, Table.USERS, user())
            for turn in range(3):
                getattr(proxy, lost)()
                # blind addition: done twice or not at all, it would show
                assert await store.write(_add) == turn + 1
            assert await store.read(_sum) == 3
            assert proxy.lost == 3
            await store.aclose()

    async def test_a_loss_that_was_found_out_leaves_patience_for_the_next_one(
        self, emptied_postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        passed = 0.0
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed, sleep=time.sleep)
        monkeypatch.setattr(connections, "time", clock)
        with SeveringProxy(emptied_postgres_url) as proxy:
            store = _store(proxy.url, writers=1)
            await put(store, Table.USERS, user())
            for turn, lose in enumerate((proxy.lose_answer_to_commit, proxy.lose_commit)):
                lose()
                assert await store.write(_add) == turn + 1
                passed += 2 * work.WRITE_PATIENCE_S
            assert proxy.lost == 2
            await store.aclose()

    async def test_a_commit_whose_outcome_stays_unknown_is_told_so(
        self, emptied_postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(work, "WRITE_PATIENCE_S", 0.3)
        with SeveringProxy(emptied_postgres_url) as proxy:
            store = _store(proxy.url, writers=1)
            await put(store, Table.USERS, user())
            proxy.lose_answer_to_commit()
            proxy.refuse_new_connections()
            with pytest.raises(StoreUnavailable, match="cannot be found out"):
                await store.write(_add)
            await store.aclose()

    @pytest.mark.slow(60)
    async def test_a_restart_of_the_server_is_waited_for(self) -> None:
        with PostgresServer() as server:
            store = await open_store(server.url())
            await put(store, Table.USERS, user())
            await store.read(_sum)
            await asyncio.to_thread(server.stop)
            waiting = [asyncio.ensure_future(store.write(_add)) for _ in range(5)]
            await asyncio.to_thread(server.start)
            assert sorted(await asyncio.gather(*waiting)) == [1, 2, 3, 4, 5]
            assert await store.read(_sum) == 5
            await store.aclose()

    @pytest.mark.case("P63")
    @pytest.mark.slow(60)
    async def test_a_server_that_stays_away_is_an_error_with_its_cure(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(work, "WRITE_PATIENCE_S", 0.3)
        monkeypatch.setattr(work, "READ_PATIENCE_S", 0.3)
        with PostgresServer() as server:
            store = await open_store(server.url())
            await put(store, Table.USERS, user())
            await store.read(_sum)
            keeper = store.lease_keeper()
            await asyncio.to_thread(server.stop)
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="start the database server"):
                    await store.write(_add)
                with pytest.raises(StoreUnavailable, match="start the database server"):
                    await store.read(_sum)
            with pytest.raises(StoreUnavailable, match="start the database server"):
                await store.check()
            with pytest.raises(StoreUnavailable, match="start the database server"):
                await asyncio.to_thread(keeper.renew, "w1", 10.0)
            assert store.statistics.figures().failures == 2
            await asyncio.to_thread(server.start)
            assert await store.write(_add) == 1
            await store.check()
            await store.aclose()

    async def test_a_silent_link_is_noticed_by_the_system_within_seconds(
        self, emptied_postgres_url: str
    ) -> None:
        with SeveringProxy(emptied_postgres_url) as proxy:
            link = Link(proxy.url)
            await asyncio.to_thread(link.open)
            assert link.fileno is not None
            with socket.socket(fileno=socket.dup(link.fileno)) as same:
                assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
                assert same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                idle = same.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
                interval = same.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
                count = same.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
                assert idle + interval * count <= 15
            link.drop()

    @pytest.mark.case("P107")
    async def test_a_frozen_connection_is_given_up_after_a_bounded_time(
        self, emptied_postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections, "FROZEN_S", 0.5)
        monkeypatch.setattr(connections, "STATEMENT_TIMEOUT_MS", 500)
        with SeveringProxy(emptied_postgres_url) as proxy:
            store = _store(proxy.url)
            await put(store, Table.USERS, user())
            assert await store.read(_sum) == 0
            proxy.freeze()
            assert await asyncio.wait_for(store.write(_add), 10) == 1
            assert await asyncio.wait_for(store.read(_sum), 10) == 1
            await store.aclose()


class TestLocks:
    async def test_an_operation_behind_a_lock_of_others_does_not_hold_up_its_group(
        self, store: PostgresStore
    ) -> None:
        await store.aclose()
        store = _store(store.url, writers=1)
        await put(store, Table.USERS, user("ada"), user("bob"), user("cyd"))
        began, go_on = threading.Event(), threading.Event()

        def hold(tx: Tx) -> None:
            began.set()
            assert go_on.wait(10)

        def touch(name: str) -> asyncio.Future[None]:
            def operation(tx: Tx) -> None:
                tx.lock(Table.USERS, {"id": name})
                tx.change(Table.USERS, {"id": name}, {"last_seq": 1})

            return asyncio.ensure_future(store.write(operation))

        with psycopg.connect(store.url) as other:
            other.execute("UPDATE users SET last_seq = 5 WHERE id = 'bob'")
            held = asyncio.ensure_future(store.write(hold))
            assert await asyncio.to_thread(began.wait, 10)
            ada, bob, cyd = touch("ada"), touch("bob"), touch("cyd")
            await asyncio.sleep(0)
            go_on.set()
            await asyncio.wait_for(asyncio.gather(held, ada), 10)
            assert not bob.done()
            other.rollback()
        await asyncio.gather(bob, cyd)
        rows = await store.read(lambda tx: tx.find(Table.USERS, {}, columns=["last_seq"]))
        assert [row["last_seq"] for row in rows] == [1, 1, 1]
        await store.aclose()

    async def test_a_deadlock_with_another_program_is_survived(self, store: PostgresStore) -> None:
        await put(store, Table.USERS, user("ada"), user("bob"))
        began, go_on = threading.Event(), threading.Event()
        calls = 0

        def ada_then_bob(tx: Tx) -> None:
            nonlocal calls
            calls += 1
            tx.lock(Table.USERS, {"id": "ada"})
            began.set()
            assert go_on.wait(10)
            tx.lock(Table.USERS, {"id": "bob"})
            tx.change(Table.USERS, {"id": "bob"}, {"last_seq": 7})

        writing = asyncio.ensure_future(store.write(ada_then_bob))
        assert await asyncio.to_thread(began.wait, 10)

        def other_program() -> None:
            with psycopg.connect(store.url) as other:
                other.execute("SET deadlock_timeout = '10s'")
                other.execute("SELECT 1 FROM users WHERE id = 'bob' FOR UPDATE")
                go_on.set()
                other.execute("SELECT 1 FROM users WHERE id = 'ada' FOR UPDATE")

        await asyncio.gather(asyncio.to_thread(other_program), writing)
        assert calls >= 2
        row = await store.read(lambda tx: tx.first(Table.USERS, {"id": "bob"}))
        assert row is not None and row["last_seq"] == 7


class TestAddresses:
    @pytest.mark.case("P63")
    @pytest.mark.parametrize(
        ("address", "cure"),
        [
            ("postgresql://ada:secret@127.0.0.1:{port}/x", "start the database server"),
            ("postgresql://ada:secret@no-such-host.invalid/x", "check the host in the database URL"),
            ("postgresql:///x?host=/no/such/folder", "socket folder"),
            ("postgresql://ada:secret@127.0.0.1:port/x", "correct that part of the database URL"),
            ("mysql://ada:secret@127.0.0.1/x", "write postgresql://"),
        ],
    )
    async def test_a_wrong_address_is_an_error_that_says_what_to_change(
        self, address: str, cure: str
    ) -> None:
        with pytest.raises(StoreUnavailable, match=cure) as told:
            await open_store(address.format(port=free_port()))
        assert "secret" not in str(told.value)

    @pytest.mark.case("P63")
    @pytest.mark.parametrize(
        ("change", "cure"),
        [({"dbname": "nowhere"}, "createdb"), ({"user": "stranger"}, "create that user")],
        ids=["database", "user"],
    )
    async def test_what_the_server_refuses_is_told_with_the_cure(
        self, postgres: PostgresServer, change: dict[str, str], cure: str
    ) -> None:
        url = postgres.url(change.get("dbname", "postgres"))
        with pytest.raises(StoreUnavailable, match=cure):
            await open_store(url.replace("postgres@", f"{change.get('user', 'postgres')}@"))

    def test_an_address_is_shown_without_its_password(self) -> None:
        assert place("postgresql://ada:secret@db:5433/x?sslmode=require") == "postgresql://ada@db:5433/x"


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("postgresql:///dromos", True),
        ("postgresql://ada@/dromos?host=/run/postgresql", True),
        ("postgresql://ada:secret@localhost:5433/dromos", True),
        ("postgresql://[::1]/dromos", True),
        ("postgresql://db.example.org/dromos", False),
        ("postgresql://10.0.0.7/dromos", False),
        ("postgresql://a.example.org,b.example.org/dromos", False),
    ],
)
def test_whether_the_server_is_on_this_machine_is_told_by_its_address(
    monkeypatch: pytest.MonkeyPatch, url: str, here: bool
) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    assert is_on_this_machine(url) is here
