"""The HTTP application: routes, the key, and the playing of a reply into a response.

What is read and written is in `requests` and `responses`; what is said comes from the scripted engine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dromos.agents.langgraph.scripted.engine import (
    CallPiece,
    FailureCounts,
    Opened,
    Piece,
    Reply,
    ScriptedHTTPError,
    ScriptedStreamError,
    TextPiece,
    compose,
    perform,
)
from dromos.testing.model_server.requests import ChatRequest, RefusedRequestError, decode
from dromos.testing.model_server.responses import Encoder, event, failure
from dromos.testing.model_server.statistics import Pulled, Statistics


class ScriptedModelApp:
    """The application's state and its handlers. `on_count` is called after a failure was counted."""

    def __init__(
        self,
        statistics: Statistics,
        counts: FailureCounts,
        *,
        api_key: str | None = None,
        on_count: Callable[[], None] = lambda: None,
    ) -> None:
        self._statistics = statistics
        self._counts = counts
        self._api_key = api_key
        self._on_count = on_count

    def asgi(self) -> Starlette:
        """The application to serve."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/models", self.models),
                Route("/stats", self.stats),
            ]
        )

    async def stats(self, request: Request) -> Response:
        """What was seen so far; needs no key."""
        return JSONResponse(self._statistics.as_dict())

    async def models(self, request: Request) -> Response:
        """The one model."""
        if not self._allowed(request):
            return self._unauthorized()
        model = {"id": "scripted", "object": "model", "created": 0, "owned_by": "dromos"}
        return JSONResponse({"object": "list", "data": [model]})

    async def chat(self, request: Request) -> Response:
        """Answer the next turn of the script, as a stream or whole."""
        pulled = self._statistics.begin()
        try:
            response = await self._answer(request, pulled)
        except BaseException:
            self._statistics.end(pulled)
            raise
        pulled.status = response.status_code
        if not isinstance(response, _CountedStream):
            pulled.finished = True
            pulled.bytes = len(response.body)
            self._statistics.end(pulled)
        return response

    async def _answer(self, request: Request, pulled: Pulled) -> Response:
        if not self._allowed(request):
            return self._unauthorized()
        try:
            chat = decode(json.loads(await request.body()))
        except (ValueError, RefusedRequestError) as problem:
            return JSONResponse(failure(400, str(problem)), 400)
        pulled.model, pulled.stream = chat.model, chat.stream
        reply = compose(chat.history)
        encoder = Encoder(pulled.number, chat.model)
        pieces = perform(reply, self._counts)
        try:
            if not chat.stream:
                return await _unless_disconnected(request, self._whole(reply, pieces, encoder, pulled))
            await anext(pieces)  # the opening, or a refusal
        except ScriptedHTTPError as refusal:
            headers = {} if refusal.retry_after is None else {"retry-after": refusal.retry_after}
            if refusal.endless:
                return _CountedStream(
                    self._without_end(pulled),
                    lambda: self._statistics.end(pulled),
                    status_code=refusal.status_code,
                    headers=headers,
                )
            return JSONResponse(failure(refusal.status_code, str(refusal)), refusal.status_code, headers)
        finally:
            self._on_count()
        body = self._events(chat, reply, pieces, encoder, pulled)
        return _CountedStream(body, lambda: self._statistics.end(pulled))

    async def _whole(
        self, reply: Reply, pieces: AsyncGenerator[Piece], encoder: Encoder, pulled: Pulled
    ) -> Response:
        said: list[TextPiece | CallPiece] = []
        broken = False
        try:
            async for piece in pieces:
                if not isinstance(piece, Opened):
                    said.append(piece)
        except ScriptedStreamError:
            broken = True
        pulled.tokens = len(said)
        return JSONResponse(encoder.whole(reply, said, broken=broken))

    async def _events(
        self,
        chat: ChatRequest,
        reply: Reply,
        pieces: AsyncGenerator[Piece],
        encoder: Encoder,
        pulled: Pulled,
    ) -> AsyncGenerator[bytes]:
        """The body of a stream. What comes after a `yield` happens once the connection took the bytes."""
        async with aclosing(pieces):
            opening = encoder.opening()
            yield opening
            pulled.bytes += len(opening)
            try:
                async for piece in pieces:
                    match piece:
                        case TextPiece():
                            data = encoder.text(piece)
                        case CallPiece():
                            data = encoder.call(piece)
                        case Opened():
                            continue
                    yield data
                    pulled.bytes += len(data)
                    pulled.tokens += 1
                end = encoder.end(reply, include_usage=chat.include_usage)
            except ScriptedHTTPError as refusal:  # too late for a status
                self._on_count()
                end = event(failure(refusal.status_code, str(refusal)))
            except ScriptedStreamError:
                end = b""
            pulled.finished = True
            if end:
                yield end
                pulled.bytes += len(end)

    async def _without_end(self, pulled: Pulled) -> AsyncGenerator[bytes]:
        """The body of a refusal that goes on until the client leaves."""
        piece = b"a long story " * 300
        while True:
            yield piece
            pulled.bytes += len(piece)
            await asyncio.sleep(0)

    def _allowed(self, request: Request) -> bool:
        return self._api_key is None or request.headers.get("authorization") == f"Bearer {self._api_key}"

    def _unauthorized(self) -> Response:
        return JSONResponse(failure(401, "the API key is not the one this server was started with"), 401)


class _CountedStream(StreamingResponse):
    """A stream that says when it is over, also if the client left before its first byte."""

    def __init__(self, body: AsyncGenerator[bytes], over: Callable[[], None], **how: Any) -> None:
        super().__init__(body, media_type="text/event-stream", **how)
        self._body = body
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with aclosing(self._body):
                await super().__call__(scope, receive, send)
        finally:
            self._over()


async def _unless_disconnected(request: Request, answering: Coroutine[Any, Any, Response]) -> Response:
    """Await an answer, and give it up when the client goes away.

    Raises ClientDisconnect then.
    """
    answer = asyncio.create_task(answering)
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
