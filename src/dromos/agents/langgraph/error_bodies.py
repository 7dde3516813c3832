"""Answers of model servers that are errors are read up to a limit: of bytes, and of seconds.

The clients read a refusal's whole body before they tell of it. One that never ends would keep a run "working" without
end, so it is cut; status and headers, which say what to do, are there already. It must not know models or runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

BYTES = 64 * 1024
SECONDS = 5.0


async def limit_error_body(response: Any) -> None:
    """A response hook of httpx and httpx2 clients."""
    if response.status_code >= 400:
        response.stream = _limited(response.stream)


def limit_error_bodies(client: Any) -> None:
    """Give an HTTP client that somebody else made the hook, once."""
    hooks = client.event_hooks
    if limit_error_body not in hooks["response"]:
        client.event_hooks = {**hooks, "response": [*hooks["response"], limit_error_body]}


def _limited(stream: Any) -> Any:
    """The same kind of stream as the client knows (httpx and httpx2 have each their own), which ends at the limits."""
    base = next(kind for kind in type(stream).__mro__ if kind.__name__ == "AsyncByteStream")

    class Limited(base):  # type: ignore[misc, valid-type]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left, pieces = BYTES, aiter(stream)
            until = asyncio.get_running_loop().time() + SECONDS
            while left > 0:
                try:
                    async with asyncio.timeout_at(until):
                        piece = await anext(pieces)
                except (StopAsyncIteration, TimeoutError):
                    return
                yield piece[:left]
                left -= len(piece)

        async def aclose(self) -> None:
            await stream.aclose()

    return Limited()
