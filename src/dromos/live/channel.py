"""One conversation's frames and who reads them: one list for all, a place in it for each reader.

A reader costs a number. Frames that every reader has taken leave; so do the oldest when there are too many, and
a reader who had not taken those is told once to start from a fresh document. Everything here runs on the event
loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice

from dromos.ports.live import Frame

MAX_FRAMES = 256
MAX_BYTES = 512 * 1024
TIDY_FRAMES = 16
"""More than so many are looked through for those that nobody needs."""
REFRESH_SECONDS = 0.25
"""Readers are sent to the rows at most this often."""


class Subscription:
    """One reader; see `ports.live.LiveSubscription`."""

    __slots__ = ("_channel", "_left", "_stale", "cursor", "wake")

    def __init__(
        self, channel: Channel, wake: Callable[[], None], left: Callable[[Subscription], None]
    ) -> None:
        self._channel, self.wake, self._left = channel, wake, left
        self.cursor = channel.next
        self._stale = False

    def take_nowait(self) -> list[Frame]:
        channel = self._channel
        if self.cursor == channel.next:
            return []
        self._overtaken()
        frames = list(islice(channel.frames, self.cursor - channel.first, None))
        self.cursor = channel.next
        return frames

    @property
    def lost(self) -> bool:
        self._overtaken()
        was, self._stale = self._stale, False
        return was

    def _overtaken(self) -> None:
        if self.cursor < self._channel.first:
            self._stale, self.cursor = True, self._channel.next

    def skip_to(self, mark: int) -> None:
        self.cursor = max(self.cursor, min(mark, self._channel.next))

    def start_anew(self) -> None:
        """The document changed where its frames do not come from."""
        self._stale = True
        self.wake()

    def close(self) -> None:
        self._left(self)


class Channel:
    """Frames of one conversation while somebody reads them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.frames: deque[Frame] = deque()
        self.first = self.next = 0  # numbers of the oldest frame kept, and of the one to come
        self.readers: set[Subscription] = set()
        self._size = 0
        self._refreshed_at = -REFRESH_SECONDS
        self._refresh: asyncio.TimerHandle | None = None

    def publish(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.next += 1
        self._size += len(frame.sse)
        if len(self.frames) > TIDY_FRAMES or self._size > MAX_BYTES:
            self._tidy()
        self.wake()

    def wake(self) -> None:
        for reader in self.readers:
            reader.wake()

    def refresh(self) -> None:
        """Have every reader take a fresh document, soon."""
        if self._refresh is None:
            due = max(self._loop.time(), self._refreshed_at + REFRESH_SECONDS)
            self._refresh = self._loop.call_at(due, self._start_anew)

    def _start_anew(self) -> None:
        self._refresh, self._refreshed_at = None, self._loop.time()
        for reader in self.readers:
            reader.start_anew()

    def close(self) -> None:
        if self._refresh is not None:
            self._refresh.cancel()

    def _tidy(self) -> None:
        needed = min((reader.cursor for reader in self.readers), default=self.next)
        while self.frames and (
            self.first < needed or len(self.frames) > MAX_FRAMES or self._size > MAX_BYTES
        ):
            self._size -= len(self.frames.popleft().sse)
            self.first += 1
