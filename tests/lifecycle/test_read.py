"""What a person sees: one consistent read, pages without gaps, events after a cursor."""

from __future__ import annotations

import asyncio

import pytest

from dromos.domain.errors import Invalid, NotFound
from dromos.domain.statuses import RunStatus
from dromos.ports.agent import Finished
from dromos.ports.store import Table
from tests.lifecycle.world import OWNER, USER, Engine, World


async def talk(world: World, rounds: int) -> str:
    conversation_id = None
    for number in range(rounds):
        claimed = await world.begin_run(f"question {number}", conversation_id)
        conversation_id = claimed.run.conversation_id
        engine = Engine(world, claimed)
        await engine.enter()
        await engine.say(f"answer {number}")
        await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    assert conversation_id is not None
    return conversation_id


async def test_messages_are_read_backwards_in_pages_without_a_gap(world: World) -> None:
    conversation_id = await talk(world, 4)
    view = await world.lifecycle.conversation(USER, conversation_id, limit=5)
    pages, before = [view.messages], view.before
    while before is not None:
        page, before = await world.lifecycle.messages(USER, conversation_id, before, 5)
        pages.append(page)
    rows = [row for page in reversed(pages) for row in page]
    assert rows == await world.history(conversation_id)
    assert [len(page) for page in pages] == [5, 5, 2]
    assert [row["kind"] for row in rows[:3]] == ["text", "run", "text"]
    with pytest.raises(Invalid):
        await world.lifecycle.messages(USER, conversation_id, world.lifecycle.ids.new(), 5)


async def test_a_conversation_is_read_with_what_is_live_and_the_cursor_to_stream_from(world: World) -> None:
    conversation_id = await talk(world, 1)
    live = await world.begin_run("more", conversation_id)
    await world.post("later", conversation_id)
    view = await world.lifecycle.conversation(USER, conversation_id)
    assert [run.id for run in view.runs] == [live.run.id]
    assert view.last_run == live.run
    assert [row["content"] for row in view.followups] == ["later"]
    assert view.seq == (await world.events())[-1]["seq"]
    assert view.continuation is None
    page = await world.lifecycle.events_after(USER, view.seq, 10)
    assert (page.events, page.head) == ([], view.seq)


async def test_conversations_come_newest_first_in_pages_with_few_queries(world: World) -> None:
    ids = [(await world.post(f"talk {number}")).conversation["id"] for number in range(5)]
    await asyncio.gather(*(world.post(f"more {number}") for number in range(4)))  # some at the same moment
    seen, cursor = [], None
    while True:
        items, cursor = await world.lifecycle.conversations(USER, 2, cursor)
        seen += items
        if cursor is None:
            break
    assert len({item["id"] for item in seen}) == 9
    assert [item["id"] for item in seen[-5:]] == ids[::-1]
    assert {item["status"] for item in seen} == {"queued"}
    assert not any(item["unseen"] for item in seen)  # nothing in them calls a person yet

    counted = 0

    def read(tx):  # type: ignore[no-untyped-def]
        from dromos.lifecycle.read import conversations

        nonlocal counted
        answer = conversations(tx, USER, 50, None)
        counted = tx.statement_count
        return answer

    items, _ = await world.store.read(read)
    assert len(items) == 9
    assert counted <= 5
    with pytest.raises(Invalid):
        await world.lifecycle.conversations(USER, 2, "no such cursor")


async def test_a_list_row_tells_what_came_out(world: World) -> None:
    conversation_id = await talk(world, 2)
    (item,) = (await world.lifecycle.conversations(USER, 10, None))[0]
    assert item == {
        "id": conversation_id,
        "title": "question 0",
        "agent": "assistant",
        "status": RunStatus.COMPLETED,
        "message_count": 4,
        "archived": False,
        "unseen": True,
        "created_at": item["created_at"],
        "updated_at": item["updated_at"],
        "line": "answer 1",
        "open_requests": 0,
    }


async def test_runs_are_listed_by_status_and_conversation_in_pages(world: World) -> None:
    conversation_id = await talk(world, 3)
    other = await world.post("elsewhere")
    listed, cursor = await world.lifecycle.runs(USER, [], None, 3, None)
    rest, end = await world.lifecycle.runs(USER, [], None, 3, cursor)
    assert end is None
    assert [run.id for run in [*rest, *listed]] == [rest[0].id, *(run.id for run in listed)]
    assert len({run.id for run in [*listed, *rest]}) == 4
    mine, _ = await world.lifecycle.runs(USER, ["completed"], conversation_id, 10, None)
    assert len(mine) == 3
    queued, _ = await world.lifecycle.runs(USER, ["queued"], None, 10, None)
    assert [run.id for run in queued] == [other.run.id if other.run else None]
    with pytest.raises(NotFound):
        await world.lifecycle.runs(USER, [], world.lifecycle.ids.new(), 10, None)


async def test_a_document_is_composed_of_the_runs_rows_and_the_saved_content(world: World) -> None:
    claimed = await world.begin_run("hello")
    run, server, content = await world.lifecycle.document(USER, claimed.run.id)
    assert content is None
    assert server["run_version"] == run.version
    assert server["owner"]["kind"] == "worker"
    assert server["owner"]["seen_at"] is not None
    await world.lifecycle.save_document(claimed.fence, Engine(world, claimed).shown("so far"))
    _, _, content = await world.lifecycle.document(USER, claimed.run.id)
    assert content is not None
    assert content["content"]["text"]["content"] == "so far"


async def test_a_cursor_beyond_the_head_or_below_zero_is_refused_at_once(world: World) -> None:
    await world.post("hello")
    head = (await world.lifecycle.events_after(USER, None, 10)).head
    for wrong in (head + 1, -1):
        with pytest.raises(Invalid):
            await world.lifecycle.events_after(USER, wrong, 10)


@pytest.mark.case("P93")
async def test_a_reader_by_cursor_sees_every_event_once_while_many_write(world: World) -> None:
    read: list[int] = []
    writing = True

    async def reader() -> None:
        cursor = 0
        while True:
            done = not writing
            page = await world.lifecycle.events_after(USER, cursor, 7)
            read.extend(row["seq"] for row in page.events)
            cursor = read[-1] if read else 0
            if done and cursor == page.head:
                return

    async def writers() -> None:
        nonlocal writing
        await asyncio.gather(*(world.post(f"talk {number}") for number in range(25)))
        await world.lifecycle.claim(OWNER, None, 25)
        writing = False

    await asyncio.gather(reader(), writers())
    assert read == list(range(1, len(read) + 1))
    assert len(read) == len(await world.rows(Table.EVENTS))
