"""Pictures of the page for people to look at, in `test-artifacts/`: light and dark, wide and 390 px."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

import hatch_build
from dromos.testing.processes import ServeProcess
from tests.web.conftest import Open, open_gate
from tests.web.tab import Tab

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PICTURES = hatch_build.ROOT / "test-artifacts"

ANSWER = """A write-ahead log keeps **one promise**: what was acknowledged is not lost.

1. Append the record
2. Flush it, then answer

```python
log.append(record)
os.fsync(log.fileno())
```
"""


@pytest.mark.slow(90)
async def test_the_page_is_pictured(server: ServeProcess, open_tab: Open) -> None:
    PICTURES.mkdir(exist_ok=True)
    tabs: dict[str, Tab] = {}
    for scheme in ("light", "dark"):
        for width, height in ((1280, 800), (390, 844)):
            size = {"width": width, "height": height}
            tabs[f"{scheme}-{width}"] = await open_tab(server, viewport=size, color_scheme=scheme)

    async def picture(name: str) -> None:
        for looks, tab in tabs.items():
            file = PICTURES / f"page-{name}-{looks}.png"
            assert len(await tab.page.screenshot(path=file, animations="disabled")) > 5_000

    async def all_show(status: str, boxes: int) -> None:
        for tab in tabs.values():
            await tab.ended(status, boxes)

    for tab in tabs.values():
        await expect(tab.page.locator("section.start")).to_contain_text("scripted")
    await picture("start")

    first, *others = tabs.values()
    await first.say(ANSWER)
    await first.ended()
    for tab in others:
        await tab.page.goto(first.page.url)
    await all_show("completed", 1)
    await picture("done")

    await first.say('!say I read the page first.\n!call t__gate {"name": "picture"}\n!tokens 400 30')
    await all_show("running", 2)
    await first.say("And then tell me more.")
    for tab in tabs.values():
        await expect(tab.page.locator("[data-followup=waiting]")).to_have_count(1)
        await expect(tab.page.locator("details")).to_have_count(1)
    await picture("tool")

    open_gate(server, "picture")
    for tab in tabs.values():
        await expect(tab.answer).to_contain_text(re.compile(r"(w\d+ ){20}"))
    await picture("streaming")

    await first.box.get_by_role("button", name="Stop", exact=True).click()
    await all_show("cancelled", 2)
    for tab in tabs.values():
        await expect(tab.page.locator("[data-followup=held]")).to_have_count(1)
        await tab.box.get_by_role("button", name=re.compile("step", re.IGNORECASE)).click()
        await expect(tab.box.locator(".steps li")).not_to_have_count(0)
    await picture("stopped")

    await first.say("!error 401")
    await all_show("failed", 3)
    await picture("failed")
