"""Pictures of the page for people to look at, in `test-artifacts/`: light and dark, wide and 390 px."""

from __future__ import annotations

from typing import Literal

import pytest
from playwright.async_api import expect

import hatch_build
from dromos.testing.processes import ServeProcess
from tests.web.conftest import Open

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PICTURES = hatch_build.ROOT / "test-artifacts"


@pytest.mark.slow(60)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_the_page_is_pictured(
    server: ServeProcess, open_tab: Open, scheme: Literal["light", "dark"], width: int
) -> None:
    PICTURES.mkdir(exist_ok=True)
    size = {"width": width, "height": 800 if width > 760 else 844}
    tab = await open_tab(server, viewport=size, color_scheme=scheme)

    async def picture(name: str) -> None:
        shot = await tab.page.screenshot(
            path=PICTURES / f"page-{name}-{scheme}-{width}.png", animations="disabled"
        )
        assert len(shot) > 5_000

    await expect(tab.page.locator("section.start")).to_contain_text("scripted")
    await picture("start")
    await tab.say("A first message, to be answered in a word.")
    await tab.ended()
    await tab.say("!error 401")
    await tab.ended("failed", boxes=2)
    await tab.say("!tokens 120 20")
    await tab.status("running")
    await tab.say("And then tell me more.")
    await expect(tab.page.locator("[data-followup=waiting]")).to_have_count(1)
    await picture("live")
    await tab.box.get_by_role("button", name="Stop").click()
    await tab.ended("cancelled", boxes=3)
    await expect(tab.page.locator("[data-followup=held]")).to_have_count(1)
    await picture("held")
