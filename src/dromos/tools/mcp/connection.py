"""One session with an MCP server, opened, held and closed by one task of its own.

The task matters: the SDK's session lives in a cancel scope, and a server that dies would cancel whoever
opened it. Here the owner alone is hit, and callers in other tasks get an error. It must not know retries or
tool names.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, cast

import httpx2
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_REQUEST,
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    InputRequiredResult,
    RequestParamsMeta,
    Tool,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dromos.tools.mcp.configuration import HttpServer, ServerEntry, StdioServer
from dromos.tools.mcp.elicitation import Exchange
from dromos.tools.mcp.stdio import MESSAGE_BYTES, stdio_transport

_asking: contextvars.ContextVar[Exchange | None] = contextvars.ContextVar("asking", default=None)
"""The call in whose context a message of a server arrived, where the transport keeps that."""

SESSION = "mcp-session-id"
"""The header with which a request names the session it is of."""
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
    """A server may take so long to exit by itself, also one in which a call was cut; then its group is ended."""
    result_bytes: int = 256 * 1024
    """UTF-8 bytes of a result's text that are kept."""


class UnreachableError(Exception):
    """There is no session with the server; the message is the reason as a clause ("connection refused")."""


class Connection:
    """A session. `tools` is what the server listed last; `lost` why it ended, None while it lives; `users` how many are
    in it; `mixed_up` True once it asked something and nobody could tell in which call; `forgotten` once the address
    said 404 to a request of our session (by HTTP), in whatever words.
    """

    def __init__(self, server: ServerEntry, limits: McpLimits) -> None:
        self.tools: tuple[Tool, ...] = ()
        self.lost: str | None = None
        self.mixed_up = False
        self.users = 0
        self.forgotten = False
        self._server = server
        self._limits = limits
        self._client: Client | None = None
        self._under_way: list[Exchange] = []
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

    @property
    def tells_whose(self) -> bool:
        """Whether a question in an open call says which call it belongs to, and such questions are asked at all."""
        return self._is_modern or isinstance(self._server, HttpServer)

    @property
    def _is_modern(self) -> bool:
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def call_tool(
        self,
        tool: str,
        arguments: dict[str, Any],
        on_progress: ProgressFnT,
        meta: Mapping[str, str],
        exchange: Exchange,
    ) -> CallToolResult | InputRequiredResult:
        """One request. Cancelling it cancels the call at the server. Raises `Suspended` where the server asked in the
        open call what nobody has answered yet: the call is let go then."""
        session = self.client.session
        exchange.let_go = asyncio.Event()
        whose = _asking.set(exchange)
        self._under_way.append(exchange)
        try:
            calling = asyncio.create_task(
                session.call_tool(
                    tool,
                    arguments,
                    progress_callback=on_progress,
                    input_responses=exchange.responses,
                    request_state=exchange.request_state,
                    meta=cast(RequestParamsMeta, meta),
                    allow_input_required=True,
                ),
                name=f"mcp call {self._server.name}.{tool}",
            )
        finally:
            _asking.reset(whose)
        try:
            either: set[asyncio.Future[Any]] = {calling, exchange.unanswered}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if calling.done():
                return calling.result()
            raise exchange.suspended(exchange.unanswered.result())
        finally:
            try:
                if not calling.done():
                    calling.cancel()
                    await asyncio.wait({calling})
                elif not calling.cancelled():
                    calling.exception()  # seen, where whoever asked is gone
            finally:  # also where this was cut once more while it waited
                self._under_way.remove(exchange)
                exchange.let_go.set()

    async def greet(self) -> None:
        """Ask a server that keeps sessions by HTTP whether it knows ours. Raises MCPError where it forgot it;
        that it does not answer is for the call to find out."""
        if not isinstance(self._server, HttpServer) or self._is_modern:
            return
        try:
            async with asyncio.timeout(self._limits.patience):
                await self.client.session.send_ping()
        except TimeoutError:
            pass
        except MCPError:
            if self.forgotten:
                raise

    async def relist(self) -> None:
        """Read the tools again: the server says that they changed."""
        self.tools = await _list_tools(self.client)

    async def _elicited(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        """The server asks in an open call. Over HTTP the question comes within its call; over stdio nothing says whose
        it is, so it counts only where one call is under way."""
        exchange = _asking.get()
        if exchange not in self._under_way:
            exchange = self._under_way[0] if len(self._under_way) == 1 else None
        if exchange is None:
            self.mixed_up = True
            told = "Several calls are under way and nothing says which of them asks. Nobody was asked; call again."
            return ErrorData(code=INVALID_REQUEST, message=told)
        return await exchange.asks(params)

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
                elicitation_callback=self._elicited,
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
                return _http_transport(self._server, self._answered)

    async def _answered(self, response: httpx2.Response) -> None:
        if response.status_code == 404 and SESSION in response.request.headers:
            self.forgotten = True


@asynccontextmanager
async def _http_transport(
    server: HttpServer, answered: Callable[[httpx2.Response], Awaitable[None]]
) -> AsyncGenerator[Any]:
    # no read timeout: a silent call is ended by the limits of calls, which know progress
    timeout = httpx2.Timeout(30.0, read=None)
    hooks = {"response": [answered]}
    async with httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout, event_hooks=hooks) as http:
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
