"""A conversation of many messages: read page by page, drawn in stretches, and smooth while an answer streams."""

from __future__ import annotations

import re

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Locator, expect

from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import eventually
from tests.web.conftest import Open
from tests.web.tab import Tab

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

EXCHANGES = 60
"""Each leaves a message, an anchor and an answer: four pages of history."""

DRAWN = """({
  said: [...document.querySelectorAll("article[aria-label=You]")].map((e) => e.textContent.trim()),
  boxes: document.querySelectorAll("section.box").length,
})"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def long_conversation(shared_server: ServeProcess) -> str:
    """The address of a conversation whose messages say 0, 1, 2 …"""
    async with httpx.AsyncClient(base_url=shared_server.url, timeout=20, trust_env=False) as client:
        made = (await client.post("/v1/conversations", json={"title": "Numbers"})).json()
        path = f"/v1/conversations/{made['id']}"
        for number in range(EXCHANGES):
            sent = await client.post(f"{path}/messages", json={"content": f"number {number}"})
            assert sent.is_success, sent.text

        async def answered() -> bool:
            count: int = (await client.get(path)).json()["conversation"]["message_count"]
            return count == 2 * EXCHANGES

        await eventually(answered, seconds=40, every=0.2, what="the last answer")
    return f"/c/{made['id']}"


async def scroll_back_to_the_first(tab: Tab) -> None:
    """Scrolls up as a person does until there is nothing older, and nothing above."""
    first = said(tab, 0)
    older = tab.page.get_by_role("button", name="Show earlier messages")
    await tab.page.mouse.move(700, 400)
    while await older.count() or not await first.count() or await tab.page.evaluate("scrollY > 0"):
        await tab.page.mouse.wheel(0, -4_000)
        await tab.page.evaluate("new Promise(requestAnimationFrame)")


def said(tab: Tab, number: int) -> Locator:
    return tab.page.get_by_role("article", name="You").filter(has_text=re.compile(rf"^number {number}$"))


@pytest.mark.slow(60)
async def test_older_messages_are_read_as_one_scrolls_up_and_far_ones_are_not_drawn(
    shared_server: ServeProcess, open_tab: Open, long_conversation: str
) -> None:
    tab = await open_tab(shared_server, long_conversation)
    await expect(said(tab, EXCHANGES - 1)).to_be_visible()
    await expect(said(tab, 0)).to_have_count(0)
    await scroll_back_to_the_first(tab)
    await expect(said(tab, 0)).to_be_visible()
    await tab.page.wait_for_function(DRAWN + f".said.length < {EXCHANGES}")  # the middle is an empty place
    drawn = await tab.page.evaluate(DRAWN)
    order = [int(text.split()[1]) for text in drawn["said"] if text.startswith("number")]
    assert order[0] == 0
    assert order == sorted(order)
    assert drawn["boxes"] == len(drawn["said"])  # every run has its box
    await tab.page.get_by_role("button", name="Latest").click()
    await expect(tab.answer).to_be_in_viewport()
    await expect(said(tab, 0)).to_have_count(0)


async def test_reading_an_older_page_leaves_what_is_on_the_screen_where_it_is(
    shared_server: ServeProcess, open_tab: Open, long_conversation: str
) -> None:
    tab = await open_tab(shared_server, long_conversation)
    await expect(said(tab, EXCHANGES - 1)).to_be_visible()
    oldest = tab.page.get_by_role("article").first
    name = await oldest.get_attribute("data-message")
    async with tab.page.expect_response(lambda r: "before=" in r.url):
        await tab.page.evaluate("scrollTo(0, 0)")
    kept = tab.page.locator(f"[data-message='{name}']")
    await expect(tab.page.get_by_role("article").first).not_to_have_attribute("data-message", str(name))
    await tab.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await expect(kept).to_be_in_viewport()
