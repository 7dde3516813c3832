"""The command as a person starts it, and one real server for the commands that need one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from dromos.testing.processes import ServeProcess, clean_environment
from dromos.testing.waiting import within


@dataclass(frozen=True)
class Done:
    """A command's end."""

    code: int
    out: str
    err: str


Command = Callable[..., Awaitable[Done]]


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def server_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Address of a server with the scripted model."""
    async with ServeProcess(tmp_path_factory.mktemp("served") / "data") as server:
        yield server.url


async def start(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
    """Start `dromos` with pipes, in a folder of its own."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dromos", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=clean_environment() | {"DROMOS_MODEL": "scripted"} | (env or {}),
    )


@pytest.fixture
def dromos(tmp_path: Path) -> Command:
    """Runs a command to its end in an empty folder."""

    async def run(*arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> Done:
        process = await start(*arguments, cwd=tmp_path, env=env)
        out, err = await within(30, process.communicate(stdin.encode()), f"the end of dromos {arguments[:1]}")
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), err.decode())

    return run
