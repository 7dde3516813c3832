"""The stream of `/v1`: a person's durable events, and what the conversation in focus is doing right now.

Two inboxes meet here. Durable events carry their number and move the client's cursor; ephemeral frames carry none.
The focus is subscribed first and read afterwards, so nothing falls between snapshot and frames; a frame that
is older than the snapshot does no harm, clients tell by version and length.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dromos.api.documented import documented
from dromos.api.door import Door, caller, door_of
from dromos.api.feed import Event, Inbox
from dromos.api.json import dumps
from dromos.api.native import decode, encode
from dromos.api.native.runs import run_document
from dromos.api.requests import known_form
from dromos.api.sse import HEARTBEAT, EventStream, Reader, frame, json_frame
from dromos.domain.errors import NotFound
from dromos.domain.events import EventType
from dromos.domain.statuses import LIVE, RunStatus
from dromos.lifecycle.contract import EventPage
from dromos.ports.live import LiveSubscription
from dromos.wire import bodies

router = APIRouter(tags=["stream"])


@router.get(
    "/v1/stream",
    **documented(
        "Follow durable events, and the live frames of the conversation in focus",
        {200: "Server-sent events, until the client leaves or the server says goodbye."},
        query=bodies.StreamQuery,
        media="text/event-stream",
    ),
)
async def stream(request: Request) -> Response:
    door, user_id = door_of(request), caller(request).user_id
    focus, cursor = decode.stream(request)
    if focus is not None:
        # Somebody else's conversation, or none at all: 404 instead of a stream that stays silent.
        focus = known_form(focus)
        await door.lifecycle.conversation(user_id, focus, 1)
    first = await door.feeds.read(user_id, cursor) if cursor is not None else None
    reader = Reader()
    door.feeds.enter(reader)
    try:
        inbox = await door.feeds.join(user_id, reader)
    except BaseException:
        door.feeds.leave(reader)
        raise
    follower = Follower(door, user_id, reader, inbox, focus)
    return EventStream(reader, follower.chunks(cursor, first), follower.close)


class Follower:
    """One open stream."""

    __slots__ = ("cursor", "door", "focus", "inbox", "live", "reader", "sent", "started", "user_id")

    def __init__(self, door: Door, user_id: str, reader: Reader, inbox: Inbox, focus: str | None) -> None:
        self.door, self.user_id, self.reader, self.inbox, self.focus = door, user_id, reader, inbox, focus
        self.cursor = inbox.since
        self.live: LiveSubscription | None = None
        self.started: Event | None = None  # a run that began in the focus, its document not sent yet
        self.sent: tuple[str, int] | None = None  # run and run_version of the newest whole document sent
        if focus is not None:
            self.live = door.deps.live.subscribe(focus, reader.wake)

    def close(self) -> None:
        self.door.feeds.part(self.user_id, self.inbox)
        self.door.feeds.leave(self.reader)
        if self.live is not None:
            self.live.close()

    async def chunks(self, cursor: int | None, first: EventPage | None) -> AsyncGenerator[bytes, None]:
        if cursor is None:
            yield json_frame("hello", {"seq": self.cursor}, self.cursor)
        else:
            head = max(first.head if first is not None else 0, self.inbox.since)
            self.cursor = cursor
            yield json_frame("hello", {"seq": head})
            async for chunk in self._catch_up(first):
                yield chunk
        if self.focus is not None:
            yield await self._focus_snapshot()
        while not self.reader.gone:
            if self.inbox.behind:
                async for chunk in self._catch_up(None):
                    yield chunk
            chunk = self._events() + await self._frames()
            if self.reader.take_beat():
                chunk = chunk or HEARTBEAT
            if chunk:
                yield chunk
            if self.reader.closing:
                yield json_frame("goodbye", {"reason": "drain"})
                return
            await self.reader.wait()

    # --- durable
    async def _catch_up(self, page: EventPage | None) -> AsyncGenerator[bytes, None]:
        """By own reads from the cursor to where the inbox goes on."""
        while True:
            if page is None:
                page = await self.door.feeds.read(self.user_id, self.cursor)
            if page.reset:
                self.cursor = page.head
                yield json_frame("reset", {"reason": "cursor_too_old", "seq": page.head}, page.head)
            elif page.events:
                events = [Event(row) for row in page.events]
                self.cursor = events[-1].seq
                yield self._note(events)
            if self.cursor >= self.inbox.since or not (page.events or page.reset):
                self.inbox.catch_up()
                return
            page = None

    def _events(self) -> bytes:
        events = [event for event in self.inbox.take() if event.seq > self.cursor]
        if not events:
            return b""
        self.cursor = events[-1].seq
        return self._note(events)

    def _note(self, events: list[Event]) -> bytes:
        """The bytes of the events; a run that starts in the focused conversation gets its document sent."""
        if self.focus is not None:
            for event in events:
                if event.conversation_id == self.focus and event.type == EventType.RUN_STATUS:
                    run = event.payload["run"]
                    started = run["status"] == RunStatus.RUNNING and not self._knows(run)
                    self.started = event if started else None
        return b"".join([event.bytes for event in events])

    # --- ephemeral
    async def _frames(self) -> bytes:
        if self.live is None:
            return b""
        frames = self.live.take_nowait()
        parts: list[bytes] = []
        if self.live.lost:
            parts.append(await self._focus_snapshot())
        elif self.started is not None:
            # The worker opens the document a moment after the status is told; until then there is nothing to send.
            live = self.door.deps.live.snapshot(self.started.run_id or "")
            if live is not None:
                parts.append(self._document(encode.document(self.started.server_part, None, live)))
        parts += [frame(each.event, each.data) for each in frames]
        return b"".join(parts)

    async def _focus_snapshot(self) -> bytes:
        """`run.document` of the conversation's live run; nothing where none is live."""
        try:
            runs, _ = await self.door.lifecycle.runs(self.user_id, tuple(LIVE), self.focus, 1, None)
            if not runs:
                return b""
            return self._document(await run_document(self.door, self.user_id, runs[0].id))
        except NotFound:
            return b""  # deleted at this moment; its event is on the way

    def _knows(self, run: encode.Json) -> bool:
        """True where the document of this run, as it stood then or later, was sent."""
        return self.sent is not None and self.sent[0] == run["id"] and self.sent[1] >= run["version"]

    def _document(self, document: encode.Json) -> bytes:
        """The frame of a whole document. A run whose worker has not opened it yet gets it once more when it has."""
        if self.door.deps.live.snapshot(document["run_id"]) is not None:
            self.sent, self.started = (document["run_id"], document["run_version"]), None
        return frame("run.document", dumps(document))
