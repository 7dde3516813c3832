"""A tool server that is lost in a call, as the run sees it: an error in time, with which the run goes on."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dromos.tools.mcp.configuration import StdioServer
from dromos.tools.mcp.toolbox import McpToolbox
from tests.faults.theatre import Theatre
from tests.tools.conftest import QUICK

SERVER = """
import os, signal
from mcp.server.mcpserver import MCPServer

server = MCPServer("lost")

@server.tool()
async def leaves() -> str:
    os._exit(0)

@server.tool()
async def freezes() -> str:
    os.kill(os.getpid(), signal.SIGSTOP)
    return "woken"

@server.tool()
async def takes(text: str) -> str:
    return f"took {len(text)}"

server.run("stdio")
"""
LONG = "x" * 100_000
"""More than a pipe holds that nobody reads."""
TAKEN = f"took {len(LONG)}"
IDLE = 1.0
WITHIN = IDLE + 3.0
"""Seconds in which a call has its result, on a busy machine."""


@pytest.mark.case("P123")
@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("leaves", "was lost during the call: it ended with exit code 0."),
        ("freezes", "was told to stop: it sent nothing for 1 s."),
    ],
)
async def test_a_run_goes_on_with_the_error_of_a_server_that_is_gone_or_reads_no_more(
    tmp_path: Path, call: str, told: str
) -> None:
    theatre = Theatre(tmp_path / "dromos.db")
    server = StdioServer("s", sys.executable, ("-c", SERVER))
    tools = McpToolbox([server], replace(QUICK, idle=IDLE, close=0.3))
    theatre.tools = tools
    try:
        async with theatre:
            beside = f'!call s__takes {{"text": "{LONG}"}}'
            script = f"!call s__{call}\n{beside}\n!say behind it\n{beside}\n!say went on"
            conversation, run = await theatre.begun(script)
            ended = await theatre.ended(run["id"])
            assert (ended["status"], ended["line"], ended["attempt"]) == ("completed", "went on", 1)
            _, answer = await theatre.ask("GET", f"/v1/runs/{run['id']}/steps")
            steps = [step for step in answer["items"] if step["kind"] == "tool"]
            results = [m["content"] for m in await theatre.history(conversation) if m["role"] == "tool"]
            lost = f"The tool server 's' {told} Whether the call had an effect is not known."
            assert results[0].startswith(lost)
            assert results[1].startswith(lost) or results[1] == TAKEN, "what was beside it"
            assert results[2] == TAKEN, "the server was started anew"
            assert (steps[0]["status"], steps[2]["status"]) == ("failed", "done")
            assert all(step["ms"] < WITHIN * 1000 for step in steps[:2])
            await theatre.in_order()
    finally:
        await tools.aclose()
