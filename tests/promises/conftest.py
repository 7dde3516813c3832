"""Tool servers for the promises' tests: real ones, one process for all tests of a worker."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dromos.testing.processes import RealProcess, free_port
from dromos.testing.waiting import eventually


@dataclass(frozen=True)
class Tools:
    """The counting tools over HTTP; tests tell their effects apart by labels."""

    url: str
    path: Path

    def effects(self, *labels: str) -> list[dict[str, Any]]:
        """What was counted under one of these labels, in order."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [one for one in map(json.loads, lines) if one["label"] in labels]

    def begun(self, tool: str) -> int:
        """How many calls of a tool that waits or sleeps have begun."""
        file = self.path.with_name(f"{self.path.name}.begun")
        return file.read_text().count(f'"tool": "{tool}"') if file.exists() else 0

    def open_gate(self, name: str) -> None:
        self.path.with_name(f"{self.path.name}.{name}").touch()


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def tools_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Tools]:
    folder = tmp_path_factory.mktemp("tools")
    port = free_port()
    process = RealProcess(
        [sys.executable, "-m", "dromos.testing.tools_server", "--http", "--port", str(port)],
        log=folder / "tools.log",
        env={"CT_FILE": str(folder / "effects")},
    )
    url = f"http://127.0.0.1:{port}/mcp"
    async with process:
        await eventually(lambda: url in process.logs(), seconds=30, what="the tools server")
        yield Tools(url, folder / "effects")
