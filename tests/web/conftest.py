"""A served page in a real Chromium: browser, two servers, and tabs that watch what they must not do.

Starting a server takes seconds, so there are two for all tests: one that is only talked to, and one that a test has
to itself, empty at its start, to be killed and started again. Both have the counting tools as server `t`.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

import hatch_build
from dromos.testing.processes import ServeProcess
from tests.web.puppet import AGENT
from tests.web.tab import Tab

Open = Callable[..., Awaitable[Tab]]


#: A person is asked before `t__sleep` is called; for the others of the counting tools nobody is.
ASKING = '[tools."t__sleep"]\npolicy = "ask"\n'
#: How long a stop waits for a call that must not be cut.
SHORT_STOP = "[worker]\nstop_deadline_s = 4\n"


class Reachable(Protocol):
    """A server, or what stands before it."""

    @property
    def url(self) -> str: ...


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page, built from the sources as they are now, by one of the processes that run tests."""
    with (tmp_path_factory.getbasetemp().parent / "page.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        hatch_build.build()
    return hatch_build.ROOT / hatch_build.OUTPUT


class OneBrowser:
    """One headless Chromium for all tests; one that died costs the test in which it did, and not all that follow."""

    def __init__(self, launch: Callable[[], Awaitable[Browser]]) -> None:
        self._launch = launch
        self._browser: Browser | None = None

    async def get(self) -> Browser:
        if self._browser is None or not self._browser.is_connected():
            self._browser = await self._launch()
        return self._browser

    async def close(self) -> None:
        if self._browser is not None:
            await self._browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium: str) -> AsyncIterator[OneBrowser]:
    """Each tab lives in a context of its own."""
    async with async_playwright() as playwright:
        launch = playwright.chromium.launch
        one = OneBrowser(lambda: launch(executable_path=chromium, args=["--no-sandbox"]))
        yield one
        await one.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_server(built: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServeProcess]:
    """A server all tests may use that do it no harm."""
    async with with_tools(tmp_path_factory.mktemp("served"), ASKING) as server:
        await _warm(server)
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _second_server(
    built: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ServeProcess]:
    async with with_tools(tmp_path_factory.mktemp("own"), ASKING + SHORT_STOP) as server:
        await _warm(server)
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def server(_second_server: ServeProcess) -> ServeProcess:
    """A server without any conversation that this test has to itself, to be killed and started again."""
    if not _second_server.running:
        await _second_server.start()
    await _second_server.wait_ready()  # a test may have failed while it was starting
    async with httpx.AsyncClient(base_url=_second_server.url, trust_env=False, timeout=30) as client:
        while items := (await client.get("/v1/conversations")).json()["items"]:
            for conversation in items:
                (await client.delete(f"/v1/conversations/{conversation['id']}")).raise_for_status()
    return _second_server


async def _warm(server: ServeProcess) -> None:
    """One run that no test sees: the first one loads the engine and starts the tool server, which takes its time."""
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=60) as client:
        asked = (await client.post("/api/chat", json={"message": "!say warm"})).json()["conversation"]
        await client.get("/api/chat", params={"conversation": asked})  # ends with the run
        (await client.delete(f"/v1/conversations/{asked}")).raise_for_status()


def with_tools(folder: Path, settings: str = "") -> ServeProcess:
    """A server in `folder`: the counting tools, agents for puppets and nested graphs, these lines of `dromos.toml`."""
    tools = {
        "command": sys.executable,
        "args": ["-m", "dromos.testing.tools_server"],
        "env": {"CT_FILE": str(folder / "effects")},
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"t": tools}}))
    shutil.copy(Path(__file__).with_name("nested_graph.py"), folder)
    agents = {
        AGENT: "remote = true",
        **{name: f'graph = "nested_graph:{name}"' for name in ("graph", "asking")},
    }
    (folder / "dromos.toml").write_text(
        settings + "".join(f"[agents.{name}]\n{line}\n" for name, line in agents.items())
    )
    return ServeProcess(folder / "data")


def open_gate(server: ServeProcess, name: str) -> None:
    """Lets the calls of `t__gate` with this name go on."""
    (server.data.parent / f"effects.{name}").touch()


@pytest_asyncio.fixture(loop_scope="session")
async def open_tab(browser: OneBrowser) -> AsyncIterator[Open]:
    """Opens tabs. At the end of the test none of them may have reported an error or asked another host."""
    tabs: list[Tab] = []

    async def open_one(
        server: Reachable, path: str = "/", *, beside: Tab | None = None, **context: object
    ) -> Tab:
        tab = await Tab.open(await browser.get(), server.url, path, beside=beside, **context)
        tabs.append(tab)
        return tab

    yield open_one
    for tab in tabs:
        await tab.close()
    for tab in tabs:
        assert tab.errors == []
        assert tab.elsewhere == []
