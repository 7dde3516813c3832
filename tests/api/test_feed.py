"""What a person's tail passes on: what this process wrote comes with the wake-up, everything else is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from dromos.api.feed import Inbox, Tail
from dromos.domain.events import EventDraft, EventType
from dromos.lifecycle.contract import EventPage
from dromos.testing.waiting import eventually
from tests.api.conftest import Heard, Listening, Serving

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Reader:
    """Counts its wake-ups."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


class Log:
    """Stands for the lifecycle: a log of one person that can be read, and whose reading can be held up."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.reads = 0
        self.open = asyncio.Event()
        self.open.set()

    def write(self, *titles: str) -> list[dict[str, Any]]:
        """Append events; returns the rows as the change that wrote them knows them."""
        written = []
        for title in titles:
            draft = EventDraft(EventType.CONVERSATION_CHANGED, "c", {"conversation": {"title": title}})
            written.append(draft.row("ada", len(self.rows) + 1, NOON))
            self.rows.append(
                written[-1] | {"payload": {"conversation": {"title": title.replace("\ud800", "\ufffd")}}}
            )
        return written

    async def events_after(self, user_id: str, cursor: int | None, limit: int) -> EventPage:
        self.reads += 1
        found = [row for row in self.rows if row["seq"] > (cursor or 0)]
        await self.open.wait()
        return EventPage(found, len(self.rows), 1)


@pytest.fixture
async def following() -> AsyncIterator[tuple[Log, Tail, Inbox]]:
    log = Log()
    tail = Tail(log, "ada", 0, 60.0)  # type: ignore[arg-type]
    inbox = Inbox(Reader(), 0)  # type: ignore[arg-type]
    tail.inboxes.add(inbox)
    task = asyncio.create_task(tail.run())
    yield log, tail, inbox
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def numbers(inbox: Inbox) -> list[int]:
    return [event.seq for event in inbox.take()]


Following = tuple[Log, Tail, Inbox]


async def test_what_this_process_wrote_is_passed_on_without_being_read(following: Following) -> None:
    log, tail, inbox = following
    tail.hear(log.write("one", "two"))
    tail.hear(log.write("three"))
    assert numbers(inbox) == [1, 2, 3]
    assert log.reads == 0


async def test_news_behind_a_gap_is_read_with_what_lies_before_it(following: Following) -> None:
    log, tail, inbox = following
    log.write("by another process")
    tail.hear(log.write("ours"))
    assert numbers(inbox) == []
    await eventually(lambda: tail.head == 2, what="both events")
    assert numbers(inbox) == [1, 2]


async def test_what_is_heard_of_while_the_log_is_read_comes_once(following: Following) -> None:
    log, tail, inbox = following
    log.open.clear()
    first = log.write("one")
    tail.hear(())  # read up on it
    await eventually(lambda: log.reads == 1, what="the read under way")
    tail.hear(first)
    tail.hear(log.write("two"))
    log.open.set()
    tail.hear(log.write("three"))
    tail.hear(first)  # late
    tail.hear(())
    await eventually(lambda: log.reads == 2, what="another read")
    tail.hear(log.write("four"))
    await eventually(lambda: tail.head == 4, what="the newest event")
    assert numbers(inbox) == [1, 2, 3, 4]


@pytest.mark.parametrize("title", ["half \ud800 a pair", "nul \x00"])
async def test_what_the_store_kept_differently_is_read(following: Following, title: str) -> None:
    log, tail, inbox = following
    tail.hear(log.write(title))
    assert numbers(inbox) == []
    await eventually(lambda: tail.head == 1, what="the event")
    assert numbers(inbox) == [1]


async def test_what_is_heard_is_byte_for_byte_what_is_read_later(served: Serving) -> None:
    """Live and after the fact, over questions, follow-ups, a stop, an end and a conversation's deletion."""
    async with served.listen() as stream:
        await stream.next("hello")
        conversation = await served.conversation(title="a \u202e title")
        await served.ended((await served.send(conversation, "say one"))["run"]["id"])
        run = (await served.send(conversation, "gate g"))["run"]
        await served.puppet.at("g")
        await served.send(conversation, "say two", when_busy="queue")
        await served.http.post(f"/v1/runs/{run['id']}/cancel")
        await served.ended(run["id"])
        head = (await served.http.get(f"/v1/conversations/{conversation}")).json()["seq"]
        live = await _frames(stream, head)
    async with served.listen(after=0) as again:
        read = await _frames(again, head)
    assert len(live) == head
    assert live == read


async def _frames(stream: Listening, head: int) -> list[Heard]:
    """All durable events up to `head`."""
    frames: list[Heard] = []
    while not frames or int(frames[-1].id or 0) < head:
        heard = await stream.next()
        if heard.id is not None and heard.event != "hello":
            frames.append(heard)
    return frames
