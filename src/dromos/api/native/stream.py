"""The stream of `/v1`: a person's durable events, and what the conversation in focus is doing right now.

Two inboxes meet here. Durable events carry their number and move the client's cursor; ephemeral frames carry none.
The focus is subscribed first and read afterwards, so nothing falls between document and frames. What was sent is
remembered as a version and a length: a frame the client has is not sent again, and one that does not follow makes
the whole document be sent instead. What a frame tells goes out before the event that came after it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dromos.api.documented import documented
from dromos.api.door import Door, caller, door_of
from dromos.api.feed import Event, Inbox
from dromos.api.native import decode
from dromos.api.requests import known_form
from dromos.api.snapshots import Whole
from dromos.api.sse import HEARTBEAT, EventStream, Reader, json_frame
from dromos.domain.events import EventType
from dromos.domain.statuses import OwnerKind, RunStatus
from dromos.lifecycle.contract import EventPage
from dromos.ports.live import Frame, LiveSubscription
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


class Focus:
    """The frames of one conversation for one stream, and what of its live run's document the client has."""

    __slots__ = ("_began", "_door", "_live", "_open", "_user_id", "conversation_id", "told")

    def __init__(self, door: Door, user_id: str, conversation_id: str, live: LiveSubscription) -> None:
        self._door, self._user_id, self.conversation_id, self._live = door, user_id, conversation_id, live
        self.told: Told | None = None
        self._open = False  # nothing was sent yet but what the client missed before
        self._began: Event | None = None  # a run that has an owner and whose document was not sent since

    async def begin(self) -> bytes:
        """The document of the live run, as the first that is sent."""
        self._open, self._began = True, None
        return self._tell(await self._door.documents.whole(self._user_id, self.conversation_id))

    async def around(self, events: list[Event]) -> bytes:
        """The bytes of what is new: frames, then `events` (all of the person's), each with what it asks for."""
        ends = [event for event in events if self._ends(event)]
        for event in ends:
            self._door.deps.live.ended(event.run_id or "")  # what still waited there is told now
        parts, gap = self._frames()
        if gap:
            parts.append(self._tell(await self._door.documents.whole(self._user_id, self.conversation_id)))
        for event in events:
            if event in ends:
                parts.append(await self._last_document(event))
            parts.append(event.bytes)
            self._note(event)
        if self._open and self._began is not None:
            parts.append(await self._first_document(self._began))
        return b"".join(parts)

    def close(self) -> None:
        self._live.close()

    # --- inside
    def _frames(self) -> tuple[list[bytes], bool]:
        """What the client lacks and can apply; True where it lacks something that only a whole document can give."""
        told, gap = self.told, False
        parts: list[bytes] = []
        for frame in self._live.take_nowait():
            # Of a run that the client does not know yet, the document comes with its event.
            if told is None or frame.run_id != told.run_id or gap:
                continue
            fits = told.fits(frame)
            if fits:
                parts.append(frame.sse)
            gap = fits is None
        gap = self._live.lost or gap
        return parts, gap

    def _tell(self, whole: Whole | None) -> bytes:
        if whole is None:
            return b""
        self.told = Told(whole)
        self._live.skip_to(whole.mark)
        if self._began is not None and self._began.run_id == whole.run_id:
            self._began = None
        return whole.sse

    def _note(self, event: Event) -> None:
        if event.type != EventType.RUN_STATUS or event.conversation_id != self.conversation_id:
            return
        run, told = event.payload["run"], self.told
        known = told is not None and told.run_id == run["id"] and told.run_version >= run["version"]
        self._began = event if run["status"] == RunStatus.RUNNING and not known else None

    async def _first_document(self, event: Event) -> bytes:
        """A worker opens the document a moment after the status is told, and wakes this stream then."""
        owner = event.payload["owner"]
        if owner is not None and owner["kind"] == OwnerKind.ADAPTER:
            return self._tell(await self._door.documents.whole(self._user_id, self.conversation_id))
        return self._tell(self._door.documents.begun(event.server_part, self.conversation_id))

    def _ends(self, event: Event) -> bool:
        return (
            self.told is not None
            and event.run_id == self.told.run_id
            and event.type == EventType.RUN_STATUS
            and RunStatus(event.payload["run"]["status"]).is_final
        )

    async def _last_document(self, event: Event) -> bytes:
        """What the run's end saved, where frames may not have told all of it."""
        told = self.told
        if told is None or (told.here and told.version >= event.payload["run"]["document_version"]):
            return b""
        return self._tell(await self._door.documents.whole(self._user_id, self.conversation_id, told.run_id))


