"""A server in a process of its own with the ticking graph, and what the figures of the live box do to it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.wire import Connection
from dromos.testing.processes import ServeProcess

SETTINGS = """
default_agent = "ticking"
[worker]
concurrency = 64
step_limit = 20000
[log]
level = "error"
[agents.ticking]
graph = "benchmarks.live.agents:ticking"
"""


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[ServeProcess]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dromos.toml").write_text(SETTINGS)
    root = str(Path(__file__).parents[2])
    process = ServeProcess(folder / "data", env={"PYTHONPATH": root}, cwd=folder, ready_within=60)
    async with process:
        async with Connection(process.port) as sender:
            await tick(
                process, await conversation(sender), seconds=0.1
            )  # the graph is loaded before anything counts
        yield process
        process.term()
        await process.wait_exit(30)


async def conversation(sender: Connection, agent: str = "ticking") -> str:
    return str((await sender.ask("POST", "/v1/conversations", {"agent": agent}))["id"])


async def send(sender: Connection, conversation_id: str, **asked: Any) -> str:
    """Start a run as asked (`seconds`, `rate`, `steps`); returns its id."""
    content = json.dumps({"seconds": 1, "rate": 0, "steps": 1, **asked})
    posted = await sender.ask("POST", f"/v1/conversations/{conversation_id}/messages", {"content": content})
    return str(posted["run"]["id"])


async def tick(process: ServeProcess, conversation_id: str, **asked: Any) -> dict[str, Any]:
    """One run, until it has ended."""
    async with Connection(process.port) as sender, Connection(process.port) as reader:
        ready = asyncio.Event()
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def watch() -> None:
            async for event, data, _ in reader.events("/v1/stream"):
                ready.set()
                if event == b"run.status":
                    run = json.loads(data)["payload"]["run"]
                    if run["conversation_id"] == conversation_id and run["finished_at"]:
                        ended.set_result(run)
                        return

        watching = asyncio.create_task(watch())
        await ready.wait()
        await send(sender, conversation_id, **asked)
        run: dict[str, Any] = await asyncio.wait_for(ended, 300)
        await watching
        assert run["status"] == "completed", run
        return run


def stuck_client(port: int, conversation_id: str) -> socket.socket:
    """A client with a small window that asks for the stream and never reads."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", port))
    raw.sendall(f"GET /v1/stream?focus={conversation_id} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    return raw
