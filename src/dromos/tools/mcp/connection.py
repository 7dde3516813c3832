"""One session with an MCP server, opened, held and closed by one task of its own.

The task matters: the SDK's session lives in a cancel scope, and a server that dies would cancel whoever
opened it. Here the owner alone is hit, and callers in other tasks get an error. It must not know retries or
tool names.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation, Tool

from dromos.tools.mcp.configuration import HttpServer, ServerEntry, StdioServer
from dromos.tools.mcp.stdio import MESSAGE_BYTES, stdio_transport

PAGES_AT_MOST = 100
"""Pages of a tool list that are read; a server that never ends its list cannot hold us."""


@dataclass(frozen=True, slots=True)
class McpLimits:
    """Bounds for every server, in seconds and bytes."""

    connect: float = 30.0
    """From start to a listed session."""
    patience: float = 5.0
    """How long listing the tools waits for a server that was never reached before."""
    idle: float = 900.0
    """A call ends when its server sends neither result nor progress for so long."""
    call: float = 4 * 3600.0
    """A call ends after so long in any case."""
    close: float = 2.0
    """A server may take so long to exit by itself."""
    result_bytes: int = 256 * 1024
    """UTF-8 bytes of a result's text that are kept."""


class UnreachableError(Exception):
    """There is no session with the server; the message is the reason as a clause ("connection refused")."""


class Connection:
    """A session. `tools` is what the server listed when it was opened; `lost` why it ended, None while it
    lives.
    """

    def __init__(self, server: ServerEntry, limits: McpLimits) -> None:
        self.tools: tuple[Tool, ...] = ()
        self.lost: str | None = None
        self._server = server
        self._limits = limits
        self._client: Client | None = None
        self._end = asyncio.Event()
        self._reason: str | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # an empty context: the session must not carry the variables of the run that happened to open it
        self._owner = asyncio.create_task(
            self._own(), name=f"mcp server {server.name}", context=contextvars.Context()
        )

    @property
    def client(self) -> Client:
        """The open client; call it from any task.

        Raises UnreachableError if the session is over.
        """
        if self._client is None or self._end.is_set():
            raise UnreachableError(self._reason or self.lost or "it is not connected")
        return self._client

    async def opened(self) -> None:
        """Wait until the session is open and its tools are listed.

        Raises UnreachableError if that fails or takes too long; the connection is closed then.
        """
        try:
            async with asyncio.timeout(self._limits.connect):
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self.close()
            raise UnreachableError(f"it did not answer within {self._limits.connect:g} s") from None
        except asyncio.CancelledError:
            await self.close()
            raise

    async def lost_within(self, seconds: float) -> str | None:
        """Why the session ended, if it ends within so many seconds; None if it goes on."""
        await asyncio.wait({self._owner}, timeout=seconds)
        return self.lost

    async def close(self) -> None:
        """End the session, with force if it does not end in time. Harmless if it has ended."""
        opening = not self._ready.done()
        self._end_because("it was closed")
        # the transport asks, terminates and kills within this time, also when its task is cancelled
        patience = self._limits.close + 4.0
        if not opening:
            await asyncio.wait({self._owner}, timeout=patience)
        if not self._owner.done():
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=patience)

    def _end_because(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason
        self._end.set()

    async def _own(self) -> None:
        reason = None
        try:
            async with Client(
                self._transport(),
                client_info=Implementation(name="dromos", version=version("dromos")),
                cache=None,
            ) as client:
                self.tools = await _list_tools(client)
                self._client = client
                if not self._ready.done():
                    self._ready.set_result(None)
                await self._end.wait()
        except Exception as problem:
            reason = describe(problem)
        finally:
            self._client = None
            self.lost = self._reason or reason or "it was closed"
            if not self._ready.done():
                self._ready.set_exception(UnreachableError(self.lost))
                self._ready.exception()  # seen: `opened` may have given up already

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        match self._server:
            case StdioServer():
                return stdio_transport(self._server, self._end_because, grace=self._limits.close)
            case HttpServer():
                return _http_transport(self._server)


@asynccontextmanager
async def _http_transport(server: HttpServer) -> AsyncGenerator[Any]:
    # no read timeout: a silent call is ended by the limits of calls, which know progress
    timeout = httpx2.Timeout(30.0, read=None)
    async with httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout) as http:
        async with streamable_http_client(
            server.url, http_client=http, max_sse_event_size=MESSAGE_BYTES
        ) as streams:
            yield streams


async def _list_tools(client: Client) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(PAGES_AT_MOST):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(tools)


def describe(problem: BaseException) -> str:
    """An exception as a clause a person can use; of a group, the first cause."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    match problem:
        case FileNotFoundError():
            return "its command or its working folder was not found"
        case PermissionError():
            return "its command may not be executed"
        case httpx2.ConnectError():
            return "the connection was refused or its host is unknown"
        case httpx2.HTTPError():
            return f"the connection broke ({str(problem) or type(problem).__name__})"
        case MCPError():
            return f"it answered with an error ({problem.message})"
        case _:
            return f"{type(problem).__name__}: {problem}"
