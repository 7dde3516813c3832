"""An MCP server that asks people: `python asking_server.py FILE [--legacy] [--http --port N] [--forgetful]`.

`--legacy` speaks only the protocol of before 2026-07-28, in which a server asks in the open call; otherwise it ends the
call and takes it up again. What its tools did is a line in FILE; what was cancelled a line in FILE.cancelled.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.request_state import RequestStateSecurity
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, ToolAnnotations
from pydantic import BaseModel

from dromos.testing.local_http import LocalHTTP


class Colour(BaseModel):
    colour: str
    sure: bool = True


def read() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--legacy", action="store_true")
    parser.add_argument("--forgetful", action="store_true", help="another key at each start")
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    return parser.parse_args()


def note(file: Path, line: str) -> None:
    with file.open("a") as out:
        out.write(f"{line}\n")


def told(what: Any) -> str:
    return what.data.colour if what.action == "accept" else str(what.action)


def made(options: argparse.Namespace) -> MCPServer:
    key = os.urandom(32) if options.forgetful else b"k" * 32
    server = MCPServer("asks", request_state_security=RequestStateSecurity(keys=[key]))
    file: Path = options.file

    if options.legacy:

        async def old_only(ctx: Any, call_next: Any) -> Any:
            if ctx.method == "server/discover":
                raise MCPError(code=METHOD_NOT_FOUND, message="Method not found")
            return await call_next(ctx)

        server._lowlevel_server.middleware.insert(0, old_only)

        @server.tool()
        async def paint(thing: str, ctx: Context) -> str:
            """Paint a thing in a colour that a person chooses."""
            try:
                said = await ctx.elicit(f"Which colour for {thing}?", Colour)
            except asyncio.CancelledError:
                note(file.with_name(f"{file.name}.cancelled"), thing)
                raise
            note(file, f"{thing} {told(said)}")
            return f"{thing} is {told(said)}"

        @server.tool(annotations=ToolAnnotations(read_only_hint=True))
        async def choose(things: list[str], ctx: Context) -> str:
            """Ask for a colour for each."""
            said = [told(await ctx.elicit(f"Which colour for {thing}?", Colour)) for thing in things]
            return ", ".join(said)

        return server

    async def which(thing: str) -> Elicit[Colour]:
        return Elicit(f"Which colour for {thing}?", Colour)

    async def which_else(thing: str) -> Elicit[Colour]:
        return Elicit(f"And the door of {thing}?", Colour)

    async def paint_new(thing: str, said: Any) -> str:
        """Paint a thing in a colour that a person chooses."""
        note(file, f"{thing} {told(said)}")
        return f"{thing} is {told(said)}"

    async def paint_both(thing: str, said: Any, other: Any) -> str:
        """Paint a thing and its door."""
        note(file, f"{thing} {told(said)} {told(other)}")
        return f"{thing} is {told(said)}, its door {told(other)}"

    asked = {"said": which, "other": which_else}
    for tool in (
        paint_new,
        paint_both,
    ):  # said here, because a module's names are all that an annotation can name
        tool.__annotations__ = {"thing": str, "return": str} | {
            name: Annotated[ElicitationResult[Colour], Resolve(asked[name])]
            for name in tool.__annotations__
            if name in asked
        }
    server.tool(name="paint")(paint_new)
    server.tool(name="paint_both")(paint_both)
    return server


async def serve(options: argparse.Namespace) -> None:
    server = made(options)
    if not options.http and options.legacy:
        low = server._lowlevel_server
        async with stdio_server() as (incoming, outgoing), low.lifespan(low) as lifespan:
            settings = low.create_initialization_options()
            await serve_loop(low, incoming, outgoing, lifespan_state=lifespan, init_options=settings)
        return
    if not options.http:
        await server.run_stdio_async()
        return
    async with LocalHTTP(server.streamable_http_app(host="127.0.0.1"), port=options.port) as http:
        print(f"{http.url}/mcp", flush=True)
        await http.serve_until_ended()


if __name__ == "__main__":
    asyncio.run(serve(read()))
