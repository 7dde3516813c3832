"""One real server for the tests of this room that need one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dromos.client import Client
from dromos.testing.processes import ServeProcess


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Address of a server with the scripted model."""
    folder: Path = tmp_path_factory.mktemp("served")
    async with ServeProcess(folder / "data") as server:
        yield server.url


@pytest.fixture
async def client(server_url: str) -> AsyncIterator[Client]:
    async with Client(server_url) as client:
        yield client
