"""All configured MCP servers as one `Toolbox`.

Routes a name to its server and gives each call its identity in `_meta`. One server's death is its own: its
tools answer with an error, the others neither fail nor wait. It must not know policy, approval or the
journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dromos.ports.tool import ToolContext, ToolOutcome, ToolSourceHealth, ToolSpec
from dromos.tools.mcp.configuration import ServerEntry
from dromos.tools.mcp.connection import McpLimits
from dromos.tools.mcp.elicitation import Exchange
from dromos.tools.mcp.naming import tool_behind, tool_names
from dromos.tools.mcp.results import KEY_ARGUMENT, spec_of, wants_key
from dromos.tools.mcp.server import McpServer

RUN_ID = "dev.dromos/run-id"
CALL_ID = "dev.dromos/tool-call-id"
KEY = "dev.dromos/idempotency-key"


class McpToolbox:
    """Nothing is started before the first `specs` or `call`."""

    def __init__(self, entries: Iterable[ServerEntry], limits: McpLimits | None = None) -> None:
        self._limits = limits or McpLimits()
        self._servers = [McpServer(entry, self._limits) for entry in entries]
        self._routes: dict[str, tuple[McpServer, str, bool]] = {}

    async def specs(self) -> Sequence[ToolSpec]:
        """Every tool of every server that was reached so far, named `server__tool`."""
        listings = await asyncio.gather(*(server.tools() for server in self._servers))
        specs: list[ToolSpec] = []
        routes: dict[str, tuple[McpServer, str, bool]] = {}
        for server, tools in zip(self._servers, listings, strict=True):
            by_own_name = {tool.name: tool for tool in tools}
            for name, own_name in tool_names(server.name, by_own_name).items():
                if name not in routes:
                    tool = by_own_name[own_name]
                    routes[name] = (server, own_name, wants_key(tool))
                    specs.append(spec_of(tool, name, server.name))
        self._routes = routes
        return specs

    async def find(self, name: str) -> ToolSpec | None:
        """The tool as its server lists it now; None where the server does not, or cannot be reached."""
        route = self._routes.get(name) or self._guess(name)
        if route is None or not await route[0].refreshed():
            return None
        return next((spec for spec in await self.specs() if spec.name == name), None)

    async def call(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """One call; every failure is an outcome. A cancelled caller cancels the call at the server.

        Raises `Suspended` where the server asks a person something that the context has no answer to.
        """
        route = self._routes.get(name) or self._guess(name)
        if route is None:
            return ToolOutcome(f"There is no tool named '{name}'.", is_error=True)
        server, tool, keyed = route
        own_arguments = dict(arguments)
        if keyed:
            own_arguments[KEY_ARGUMENT] = context.idempotency_key
        meta = {RUN_ID: context.run_id, CALL_ID: context.tool_call_id, KEY: context.idempotency_key}
        exchange = Exchange(context.state, context.answers)
        return await server.call(
            tool,
            own_arguments,
            meta,
            context.on_progress,
            exchange,
            repeatable=context.repeatable,
            on_send=context.sent,
            remains=context.remains,
        )

    async def health(self) -> Sequence[ToolSourceHealth]:
        """Each server's state, without connecting to any."""
        return [server.health() for server in self._servers]

    async def aclose(self) -> None:
        """Close all servers at once; child processes are gone afterwards."""
        await asyncio.gather(*(server.aclose() for server in self._servers))

    def _guess(self, name: str) -> tuple[McpServer, str, bool] | None:
        """A tool that was not listed here, as after a restart with its server dead: the name tells the
        server.
        """
        for server in self._servers:
            if (tool := tool_behind(server.name, name)) is not None:
                return server, tool, False
        return None
