"""The home of live documents: one per attempt under way, patched in place, told to focused readers.

A document's version is epoch × 2³² + n, so a new owner always jumps forward. Changes are coalesced (last value of a
path wins) into at most ten patch frames a second; text travels as appended chunks, each frame encoded once for all
readers. With nobody looking nothing is encoded at all. A reader's queue is bounded: on overflow it is emptied and
the reader is told to take a fresh snapshot, so a slow device never costs memory and never slows a run.

Everything here runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from dromos.domain.text import utf16_length
from dromos.ports.live import DocumentSnapshot, Frame
from dromos.wire.document import EMPTY_CONTENT

PATCH_SECONDS = 0.1
EARLY_TEXT_SECONDS = 0.1
LATE_TEXT_SECONDS = 0.25
EARLY_FOR = 1.0
SERVER_SECONDS = 1.0
MAX_STEPS = 50
MAX_TEXT = 1024 * 1024
QUEUE_FRAMES = 256


class Subscription:
    """Frames of one conversation for one reader; see `ports.live.LiveSubscription`."""

    __slots__ = ("_close", "_frames", "_lost", "_on_frame", "closed")

    def __init__(self, on_frame: Callable[[], None], close: Callable[[Subscription], None]) -> None:
        self._frames: deque[Frame] = deque()
        self._lost = False
        self._on_frame = on_frame
        self._close = close
        self.closed = False

    def push(self, frame: Frame) -> None:
        if len(self._frames) >= QUEUE_FRAMES:
            self._frames.clear()
            self._lost = True
        self._frames.append(frame)
        self._on_frame()

    def take_nowait(self) -> list[Frame]:
        frames = list(self._frames)
        self._frames.clear()
        return frames

    @property
    def lost(self) -> bool:
        was, self._lost = self._lost, False
        return was

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._close(self)


class Document:
    """One attempt's pen; see `ports.live.LiveRun`."""

    def __init__(
        self, hub: LiveHub, run_id: str, conversation_id: str, epoch: int, content: Mapping[str, Any]
    ) -> None:
        self.run_id, self.conversation_id = run_id, conversation_id
        self._hub = hub
        self._version = epoch << 32
        self._content: dict[str, Any] = {**EMPTY_CONTENT, **content}
        self._text_id: str | None = None
        self._text: list[str] = []
        self._text_length = 0
        self._text_started = 0.0
        self._changes: dict[str, Any] = {}
        self._unsent_text: list[str] = []
        self._unsent_from = 0
        self._server: dict[str, Any] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._sent_at: dict[str, float] = {}
        self.changed = False  # since the last save; reset by whoever saves

    # --- the owner's side
    def text(self, message_id: str, text: str) -> None:
        if not text:
            return
        if message_id != self._text_id:
            self._send_text()
            self._text_id, self._text, self._text_length = message_id, [], 0
            self._text_started = self._hub.now()
            self._unsent_from = 0
        if self._text_length > MAX_TEXT:
            return
        self._text.append(text)
        self._text_length += utf16_length(text)
        self.changed = True
        if not self._hub.watched(self.conversation_id):
            self._unsent_text.clear()
            self._unsent_from = self._text_length
            return
        self._unsent_text.append(text)
        early = self._hub.now() - self._text_started < EARLY_FOR
        self._schedule("text", EARLY_TEXT_SECONDS if early else LATE_TEXT_SECONDS, self._send_text)

    def set(self, path: str, value: Any) -> None:
        self._apply(path, value)
        self._changes[path] = value
        self.changed = True
        self._schedule("patch", PATCH_SECONDS, self._send_patch)

    def step(self, step: Mapping[str, Any]) -> None:
        steps: list[dict[str, Any]] = list(self._content["steps"])
        for index, known in enumerate(steps):
            if known["id"] == step["id"]:
                steps[index] = {**known, **step}
                break
        else:
            steps.append(dict(step))
        self.set("/steps", steps[-MAX_STEPS:])

    def touch(self) -> None:
        """Activity is the business of whoever wraps this pen."""

    def server(self, fields: Mapping[str, Any]) -> None:
        self._server.update(fields)
        self._schedule("server", SERVER_SECONDS, self._send_server)

    def snapshot(self) -> DocumentSnapshot:
        self._send_patch()
        self._send_text()
        content = dict(self._content)
        content["text"] = {
            "message_id": self._text_id,
            "length": self._text_length,
            "content": self._whole_text(),
        }
        return DocumentSnapshot(self.run_id, self._version, content)

    def close(self) -> None:
        self._send_text()
        self._send_patch()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._hub.forget(self)

    # --- inside
    def _whole_text(self) -> str:
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        return self._text[0] if self._text else ""

    def _apply(self, path: str, value: Any) -> None:
        parts = path.strip("/").split("/")
        target = self._content
        for part in parts[:-1]:
            # Copy on write: a snapshot that was handed out keeps what it showed.
            target[part] = dict(target.get(part) or {})
            target = target[part]
        target[parts[-1]] = value

    def _schedule(self, kind: str, seconds: float, send: Callable[[], None]) -> None:
        if kind in self._timers or not self._hub.watched(self.conversation_id):
            return
        wait = max(0.0, self._sent_at.get(kind, -1e9) + seconds - self._hub.now())

        def fire() -> None:
            self._timers.pop(kind, None)
            send()

        self._timers[kind] = self._hub.loop.call_later(wait, fire)

    def _send_patch(self) -> None:
        """Raise the version once for all changes since the last frame, and tell readers if there are any."""
        if not self._changes:
            return
        base, self._version = self._version, self._version + 1
        changes, self._changes = self._changes, {}
        self._sent_at["patch"] = self._hub.now()
        if self._hub.watched(self.conversation_id):
            # `add` on an object member sets it, whether it was there or not.
            patch = [{"op": "add", "path": path, "value": value} for path, value in changes.items()]
            self._hub.publish(
                self.conversation_id,
                "run.patch",
                {"run_id": self.run_id, "base_version": base, "version": self._version, "patch": patch},
            )

    def _send_text(self) -> None:
        if not self._unsent_text:
            return
        text, self._unsent_text = "".join(self._unsent_text), []
        offset, self._unsent_from = self._unsent_from, self._text_length
        self._sent_at["text"] = self._hub.now()
        if self._hub.watched(self.conversation_id):
            self._hub.publish(
                self.conversation_id,
                "run.text",
                {"run_id": self.run_id, "message_id": self._text_id, "offset": offset, "text": text},
            )

    def _send_server(self) -> None:
        fields, self._server = self._server, {}
        if fields and self._hub.watched(self.conversation_id):
            self._sent_at["server"] = self._hub.now()
            self._hub.publish(self.conversation_id, "run.server", {"run_id": self.run_id, **fields})


