"""A server that plays prepared streams and counts what reaches it: for what a real server does too rarely.

It speaks the wire's form and nothing else; the operations are tested against the real server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

HANG = "hang"
"""In a part: stay open and say nothing more."""


def frame(event: str, data: Any, number: int | None = None) -> bytes:
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {event}\ndata: {json.dumps(data)}\n\n".encode()


def fact(number: int) -> bytes:
    """A durable event."""
    return frame("run.status", {"seq": number, "payload": {}}, number)


@dataclass
class Played:
    """Each connection to the stream plays the next part: pieces of bytes, `HANG`, or one refusal as a Response."""

    parts: list[list[bytes | str] | Response] = field(default_factory=list)
    cursors: list[str | None] = field(default_factory=list)
    focuses: list[str | None] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/stream", self.stream)])

    async def stream(self, request: Request) -> Response:
        self.cursors.append(request.headers.get("last-event-id"))
        self.focuses.append(request.query_params.get("focus"))
        part = self.parts.pop(0) if self.parts else JSONResponse({"code": "gone", "detail": "no more"}, 410)
        if isinstance(part, Response):
            return part
        return StreamingResponse(self._play(part), media_type="text/event-stream")

    async def _play(self, part: list[bytes | str]) -> AsyncIterator[bytes]:
        for piece in part:
            if isinstance(piece, str):
                await self.over.wait()
                return
            yield piece


class LosesAnswers(httpx.AsyncBaseTransport):
    """Sends each request for real; the answers of the first `lost` ones never arrive."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.sent: list[httpx.Request] = []
        self._inner = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        answer = await self._inner.handle_async_request(request)
        if len(self.sent) > self.lost:
            return answer
        await answer.aread()
        await answer.aclose()
        raise httpx.ReadError("the connection broke", request=request)

    async def aclose(self) -> None:
        await self._inner.aclose()
