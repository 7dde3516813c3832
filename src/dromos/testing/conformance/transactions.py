"""Operations: each all or nothing, whoever shares its commit; acknowledged when durable; readers see snapshots."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dromos.domain.errors import Duplicate, LeaseLost, LostRace, NotFound, StoreUnavailable
from dromos.ports.store import Gt, In, ReadTx, Table, Tx
from dromos.testing.conformance import Backend
from dromos.testing.conformance.rows_of import NOON, checkpoint, conversation, event, put, run, user


def _users(tx: ReadTx) -> list[str]:
    return [row["id"] for row in tx.find(Table.USERS, {}, order=["id"], columns=["id"])]


class _Gate:
    """An operation that has begun and waits inside its transaction until it is let go."""

    def __init__(self) -> None:
        self._began, self._go_on = threading.Event(), threading.Event()

    def around(self, fn: Callable[[Tx], Any] = lambda tx: tx.now()) -> Callable[[Tx], None]:
        def held(tx: Tx) -> None:
            fn(tx)
            self._began.set()
            assert self._go_on.wait(10), "never let go"

        return held

    async def begun(self) -> None:
        assert await asyncio.to_thread(self._began.wait, 10), "the operation did not begin"

    def let_go(self) -> None:
        self._go_on.set()


class TestOperations:
    async def test_an_operation_gives_its_value(self, backend: Backend) -> None:
        assert await backend.store.write(lambda tx: {"any": ["value"]}) == {"any": ["value"]}
        assert await backend.store.read(lambda tx: (1, None)) == (1, None)

    async def test_an_operation_sees_its_own_writes(self, backend: Backend) -> None:
        def write_and_look(tx: Tx) -> list[str]:
            tx.put(Table.USERS, user())
            return _users(tx)

        assert await backend.store.write(write_and_look) == ["ada"]

    async def test_what_was_acknowledged_is_there_for_everybody(self, backend: Backend) -> None:
        there = await backend.elsewhere()
        for number in range(20):
            await put(backend.store, Table.USERS, user(f"u{number}"))
            assert await there.read(lambda tx: tx.count(Table.USERS, {})) == number + 1

    @pytest.mark.parametrize("error", [NotFound("no"), LeaseLost("gone"), ZeroDivisionError("bug")], ids=repr)
    async def test_any_exception_rolls_the_operation_back_and_reaches_the_caller(
        self, backend: Backend, error: BaseException
    ) -> None:
        def fail(tx: Tx) -> None:
            tx.put(Table.USERS, user())
            raise error

        with pytest.raises(type(error)) as raised:
            await backend.store.write(fail)
        assert raised.value is error
        assert await backend.store.read(_users) == []
        await put(backend.store, Table.USERS, user("next"))

    async def test_a_read_that_fails_leaves_the_reader_usable(self, backend: Backend) -> None:
        def fail(tx: ReadTx) -> None:
            raise NotFound("no")

        for _ in range(8):
            with pytest.raises(NotFound):
                await backend.store.read(fail)
        assert await backend.store.read(_users) == []

    async def test_now_is_one_value_for_the_whole_operation_and_rises_between_operations(
        self, backend: Backend
    ) -> None:
        def twice(tx: ReadTx) -> bool:
            first = tx.now()
            tx.count(Table.USERS, {})
            return tx.now() is first or tx.now() == first

        assert await backend.store.write(twice)
        assert await backend.store.read(twice)
        times = [await backend.store.write(lambda tx: tx.now()) for _ in range(3)]
        assert times == sorted(times)
        assert times[0] > NOON


class TestAhead:
    """Reads that were announced find what they would have found."""

    async def test_a_read_that_was_looked_ahead_for_finds_what_is_there(self, backend: Backend) -> None:
        await put(backend.store, Table.USERS, user("ada"), user("bob"))
        await backend.store.write(lambda tx: tx.insert_run(run("r1", "c1")))

        def operation(tx: Tx) -> list[Any]:
            reads: list[Callable[[ReadTx], Any]] = [
                _users,
                lambda tx: tx.first(Table.USERS, {"id": "nobody"}),
                lambda tx: tx.count(Table.USERS, {"id": In(["ada", "zoe"])}),
                lambda tx: [one.id for one in tx.find_runs({"id": "r1"})],
            ]
            tx.ahead(*reads)
            return [read(tx) for read in reads]

        found = [["ada", "bob"], None, 1, ["r1"]]
        assert await backend.store.write(operation) == found
        assert await backend.store.read(lambda tx: operation(tx)) == found  # type: ignore[arg-type]

    async def test_what_the_operation_writes_meanwhile_is_found(self, backend: Backend) -> None:
        await put(backend.store, Table.USERS, user("ada"))
        ways: list[Callable[[Tx], Any]] = [
            lambda tx: tx.put(Table.USERS, user("bob")),
            lambda tx: tx.upsert(Table.USERS, user("ada", name="Zoe")),
            lambda tx: tx.set(Table.USERS, {"id": "ada"}, {"name": "Zoe"}),
            lambda tx: tx.change(Table.USERS, {"id": "ada"}, {"name": "Zoe"}),
            lambda tx: tx.remove(Table.USERS, {"id": "ada"}),
            lambda tx: tx.append_events("ada", [event()]),
        ]

        def rows(tx: ReadTx) -> list[Any]:
            return tx.find(Table.USERS, {}, order=["id"])

        class TakenBack(Exception):
            pass

        for way in ways:

            def operation(tx: Tx, way: Callable[[Tx], Any] = way) -> None:
                before = rows(tx)
                tx.ahead(rows)
                way(tx)
                assert rows(tx) != before
                raise TakenBack

            with pytest.raises(TakenBack):
                await backend.store.write(operation)

    async def test_a_read_behind_a_lock_sees_what_the_lock_waited_for(self, backend: Backend) -> None:
        await put(backend.store, Table.USERS, user("ada"))
        await put(backend.store, Table.CONVERSATIONS, conversation("c1"))
        await backend.store.write(lambda tx: tx.insert_run(run("r1", "c1")))
        there = await backend.elsewhere()
        gate = _Gate()

        def rename(tx: Tx) -> None:
            tx.lock(Table.CONVERSATIONS, {"id": "c1"})
            tx.change(Table.USERS, {"id": "ada"}, {"name": "Zoe"})

        def look(tx: Tx) -> Any:
            def name(tx: ReadTx) -> Any:
                return tx.find(Table.USERS, {"id": "ada"}, columns=["name"])[0]["name"]

            locked = tx.lock_run("r1", within="c1", then=[lambda tx: tx.count(Table.USERS, {})])
            assert locked is not None and locked.id == "r1"
            return name(tx), tx.count(Table.USERS, {})

        held = asyncio.ensure_future(there.write(gate.around(rename)))
        await gate.begun()
        waiting = asyncio.ensure_future(backend.store.write(look))
        await asyncio.sleep(0)
        gate.let_go()
        await held
        assert await waiting == ("Zoe", 1)


class TestGroups:
    async def test_what_the_database_refuses_late_takes_back_only_its_operation(
        self, backend: Backend
    ) -> None:
        await put(backend.store, Table.USERS, user("there"))
        stored = run("r1", "c1")
        await backend.store.write(lambda tx: tx.insert_run(stored))
        stale = replace(stored, version=stored.version + 5)
        gate = _Gate()

        def adds(name: str, also: Callable[[Tx], Any] = lambda tx: None) -> Callable[[Tx], str]:
            def operation(tx: Tx) -> str:
                also(tx)
                tx.put(Table.USERS, user(name))
                return name

            return operation

        operations = [
            adds("a"),
            adds("duplicate", lambda tx: tx.put(Table.USERS, user("there"))),
            adds("b"),
            adds("stale", lambda tx: tx.swap_run(stale, replace(stale, version=99))),
            adds("there"),
            adds("c"),
        ]
        held = asyncio.ensure_future(backend.store.write(gate.around()))
        await gate.begun()
        waiting = [asyncio.ensure_future(backend.store.write(operation)) for operation in operations]
        await asyncio.sleep(0)  # all of them are in the queue now
        gate.let_go()
        _, *results = await asyncio.gather(held, *waiting, return_exceptions=True)
        assert [one if isinstance(one, str) else type(one) for one in results] == [
            "a",
            Duplicate,
            "b",
            LostRace,
            Duplicate,
            "c",
        ]
        assert await backend.store.read(_users) == ["a", "b", "c", "there"]
        assert await backend.store.read(lambda tx: tx.load_run("r1")) == stored

    async def test_a_refusal_takes_back_only_itself(self, backend: Backend) -> None:
        gate = _Gate()

        def odd_ones_refuse(number: int) -> Callable[[Tx], int]:
            def operation(tx: Tx) -> int:
                tx.put(Table.USERS, user(f"u{number:02}"))
                if number % 2:
                    raise NotFound(str(number))
                return number

            return operation

        held = asyncio.ensure_future(backend.store.write(gate.around()))
        await gate.begun()
        waiting = [
            asyncio.ensure_future(backend.store.write(odd_ones_refuse(number))) for number in range(12)
        ]
        await asyncio.sleep(0)  # all of them are in the queue now
        gate.let_go()
        results = await asyncio.gather(held, *waiting, return_exceptions=True)
        assert results[1::2] == list(range(0, 12, 2))
        assert [str(result) for result in results[2::2]] == [str(number) for number in range(1, 12, 2)]
        assert await backend.store.read(_users) == [f"u{number:02}" for number in range(0, 12, 2)]

    async def test_readers_see_nothing_of_a_group_before_it_is_committed(self, backend: Backend) -> None:
        there = await backend.elsewhere()
        gate = _Gate()
        held = asyncio.ensure_future(backend.store.write(gate.around(lambda tx: tx.put(Table.USERS, user()))))
        await gate.begun()
        try:
            assert await backend.store.read(_users) == []
            assert await there.read(_users) == []
            assert not held.done()
        finally:
            gate.let_go()
        await held
        assert await backend.store.read(_users) == ["ada"]

    async def test_a_reader_keeps_its_snapshot_while_others_commit(self, backend: Backend) -> None:
        looked, go_on = threading.Event(), threading.Event()

        def look_twice(tx: ReadTx) -> tuple[list[str], list[str]]:
            before = _users(tx)
            looked.set()
            assert go_on.wait(10)
            return before, _users(tx)

        reading = asyncio.ensure_future(backend.store.read(look_twice))
        assert await asyncio.to_thread(looked.wait, 10)
        await put(backend.store, Table.USERS, user())
        go_on.set()
        assert await reading == ([], [])
        assert await backend.store.read(_users) == ["ada"]

    async def test_a_cancelled_task_disturbs_neither_its_group_nor_the_store(self, backend: Backend) -> None:
        gate = _Gate()
        held = asyncio.ensure_future(
            backend.store.write(gate.around(lambda tx: tx.put(Table.USERS, user("held"))))
        )
        await gate.begun()
        kept = asyncio.ensure_future(put(backend.store, Table.USERS, user("kept")))
        await asyncio.sleep(0)
        held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held
        gate.let_go()
        await kept
        assert await backend.store.read(_users) == ["held", "kept"], "one that had begun is still committed"

    async def test_an_operation_reads_its_reasons_again_when_it_is_repeated(self, backend: Backend) -> None:
        """Increments by many at once: none is lost, because each reads under the lock that it writes under."""
        await put(backend.store, Table.USERS, user())
        there = await backend.elsewhere()

        def increment(tx: Tx) -> None:
            row = tx.lock(Table.USERS, {"id": "ada"})
            assert row is not None
            tx.change(Table.USERS, {"id": "ada"}, {"last_seq": row["last_seq"] + 1})

        await asyncio.gather(*((backend.store, there)[number % 2].write(increment) for number in range(60)))
        row = await backend.store.read(lambda tx: tx.first(Table.USERS, {"id": "ada"}))
        assert row is not None and row["last_seq"] == 60

    @pytest.mark.slow(60)
    async def test_operations_that_lock_in_different_orders_all_get_through(self, backend: Backend) -> None:
        await put(backend.store, Table.USERS, *(user(f"u{number}") for number in range(4)))
        there = await backend.elsewhere()

        def move(source: str, target: str) -> Callable[[Tx], None]:
            def operation(tx: Tx) -> None:
                rows = [tx.lock(Table.USERS, {"id": name}) for name in (source, target)]
                for row, change in zip(rows, (-1, 1), strict=True):
                    assert row is not None
                    tx.change(Table.USERS, {"id": row["id"]}, {"last_seq": row["last_seq"] + change})

            return operation

        moves = [(f"u{n % 4}", f"u{(n + 1 + n % 3) % 4}") for n in range(40)]
        await asyncio.gather(
            *((backend.store, there)[number % 2].write(move(*pair)) for number, pair in enumerate(moves))
        )
        rows = await backend.store.read(lambda tx: tx.find(Table.USERS, {}))
        assert sum(row["last_seq"] for row in rows) == 0


class TestLoad:
    @pytest.mark.case("P104")
    @pytest.mark.slow(60)
    async def test_eight_runs_that_write_checkpoints_and_twenty_pollers_share_the_store(
        self, backend: Backend
    ) -> None:
        await put(backend.store, Table.USERS, user())
        writers, steps, longest = 8, 40, 0.0
        finished = asyncio.Event()

        async def write(number: int) -> None:
            nonlocal longest
            name = f"c{number}"
            await backend.store.write(lambda tx: tx.insert_run(run(f"r{number}", name)))
            for step in range(steps):

                def record(tx: Tx, step: int = step) -> None:
                    assert tx.lock_run(f"r{number}") is not None
                    tx.put(Table.CHECKPOINTS, checkpoint(name, f"k{step:03}", checkpoint=b"x" * 4000))
                    tx.append_events("ada", [event(f"{number}.{step}", name)])

                began = time.monotonic()
                await backend.store.write(record)
                longest = max(longest, time.monotonic() - began)

        async def poll(number: int) -> int:
            cursor = 0
            while not finished.is_set() or cursor < writers * steps:
                news = {"user_id": "ada", "seq": Gt(cursor)}
                rows = await backend.store.read(
                    lambda tx, news=news: tx.find(Table.EVENTS, news, order=["seq"], columns=["seq"])  # type: ignore[misc]
                )
                assert [row["seq"] for row in rows] == list(range(cursor + 1, cursor + 1 + len(rows)))
                cursor += len(rows)
            return cursor

        pollers = [asyncio.ensure_future(poll(number)) for number in range(20)]
        await asyncio.gather(*map(write, range(writers)))
        finished.set()
        assert await asyncio.gather(*pollers) == [writers * steps] * 20
        assert longest < 5.0
        assert await backend.store.read(lambda tx: tx.count(Table.CHECKPOINTS, {})) == writers * steps


class TestEnd:
    async def test_closing_finishes_what_waits_and_refuses_what_comes_later(self, backend: Backend) -> None:
        gate = _Gate()
        held = asyncio.ensure_future(backend.store.write(gate.around()))
        await gate.begun()
        waiting = [asyncio.ensure_future(put(backend.store, Table.USERS, user(f"u{n}"))) for n in range(5)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(backend.store.aclose())
        await asyncio.sleep(0)
        gate.let_go()
        await asyncio.gather(held, *waiting, closing)
        with pytest.raises(StoreUnavailable, match="closed"):
            await backend.store.write(_users)
        with pytest.raises(StoreUnavailable, match="closed"):
            await backend.store.read(_users)
        await backend.store.aclose()
        again = await backend.elsewhere()
        if again is backend.store:
            return
        assert await again.read(_users) == [f"u{n}" for n in range(5)]