class LiveHub:
    """All documents and readers of this process; see `ports.live.LiveDocuments`."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self.now = self.loop.time
        self._documents: dict[str, Document] = {}
        self._readers: dict[str, set[Subscription]] = {}

    def open(self, run_id: str, conversation_id: str, epoch: int, content: Mapping[str, Any]) -> Document:
        document = Document(self, run_id, conversation_id, epoch, content)
        self._documents[run_id] = document
        return document

    def forget(self, document: Document) -> None:
        if self._documents.get(document.run_id) is document:
            del self._documents[document.run_id]

    def snapshot(self, run_id: str) -> DocumentSnapshot | None:
        document = self._documents.get(run_id)
        return None if document is None else document.snapshot()

    def subscribe(self, conversation_id: str, on_frame: Callable[[], None]) -> Subscription:
        def close(subscription: Subscription) -> None:
            readers = self._readers.get(conversation_id)
            if readers is not None:
                readers.discard(subscription)
                if not readers:
                    del self._readers[conversation_id]

        subscription = Subscription(on_frame, close)
        self._readers.setdefault(conversation_id, set()).add(subscription)
        return subscription

    def watched(self, conversation_id: str) -> bool:
        return conversation_id in self._readers

    def publish(self, conversation_id: str, event: str, data: Mapping[str, Any]) -> None:
        frame = Frame(event, orjson.dumps(data))
        for reader in tuple(self._readers.get(conversation_id, ())):
            reader.push(frame)
