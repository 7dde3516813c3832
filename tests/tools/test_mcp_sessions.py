"""Servers that keep sessions by HTTP and forget them, and gateways that say so of calls that were made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from dromos.testing.local_http import LocalHTTP
from dromos.tools.mcp.configuration import HttpServer
from tests.tools.conftest import context, toolbox


class Gateway:
    """Passes requests on to a server; `lose` the answers to so many calls, and say 404 in their place."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.lose = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        heard = await receive()
        if self.lose == 0 or b'"tools/call"' not in heard["body"]:
            await self.app(scope, told_first(heard, receive), send)
            return
        self.lose -= 1

        async def swallow(message: Any) -> None:
            pass

        await self.app(scope, told_first(heard, receive), swallow)
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"no route"})


def told_first(heard: Any, receive: Any) -> Any:
    waiting = [heard]

    async def told() -> Any:
        return waiting.pop() if waiting else await receive()

    return told


class Server:
    """Of the protocol before 2026-07-28: it keeps sessions, which end with it."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.port = 0
        self.gateway: Gateway

    @asynccontextmanager
    async def running(self) -> AsyncIterator[HttpServer]:
        server = MCPServer("post")

        async def old_only(ctx: Any, call_next: Any) -> Any:
            if ctx.method == "server/discover":
                raise MCPError(code=METHOD_NOT_FOUND, message="Method not found")
            return await call_next(ctx)

        server._lowlevel_server.middleware.insert(0, old_only)

        @server.tool()
        async def send(text: str) -> str:
            self.sent.append(text)
            return f"sent {text}"

        self.gateway = Gateway(server.streamable_http_app(host="127.0.0.1"))
        async with LocalHTTP(self.gateway, port=self.port) as http:
            self.port = http.port
            yield HttpServer("post", f"{http.url}/mcp")


async def test_a_404_in_place_of_an_answer_is_no_leave_to_make_an_unsafe_call_again() -> None:
    server = Server()
    async with server.running() as entry, toolbox(entry) as tools:
        server.gateway.lose = 1
        outcome = await tools.call("post__send", {"text": "a"}, context("a"))
        assert outcome.is_error and "Whether the call had an effect is not known" in outcome.text
        assert server.sent == ["a"]
        assert (await tools.call("post__send", {"text": "b"}, context("b"))).text == "sent b"
    assert server.sent == ["a", "b"]


async def test_what_may_be_repeated_is_sent_once_more_after_a_404() -> None:
    server = Server()
    async with server.running() as entry, toolbox(entry) as tools:
        server.gateway.lose = 1
        again = replace(context("a"), repeatable=True)
        assert (await tools.call("post__send", {"text": "a"}, again)).text == "sent a"
        assert server.sent == ["a", "a"]
        server.gateway.lose = 2
        assert (await tools.call("post__send", {"text": "b"}, again)).is_error


@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_server_that_forgot_the_session_between_calls_is_called_once_in_a_new_one(
    repeatable: bool,
) -> None:
    server = Server()
    async with server.running() as entry:
        box = toolbox(entry)
        tools = await box.__aenter__()
        said = replace(context(), repeatable=repeatable)
        assert (await tools.call("post__send", {"text": "a"}, said)).text == "sent a"
    async with server.running():
        assert (await tools.call("post__send", {"text": "b"}, said)).text == "sent b"
        await box.__aexit__(None, None, None)
    assert server.sent == ["a", "b"]
