"""Server-sent events from bytes, as the WHATWG standard reads them: any cut of the bytes gives the same events.

It must not know HTTP or what an event means.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

MAX_EVENT_CHARACTERS = 16 * 1024 * 1024
"""An event may be so long; a longer one is a fault of the other side, not a reason to fill the memory."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event. `id` is None where this very event carried none (then it does not move a cursor)."""

    event: str
    data: str
    id: str | None = None


class SseTooLong(ValueError):
    """The other side sent an event without end."""


class SseParser:
    """Feed it bytes as they come; it gives the events that became complete. What is cut off at the end is no event."""

    def __init__(self, limit: int = MAX_EVENT_CHARACTERS) -> None:
        self.retry_ms: int | None = None  # the server's wish for the pause before a reconnect
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._limit = limit
        self._begun = False
        self._after_return = (
            False  # a line ended with CR at the end of a piece: an LF that follows belongs to it
        )
        self._line: list[str] = []
        self._size = 0
        self._event = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """The events that end in this piece. Raises SseTooLong."""
        text = self._decoder.decode(piece)
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix("\ufeff")
        for line in self._lines(text):
            event = self._take(line)
            if event is not None:
                yield event

    def _lines(self, text: str) -> Iterator[str]:
        if text and self._after_return:
            self._after_return = False
            text = text.removeprefix("\n")
        start = 0
        while start < len(text):
            ends = [at for at in (text.find("\n", start), text.find("\r", start)) if at >= 0]
            if not ends:
                break
            end = min(ends)
            yield "".join([*self._line, text[start:end]])
            self._line.clear()
            start = end + 1
            if text[end] == "\r":
                if start == len(text):
                    self._after_return = True
                elif text[start] == "\n":
                    start += 1
        if start < len(text):
            self._line.append(text[start:])
            self._grow(len(text) - start)

    def _take(self, line: str) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._grow(len(value))
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value)
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        event = None
        if self._data:
            event = ServerSentEvent(self._event or "message", "\n".join(self._data), self._id)
        self._event, self._id, self._size = "", None, 0
        self._data.clear()
        return event

    def _grow(self, by: int) -> None:
        self._size += by
        if self._size > self._limit:
            raise SseTooLong(f"an event of more than {self._limit} characters")
