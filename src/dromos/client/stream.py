"""The event stream as one endless iterator: it reconnects behind the last event it gave, and notices silence.

A durable event is given once and moves the cursor; a frame without a number does not. It must not know what events
mean: `reset` and `hello` are given to the reader, who then reads again by REST.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from dromos.client.connection import Connection
from dromos.client.errors import ProtocolError, ServerFault, ServerUnreachable
from dromos.client.sse import SseParser, SseTooLong

SILENCE_SECONDS = 15.0
"""The server says something at least every 5 s; after so long without a byte the connection is dead."""
RECONNECT_DELAYS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
Link = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Event:
    """One frame: its type, its JSON, and its number where it is a durable event (or a `reset`, or a first `hello`)."""

    type: str
    data: Any
    seq: int | None = None


class EventStream:
    """An async iterator of `Event`, to be used as an async context (or closed with `aclose`).

    It never ends by itself. Raises an ApiError where the server refuses the stream (a cursor that is none, a
    conversation that is gone), ServerUnreachable if `patience` seconds passed without a connection (None: never).
    """

    def __init__(
        self,
        connection: Connection,
        *,
        focus: str | None = None,
        after: int | None = None,
        silence: float = SILENCE_SECONDS,
        delays: tuple[float, ...] = RECONNECT_DELAYS,
        patience: float | None = None,
        on_link: Callable[[Link], None] | None = None,
    ) -> None:
        self.cursor = after
        self.connects = 0
        self._connection, self._focus = connection, focus
        self._silence, self._delays, self._patience = silence, delays, patience
        self._on_link = on_link or (lambda link: None)
        self._events = self._follow()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; the iterator ends."""
        await self._events.aclose()

    async def _follow(self) -> AsyncGenerator[Event, None]:
        clock = asyncio.get_running_loop().time
        failures, down_since = 0, clock()
        while True:
            try:
                async with aclosing(self._connected()) as events:
                    async for event in events:
                        failures, down_since = 0, clock()
                        yield event
                        if event.type == "goodbye":
                            break
            except (ServerUnreachable, ServerFault) as error:
                self._on_link("down")
                if self._patience is not None and clock() - down_since >= self._patience:
                    raise ServerUnreachable(self._connection.url, "the stream cannot be opened") from error
            else:
                self._on_link("down")
            await asyncio.sleep(self._delays[min(failures, len(self._delays) - 1)])
            failures += 1

    async def _connected(self) -> AsyncGenerator[Event, None]:
        """The events of one connection; ends when the server ends it."""
        query = {} if self._focus is None else {"focus": self._focus}
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.cursor is not None:
            headers["Last-Event-ID"] = str(self.cursor)
        opened = self._connection.open_stream(
            "/v1/stream", query=query, headers=headers, silence=self._silence
        )
        async with opened as answer:
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                raise ProtocolError(f"{answer.url} is not an event stream; is it a Dromos server?")
            self.connects += 1
            self._on_link("up")
            parser = SseParser()
            async for piece in answer.aiter_bytes():
                try:
                    for raw in parser.feed(piece):
                        event = self._event(raw.event, raw.data, raw.id)
                        if event is not None:
                            yield event
                except SseTooLong as error:
                    raise ProtocolError(f"{answer.url} sent {error}") from None

    def _event(self, kind: str, data: str, raw_id: str | None) -> Event | None:
        try:
            seq = None if raw_id is None else int(raw_id)
            value = json.loads(data)
        except ValueError:
            raise ProtocolError(
                f"an event `{kind}` that is not JSON, or has no number as id: {data[:200]!r}"
            ) from None
        if seq is not None:
            if kind not in ("hello", "reset") and self.cursor is not None and seq <= self.cursor:
                return None
            self.cursor = seq
        return Event(kind, value, seq)
