"""Events: numbered per user without gap, visible in the order of their numbers, each exactly once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dromos.domain.errors import NotFound
from dromos.domain.events import EventDraft, EventType
from dromos.ports.store import Gt, ReadTx, Store, Table, Tx
from dromos.testing.conformance import Backend
from dromos.testing.conformance.rows_of import event, put, user

HOLD_S = 0.3
"""How long something that must not happen is given to happen."""


def _after(tx: ReadTx, cursor: int, user_id: str = "ada") -> list[int]:
    rows = tx.find(Table.EVENTS, {"user_id": user_id, "seq": Gt(cursor)}, order=["seq"], columns=["seq"])
    return [row["seq"] for row in rows]


class TestEvents:
    async def test_numbers_are_contiguous_per_user_and_the_event_is_stored_whole(
        self, backend: Backend
    ) -> None:
        await put(backend.store, Table.USERS, user("ada"), user("bob"))
        draft = EventDraft(EventType.RUN_STATUS, "c1", {"status": "running", "n": [1, None]}, run_id="r1")

        def append(tx: Tx, user_id: str, *drafts: EventDraft) -> list[int]:
            return tx.append_events(user_id, drafts)

        assert await backend.store.write(lambda tx: append(tx, "ada", draft)) == [1]
        assert await backend.store.write(lambda tx: append(tx, "bob", draft, draft)) == [1, 2]
        assert await backend.store.write(lambda tx: append(tx, "ada", draft, event("b"), event("c"))) == [
            2,
            3,
            4,
        ]
        assert await backend.store.write(lambda tx: append(tx, "ada")) == []
        first = await backend.store.read(lambda tx: tx.first(Table.EVENTS, {"user_id": "ada"}, order=["seq"]))
        now = await backend.store.read(lambda tx: tx.now())
        assert first is not None
        assert first.pop("at") <= now
        assert first == {
            "user_id": "ada",
            "seq": 1,
            "type": "run.status",
            "conversation_id": "c1",
            "run_id": "r1",
            "payload": {"status": "running", "n": [1, None]},
        }
        rows = await backend.store.read(
            lambda tx: tx.find(Table.USERS, {}, order=["id"], columns=["last_seq"])
        )
        assert [row["last_seq"] for row in rows] == [4, 2]

    @pytest.mark.parametrize("count", [1, 2, 8, 9, 30])
    async def test_many_events_of_one_operation_keep_their_order(self, backend: Backend, count: int) -> None:
        await put(backend.store, Table.USERS, user())
        drafts = [event(str(number)) for number in range(count)]
        for turn in range(2):
            numbers = await backend.store.write(lambda tx: tx.append_events("ada", drafts))
            assert numbers == list(range(turn * count + 1, (turn + 1) * count + 1))
        rows = await backend.store.read(
            lambda tx: tx.find(Table.EVENTS, {}, order=["seq"], columns=["payload"])
        )
        assert [row["payload"]["text"] for row in rows] == [str(number) for number in range(count)] * 2

    async def test_a_user_who_does_not_exist_is_told_so(self, backend: Backend) -> None:
        with pytest.raises(NotFound, match="nobody"):
            await backend.store.write(lambda tx: tx.append_events("nobody", [event()]))

    async def test_the_numbers_of_a_refused_operation_are_given_again(self, backend: Backend) -> None:
        await put(backend.store, Table.USERS, user())

        def refused(tx: Tx) -> None:
            tx.append_events("ada", [event(), event()])
            raise NotFound("no")

        assert await backend.store.write(lambda tx: tx.append_events("ada", [event()])) == [1]
        results = await asyncio.gather(
            *(backend.store.write(refused) for _ in range(5)),
            *(backend.store.write(lambda tx: tx.append_events("ada", [event()])) for _ in range(5)),
            return_exceptions=True,
        )
        assert all(isinstance(result, NotFound) for result in results[:5])
        assert await backend.store.read(lambda tx: _after(tx, 0)) == [1, 2, 3, 4, 5, 6]

    @pytest.mark.case("P93")
    async def test_an_event_is_not_visible_before_those_with_lower_numbers(self, backend: Backend) -> None:
        await put(backend.store, Table.USERS, user())
        there = await backend.elsewhere()
        wrote, go_on = threading.Event(), threading.Event()

        def slow(tx: Tx) -> list[int]:
            numbers = tx.append_events("ada", [event("slow")])
            wrote.set()
            assert go_on.wait(10), "never released"
            return numbers

        first = asyncio.ensure_future(backend.store.write(slow))
        try:
            assert await asyncio.to_thread(wrote.wait, 10)
            second = asyncio.ensure_future(there.write(lambda tx: tx.append_events("ada", [event("quick")])))
            done, _ = await asyncio.wait({second}, timeout=HOLD_S)
            assert not done, "the second was committed while the first, with a lower number, was not"
            assert await there.read(lambda tx: _after(tx, 0)) == []
        finally:
            go_on.set()
        assert sorted([*await first, *await second]) == [1, 2]
        assert await there.read(lambda tx: _after(tx, 0)) == [1, 2]

    @pytest.mark.case("P93")
    @pytest.mark.slow(60)
    async def test_a_reader_with_a_cursor_sees_every_event_of_twenty_writers_once_and_in_order(
        self, backend: Backend
    ) -> None:
        await put(backend.store, Table.USERS, user("ada"), user("bob"))
        there = await backend.elsewhere()
        writers, each = 20, 10

        async def write(number: int) -> list[int]:
            store, mine = (backend.store, there)[number % 2], []
            for turn in range(each):
                if number % 4 == 0:
                    await store.write(lambda tx: tx.append_events("bob", [event()]))
                drafts = [event(f"{number}.{turn}")] * (1 + number % 3)
                mine += await store.write(lambda tx, drafts=drafts: tx.append_events("ada", drafts))  # type: ignore[misc]
            return mine

        expected = sum(each * (1 + number % 3) for number in range(writers))

        async def follow(store: Store) -> list[int]:
            seen: list[int] = []
            while len(seen) < expected:
                cursor = seen[-1] if seen else 0
                seen += await store.read(lambda tx, cursor=cursor: _after(tx, cursor))  # type: ignore[misc]
            return seen

        followers = [asyncio.ensure_future(follow(store)) for store in (backend.store, there)]
        given = await asyncio.gather(*map(write, range(writers)))
        assert sorted(number for mine in given for number in mine) == list(range(1, expected + 1))
        assert all(mine == sorted(mine) for mine in given)
        for seen in await asyncio.gather(*followers):
            assert seen == list(range(1, expected + 1))
        assert await there.read(lambda tx: _after(tx, 0, "bob")) == list(range(1, 51))
