"""The tools server where it does what a test could not bear in its own process."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import cast

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import RequestParamsMeta

from dromos.testing.processes import RealProcess, free_port
from dromos.testing.waiting import eventually, within

WORKER = """
import asyncio, sys
from mcp import Client
from mcp.client.stdio import StdioServerParameters

async def work():
    server = StdioServerParameters(command=sys.executable, args=["-m", "dromos.testing.tools_server"])
    async with Client(server) as client:
        await client.call_tool("kill_worker", {})
        print("still alive")

asyncio.run(work())
"""


async def test_kill_worker_kills_the_process_that_called(tmp_path: Path) -> None:
    async with RealProcess([sys.executable, "-c", WORKER], log=tmp_path / "log") as worker:
        assert await worker.wait_exit() == -signal.SIGKILL
        assert "still alive" not in worker.logs()


async def test_kill_worker_kills_the_process_that_is_named(tmp_path: Path) -> None:
    port = free_port()
    victim = RealProcess([sys.executable, "-c", "import time; time.sleep(60)"], log=tmp_path / "victim")
    server = RealProcess(
        [sys.executable, "-m", "dromos.testing.tools_server", "--http", "--port", str(port)],
        log=tmp_path / "server",
    )
    async with victim, server:
        url = f"http://127.0.0.1:{port}/mcp"
        await eventually(lambda: url in server.logs(), what="the server's URL")
        meta = cast(RequestParamsMeta, {"dev.dromos/worker-pid": victim.pid})
        async with Client(url) as client:
            await within(10, client.call_tool("kill_worker", {}, meta=meta))
        assert await victim.wait_exit() == -signal.SIGKILL
        assert server.running


async def test_without_a_file_to_write_to_a_tool_says_the_cure() -> None:
    server = StdioServerParameters(command=sys.executable, args=["-m", "dromos.testing.tools_server"])
    async with Client(server) as client:
        result = await within(10, client.call_tool("count", {"label": "a"}))
    assert result.is_error
    assert "start this server with CT_FILE naming a file" in str(result.content)
