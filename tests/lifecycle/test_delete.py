"""Erasing a conversation: nothing of it is left in any table, whatever was going on."""

from __future__ import annotations

import pytest

from dromos.domain.errors import LeaseLost, NotFound
from dromos.domain.reasons import ErrorCode
from dromos.domain.statuses import RunStatus
from dromos.lifecycle import delete
from dromos.lifecycle.change import Change
from dromos.lifecycle.contract import Answer, IdempotencyKey
from dromos.ports.agent import Failed, Finished
from dromos.ports.store import Table, Tx
from tests.lifecycle.test_attempts import QUESTION
from tests.lifecycle.world import USER, Engine, World


async def everything(world: World) -> str:
    """All rows of all tables, as text to be searched."""
    rows = [row for table in Table for row in await world.rows(table)]
    return repr(rows)


async def fill(world: World) -> tuple[str, list[str]]:
    """A conversation with something in every table, and every id that belongs to it."""
    key = IdempotencyKey("POST /v1/conversations", "create", "hash")
    answer: Answer = await world.lifecycle.create_conversation(
        USER, "secret talk", "assistant", lambda row: (201, f'{{"id": "{row["id"]}"}}'), key
    )
    conversation_id = answer.body.split('"')[3]
    other_key = IdempotencyKey("POST /messages", "one", "hash")
    posted = await world.post("secret one", conversation_id, key=other_key)
    assert posted.run is not None
    claimed = await world.claim()
    engine = Engine(world, claimed)
    await engine.enter()
    await engine.say("secret answer", calls=["c1", "c2"])
    await engine.pend_result("c1", "secret result")
    await world.store.write(lambda tx: _engine_rows(tx, conversation_id, claimed.run.id))
    waiting = await world.post("secret two", conversation_id)
    assert waiting.followup is not None
    send_key = IdempotencyKey("POST /send", "two", "hash")
    await world.lifecycle.send_followup(
        USER, waiting.followup["id"], "assistant", lambda posted: (202, "secret answer"), send_key
    )
    await world.lifecycle.save_document(claimed.fence, engine.shown("secret text"))
    parked = await world.lifecycle.end_attempt(claimed.fence, QUESTION, engine.shown("secret text"))
    ids = [conversation_id, parked.id]
    for row in await world.rows(Table.MESSAGES, conversation_id=conversation_id):
        ids.append(row["id"])
    return conversation_id, ids


def _engine_rows(tx: Tx, conversation_id: str, run_id: str) -> None:
    thread = {"thread_id": conversation_id, "checkpoint_ns": ""}
    tx.put(Table.CHECKPOINT_BLOBS, {**thread, "channel": "x", "version": "1", "type": "t", "value": b"v"})
    token = {"token_sha256": f"{run_id} hash", "run_id": run_id, "conversation_id": conversation_id}
    tx.put(Table.RUN_TOKENS, {**token, "epoch": 1, "session": "s", "created_at": tx.now()})
    revision = {"followup_id": f"{run_id} text", "num": 1, "conversation_id": conversation_id}
    tx.put(
        Table.MESSAGE_REVISIONS,
        {**revision, "content": "secret draft", "author_id": USER, "created_at": tx.now()},
    )
    call = {"key": f"{run_id} key", "conversation_id": conversation_id, "run_id": run_id, "tool": "secret"}
    call |= {"tool_call_id": "c2", "replay": "unsafe", "arguments": {"secret": 1}, "arguments_sha256": "x"}
    tx.put(Table.TOOL_CALLS, {**call, "status": "intent", "epoch": 1, "tries": 1, "begun_at": tx.now()})
    grant = {"id": f"{run_id} grant", "user_id": USER, "conversation_id": conversation_id, "tool": "secret"}
    tx.put(Table.TOOL_GRANTS, {**grant, "request_id": "r", "created_at": tx.now()})
    write = {"checkpoint_id": "1", "task_id": "t", "idx": 0, "channel": "x", "run_id": run_id}
    tx.put(Table.WRITES, {**thread, **write})
    step = {"run_id": run_id, "id": "s", "conversation_id": conversation_id, "num": 1, "attempt": 1}
    tx.put(
        Table.RUN_STEPS,
        {**step, "kind": "tool", "name": "secret", "status": "running", "started_at": tx.now()},
    )


