"""Server-sent events as bytes, and one stream as an ASGI response.

A stream is a generator of byte chunks over a `Reader`, its inbox of hints. It sleeps until something may be there;
a client that reads slowly holds up only its own generator. It knows no event of the product.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dromos.api.json import dumps

HEARTBEAT = b":\n\n"
GOODBYE_SECONDS = 1.0
STUCK_BEATS = 6
"""A client that takes nothing for so many heartbeats (30 s) is cut off; it comes back with its cursor."""
PIECE = 64 * 1024
"""Bytes that are handed to the connection at once; taking one counts as a sign of life."""
_HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


def frame(event: str, data: bytes, number: int | None = None) -> bytes:
    """One event; `data` is JSON, which has no line breaks."""
    head = b"" if number is None else b"id: %d\n" % number
    name = b"event: " + event.encode() + b"\n" if event else b""
    return head + name + b"data: " + data + b"\n\n"


def json_frame(event: str, data: object, number: int | None = None) -> bytes:
    return frame(event, dumps(data), number)


class Reader:
    """What one stream is told: that something may be there (`wake`), a heartbeat is due, the server closes."""

    __slots__ = ("_hint", "_stuck", "beat", "closing", "gone", "limit", "sending")

    def __init__(self) -> None:
        self._hint = asyncio.Event()
        self._stuck = 0
        self.beat = False
        self.closing = False
        self.gone = False
        self.sending = False  # a piece is on its way to the client
        self.limit: asyncio.Timeout | None = None

    def wake(self) -> None:
        self._hint.set()

    async def wait(self) -> None:
        await self._hint.wait()
        self._hint.clear()

    def take_beat(self) -> bool:
        was, self.beat = self.beat, False
        return was

    def heartbeat(self) -> None:
        self.beat = True
        self._hint.set()
        self._stuck = self._stuck + 1 if self.sending else 0
        if self._stuck >= STUCK_BEATS:
            self._cut(0.0)

    def moved(self) -> None:
        """The client took a piece."""
        self._stuck = 0

    def close(self) -> None:
        """The server shuts down: finish now; what cannot be sent within a second is cut."""
        self.closing = True
        self._hint.set()
        self._cut(GOODBYE_SECONDS)

    def _cut(self, seconds: float) -> None:
        if self.limit is not None and not self.limit.expired():
            self.limit.reschedule(asyncio.get_running_loop().time() + seconds)

    def hang_up(self) -> None:
        self.gone = True
        self._hint.set()


class EventStream(Response):
    """Sends what `chunks` yields until it ends or the client is gone. A gone client changes nothing but this."""

    def __init__(self, reader: Reader, chunks: AsyncGenerator[bytes, None], done: Callable[[], None]) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.raw_headers = _HEAD
        self._reader, self._chunks, self._done = reader, chunks, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(self._watch(receive))
        try:
            async with asyncio.timeout(GOODBYE_SECONDS if self._reader.closing else None) as limit:
                self._reader.limit = limit
                await send({"type": "http.response.start", "status": 200, "headers": _HEAD})
                async with aclosing(self._chunks) as chunks:
                    async for chunk in chunks:
                        self._reader.sending = True
                        for piece in _pieces(chunk):
                            await send({"type": "http.response.body", "body": piece, "more_body": True})
                            self._reader.moved()
                        self._reader.sending = False
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # this client does not read, and the server is going or has waited long enough
        finally:
            self._done()
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._reader.hang_up()


def _pieces(chunk: bytes) -> Iterable[bytes]:
    if len(chunk) <= PIECE:
        return (chunk,)
    return (chunk[start : start + PIECE] for start in range(0, len(chunk), PIECE))
