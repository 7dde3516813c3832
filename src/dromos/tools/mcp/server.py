"""One configured MCP server: connected at first use, reconnected after its death, and honest about its
absence.

Owns when a session is opened and how long a call may take. A failure of any kind is an outcome that says
which server, what happened and what to do. A server over stdio in which a call was cut is ended with all that it
started, as soon as no other call is under way in it: nothing tells a tool that let go from one that did not, for a
request that was cancelled gets no answer. It must not know other servers or how tools are named outside.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolResult,
    InputRequiredResult,
    Tool,
)

from dromos.ports.journal import Suspended
from dromos.ports.tool import Carrying, ToolOutcome, ToolProgress, ToolSourceHealth
from dromos.tools.mcp.configuration import HttpServer, ServerEntry, StdioServer
from dromos.tools.mcp.connection import Connection, McpLimits, UnreachableError, describe
from dromos.tools.mcp.elicitation import ROUNDS_AT_MOST, Exchange, NotOffered
from dromos.tools.mcp.results import outcome_of

logger = logging.getLogger(__name__)

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
        self._cut: set[Connection] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._known: tuple[Tool, ...] = ()
        self._awaited = False
        self._problem: str | None = None
        self._failures = 0
        self._not_before = 0.0
        self._closed = False
        self._mixes_up = False
        self._one_at_a_time = asyncio.Lock()

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

    async def refreshed(self) -> bool:
        """What `tools` gives is what the server lists now; False where it cannot be reached."""
        try:
            async with self._session() as connection:
                await self._relist(connection)
        except Exception as problem:  # whatever a server does, it cannot fail the agent that wants to call it
            logger.warning("%s did not list its tools: %s", self.name, describe(problem))
            return False
        return True

    async def _relist(self, connection: Connection) -> None:
        async with asyncio.timeout(self._limits.connect):
            await connection.relist()
        self._known = connection.tools

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        meta: Mapping[str, str],
        on_progress: OnProgress | None,
        exchange: Exchange | None = None,
        *,
        repeatable: bool = False,
        on_send: Callable[[], None] = lambda: None,
        remains: Callable[[Carrying], None] = lambda ending: None,
    ) -> ToolOutcome:
        """Call a tool by the server's own name for it. Cancelling the caller sends the server a cancel. `on_send` is
        told when nothing is left to wait for before the call leaves.

        A server by HTTP that forgot our session is called in a new one. What is not `repeatable` is then sent only if
        it was not sent before: a gateway in between may say 404 of a call that was made. Raises `Suspended` where the
        server asks a person something that `exchange` has no answer to.
        """
        try:
            asking = exchange or Exchange()
            for last_try in (False, True):
                async with self._session(remains) as connection:
                    alone = self._mixes_up and not connection.tells_whose
                    sent = False
                    try:
                        if not repeatable:
                            await connection.greet()
                        async with self._one_at_a_time if alone else nullcontext():
                            sent = True
                            on_send()
                            result = await self._rounds(
                                connection, tool, arguments, meta, on_progress, asking
                            )
                    except MCPError:
                        if not connection.forgotten:
                            raise
                        await self._drop(connection)
                        if last_try or (sent and not repeatable):
                            raise
                        continue
                    self._failures = 0
                    return outcome_of(result, self._limits.result_bytes)
            raise AssertionError("the last try returns or raises")
        except Suspended:
            raise
        except NotOffered as wanted:
            return self._failed(f"asks for something that is not offered here ({wanted}).")
        except UnreachableError as problem:
            return self._failed(f"is not reachable: {problem}. The tool was not called. {self._cure()}")
        except _TimeLimitError as limit:
            return self._failed(f"was told to stop: {limit}. Whether the call had an effect is not known.")
        except MCPError as error:
            doubt = "Whether the call had an effect is not known."
            if error.code in _NOT_LOOKED_AT:
                return self._failed(f"refused the call: {error.message}")
            if error.code != CONNECTION_CLOSED:
                return self._failed(f"answered with an error: {error.message}. {doubt}")
            reason = await self._reason_of_loss(connection) or error.message
            return self._failed(f"was lost during the call: {reason}. {doubt} {self._cure()}")
        except Exception as problem:  # an answer that breaks the protocol or the tool's own output schema
            return self._failed(f"gave an answer that cannot be used: {describe(problem)}")

    def health(self) -> ToolSourceHealth:
        """Its state without touching it; a server that was not used yet is well."""
        if self._alive():
            detail = "connected"
        elif self._problem is not None:
            detail = f"not reachable: {self._problem}"
        elif self._known:
            detail = "not connected; it is connected at the next use"
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
        open_still = self._cut if self._connection is None else {self._connection, *self._cut}
        await asyncio.gather(*(connection.close() for connection in open_still))
        if self._ending:
            await asyncio.wait(self._ending)

    async def _rounds(
        self,
        connection: Connection,
        tool: str,
        arguments: dict[str, Any],
        meta: Mapping[str, str],
        on_progress: OnProgress | None,
        exchange: Exchange,
    ) -> CallToolResult:
        """The call, as often as the server comes back for answers that are known."""
        relisted = False
        for _ in range(ROUNDS_AT_MOST):
            try:
                result = await self._bounded_call(connection, tool, arguments, meta, on_progress, exchange)
            except MCPError as error:
                by_http = isinstance(self.entry, HttpServer)  # elsewhere the same words are the tool's own
                if by_http and error.code == HEADER_MISMATCH and not relisted:  # it did not look at it
                    relisted = True
                    await self._relist(connection)
                    continue
                if error.code != INVALID_PARAMS or exchange.request_state is None:
                    raise
                exchange.forget()
                continue
            finally:
                self._mixes_up = self._mixes_up or connection.mixed_up
            if isinstance(result, CallToolResult):
                return result
            exchange.go_on(result)
        raise _TimeLimitError(f"it came back for more {ROUNDS_AT_MOST} times")

    async def _bounded_call(
        self,
        connection: Connection,
        tool: str,
        arguments: dict[str, Any],
        meta: Mapping[str, str],
        on_progress: OnProgress | None,
        exchange: Exchange,
    ) -> CallToolResult | InputRequiredResult:
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
                    return await connection.call_tool(tool, arguments, progressed, meta, exchange)
                except asyncio.CancelledError:
                    self._note_cut(connection)
                    raise
                finally:
                    waiting = False
        except TimeoutError:
            if whole.expired():
                raise _TimeLimitError(f"the call took longer than {self._limits.call:g} s") from None
            if idle.expired():
                raise _TimeLimitError(f"it sent nothing for {self._limits.idle:g} s") from None
            raise

    @asynccontextmanager
    async def _session(
        self, remains: Callable[[Carrying], None] = lambda ending: None
    ) -> AsyncGenerator[Connection]:
        """The live connection, which is not ended under whoever is in here. `remains` is handed the end of one that was
        cut and that nobody else uses.

        Raises UnreachableError.
        """
        connection = await self._connected()
        connection.users += 1
        try:
            yield connection
        finally:
            connection.users -= 1
            if connection in self._cut and not connection.users and not self._closed:
                remains(asyncio.shield(self._end(connection)))

    def _note_cut(self, connection: Connection) -> None:
        """Begin nothing more in it: calls that keep coming must not keep alive what the cut one left behind."""
        if isinstance(self.entry, StdioServer):
            self._cut.add(connection)
            if self._connection is connection:
                self._connection = None

    def _end(self, connection: Connection) -> asyncio.Task[None]:
        """End it beside the caller, who may be cut."""
        ending = asyncio.create_task(
            connection.close(), name=f"end mcp server {self.name}", context=contextvars.Context()
        )
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        ending.add_done_callback(lambda _: self._cut.discard(connection))
        return ending

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
            if self._ending:  # what one process holds, the next may need
                await asyncio.wait(self._ending)
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


_NOT_LOOKED_AT = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS})
"""Errors of the protocol that come before a tool is called. Any other may be one that the tool's own work met."""
