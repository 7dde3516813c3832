"""When a run tells its readers what changed: patches and text, coalesced, at most ten frames a second.

What changes is gathered; a frame goes out at once where the last one is long enough ago, else as soon as it is. A
message's text goes out quickly for its first second and four times a second afterwards. On a busy event loop, where
a timer comes late, the next frame waits longer. It knows no form of the document.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import orjson

from dromos.domain.coalescing import Coalescer
from dromos.domain.text import utf16_length
from dromos.live.channel import Channel
from dromos.ports.live import Frame

FRAME_SECONDS = 0.1
LATE_TEXT_SECONDS = 0.25
EARLY_FOR = 1.0
MOST_AHEAD = 3
"""So many frames may go out before their time, where a message ends and the next one begins."""
MOST_PATIENCE = 0.4
"""A frame waits so long at most because the loop is busy."""

Timer = asyncio.TimerHandle


class Teller(ABC):
    """`version` and `length` are what readers were told last, or would have been."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, run_id: str, version: int, channel: Channel | None = None
    ) -> None:
        self._loop, self.run_id, self.version, self._channel = loop, run_id, version, channel
        self.message_id: str | None = None
        self.length = 0
        self._edits = Coalescer()
        self._pieces: list[str] = []  # text that is not told yet
        self._patch_timer: Timer | None = None
        self._text_timer: Timer | None = None
        self._patch_waits = False  # for something more important
        self._free_at = self._text_at = self._patch_at = self._early_until = 0.0

    @abstractmethod
    def _next_version(self) -> int:
        """The version that the gathered edits lead to."""

    @abstractmethod
    def _take_text(self) -> str:
        """The gathered text; from now on it counts as told."""

    def tell(self) -> None:
        """Tell everything that was gathered, now."""
        self._tell_patch()
        self._tell_text()

    def silence(self) -> None:
        """Tell nothing more."""
        self._channel = None
        self._edits.take()
        self.tell()

    # --- inside
    def _begin_message(self, message_id: str | None, length: int = 0) -> None:
        self.message_id, self.length = message_id, length
        self._early_until = 0.0

    def _arm_patch(self, later: float = 0.0) -> None:
        """Tell the edits when a frame may go out, or `later` seconds after the last patch where nothing else asks."""
        due = max(self._free_at, self._patch_at + later) if later else self._free_at
        if self._patch_timer is not None:
            if later or not self._patch_waits:
                return
            self._patch_timer.cancel()
        self._patch_waits = bool(later)
        self._patch_timer = self._at(due, self._tell_patch)

    def _arm_text(self) -> None:
        now = self._loop.time()
        if not self._early_until:
            self._early_until = now + EARLY_FOR
        spaced = 0.0 if now < self._early_until else self._text_at + LATE_TEXT_SECONDS
        self._text_timer = self._at(max(spaced, self._free_at), self._tell_text)

    def _at(self, due: float, tell: Callable[[], None]) -> Timer:
        now = self._loop.time()
        return self._loop.call_at(max(due, now), self._fire, max(due, now), tell)

    def _fire(self, due: float, tell: Callable[[], None]) -> None:
        now = self._loop.time()
        self._free_at = max(self._free_at, now + min(now - due, MOST_PATIENCE))
        tell()

    def _hurried(self) -> bool:
        """True where more was told lately than a run may tell."""
        return self._free_at > self._loop.time() + MOST_AHEAD * FRAME_SECONDS

    def _tell_patch(self) -> None:
        if self._patch_timer is not None:
            self._patch_timer.cancel()
            self._patch_timer = None
        start, self.version = self.version, self._next_version()
        if self._edits and self._channel is not None:
            data = {"run_id": self.run_id, "base_version": start, "version": self.version}
            self._publish("run.patch", {**data, "patch": self._edits.take()}, start, self.version)
            self._patch_at = self._loop.time()

    def _tell_text(self) -> None:
        if self._text_timer is not None:
            self._text_timer.cancel()
            self._text_timer = None
        text = self._take_text()
        if not text:
            return
        offset, self.length = self.length, self.length + utf16_length(text)
        if self._channel is not None:
            data = {"run_id": self.run_id, "message_id": self.message_id, "offset": offset, "text": text}
            self._publish("run.text", data, offset, self.length, self.message_id)
            self._text_at = self._loop.time()

    def _publish(
        self, event: str, data: dict[str, Any], start: int = 0, end: int = 0, message_id: str | None = None
    ) -> None:
        assert self._channel is not None
        self._free_at = max(self._free_at, self._loop.time()) + FRAME_SECONDS
        self._channel.publish(Frame.of(event, orjson.dumps(data), self.run_id, start, end, message_id))
