"""Keyboard, screen reader, contrast, sizes, policy: what must hold for everybody, in light and in dark."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from playwright.async_api import Route, expect

from dromos.testing.processes import ServeProcess
from tests.web.conftest import Open

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

CONTRAST = """() => {
  const parse = (c) => {
    const m = c.match(/rgba?\\(([^)]+)\\)/);
    if (!m) return null;
    const [r, g, b, a = 1] = m[1].split(/[ ,/]+/).map(Number);
    return { r, g, b, a };
  };
  const light = ({ r, g, b }) => {
    const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const under = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour && colour.a === 1) return colour;
    }
    return parse(getComputedStyle(document.body).backgroundColor);
  };
  const faults = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || element.closest('.sr, noscript, script, :disabled, [aria-hidden=true]')) continue;
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const style = getComputedStyle(element);
    const fore = parse(style.color);
    const back = under(element);
    const [a, b] = [light(fore), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) faults.push(`${ratio.toFixed(2)} ${node.textContent.trim().slice(0, 40)}`);
  }
  return faults;
}"""

TARGETS = """() => [...document.querySelectorAll('button, a[href], input, textarea, summary, [role=menuitem]')]
  .filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest('.md p, .md li, .md td, .skip'))
  .map((e) => [e, e.getBoundingClientRect()])
  .filter(([e, r]) => r.width > 0 && (r.width < 24 || r.height < 24) && !e.matches('label input'))
  .map(([e, r]) => `${e.outerHTML.slice(0, 80)} ${r.width}x${r.height}`)"""

NAMELESS = """() => [...document.querySelectorAll(
    'button, a[href], input, textarea, nav, aside, dialog, [role=menu], [role=region], [role=progressbar]')]
  .filter((e) => e.checkVisibility())
  .filter((e) => {
    const by = e.getAttribute('aria-labelledby');
    const name = e.getAttribute('aria-label') || (by && document.getElementById(by)?.textContent)
      || (['BUTTON', 'A'].includes(e.tagName) ? e.textContent : '') || e.labels?.[0]?.textContent || '';
    return !name.trim();
  }).map((e) => e.outerHTML.slice(0, 100))"""

IDS = """() => {
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  const doubled = ids.filter((id, i) => ids.indexOf(id) !== i);
  const dangling = [...document.querySelectorAll('[aria-labelledby], [aria-controls], [for]')]
    .flatMap((e) => [e.getAttribute('aria-labelledby'), e.getAttribute('aria-controls'), e.getAttribute('for')])
    .filter((id) => id && !document.getElementById(id));
  return [...doubled, ...dangling];
}"""

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
    for check in (CONTRAST, TARGETS, NAMELESS, IDS):
        assert await tab.page.evaluate(check) == []
    wide = await tab.page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide <= 0  # nothing sticks out to the side


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
            body["items"][0]["model"] = None
        await route.fulfill(response=answer, json=body)

    await tab.page.route("**/v1/agents", as_at_a_start)
    await tab.page.reload()
    await expect(tab.page.locator("section.start")).to_contain_text("assistant")
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
