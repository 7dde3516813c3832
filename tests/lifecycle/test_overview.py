"""What a device shows beside the open conversation: what calls a person, what runs, in one read of bounded size."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dromos.domain.reasons import Reason
from dromos.lifecycle import overview
from dromos.lifecycle.contract import Policy
from dromos.ports.agent import Finished, Outcome, Parked
from dromos.ports.store import Table
from tests.lifecycle.world import OWNER, USER, World


async def run(world: World, text: str, outcome: Outcome, conversation_id: str | None = None) -> str:
    """A run that ended so; its conversation."""
    claimed = await world.begin_run(text, conversation_id)
    await world.lifecycle.end_attempt(claimed.fence, outcome, None)
    return claimed.run.conversation_id


def ask(prompt: str) -> Parked:
    return Parked(Reason.QUESTION_ASKED, [{"kind": "question", "prompt": prompt}])


async def unseen(world: World) -> list[str]:
    items, _ = await world.lifecycle.conversations(USER, 50, None, unseen=True)
    return [item["id"] for item in items]


async def seen(world: World, conversation_id: str, seq: int) -> None:
    await world.lifecycle.change_conversation(USER, conversation_id, seen_seq=seq)


async def head(world: World) -> int:
    return int((await world.lifecycle.events_after(USER, None, 1)).head)


async def test_a_question_and_an_end_call_a_person_and_nothing_else_does(world: World) -> None:
    posted = await world.post("one")
    conversation_id = posted.conversation["id"]
    (claimed,) = await world.lifecycle.claim(OWNER, None, 1)
    await world.post("and two", conversation_id)
    await world.lifecycle.change_conversation(USER, conversation_id, title="Another title")
    assert await unseen(world) == []
    await world.lifecycle.end_attempt(claimed.fence, ask("which?"), None)
    assert await unseen(world) == [conversation_id]
    await seen(world, conversation_id, await head(world))
    assert await unseen(world) == []
    await world.lifecycle.request_cancel(USER, claimed.run.id)
    assert await unseen(world) == [conversation_id]


async def test_a_look_at_one_device_is_told_to_all_and_never_hides_what_came_later(world: World) -> None:
    conversation_id = await run(world, "one", Finished())
    looked = await head(world)
    await run(world, "two", Finished(), conversation_id)
    before = await head(world)
    await seen(world, conversation_id, looked)
    assert await head(world) == before
    assert await unseen(world) == [conversation_id]
    await seen(world, conversation_id, before)
    (told,) = (await world.lifecycle.events_after(USER, before, 10)).events
    assert told["type"] == "conversation.changed"
    assert told["payload"]["conversation"]["unseen"] is False
    await seen(world, conversation_id, await head(world))
    assert await head(world) == told["seq"]  # a second look says nothing new
    ended = [event for event in await world.events() if "conversation" in (event["payload"] or {})]
    assert [event["payload"]["conversation"]["unseen"] for event in ended][-3:] == [True, True, False]


async def test_what_was_not_seen_outlives_the_events_that_told_it(world: World) -> None:
    conversation_id = await run(world, "one", Finished())
    other = await run(world, "two", Finished())
    await seen(world, other, await head(world))
    week_later = World(world.store, Policy(event_retention_days=7))
    for event in await world.rows(Table.EVENTS):
        values = {"at": event["at"] - timedelta(days=8)}
        await world.store.write(
            lambda tx, seq=event["seq"], values=values: tx.change(
                Table.EVENTS, {"user_id": USER, "seq": seq}, values
            )
        )
    await week_later.lifecycle.sweep()
    assert await world.rows(Table.EVENTS) == []
    assert (await world.lifecycle.events_after(USER, 1, 10)).reset
    assert await unseen(world) == [conversation_id]
    found = await world.lifecycle.overview(USER, 50)
    assert (found.unseen, found.seq) == (1, await head(world))
    marks = {item["id"]: item["unseen"] for item in found.conversations.items}
    assert marks == {conversation_id: True, other: False}


async def test_one_read_tells_everything_and_events_go_on_from_exactly_there(world: World) -> None:
    done = await run(world, "done", Finished())
    asked = await run(world, "ask", ask("which?"))
    running = await world.begin_run("running")
    gone = await run(world, "gone", Finished())
    await world.lifecycle.delete_conversation(USER, gone)
    found = await world.lifecycle.overview(USER, 50)
    assert found.seq == await head(world)
    assert {item["id"]: (item["unseen"], item["open_requests"]) for item in found.conversations.items} == {
        done: (True, 0),
        asked: (True, 1),
        running.run.conversation_id: (False, 0),
    }
    assert found.unseen == 2
    assert {item["conversation_id"]: item["status"] for item in found.runs.items} == {
        asked: "waiting_input",
        running.run.conversation_id: "running",
    }
    owners = {item["conversation_id"]: item["owner"] for item in found.runs.items}
    assert owners[asked] is None
    assert owners[running.run.conversation_id]["kind"] == "worker"
    assert owners[running.run.conversation_id]["seen_at"] is not None
    assert [(item["conversation_id"], item["prompt"]) for item in found.requests.items] == [(asked, "which?")]
    assert (found.conversations.next_cursor, found.runs.next_cursor, found.requests.next_cursor) == (
        None,
    ) * 3


@pytest.mark.case("P143")
async def test_everybody_is_called_for_their_own_things_only(world: World) -> None:
    people = (USER, "bert", "cleo")
    for user in people:
        await world.lifecycle.ensure_user(user, user)
        await world.post("done", user=user)
    for claimed in await world.lifecycle.claim(OWNER, None, 10):
        await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    for user in people:
        await world.post("asks", user=user)
    for claimed in await world.lifecycle.claim(OWNER, None, 10):
        await world.lifecycle.end_attempt(claimed.fence, ask(f"which, {claimed.run.user_id}?"), None)
    for user in people:
        found = await world.lifecycle.overview(user, 50)
        assert (len(found.conversations.items), found.unseen) == (2, 2)
        assert [item["prompt"] for item in found.requests.items] == [f"which, {user}?"]
        (run,), (request,) = found.runs.items, found.requests.items
        assert run["conversation_id"] == request["conversation_id"]


async def test_the_size_and_the_work_of_the_read_do_not_grow_with_what_happened(world: World) -> None:
    async def read(limit: int) -> tuple[overview.Overview, int]:
        def look(tx: Any) -> tuple[overview.Overview, int]:
            found = overview.overview(tx, USER, limit, world.lifecycle.policy)
            return found, tx.statement_count

        return await world.store.read(look)

    await run(world, "ask", ask("first?"))
    await world.begin_run("running")
    _, few = await read(5)
    for number in range(7):
        await run(world, f"ask {number}", ask("and?"))
        await run(world, f"done {number}", Finished())
    found, many = await read(5)
    assert many <= few + 4 <= 14  # the conversations beside the page are looked up together
    for part in (found.conversations, found.runs, found.requests):
        assert len(part.items) == 5
        assert part.next_cursor is not None
    assert found.unseen == 15
    page = {item["id"] for item in found.conversations.items}
    beside = {item["id"] for item in found.also}
    assert not page & beside
    assert page | beside >= {
        item["conversation_id"] for part in (found.runs, found.requests) for item in part.items
    }
    items, cursor = await world.lifecycle.conversations(USER, 10, None, unseen=True)
    rest, end = await world.lifecycle.conversations(USER, 10, cursor, unseen=True)
    assert (len(items), len(rest), end) == (10, 5, None)
    runs, _ = await world.lifecycle.listed_runs(
        USER, ["queued", "running", "waiting_input"], None, 10, found.runs.next_cursor
    )
    assert len(runs) == 4
