"""Real MCP servers for the tools' tests, over stdio and HTTP."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dromos.ports.tool import ToolContext, ToolProgress
from dromos.testing.processes import RealProcess, free_port
from dromos.testing.waiting import eventually
from dromos.tools.mcp.configuration import HttpServer, ServerEntry, StdioServer
from dromos.tools.mcp.connection import McpLimits
from dromos.tools.mcp.toolbox import McpToolbox

TOOLS_SERVER = ("-m", "dromos.testing.tools_server")

QUICK = McpLimits(connect=8.0, patience=8.0, close=1.0)


@dataclass(frozen=True)
class Effects:
    """The files a tools server writes: effects, cancellations, gates."""

    path: Path

    def beside(self, name: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{name}")

    def counted(self) -> list[dict[str, Any]]:
        return _lines(self.path)

    def begun(self) -> list[dict[str, Any]]:
        return _lines(self.beside("begun"))

    def cancelled(self) -> list[dict[str, Any]]:
        return _lines(self.beside("cancelled"))

    def open_gate(self, name: str) -> None:
        self.beside(name).touch()


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    """Where the tools servers of this test write."""
    return Effects(tmp_path / "effects")


@pytest.fixture
def stdio(effects: Effects) -> StdioServer:
    """A tools server over stdio, named `ct`."""
    return StdioServer("ct", sys.executable, TOOLS_SERVER, {"CT_FILE": str(effects.path)})


@dataclass
class HttpTools:
    """A tools server over HTTP that can be killed and started again."""

    process: RealProcess
    entry: HttpServer

    async def start(self) -> None:
        seen = self.process.logs().count(self.entry.url)
        await self.process.start()
        await eventually(
            lambda: self.process.logs().count(self.entry.url) > seen, what="the HTTP tools server"
        )

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait_exit()


@pytest.fixture
async def http(effects: Effects, tmp_path: Path) -> AsyncIterator[HttpTools]:
    """A tools server over HTTP, named `web`."""
    port = free_port()
    process = RealProcess(
        [sys.executable, *TOOLS_SERVER, "--http", "--port", str(port)],
        log=tmp_path / "http-tools.log",
        env={"CT_FILE": str(effects.path)},
    )
    tools = HttpTools(process, HttpServer("web", f"http://127.0.0.1:{port}/mcp"))
    await tools.start()
    yield tools
    await process.close()


@asynccontextmanager
async def toolbox(*entries: ServerEntry, limits: McpLimits = QUICK) -> AsyncIterator[McpToolbox]:
    """A toolbox that is closed again."""
    box = McpToolbox(entries, limits)
    try:
        yield box
    finally:
        await box.aclose()


def context(key: str = "key-1", on_progress: Callable[[ToolProgress], None] | None = None) -> ToolContext:
    """What a call says about itself."""
    return ToolContext("run-1", "conversation-1", f"call-of-{key}", key, on_progress)


def children_of(parent: int) -> list[int]:
    """Ids of the running child processes, but of the one that ends what others leave behind."""
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    found = [pid for pid in pids if stat(pid)[1] == parent and runs(pid)]
    return [pid for pid in found if "survivors.py" not in _command(pid)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    return stat(pid)[0] not in ("", "Z")


def stat(pid: int) -> tuple[str, int]:
    """State and parent of a process; an empty state if there is none."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return "", 0
    return state, int(parent)
