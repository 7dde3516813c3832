"""Server-sent events as bytes, and one stream as an ASGI response.

A stream is a generator of byte chunks over a `Reader`, its inbox of hints. It sleeps until something may be there;
a client that reads slowly holds up only its own generator. It knows no event of the product.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dromos.api.json import dumps

HEARTBEAT = b":\n\n"
GOODBYE_SECONDS = 1.0
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

    __slots__ = ("_hint", "beat", "closing", "gone", "limit")

    def __init__(self) -> None:
        self._hint = asyncio.Event()
        self.beat = False
        self.closing = False
        self.gone = False
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

    def close(self) -> None:
        """The server shuts down: finish now; what cannot be sent within a second is cut."""
        self.closing = True
        self._hint.set()
        if self.limit is not None:
            self.limit.reschedule(asyncio.get_running_loop().time() + GOODBYE_SECONDS)

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
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # the server is going and this client does not read
        finally:
            self._done()
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._reader.hang_up()