class Told:
    """What the client has of a run's document once it has read what was sent."""

    __slots__ = ("here", "length", "message_id", "run_id", "run_version", "version")

    def __init__(self, whole: Whole) -> None:
        self.run_id, self.version, self.run_version = whole.run_id, whole.version, whole.run_version
        self.message_id, self.length, self.here = whole.message_id, whole.length, whole.here

    def fits(self, frame: Frame) -> bool | None:
        """True where the client needs the frame, False where it has what it tells, None where something is missing."""
        if frame.event == "run.patch":
            if frame.end <= self.version:
                return False
            if frame.start != self.version:
                return None
            self.version = frame.end
        elif frame.event == "run.text":
            if frame.message_id == self.message_id:
                if frame.end <= self.length:
                    return False
                if frame.start > self.length:
                    return None
            elif frame.start:
                return None
            self.message_id, self.length = frame.message_id, frame.end
        return True


class Follower:
    """One open stream."""

    __slots__ = ("cursor", "door", "focus", "inbox", "reader", "user_id")

    def __init__(self, door: Door, user_id: str, reader: Reader, inbox: Inbox, focus: str | None) -> None:
        self.door, self.user_id, self.reader, self.inbox = door, user_id, reader, inbox
        self.cursor = inbox.since
        self.focus: Focus | None = None
        if focus is not None:
            self.focus = Focus(door, user_id, focus, door.deps.live.subscribe(focus, reader.wake))

    def close(self) -> None:
        self.door.feeds.part(self.user_id, self.inbox)
        self.door.feeds.leave(self.reader)
        if self.focus is not None:
            self.focus.close()

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
            yield await self.focus.begin()
        while not self.reader.gone:
            if self.inbox.behind:
                async for chunk in self._catch_up(None):
                    yield chunk
            chunk = await self._bytes_of(self._events())
            if self.reader.take_beat():
                chunk = chunk or HEARTBEAT
            if chunk:
                yield chunk
            if self.reader.closing:
                yield json_frame("goodbye", {"reason": "drain"})
                return
            await self.reader.wait()

    async def _catch_up(self, page: EventPage | None) -> AsyncGenerator[bytes, None]:
        """By own reads from the cursor to where the inbox goes on. `page` was read before the inbox was opened: that it
        is empty says nothing of what came in between."""
        asked = False
        while True:
            if page is None:
                page, asked = await self.door.feeds.read(self.user_id, self.cursor), True
            if page.reset:
                self.cursor = page.head
                yield json_frame("reset", {"reason": "cursor_too_old", "seq": page.head}, page.head)
            elif page.events:
                events = [Event(row) for row in page.events]
                self.cursor = events[-1].seq
                yield await self._bytes_of(events)
            if self.cursor >= self.inbox.since or (asked and not (page.events or page.reset)):
                self.inbox.catch_up()
                return
            page = None

    def _events(self) -> list[Event]:
        """What the inbox holds beyond the cursor, which moves on."""
        events = [event for event in self.inbox.take() if event.seq > self.cursor]
        if events:
            self.cursor = events[-1].seq
        return events

    async def _bytes_of(self, events: list[Event]) -> bytes:
        if self.focus is not None:
            return await self.focus.around(events)
        return b"".join([event.bytes for event in events])
