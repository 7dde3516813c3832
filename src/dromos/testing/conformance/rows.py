"""Rows of any table: what goes in comes out, conditions mean the same everywhere, a refused row changes nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from dromos.domain.errors import Duplicate, Invalid
from dromos.ports.store import NOT_NULL, Ge, Gt, In, Le, Lt, Ne, ReadTx, Table, Tx, Where
from dromos.testing.conformance import Backend
from dromos.testing.conformance.rows_of import NOON, checkpoint, conversation, lease, message, put, run, user


class TestValues:
    async def test_a_row_comes_back_as_it_went_in(self, backend: Backend) -> None:
        row = message(
            "c1",
            7,
            content=[
                {"type": "text", "text": "Grüße, 世界 👋 \u202e"},
                None,
                1.5,
                True,
                {"deep": {"er": []}},
            ],
            engine=bytes(range(256)),
            hidden=True,
        )
        await put(backend.store, Table.MESSAGES, row)
        found = await backend.store.read(lambda tx: tx.find(Table.MESSAGES, {}))
        assert len(found) == 1
        assert {name: found[0][name] for name in row} == row
        assert found[0]["hidden"] is True
        assert found[0]["interrupted"] is False, "a default of the table"
        assert found[0]["ns"] == ""
        assert found[0]["tool_calls"] is None
        assert found[0]["created_at"].tzinfo is UTC

    async def test_a_moment_of_another_time_zone_comes_back_in_utc(self, backend: Backend) -> None:
        there = datetime(2026, 3, 1, 23, 30, tzinfo=timezone(timedelta(hours=11)))
        await put(backend.store, Table.USERS, user(created_at=there))
        found = await backend.store.read(lambda tx: tx.first(Table.USERS, {"id": "ada"}))
        assert found is not None and found["created_at"] == there
        assert found["created_at"].utcoffset() == timedelta(0)

    async def test_a_moment_without_a_time_zone_is_refused(self, backend: Backend) -> None:
        with pytest.raises(ValueError, match="time zone"):
            await put(backend.store, Table.USERS, user(created_at=NOON.replace(tzinfo=None)))

    async def test_texts_json_and_bytes_of_two_megabytes_fit(self, backend: Backend) -> None:
        text, blob = "äö" * 1_000_000, b"\x00\x80" * 1_000_000
        await put(
            backend.store, Table.MESSAGES, message("c1", 1, content={"text": text}, engine=blob, name=text)
        )
        found = await backend.store.read(lambda tx: tx.first(Table.MESSAGES, {"num": 1}))
        assert found is not None
        assert (found["content"], found["engine"], found["name"]) == ({"text": text}, blob, text)

    @pytest.mark.case("P130")
    async def test_a_nul_character_becomes_the_replacement_character_in_text_and_json(
        self, backend: Backend
    ) -> None:
        await put(
            backend.store,
            Table.MESSAGES,
            message("c1", 1, name="a\x00b", content={"k\x00": ["x\x00y", "\\u0000 stays"]}),
        )
        found = await backend.store.read(lambda tx: tx.first(Table.MESSAGES, {"num": 1}))
        assert found is not None
        assert found["name"] == "a\ufffdb"
        assert found["content"] == {"k\ufffd": ["x\ufffdy", "\\u0000 stays"]}

    async def test_a_lone_surrogate_becomes_the_replacement_character(self, backend: Backend) -> None:
        await put(
            backend.store,
            Table.MESSAGES,
            message("c1", 1, name="\ud83d!", content={"t": "\udc4b", "p": "\ud83d\udc4b"}),
        )
        found = await backend.store.read(lambda tx: tx.first(Table.MESSAGES, {"num": 1}))
        assert found is not None
        assert found["name"] == "\ufffd!"
        assert found["content"] == {"t": "\ufffd", "p": "👋"}

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, {"x": float("-inf")}]])
    async def test_what_is_no_number_in_json_is_refused(self, backend: Backend, value: Any) -> None:
        with pytest.raises(Invalid, match="NaN"):
            await put(backend.store, Table.MESSAGES, message("c1", 1, content=value))
        assert await backend.store.read(lambda tx: tx.count(Table.MESSAGES, {})) == 0

    async def test_a_number_of_more_than_64_bits_is_refused(self, backend: Backend) -> None:
        with pytest.raises(Invalid):
            await put(backend.store, Table.USERS, user(last_seq=2**70))
        with pytest.raises(Invalid):
            await put(backend.store, Table.MESSAGES, message("c1", 1, content=2**70))

    async def test_a_row_without_a_value_that_must_be_there_is_refused(self, backend: Backend) -> None:
        with pytest.raises(Invalid):
            await backend.store.write(lambda tx: tx.put(Table.USERS, {"id": "ada", "created_at": NOON}))

    async def test_an_unknown_column_is_a_mistake_of_the_caller(self, backend: Backend) -> None:
        with pytest.raises(KeyError):
            await backend.store.write(lambda tx: tx.put(Table.USERS, user(nickname="x")))
        with pytest.raises(KeyError):
            await backend.store.read(lambda tx: tx.find(Table.USERS, {"nickname": "x"}))


async def _five(backend: Backend) -> None:
    """Conversations c1 … c5, an hour apart; only c2 and c4 name a last run."""
    rows = [
        conversation(
            f"c{number}",
            updated_at=NOON + timedelta(hours=number),
            message_count=number,
            last_run_id=f"r{number}" if number % 2 == 0 else None,
            archived=number == 5,
        )
        for number in (3, 1, 5, 2, 4)
    ]
    await put(backend.store, Table.CONVERSATIONS, *rows)


class TestConditions:
    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            ({}, "12345"),
            ({"id": "c3"}, "3"),
            ({"id": "c9"}, ""),
            ({"message_count": Gt(3)}, "45"),
            ({"message_count": Ge(3)}, "345"),
            ({"message_count": Lt(3)}, "12"),
            ({"message_count": Le(3)}, "123"),
            ({"updated_at": Le(NOON + timedelta(hours=2))}, "12"),
            ({"updated_at": NOON + timedelta(hours=2)}, "2"),
            ({"last_run_id": None}, "135"),
            ({"last_run_id": NOT_NULL}, "24"),
            ({"last_run_id": Ne("r2")}, "1345"),
            ({"message_count": Ne(2)}, "1345"),
            ({"archived": True}, "5"),
            ({"archived": Ne(True)}, "1234"),
            ({"id": In(["c1", "c4", "none"])}, "14"),
            ({"id": In([])}, ""),
            ({"message_count": In([2, 3])}, "23"),
            ({"updated_at": In([NOON + timedelta(hours=5)])}, "5"),
            ({"id": In(["c1", "c2"]), "last_run_id": None}, "1"),
        ],
        ids=str,
    )
    async def test_all_conditions_must_hold(self, backend: Backend, where: Where, expected: str) -> None:
        await _five(backend)

        def seen(tx: ReadTx) -> tuple[str, int]:
            rows = tx.find(Table.CONVERSATIONS, where, order=["id"], columns=["id"])
            return "".join(row["id"][1:] for row in rows), tx.count(Table.CONVERSATIONS, where)

        assert await backend.store.read(seen) == (expected, len(expected))
        assert await backend.store.write(seen) == (expected, len(expected))

    async def test_a_list_may_be_long(self, backend: Backend) -> None:
        await _five(backend)
        many = In([f"c{number}" for number in range(40_000)])
        assert await backend.store.read(lambda tx: tx.count(Table.CONVERSATIONS, {"id": many})) == 5

    async def test_rows_are_ordered_and_limited(self, backend: Backend) -> None:
        await _five(backend)

        def ids(tx: ReadTx, *order: str, limit: int | None = None) -> str:
            rows = tx.find(Table.CONVERSATIONS, {}, order=order, limit=limit)
            return "".join(row["id"][1:] for row in rows)

        assert await backend.store.read(lambda tx: ids(tx, "id")) == "12345"
        assert await backend.store.read(lambda tx: ids(tx, "-updated_at", limit=2)) == "54"
        assert await backend.store.read(lambda tx: ids(tx, "archived", "-id")) == "43215"
        assert await backend.store.read(lambda tx: ids(tx, "id", limit=0)) == ""

    async def test_what_is_missing_comes_first_ascending_and_last_descending(self, backend: Backend) -> None:
        await _five(backend)

        def ids(tx: ReadTx, *order: str) -> str:
            return "".join(row["id"][1:] for row in tx.find(Table.CONVERSATIONS, {}, order=order))

        assert await backend.store.read(lambda tx: ids(tx, "last_run_id", "id")) == "13524"
        assert await backend.store.read(lambda tx: ids(tx, "-last_run_id", "id")) == "42135"

    async def test_texts_are_ordered_by_code_point(self, backend: Backend) -> None:
        names = ["a", "B", "_", "a:1", "a|1", "ä", "Z", "\uffee", "👋", ""]
        await put(backend.store, Table.USERS, *(user(f"u{n}", name=name) for n, name in enumerate(names)))
        rows = await backend.store.read(lambda tx: tx.find(Table.USERS, {}, order=["name"], columns=["name"]))
        assert [row["name"] for row in rows] == sorted(names)

    async def test_first_is_the_first_of_the_order(self, backend: Backend) -> None:
        await _five(backend)
        newest = await backend.store.read(lambda tx: tx.first(Table.CONVERSATIONS, {}, order=["-updated_at"]))
        nothing = await backend.store.read(lambda tx: tx.first(Table.CONVERSATIONS, {"id": "c9"}))
        assert newest is not None and newest["id"] == "c5"
        assert nothing is None

    async def test_only_the_columns_asked_for_come_back(self, backend: Backend) -> None:
        await _five(backend)
        rows = await backend.store.read(
            lambda tx: tx.find(Table.CONVERSATIONS, {"id": "c1"}, columns=["title", "updated_at"])
        )
        assert rows == [{"title": "A title", "updated_at": NOON + timedelta(hours=1)}]


class TestChanges:
    async def test_a_second_row_with_the_same_key_is_a_duplicate_of_that_name(self, backend: Backend) -> None:
        await put(backend.store, Table.USERS, user())
        with pytest.raises(Duplicate) as refused:
            await put(backend.store, Table.USERS, user(name="Other"))
        assert refused.value.constraint == "pk_users"
        kept = await backend.store.read(lambda tx: tx.first(Table.USERS, {"id": "ada"}))
        assert kept is not None and kept["name"] == "Ada"

    async def test_a_duplicate_of_another_constraint_tells_its_name(self, backend: Backend) -> None:
        await put(
            backend.store, Table.MESSAGES, message("c1", 1, log_seq=5), message("c1", 2), message("c1", 3)
        )
        with pytest.raises(Duplicate) as refused:
            await put(backend.store, Table.MESSAGES, message("c1", 4, log_seq=5))
        assert refused.value.constraint == "uq_messages_log"
        with pytest.raises(Duplicate) as refused:
            await put(backend.store, Table.MESSAGES, message("c1", 1, log_seq=5))
        assert refused.value.constraint == "pk_messages"
        with pytest.raises(Duplicate) as refused:
            await backend.store.write(lambda tx: tx.change(Table.MESSAGES, {"num": 2}, {"log_seq": 5}))
        assert refused.value.constraint == "uq_messages_log"

    async def test_a_duplicate_ends_its_operation_whenever_it_is_told(self, backend: Backend) -> None:
        await put(backend.store, Table.USERS, user())

        def put_and_read(tx: Tx) -> None:
            tx.put(Table.USERS, user("bob"))
            tx.put(Table.USERS, user(name="Other"))
            tx.first(Table.USERS, {"id": "ada"})
            tx.put(Table.USERS, user("carol"))

        def stubborn(tx: Tx) -> None:
            with suppress(Duplicate):
                put_and_read(tx)

        for operation in (put_and_read, stubborn, put_and_read):
            with pytest.raises(Duplicate, match="pk_users"):
                await backend.store.write(operation)
            with pytest.raises(Duplicate, match="pk_users"):
                await put(backend.store, Table.USERS, user())
            await backend.store.write(lambda tx: tx.set(Table.USERS, {"id": "ada"}, {"first_seq": 2}))
        assert await backend.store.read(lambda tx: tx.count(Table.USERS, {})) == 1

    async def test_what_nobody_counts_is_changed_in_order_with_the_rest(self, backend: Backend) -> None:
        await put(backend.store, Table.USERS, user(), user("bob"))

        def operation(tx: Tx) -> tuple[int, str]:
            tx.set(Table.USERS, {"id": "ada"}, {"name": "Ada L."})
            changed = tx.change(Table.USERS, {"name": "Ada L."}, {"name": "A. L."})
            tx.set(Table.USERS, {"id": "nobody"}, {"name": "never"})
            found = tx.lock(Table.USERS, {"id": "ada"})
            tx.set(Table.USERS, {"id": "ada"}, {"name": "Countess"})
            again = tx.lock(Table.USERS, {"id": "ada"})
            assert found is not None and again is not None
            return changed, f"{found['name']} {again['name']}"

        assert await backend.store.write(operation) == (1, "A. L. Countess")

    async def test_a_change_that_nobody_counts_and_that_fails_ends_its_operation(
        self, backend: Backend
    ) -> None:
        await put(backend.store, Table.MESSAGES, message("c1", 1, log_seq=5), message("c1", 2))

        def operation(tx: Tx) -> None:
            tx.put(Table.USERS, user())
            tx.set(Table.MESSAGES, {"num": 2}, {"log_seq": 5})

        async def others() -> None:
            await asyncio.gather(*(put(backend.store, Table.USERS, user(f"u{n}")) for n in range(5)))

        with pytest.raises(Duplicate, match="uq_messages_log"):
            await backend.store.write(operation)
        refused, *_ = await asyncio.gather(  # also where it shares a commit
            backend.store.write(operation), others(), return_exceptions=True
        )
        assert isinstance(refused, Duplicate)
        assert await backend.store.read(lambda tx: tx.count(Table.USERS, {})) == 5

    async def test_a_conversation_and_its_run_are_locked_together(self, backend: Backend) -> None:
        await put(backend.store, Table.CONVERSATIONS, conversation("c1"), conversation("c2"))
        mine = run("r1", conversation_id="c1")
        await backend.store.write(lambda tx: tx.insert_run(mine))

        def operation(tx: Tx) -> None:
            assert tx.lock_run("r1", within="c1") == mine
            before = tx.lock(Table.CONVERSATIONS, {"id": "c1"})
            assert before is not None and before["id"] == "c1"
            before["title"] = "changed here only"
            tx.change(Table.CONVERSATIONS, {"id": "c1"}, {"title": "stored"})
            after = tx.lock(Table.CONVERSATIONS, {"id": "c1"})
            assert after is not None and after["title"] == "stored"
            assert tx.lock_run("r1", within="c1") == mine
            assert tx.lock_run("r1", within="c2") == mine
            assert tx.lock_run("r1", within="gone") == mine
            assert tx.lock_run("gone", within="c1") is None

        await backend.store.write(operation)

    async def test_a_change_that_breaks_a_constraint_ends_its_operation_even_if_caught(
        self, backend: Backend
    ) -> None:
        await put(backend.store, Table.MESSAGES, message("c1", 1, log_seq=5), message("c1", 2))

        def stubborn(tx: Tx) -> str:
            tx.put(Table.USERS, user())
            try:
                tx.change(Table.MESSAGES, {"num": 2}, {"log_seq": 5})
            except Duplicate:
                return "never mind"
            return "changed"

        with pytest.raises(Duplicate):
            await backend.store.write(stubborn)
        assert await backend.store.read(lambda tx: tx.count(Table.USERS, {})) == 0

    async def test_many_rows_are_put_all_or_none(self, backend: Backend) -> None:
        await put(backend.store, Table.USERS, user("u5"))

        def careless(tx: Tx) -> None:
            with suppress(Duplicate):
                tx.put_many(Table.USERS, [user(f"u{number}") for number in range(10)])

        with pytest.raises(Duplicate, match="pk_users"):
            await backend.store.write(careless)
        assert await backend.store.read(lambda tx: tx.count(Table.USERS, {})) == 1

    async def test_many_rows_may_have_different_columns(self, backend: Backend) -> None:
        rows = [user("u1"), user("u2", last_seq=7), user("u3"), user("u4", last_seq=9)]
        await put(backend.store, Table.USERS, *rows)
        found = await backend.store.read(lambda tx: tx.find(Table.USERS, {}, order=["id"]))
        assert [row["last_seq"] for row in found] == [0, 7, 0, 9]
        await backend.store.write(lambda tx: tx.put_many(Table.USERS, []))

    async def test_upsert_inserts_once_and_then_replaces_all_other_columns(self, backend: Backend) -> None:
        first = lease("w1", lease_until=NOON)
        await backend.store.write(lambda tx: tx.upsert(Table.LEASES, first))
        second = lease("w1", pid=2)
        del second["lease_until"]
        for _ in range(2):
            await backend.store.write(lambda tx: tx.upsert(Table.LEASES, second))
        rows = await backend.store.read(lambda tx: tx.find(Table.LEASES, {}))
        assert rows == [{**second, "lease_until": None}]

    async def test_upsert_gives_a_column_that_is_not_named_its_default(self, backend: Backend) -> None:
        await put(backend.store, Table.USERS, user(last_seq=9, first_seq=4))
        await backend.store.write(lambda tx: tx.upsert(Table.USERS, user(name="New")))
        found = await backend.store.read(lambda tx: tx.first(Table.USERS, {}))
        assert found == user(name="New", last_seq=0, first_seq=1)

    async def test_change_tells_how_many_rows_matched(self, backend: Backend) -> None:
        await _five(backend)

        def archive(tx: Tx) -> tuple[int, int, int]:
            return (
                tx.change(
                    Table.CONVERSATIONS, {"message_count": Gt(2)}, {"archived": True, "last_run_id": None}
                ),
                tx.change(Table.CONVERSATIONS, {"id": "c1"}, {"title": "A title"}),
                tx.change(Table.CONVERSATIONS, {"id": "c9"}, {"title": "x"}),
            )

        assert await backend.store.write(archive) == (3, 1, 0)
        count = await backend.store.read(lambda tx: tx.count(Table.CONVERSATIONS, {"last_run_id": NOT_NULL}))
        assert count == 1

    async def test_a_column_of_the_condition_may_itself_change(self, backend: Backend) -> None:
        await _five(backend)

        def swap(tx: Tx) -> list[int]:
            return [
                tx.change(Table.CONVERSATIONS, {"id": "c1", "message_count": 1}, {"message_count": 2}),
                tx.change(Table.CONVERSATIONS, {"id": "c1", "message_count": 1}, {"message_count": 3}),
            ]

        assert await backend.store.write(swap) == [1, 0]

    async def test_remove_tells_how_many_rows_went(self, backend: Backend) -> None:
        await _five(backend)
        removed = await backend.store.write(lambda tx: tx.remove(Table.CONVERSATIONS, {"archived": False}))
        again = await backend.store.write(lambda tx: tx.remove(Table.CONVERSATIONS, {"archived": False}))
        assert (removed, again) == (4, 0)

    async def test_lock_gives_the_row_or_nothing(self, backend: Backend) -> None:
        await _five(backend)
        row = await backend.store.write(lambda tx: tx.lock(Table.CONVERSATIONS, {"id": "c2"}))
        none = await backend.store.write(lambda tx: tx.lock(Table.CONVERSATIONS, {"id": "c9"}))
        assert row is not None and row["last_run_id"] == "r2"
        assert none is None

    @pytest.mark.case("P106")
    async def test_everything_of_a_conversation_goes_together_or_stays(self, backend: Backend) -> None:
        store = backend.store
        for name in ("c1", "c2"):
            await put(store, Table.CONVERSATIONS, conversation(name))
            await put(store, Table.MESSAGES, message(name, 1))
            await put(store, Table.CHECKPOINTS, checkpoint(name, "k1"))
            await store.write(lambda tx, name=name: tx.insert_run(run(f"run of {name}", name)))  # type: ignore[misc]
        owned = (
            (Table.CHECKPOINTS, "thread_id"),
            (Table.MESSAGES, "conversation_id"),
            (Table.RUNS, "conversation_id"),
        )

        def delete(tx: Tx, fail_after: int | None = None) -> None:
            for number, (table, column) in enumerate((*owned, (Table.CONVERSATIONS, "id"))):
                if number == fail_after:
                    raise RuntimeError("the power went out")
                tx.remove(table, {column: "c1"})

        def left(tx: ReadTx, name: str) -> list[int]:
            return [
                tx.count(table, {column: name}) for table, column in (*owned, (Table.CONVERSATIONS, "id"))
            ]

        for step in range(4):
            with pytest.raises(RuntimeError, match="power"):
                await store.write(lambda tx, step=step: delete(tx, step))  # type: ignore[misc]
            assert await store.read(lambda tx: left(tx, "c1")) == [1, 1, 1, 1]
        await store.write(delete)
        assert await store.read(lambda tx: left(tx, "c1")) == [0, 0, 0, 0]
        assert await store.read(lambda tx: left(tx, "c2")) == [1, 1, 1, 1]
        await store.write(delete)
