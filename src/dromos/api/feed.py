"""Durable events, once read and once encoded for all streams of a person, and the shared clock of all streams.

A `Tail` follows one person's log: what this process writes comes with the wake-up, everything else is read then. It
encodes what is new, and puts the bytes into the inboxes of that person's streams. A stream joins like this: its
inbox opens first, which fixes a number `since`; it then reads from its own cursor up to `since` by itself. What is
behind `since` comes through the inbox, so nothing is lost in between, and what comes by both ways is told apart by
its number.

An inbox is bounded. One that is full is emptied and marked `behind`: its stream reads for itself again. A wake-up is
a hint: tails also look by themselves every few seconds, as long as somebody listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog

from dromos.api.json import dumps
from dromos.api.sse import Reader, frame
from dromos.domain.errors import Unavailable
from dromos.domain.events import EventType
from dromos.lifecycle import Lifecycle
from dromos.lifecycle.contract import EventPage
from dromos.ports.store import Row
from dromos.ports.wakeup import Wakeup, user_topic
from dromos.wire.shapes import event_json, server_part

log = structlog.get_logger("dromos.api")

PAGE = 500
INBOX_BYTES = 512 * 1024


class Event:
    """A durable event with its bytes for the native stream."""

    __slots__ = ("_row", "bytes", "conversation_id", "run_id", "seq", "type")

    def __init__(self, row: Row) -> None:
        self._row = row
        self.seq: int = row["seq"]
        self.type: str = row["type"] or ""
        self.conversation_id: str | None = row["conversation_id"]
        self.run_id: str | None = row["run_id"]
        self.bytes = frame(self.type, dumps(public(row)), self.seq)

    @property
    def payload(self) -> dict[str, Any]:
        return self._row["payload"] or {}

    @property
    def server_part(self) -> dict[str, Any]:
        """Of the run's document, for a change of status."""
        part: dict[str, Any] = public(self._row)["payload"]["document"]
        return part


def public(row: Row) -> dict[str, Any]:
    """The event as devices see it: a change of status carries the whole server part of the run's document."""
    out = event_json(row)
    payload = out["payload"]
    if row["type"] == EventType.RUN_STATUS and payload and "run" in payload:
        parts = {name: payload.get(name) for name in ("requests", "followups", "owner")}
        document = server_part(
            payload["run"], parts["requests"] or (), parts["followups"] or (), parts["owner"]
        )
        out["payload"] = {k: v for k, v in payload.items() if k not in parts} | {"document": document}
    return out


class Inbox:
    """Events for one stream, bounded by their bytes."""

    __slots__ = ("_events", "_size", "behind", "reader", "since")

    def __init__(self, reader: Reader, since: int) -> None:
        self.reader = reader
        self.since = since
        self.behind = False
        self._events: list[Event] = []
        self._size = 0

    def put(self, event: Event) -> None:
        self.since = event.seq
        if self.behind:
            return
        self._size += len(event.bytes)
        if self._size > INBOX_BYTES:
            self._events, self._size, self.behind = [], 0, True
        else:
            self._events.append(event)
        self.reader.wake()

    def take(self) -> list[Event]:
        """Everything waiting. Empty while `behind`: read up to `since`, then `catch_up`."""
        events, self._events, self._size = self._events, [], 0
        return events

    def catch_up(self) -> None:
        self.behind = False


