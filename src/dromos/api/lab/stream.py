"""The stream of `/api`: the run of one conversation until its end, as tokens and traces.

A stream follows the run that is live when it opens, and ends with exactly one `end` or `chat-error`; where nothing is
live, that is all it has to say. What a reader missed while the run is live is taken from the run's document.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import orjson

from dromos.api.door import Door
from dromos.api.feed import Inbox
from dromos.api.lab import encode
from dromos.api.sse import Reader
from dromos.domain.errors import NotFound
from dromos.domain.events import EventType
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus
from dromos.domain.text import utf16_from, utf16_length
from dromos.ports.live import LiveSubscription
from dromos.wire.shapes import run_json

Json = dict[str, Any]


class Follower:
    """One open stream of one conversation."""

    def __init__(self, door: Door, user_id: str, conversation_id: str, reader: Reader, inbox: Inbox) -> None:
        self.door, self.user_id, self.conversation_id = door, user_id, conversation_id
        self.reader, self.inbox = reader, inbox
        self.live: LiveSubscription = door.deps.live.subscribe(conversation_id, reader.wake)
        self.message_id: str | None = None
        self.sent = 0  # of that message, in UTF-16 units
        self.steps: dict[str, str] = {}  # id → status that was told
        self.run_id = ""

    def close(self) -> None:
        self.door.feeds.part(self.user_id, self.inbox)
        self.door.feeds.leave(self.reader)
        self.live.close()

    async def chunks(self, last: Run | None, cursor: int | None) -> AsyncGenerator[bytes, None]:
        """`last` is the conversation's newest run, read after the inbox was opened."""
        if last is None:
            yield encode.nothing_ran(self.conversation_id)
            return
        self.run_id = last.id
        if last.is_final:
            yield encode.terminal(run_json(last))
            return
        yield await self._snapshot(cursor) or encode.PING
        while not self.reader.gone:
            end = await self._ended()
            if self.live.lost:
                self.live.take_nowait()
                chunk = await self._snapshot(None)
            else:
                chunk = b"".join(
                    [await self._frame(each.event, each.data) for each in self.live.take_nowait()]
                )
            if end is not None:
                # The end's transaction saved the whole text: what the frames did not bring comes from there.
                yield chunk + await self._snapshot(None) + end
                return
            if self.reader.take_beat():
                chunk += encode.PING
            if chunk:
                yield chunk
            if self.reader.closing:
                return
            await self.reader.wait()

    async def _ended(self) -> bytes | None:
        if self.inbox.behind:
            # Too much happened to this person at once; the run's row knows as well.
            self.inbox.catch_up()
            try:
                run = await self.door.lifecycle.run(self.user_id, self.run_id)
            except NotFound:
                return encode.nothing_ran(self.conversation_id)
            return encode.terminal(run_json(run)) if run.is_final else None
        for event in self.inbox.take():
            if event.type == EventType.CONVERSATION_DELETED and event.conversation_id == self.conversation_id:
                return encode.nothing_ran(self.conversation_id)
            if event.run_id == self.run_id and event.type == EventType.RUN_STATUS:
                run_now = event.payload["run"]
                if RunStatus(run_now["status"]).is_final:
                    return encode.terminal(run_now, event.seq)
        return None

    # --- content
    async def _snapshot(self, cursor: int | None) -> bytes:
        """What the document holds beyond what was sent."""
        live = self.door.deps.live.snapshot(self.run_id)
        content: Mapping[str, Any]
        if live is not None:
            content = live.content
        else:
            try:
                _, _, saved = await self.door.lifecycle.document(self.user_id, self.run_id)
            except NotFound:
                return b""
            content = saved["content"] if saved is not None else {}
        chunk = self._traces(content.get("steps") or ())
        text = content.get("text") or {}
        if text.get("message_id"):
            if cursor is not None and encode.position(text["message_id"], 0) >> 32 == cursor >> 32:
                self.message_id, self.sent = text["message_id"], cursor & 0xFFFFFFFF
            chunk += self._text(text["message_id"], 0, text["content"]) or b""
        return chunk

    async def _frame(self, event: str, data: bytes) -> bytes:
        if event == "run.text":
            frame = orjson.loads(data)
            if frame["run_id"] != self.run_id:
                return b""
            chunk = self._text(frame["message_id"], frame["offset"], frame["text"])
            return await self._snapshot(None) if chunk is None else chunk
        if event == "run.patch":
            frame = orjson.loads(data)
            if frame["run_id"] == self.run_id and any(
                op["path"].startswith("/steps") for op in frame["patch"]
            ):
                return await self._snapshot(None)
        return b""

    def _text(self, message_id: str, offset: int, text: str) -> bytes | None:
        """The part of `text` that was not sent yet; None where something before it is missing."""
        if message_id != self.message_id:
            if offset > 0:
                return None
            self.message_id, self.sent = message_id, 0
        if offset > self.sent:
            return None
        fresh = utf16_from(text, self.sent - offset)
        if not fresh:
            return b""
        self.sent += utf16_length(fresh)
        return encode.token(fresh, encode.position(message_id, self.sent))

    def _traces(self, steps: Any) -> bytes:
        chunk = b""
        place = encode.position(self.message_id, self.sent) if self.message_id is not None else None
        for number, step in enumerate(steps, start=1):
            if self.steps.get(step["id"]) != step["status"]:
                self.steps[step["id"]] = step["status"]
                chunk += encode.trace(step, number, place)
        return chunk
