"""A served page in a real Chromium: browser, server, and tabs that watch what they must not do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

import hatch_build
from dromos.testing.processes import ServeProcess
from tests.web.tab import Tab

Open = Callable[..., Awaitable[Tab]]


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder of the page, built from the sources as they are now."""
    hatch_build.build()
    return hatch_build.ROOT / hatch_build.OUTPUT


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    """One headless Chromium for all tests; each tab lives in a context of its own."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_server(built: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServeProcess]:
    """A server all tests may use that do it no harm."""
    async with ServeProcess(tmp_path_factory.mktemp("served") / "data") as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def server(built: Path, tmp_path: Path) -> AsyncIterator[ServeProcess]:
    """A server of the test's own, to be killed and started again, or to be empty."""
    async with ServeProcess(tmp_path / "data") as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def open_tab(browser: Browser) -> AsyncIterator[Open]:
    """Opens tabs. At the end of the test none of them may have reported an error or asked another host."""
    tabs: list[Tab] = []

    async def open_one(
        server: ServeProcess, path: str = "/", *, beside: Tab | None = None, **context: object
    ) -> Tab:
        tab = await Tab.open(browser, server.url, path, beside=beside, **context)
        tabs.append(tab)
        return tab

    yield open_one
    for tab in tabs:
        await tab.close()
    for tab in tabs:
        assert tab.errors == []
        assert tab.elsewhere == []
