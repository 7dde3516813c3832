"""Keyboard, screen reader, contrast, sizes, policy: what must hold for everybody, in light and in dark."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from playwright.async_api import Route, expect

from dromos.testing.processes import ServeProcess
from tests.web.conftest import Open
from tests.web.looks import faults

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

MARKDOWN = "## Heading `code` **bold** [link](https://example.org)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_text_has_contrast_targets_have_size_and_everything_has_a_name(
    shared_server: ServeProcess, open_tab: Open, scheme: Literal["light", "dark"], width: int
) -> None:
    tab = await open_tab(shared_server, viewport={"width": width, "height": 844}, color_scheme=scheme)
    for text, end in ((MARKDOWN, "completed"), ("!error 401", "failed")):
        count = await tab.boxes.count()
        await tab.say(text)
        await tab.ended(end, boxes=count + 1)
    await expect(tab.box.locator("dl")).to_be_visible()  # a failure opens by itself
    if width < 760:
        await tab.page.get_by_role("button", name="Conversations", exact=True).click()
    assert await faults(tab.page) == []


async def test_everything_is_done_by_keyboard(shared_server: ServeProcess, open_tab: Open) -> None:
    tab = await open_tab(shared_server)
    keyboard = tab.page.keyboard
    await expect(tab.composer).to_be_focused()
    await keyboard.press("Escape")
    await expect(tab.composer).not_to_be_focused()
    await keyboard.press("/")
    await expect(tab.composer).to_be_focused()
    await keyboard.type("!say two")
    await keyboard.press("Shift+Enter")
    await keyboard.type("!say lines")
    await expect(tab.composer).to_have_value("!say two\n!say lines")
    await keyboard.press("Enter")
    await tab.ended()
    await keyboard.press("Escape")
    await keyboard.press("?")
    dialog = tab.page.get_by_role("dialog", name="Keys")
    await expect(dialog).to_be_visible()
    await keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    toggle = tab.box.locator("button.toggle")
    await toggle.focus()
    await keyboard.press("Enter")
    await expect(toggle).to_have_attribute("aria-expanded", "true")
    await keyboard.press("n")
    await expect(tab.page.get_by_role("heading", name="Start a conversation")).to_be_visible()


async def test_single_character_keys_can_be_turned_off(shared_server: ServeProcess, open_tab: Open) -> None:
    tab = await open_tab(shared_server)
    await tab.page.keyboard.press("Escape")
    await tab.page.keyboard.press("?")
    await tab.page.get_by_role("checkbox").uncheck()
    await tab.page.get_by_role("button", name="Close").click()
    await tab.page.reload()
    await tab.composer.blur()
    await tab.page.keyboard.press("?")
    await tab.page.keyboard.press("/")
    await expect(tab.page.get_by_role("dialog")).to_have_count(0)
    await expect(tab.composer).not_to_be_focused()


async def test_the_live_region_tells_statuses_and_no_tokens(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.page.evaluate(
        """() => {
          window.heard = [];
          for (const region of document.querySelectorAll('[aria-live], [role=status], [role=alert]'))
            new MutationObserver(() => window.heard.push(region.textContent)).observe(region,
              { childList: true, subtree: true, characterData: true });
        }"""
    )
    await tab.say("!tokens 30 40")
    await tab.ended()
    heard = " ".join(await tab.page.evaluate("window.heard"))
    assert "Run: Running" in heard
    assert "Run: Done" in heard
    words = (await tab.answer.inner_text()).split()
    assert not re.search(rf"\b{re.escape(words[0])} {re.escape(words[1])}\b", heard)


async def test_motion_is_left_out_for_those_who_ask(shared_server: ServeProcess, open_tab: Open) -> None:
    tab = await open_tab(shared_server, reduced_motion="reduce")
    await tab.say("!tokens 60 20")
    await tab.status("running")
    await expect(tab.box.locator(".glyph")).to_have_css("animation-name", "none")
    moving = await tab.page.evaluate("document.getAnimations().length")
    assert moving == 0


async def test_the_first_screen_says_which_model_answers_and_its_example_works(
    server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(server)
    await expect(tab.page.get_by_role("heading", name="Start a conversation")).to_be_visible()
    start = tab.page.locator("section.start")
    await expect(start).to_contain_text("Answers come from scripted")
    await expect(start).to_contain_text("Set by DROMOS_MODEL")
    await expect(tab.column).to_contain_text("No conversations yet")
    await start.locator("li button").last.click()
    await tab.ended()
    await expect(tab.answer).not_to_be_empty()


async def test_a_server_that_does_not_know_its_model_yet_is_asked_again(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    asked = 0

    async def as_at_a_start(route: Route) -> None:
        nonlocal asked
        asked += 1
        answer = await route.fetch()
        body = await answer.json()
        if asked == 1:
            next(agent for agent in body["items"] if agent["default"])["model"] = None
        await route.fulfill(response=answer, json=body)

    await tab.page.route("**/v1/agents", as_at_a_start)
    await tab.page.reload()
    await expect(tab.page.locator("section.start")).to_contain_text("Answers come from scripted")
    assert asked == 2


async def test_the_page_runs_under_a_strict_policy(shared_server: ServeProcess, open_tab: Open) -> None:
    tab = await open_tab(shared_server)
    answer = await tab.page.request.get(shared_server.url + "/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    blocked = await tab.page.evaluate(
        """() => new Promise((resolve) => {
          document.addEventListener('securitypolicyviolation', (e) => resolve(e.effectiveDirective));
          try { document.body.innerHTML = '<img src=x>'; } catch { resolve('trusted types'); }
        })"""
    )
    assert blocked in ("trusted types", "require-trusted-types-for")
    tab.errors.clear()  # the browser reported the very attempt