@pytest.mark.case("P106")
async def test_after_deletion_no_row_of_any_table_knows_the_conversation(world: World) -> None:
    other = await world.begin_run("something else")
    conversation_id, ids = await fill(world)
    for table in Table:
        assert await world.rows(table), f"{table} should hold something, or the scan proves nothing"
    numbers = [event["seq"] for event in await world.events()]
    assert await world.lifecycle.delete_conversation(USER, conversation_id)
    left = await everything(world)
    assert "secret" not in left
    *kept, last = await world.events()
    assert [event["seq"] for event in kept] == numbers, "events keep their numbers"
    assert (last["type"], last["payload"]) == ("conversation.deleted", {"id": conversation_id})
    for one in ids[1:]:
        assert one not in left
    rest = left.replace(repr(last), "")
    assert conversation_id not in rest
    assert other.run.id in left, "nothing else is touched"
    with pytest.raises(NotFound):
        await world.lifecycle.delete_conversation(USER, conversation_id)


@pytest.mark.case("P106")
async def test_a_deletion_that_broke_half_way_left_everything_and_a_repeat_completes_it(world: World) -> None:
    conversation_id, _ = await fill(world)
    before = await everything(world)

    class DiskFull(Exception):
        pass

    def broken(tx: Tx) -> None:
        change = Change(tx, world.lifecycle.ids, world.lifecycle.policy)
        delete.delete_conversation(change, USER, conversation_id)
        change.flush()
        raise DiskFull

    with pytest.raises(DiskFull):
        await world.store.write(broken)
    assert await everything(world) == before
    assert await world.lifecycle.delete_conversation(USER, conversation_id)
    assert "secret" not in await everything(world)


async def test_while_its_run_stops_a_deleted_conversation_is_gone_for_everyone(world: World) -> None:
    claimed = await world.begin_run("secret one")
    conversation_id = claimed.run.conversation_id
    await world.post("secret two", conversation_id)
    assert not await world.lifecycle.delete_conversation(USER, conversation_id)
    assert (await world.run(claimed.run.id)).status is RunStatus.CANCELLING
    for look in (
        world.lifecycle.conversation(USER, conversation_id),
        world.lifecycle.messages(USER, conversation_id, None, 10),
        world.lifecycle.run(USER, claimed.run.id),
        world.lifecycle.request_cancel(USER, claimed.run.id),
        world.lifecycle.document(USER, claimed.run.id),
        world.lifecycle.run_events(USER, claimed.run.id),
    ):
        with pytest.raises(NotFound):
            await look
    with pytest.raises(NotFound):
        await world.post("three", conversation_id)
    assert await world.lifecycle.conversations(USER, 10, None) == ([], None)
    assert (await world.lifecycle.runs(USER, [], None, 10, None))[0] == []
    assert not await world.lifecycle.delete_conversation(USER, conversation_id), "a repeat goes on with it"

    await world.lifecycle.end_stopped(claimed.fence, forced=False, unknown_calls=(), document=None)
    assert len(await world.runs_of(conversation_id)) == 1, "no successor starts"
    assert await world.lifecycle.sweep() == 1
    assert "secret" not in await everything(world)


async def test_a_late_write_meets_a_missing_row(world: World) -> None:
    claimed = await world.begin_run("secret")
    engine = Engine(world, claimed)
    await engine.enter()
    assert not await world.lifecycle.delete_conversation(USER, claimed.run.conversation_id)
    await world.lose()
    await world.lifecycle.sweep()
    with pytest.raises(LeaseLost):
        await engine.say("late")
    with pytest.raises(LeaseLost):
        await world.lifecycle.end_attempt(claimed.fence, Finished(), engine.shown("late"))
    with pytest.raises(LeaseLost):
        await world.lifecycle.save_document(claimed.fence, engine.shown("late"))
    assert "secret" not in await everything(world)


async def test_another_persons_conversation_cannot_be_deleted(world: World) -> None:
    await world.lifecycle.ensure_user("bert", "Bert")
    posted = await world.post("mine")
    with pytest.raises(NotFound):
        await world.lifecycle.delete_conversation("bert", posted.conversation["id"])
    assert (await world.lifecycle.conversation(USER, posted.conversation["id"])).last_run == posted.run


async def test_a_conversation_that_ended_badly_is_erased_at_once(world: World) -> None:
    claimed = await world.begin_run("secret")
    await world.lifecycle.end_attempt(claimed.fence, Failed(ErrorCode.INTERNAL, "secret fault"), None)
    assert await world.lifecycle.delete_conversation(USER, claimed.run.conversation_id)
    assert "secret" not in await everything(world)