class Tail:
    """Follows one person's log while anyone listens."""

    def __init__(self, lifecycle: Lifecycle, user_id: str, head: int, reread: float) -> None:
        self.lifecycle, self.user_id, self.head, self.reread = lifecycle, user_id, head, reread
        self.inboxes: set[Inbox] = set()
        self._hint = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def hear(self, news: Sequence[Row]) -> None:
        """A wake-up, with the events of one commit where they were written in this process."""
        if news and news[-1]["seq"] <= self.head:
            return  # read already
        events = _as_read(news) if news and news[0]["seq"] == self.head + 1 else None
        if events is None:
            self._hint.set()
        else:
            self._pass_on(events)

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self.reread):
                    await self._hint.wait()
            except TimeoutError:
                pass
            self._hint.clear()
            try:
                await self._read()
            except Unavailable as error:
                # The store is away: streams stay open and are served when it is back.
                log.warning("feed.unreadable", error=error.detail)
                await asyncio.sleep(self.reread)
            except Exception:
                log.exception("feed.failed")
                await asyncio.sleep(self.reread)

    async def _read(self) -> None:
        while True:
            page = await self.lifecycle.events_after(self.user_id, self.head, PAGE)
            if page.reset:
                # Retention overtook this tail: its streams find out for themselves where they stand.
                self.head = page.head
                for inbox in self.inboxes:
                    inbox.since, inbox.behind = page.head, True
                    inbox.reader.wake()
                return
            self._pass_on(map(Event, page.events))
            if len(page.events) < PAGE:
                return

    def _pass_on(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.seq <= self.head:
                continue  # heard of while it was read
            self.head = event.seq
            for inbox in self.inboxes:
                inbox.put(event)


def _as_read(news: Sequence[Row]) -> list[Event] | None:
    """The events as a reader of the log gets them; None where the store may have cleaned a text: then they are read."""
    try:
        events = [Event(row) for row in news]
    except TypeError:  # a lone surrogate
        return None
    return None if any(b"\\u0000" in event.bytes for event in events) else events


class Feeds:
    """All tails and all readers of this process; `aclose` ends and awaits their tasks."""

    def __init__(
        self, lifecycle: Lifecycle, wakeup: Wakeup, closing: asyncio.Event, heartbeat: float, reread: float
    ) -> None:
        self.lifecycle, self.wakeup, self.closing = lifecycle, wakeup, closing
        self.heartbeat, self.reread = heartbeat, reread
        self._tails: dict[str, Tail] = {}
        self._stops: dict[str, Callable[[], None]] = {}
        self._readers: set[Reader] = set()
        self._pulse: asyncio.Task[None] | None = None
        self._ended: set[asyncio.Task[None]] = set()

    # --- readers
    def enter(self, reader: Reader) -> None:
        """Give the reader heartbeats and the news that the server closes."""
        self._readers.add(reader)
        if self.closing.is_set():
            reader.close()
        elif self._pulse is None or self._pulse.done():
            self._pulse = asyncio.create_task(self._beat())

    def leave(self, reader: Reader) -> None:
        self._readers.discard(reader)
        if not self._readers and self._pulse is not None and not self.closing.is_set():
            self._end(self._pulse)
            self._pulse = None

    @property
    def open(self) -> int:
        """How many streams are open."""
        return len(self._readers)

    async def _beat(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self.heartbeat):
                    await self.closing.wait()
            except TimeoutError:
                for reader in tuple(self._readers):
                    reader.heartbeat()
                continue
            for reader in tuple(self._readers):
                reader.close()
            return

    # --- inboxes
    async def read(self, user_id: str, cursor: int | None, limit: int = PAGE) -> EventPage:
        return await self.lifecycle.events_after(user_id, cursor, limit)

    async def join(self, user_id: str, reader: Reader) -> Inbox:
        """An inbox that gets every event behind its `since`, which is at least the head of a moment ago."""
        tail = self._tails.get(user_id)
        if tail is None:
            head = (await self.read(user_id, None, 1)).head
            tail = self._tails.get(user_id) or self._follow(user_id, head)
        inbox = Inbox(reader, tail.head)
        tail.inboxes.add(inbox)
        return inbox

    def part(self, user_id: str, inbox: Inbox) -> None:
        tail = self._tails.get(user_id)
        if tail is None:
            return
        tail.inboxes.discard(inbox)
        if not tail.inboxes:
            self._unfollow(user_id)

    def _follow(self, user_id: str, head: int) -> Tail:
        tail = Tail(self.lifecycle, user_id, head, self.reread)
        self._tails[user_id] = tail
        self._stops[user_id] = self.wakeup.follow(user_topic(user_id), tail.hear)
        tail.hear(())  # what was written between reading the head and listening
        tail.task = asyncio.create_task(tail.run())
        return tail

    def _unfollow(self, user_id: str) -> None:
        tail = self._tails.pop(user_id)
        self._stops.pop(user_id)()
        if tail.task is not None:
            self._end(tail.task)

    # --- ends
    def _end(self, task: asyncio.Task[None]) -> None:
        self._ended.add(task)
        task.add_done_callback(self._ended.discard)
        task.cancel()

    async def aclose(self) -> None:
        for user_id in tuple(self._tails):
            self._unfollow(user_id)
        if self._pulse is not None:
            self._end(self._pulse)
        await asyncio.gather(*tuple(self._ended), return_exceptions=True)
