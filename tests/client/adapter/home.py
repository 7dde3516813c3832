"""A home of one document that plays what a real server does too rarely: it refuses, loses, and is changed by others.

What a patch may do is asked of the product's own rules; the protocol around it is the real server's in small.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from dromos.client.adapter.box import Box
from dromos.client.adapter.calls import RunCalls
from dromos.client.adapter.lease import Lease
from dromos.client.adapter.pen import Pen
from dromos.client.connection import Connection
from dromos.domain import patches
from dromos.domain.document import EMPTY_TEXT, empty_content
from dromos.domain.text import utf16_length

Json = dict[str, Any]


class Home(httpx.AsyncBaseTransport):
    """`faults` are played one per request, in order: `busy` (503), `broken` (500), `lost` (never arrives), `unheard`
    (arrives, its answer does not), `over` (403), None (no fault)."""

    def __init__(self) -> None:
        self.content = empty_content()
        self.text: Json = dict(EMPTY_TEXT)
        self.version = 1 << 32
        self.faults: deque[str | None] = deque()
        self.requests: list[tuple[str, Json]] = []
        self.taken: list[list[Json]] = []
        self.steps: list[Json] = []

    # ── others ────────────────────────────────────────────────────────────────────────────────────────────────

    def compete(self, *operations: Json) -> None:
        """Somebody else's patch."""
        patches.apply(self.content, operations)
        self.version += 1

    # ── the wire ──────────────────────────────────────────────────────────────────────────────────────────────

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(await request.aread() or b"{}")
        self.requests.append((request.method, body))
        fault = self.faults.popleft() if self.faults else None
        if fault == "lost":
            raise httpx.ConnectError("nobody there", request=request)
        if fault == "busy":
            return _problem(503, "store_unavailable")
        if fault == "broken":
            return _problem(500, "INTERNAL")
        if fault == "over":
            return _problem(403, "lease_lost")
        answer = self._answer(request, body)
        if fault == "unheard":
            raise httpx.ReadError("the connection broke", request=request)
        return answer

    def _answer(self, request: httpx.Request, body: Json) -> httpx.Response:
        if request.url.path.endswith("/steps"):
            self.steps += body["steps"]
            return httpx.Response(200, json={"steps": len(self.steps)})
        if request.method == "GET":
            return httpx.Response(
                200, json={"run_id": "r", "version": self.version, "document": self.document}
            )
        return self._patch(body)

    def _patch(self, body: Json) -> httpx.Response:
        if body["base_version"] != self.version:
            return self._conflict()
        piece = body.get("text")
        if piece is not None and not self._fits(piece):
            return self._conflict()
        operations, faults = patches.change(self.content, body["patch"])
        if faults:
            errors = [{"code": one.code, "path": one.path, "message": one.message} for one in faults]
            return _problem(400, "validation_failed", errors=errors)
        if operations:
            self.taken.append(operations)
            self.version += 1
        if piece is not None:
            said = self.text["content"] if piece["message_id"] == self.text["message_id"] else ""
            said += piece["append"]
            self.text = {"message_id": piece["message_id"], "length": utf16_length(said), "content": said}
        return httpx.Response(200, json={"version": self.version})

    def _fits(self, piece: Json) -> bool:
        same = piece["message_id"] == self.text["message_id"]
        return bool(piece["offset"] == (self.text["length"] if same else 0))

    def _conflict(self) -> httpx.Response:
        return _problem(409, "version_conflict", version=self.version, document=self.document)

    @property
    def document(self) -> Json:
        return {"status": "running", **self.content, "text": self.text}


def _problem(status: int, code: str, **more: Any) -> httpx.Response:
    return httpx.Response(status, json={"status": status, "code": code, "detail": f"it is {code}", **more})


@asynccontextmanager
async def pen_at(home: Home, *, lease_s: float = 60.0) -> AsyncIterator[Pen]:
    """A pen whose requests reach `home`. Its task is not started."""
    import asyncio

    monotonic = asyncio.get_running_loop().time
    lease = Lease(monotonic, lambda: None)
    lease.grant(sent_at=monotonic(), seconds=lease_s, until="2026-11-29T13:46:30Z")
    connection = Connection("http://home", transport=home)
    numbers = iter(range(10_000))

    def new_id() -> str:
        return f"id{next(numbers)}"

    def make_box(on_change: Any) -> Box:
        return Box(now=lease.server_now, monotonic=monotonic, new_id=new_id, on_change=on_change)

    yield Pen(RunCalls(connection, "r", "token", lease), make_box, new_id)
    lease.close()
    await connection.aclose()
