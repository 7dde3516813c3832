"""One configured MCP server: connected at first use, reconnected after its death, and honest about its
absence.

Owns when a session is opened and how long a call may take. A failure of any kind is an outcome that says
which server, what happened and what to do. It must not know other servers or how tools are named outside.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from typing import Any, cast

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, CallToolResult, RequestParamsMeta, Tool

from dromos.ports.tool import ToolOutcome, ToolProgress, ToolSourceHealth
from dromos.tools.mcp.configuration import HttpServer, ServerEntry
from dromos.tools.mcp.connection import Connection, McpLimits, UnreachableError, describe
from dromos.tools.mcp.results import outcome_of

BACKOFF = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before the next attempt after 1, 2, 3 … failures in a row: the first repair is immediate."""

OnProgress = Callable[[ToolProgress], None]


class McpServer:
    """A server's connection and what is known of it. `aclose` ends it for good."""

    def __init__(self, entry: ServerEntry, limits: McpLimits) -> None:
        self.entry = entry
        self._limits = limits
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._known: tuple[Tool, ...] = ()
        self._awaited = False
        self._problem: str | None = None
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    @property
    def name(self) -> str:
        """Its name in mcp.json."""
        return self.entry.name

    async def tools(self) -> tuple[Tool, ...]:
        """What the server listed last; nothing if it was never reached.

        Starts connecting where there is no connection, and waits for the first attempt up to `patience`; a
        server that was tried before delays nobody.
        """
        if self._alive() is None and (connecting := self._start_connecting()) and not self._awaited:
            await asyncio.wait({connecting}, timeout=self._limits.patience)
            self._awaited = True
        return self._known

    async def call(
        self, tool: str, arguments: dict[str, Any], meta: Mapping[str, str], on_progress: OnProgress | None
    ) -> ToolOutcome:
        """Call a tool by the server's own name for it. Cancelling the caller sends the server a cancel."""
        try:
            for last_try in (False, True):
                connection = await self._connected()
                try:
                    result = await self._bounded_call(connection, tool, arguments, meta, on_progress)
                except MCPError as error:
                    # the server forgot our session, so it did not look at the call
                    if last_try or not _is_forgotten_session(error):
                        raise
                    await self._drop(connection)
                    continue
                self._failures = 0
                return outcome_of(result, self._limits.result_bytes)
            raise AssertionError("the last try returns or raises")
        except UnreachableError as problem:
            return self._failed(f"is not reachable: {problem}. The tool was not called. {self._cure()}")
        except _TimeLimitError as limit:
            return self._failed(f"was told to stop: {limit}. Whether the call had an effect is not known.")
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                return self._failed(f"refused the call: {error.message}")
            reason = await self._reason_of_loss(connection) or error.message
            doubt = "Whether the call had an effect is not known."
            return self._failed(f"was lost during the call: {reason}. {doubt} {self._cure()}")
        except Exception as problem:  # an answer that breaks the protocol or the tool's own output schema
            return self._failed(f"gave an answer that cannot be used: {describe(problem)}")

    def health(self) -> ToolSourceHealth:
        """Its state without touching it; a server that was not used yet is well."""
        if self._alive():
            detail = "connected"
        elif self._problem is not None:
            detail = f"not reachable: {self._problem}"
        else:
            detail = "not used yet; it is connected at first use"
        ok = self._alive() is not None or self._problem is None
        return ToolSourceHealth(self.name, ok, detail, len(self._known))

    async def aclose(self) -> None:
        """Close the connection; its process group is gone afterwards. Calls in flight fail."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._connection is not None:
            await self._connection.close()

    async def _bounded_call(
        self,
        connection: Connection,
        tool: str,
        arguments: dict[str, Any],
        meta: Mapping[str, str],
        on_progress: OnProgress | None,
    ) -> CallToolResult:
        loop = asyncio.get_running_loop()
        idle = asyncio.timeout(self._limits.idle)
        whole = asyncio.timeout(self._limits.call)
        waiting = True

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            if waiting:
                idle.reschedule(loop.time() + self._limits.idle)
                if on_progress is not None:
                    on_progress(ToolProgress(progress, total, message))

        try:
            async with whole, idle:
                try:
                    return await connection.client.call_tool(
                        tool, arguments, progress_callback=progressed, meta=cast(RequestParamsMeta, meta)
                    )
                finally:
                    waiting = False
        except TimeoutError:
            if whole.expired():
                raise _TimeLimitError(f"the call took longer than {self._limits.call:g} s") from None
            if idle.expired():
                raise _TimeLimitError(f"it sent nothing for {self._limits.idle:g} s") from None
            raise

    async def _connected(self) -> Connection:
        """The live connection, opened now if there is none.

        Raises UnreachableError.
        """
        if (connection := self._alive()) is None:
            connecting = self._start_connecting()
            if connecting is None:
                raise UnreachableError(self._problem or "it was closed")
            await asyncio.wait({connecting})  # shared by all callers: one of them going away must not end it
            connection = self._alive()
        if connection is None:
            raise UnreachableError(self._problem or "it was closed")
        return connection

    def _alive(self) -> Connection | None:
        """The connection if it is one; a death is noticed here and delays the next attempt."""
        if self._connection is not None and self._connection.lost is not None:
            self._note_failure(self._connection.lost)
            self._connection = None
        return self._connection

    def _start_connecting(self) -> asyncio.Task[None] | None:
        """The attempt under way, or a new one; None while it is too early for one."""
        if self._connecting is None and not self._closed and self._now() >= self._not_before:
            self._connecting = asyncio.create_task(
                self._connect(), name=f"connect to mcp server {self.name}", context=contextvars.Context()
            )
        return self._connecting

    async def _connect(self) -> None:
        try:
            connection = Connection(self.entry, self._limits)
            await connection.opened()
            self._connection, self._known, self._problem = connection, connection.tools, None
        except UnreachableError as problem:
            self._note_failure(str(problem))
        finally:
            self._connecting = None

    def _note_failure(self, reason: str) -> None:
        self._problem = reason
        self._not_before = self._now() + BACKOFF[min(self._failures, len(BACKOFF) - 1)]
        self._failures += 1

    async def _drop(self, connection: Connection) -> None:
        await connection.close()
        if self._connection is connection:
            self._connection = None

    async def _reason_of_loss(self, connection: Connection) -> str | None:
        """Why a call lost its connection; None if only the call was lost and the session goes on."""
        reason = await connection.lost_within(1.0)
        self._alive()
        return reason

    def _failed(self, what: str) -> ToolOutcome:
        return ToolOutcome(f"The tool server '{self.name}' {what.strip()}", is_error=True)

    def _cure(self) -> str:
        if isinstance(self.entry, HttpServer):
            cure = f"Check that a server runs at {self.entry.url.split('?')[0]}"
        else:
            cure = f"Check that '{self.entry.command}' starts on the machine that runs Dromos"
        return f"{cure} (mcp.json, mcpServers.{self.name}); the next call tries again."

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class _TimeLimitError(Exception):
    """A call's time is over; the message says which limit."""


def _is_forgotten_session(error: MCPError) -> bool:
    return error.code == INVALID_REQUEST and error.message == "Session terminated"
