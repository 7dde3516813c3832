"""A graph within a graph waits for a person: what was said before stays in view, and comes back after a reload."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect

from dromos.testing.processes import ServeProcess
from tests.web.conftest import Open
from tests.web.puppet import Stage
from tests.web.tab import Tab

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

WATCH = """() => {
  window.views = [];
  const look = () => window.views.push(
    [...document.querySelectorAll("article[aria-label=Answer]")].map((e) => e.textContent.trim()));
  const all = { childList: true, subtree: true, characterData: true };
  new MutationObserver(look).observe(document.querySelector("main"), all);
}"""


async def opened(stage: Stage, open_tab: Open, server: ServeProcess, agent: str) -> Tab:
    answer = await stage.call("POST", "/v1/conversations", {"title": "Refund", "agent": agent})
    tab = await open_tab(server, f"/c/{answer.json()['id']}")
    await tab.page.evaluate(WATCH)
    return tab


async def stays(tab: Tab, text: str, until: int | None = None) -> None:
    """From the first view that shows the text whole, every later one does."""
    views: list[list[str]] = (await tab.page.evaluate("window.views"))[:until]
    seen: list[Any] = [text in view for view in views]
    assert any(seen), views[-1:]
    assert all(seen[seen.index(True) :]), f"{text} vanished"


@pytest.mark.case("P145")
async def test_what_was_said_before_a_nested_graph_waits_never_leaves_the_view(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    async with Stage(shared_server.url) as stage:
        tab = await opened(stage, open_tab, shared_server, "graph")
        await tab.say("Order 8831 was paid twice.")
        await tab.status("waiting_input")
        await expect(tab.answers.first).to_have_text("I looked the order up.")
        await stays(tab, "I looked the order up.")
        await tab.page.reload()
        await tab.page.evaluate(WATCH)
        await expect(tab.answers.first).to_have_text("I looked the order up.")
        await tab.box.get_by_role("button", name="yes", exact=True).click()
        await tab.ended()
        await expect(tab.answers).to_have_text(
            [
                "I looked the order up.",
                "It was paid twice.",
                "One payment goes back.",
                "You said yes.",
                "The case is closed.",
            ]
        )
        await stays(tab, "I looked the order up.")


@pytest.mark.case("P145")
async def test_several_answers_of_one_node_stay_in_view_while_it_waits(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    async with Stage(shared_server.url) as stage:
        tab = await opened(stage, open_tab, shared_server, "asking")
        await tab.say("Order 8831 was paid twice.")
        await tab.status("waiting_input")
        await expect(tab.answers).to_have_text(["It was paid twice.", "One payment goes back."])
        views = await tab.page.evaluate("window.views.length")
        for text in ("It was paid twice.", "One payment goes back."):
            await stays(tab, text, views)
        await tab.box.get_by_role("button", name="no", exact=True).click()
        await tab.ended()
        await expect(tab.answers).to_have_text(
            ["It was paid twice.", "One payment goes back.", "You said no."]
        )
