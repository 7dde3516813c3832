"""Writing while a run is live: queue, steer, or stop and send, by menu and key; what waits is kept in order."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Locator, expect

from dromos.testing.processes import ServeProcess
from tests.web.conftest import Open
from tests.web.looks import faults
from tests.web.puppet import AGENT, Puppet, Stage
from tests.web.tab import Tab

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def stage(shared_server: ServeProcess) -> AsyncIterator[Stage]:
    async with Stage(shared_server.url) as stage:
        yield stage


def waiting(tab: Tab) -> Locator:
    return tab.page.locator("[data-followup=waiting]")


async def live(stage: Stage, open_tab: Open, server: ServeProcess, **context: object) -> tuple[Puppet, Tab]:
    puppet = await stage.begin("At work")
    tab = await open_tab(server, f"/c/{puppet.conversation}", **context)
    await tab.status("running")
    return puppet, tab


async def test_while_a_run_is_live_the_button_says_how_a_message_meets_it_and_remembers_the_choice(
    shared_server: ServeProcess, stage: Stage, open_tab: Open
) -> None:
    puppet, tab = await live(stage, open_tab, shared_server, viewport={"width": 390, "height": 844})
    await expect(tab.send_button).to_have_text("Queue")
    await expect(tab.composer).to_have_attribute("placeholder", re.compile("Enter queues it"))
    await tab.say("for later")
    await expect(waiting(tab)).to_contain_text("next run")

    await tab.page.get_by_role("button", name="How it is sent").click()
    menu = tab.page.get_by_role("menu")
    await expect(menu.get_by_role("menuitemradio", name="Queue")).to_be_focused()
    assert await faults(tab.page) == []
    await tab.page.keyboard.press("ArrowDown")
    await tab.page.keyboard.press("Enter")
    await expect(menu).to_have_count(0)
    await expect(tab.send_button).to_have_text("Steer")
    await tab.say("mind the recovery")
    await expect(waiting(tab)).to_have_count(2)
    await expect(waiting(tab).last).to_contain_text("next step")
    told = await puppet.renew()
    assert [one["content"] for one in told["steer"]] == ["mind the recovery"]
    await expect(waiting(tab)).to_have_count(1)

    await tab.page.get_by_role("button", name="How it is sent").click()
    await menu.get_by_role("menuitemradio", name="Stop and send").click()
    await expect(tab.send_button).to_have_text("Stop and send")
    await tab.say("rather this")
    await expect(tab.box.locator(".st")).to_have_text("Stopping")
    await expect(tab.box.locator(".what")).to_contain_text("a newer message takes its place")
    await expect(tab.send_button).to_have_text("Queue")  # stopping is chosen for one message
    await puppet.end("cancelled")
    await expect(tab.boxes).to_have_count(2)
    await expect(tab.page.get_by_role("article", name="You").last).to_have_text("rather this")


async def test_the_same_by_keys_and_the_last_key_stops_the_run(
    shared_server: ServeProcess, stage: Stage, open_tab: Open
) -> None:
    puppet, tab = await live(stage, open_tab, shared_server)
    for keys, text in (("Enter", "queued"), ("Control+Enter", "steered")):
        await tab.composer.fill(text)
        await tab.composer.press(keys)
        await expect(tab.composer).to_have_value("")
    await expect(waiting(tab)).to_have_count(2)
    found = (await stage.call("GET", f"/v1/conversations/{puppet.conversation}")).json()["followups"]
    assert {one["content"]: one["when_busy"] for one in found} == {"queued": "queue", "steered": "steer"}
    await tab.composer.press("Control+.")
    await tab.status("cancelling")
    await puppet.end("cancelled")
    await tab.ended("cancelled")
    await tab.composer.fill("and now this")
    await tab.composer.press("Control+Shift+Enter")  # nothing is live: it is simply sent
    await expect(tab.boxes).to_have_count(2)


async def test_what_waits_is_moved_edited_and_removed_by_keyboard_alone(
    shared_server: ServeProcess, stage: Stage, open_tab: Open
) -> None:
    _, tab = await live(stage, open_tab, shared_server)
    for count, text in enumerate(("first", "second", "third"), 1):
        await tab.say(text)
        await expect(waiting(tab)).to_have_count(count)
    keyboard = tab.page.keyboard
    await waiting(tab).nth(2).get_by_role("button", name="Move up: third").focus()
    await keyboard.press("Enter")
    await expect(waiting(tab).nth(1)).to_contain_text("third")
    await expect(waiting(tab).nth(1).get_by_role("button", name="Move up: third")).to_be_focused()
    await keyboard.press("Enter")
    await expect(waiting(tab).nth(0)).to_contain_text("third")
    await expect(waiting(tab).nth(0).get_by_role("button", name="Move down: third")).to_be_focused()
    await keyboard.press("Tab")
    await keyboard.press("Enter")
    field = tab.page.get_by_role("textbox", name="Text of the waiting message")
    await expect(field).to_be_focused()
    await keyboard.press("Escape")
    await expect(field).to_have_count(0)
    await waiting(tab).nth(0).get_by_role("button", name="Edit").focus()
    await keyboard.press("Enter")
    await keyboard.press("Control+A")
    await keyboard.type("the third, edited")
    await keyboard.press("Tab")
    await keyboard.press("Enter")
    await expect(waiting(tab).nth(0)).to_contain_text("the third, edited")
    await waiting(tab).nth(1).get_by_role("button", name="Remove").focus()
    await keyboard.press("Enter")
    await expect(waiting(tab)).to_have_count(2)
    assert [text.split("\n")[0] for text in await waiting(tab).all_inner_texts()] == [
        "the third, edited",
        "second",
    ]
    assert await faults(tab.page) == []


async def test_a_new_conversation_is_begun_with_the_agent_that_was_chosen(
    shared_server: ServeProcess, stage: Stage, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.page.get_by_role("button", name="Agent: assistant").click()
    await tab.page.get_by_role("menuitemradio", name=AGENT).click()
    await expect(tab.composer).to_be_focused()
    await tab.say("Hello, puppet")
    puppet = await stage.claim()
    assert puppet.conversation == tab.conversation
    await puppet.end("completed", answer="Hello, person")
    await tab.ended()
    await expect(tab.answer).to_have_text("Hello, person")
    await expect(tab.page.get_by_role("button", name="Agent:")).to_have_count(0)
