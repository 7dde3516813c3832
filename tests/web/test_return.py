"""The page comes back by itself: after the server was killed, while a tab was hidden, with what was typed."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from dromos.testing.processes import ServeProcess
from tests.web.conftest import Open
from tests.web.tab import WAIT_MS

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.slow(60)
async def test_after_a_kill_and_a_restart_the_page_recovers_by_itself_and_the_draft_survives(
    server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(server)
    tab.may_lose_server = True
    await tab.say("!say before")
    await tab.ended()
    await tab.say("!tokens 60 20")
    await expect(tab.answer).to_contain_text(re.compile(r"(\w+ ){4}"))
    await tab.composer.fill("typed while it was away")
    server.kill()
    await server.wait_exit()
    await expect(tab.page.get_by_text("The server does not answer")).to_be_visible(timeout=WAIT_MS)
    await server.start()
    await tab.ended("completed", boxes=2)
    await expect(tab.page.get_by_text("The server does not answer")).to_have_count(0)
    await expect(tab.composer).to_have_value("typed while it was away")
    assert len((await tab.answer.inner_text()).split()) == 60
    await expect(tab.answers).to_have_count(2)
    await tab.page.reload()
    await expect(tab.composer).to_have_value("typed while it was away")
    await expect(tab.answers).to_have_count(2)


@pytest.mark.slow(60)
async def test_a_message_sent_while_the_server_is_down_is_kept_and_goes_out_on_the_second_try(
    server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(server)
    tab.may_lose_server = True
    server.kill()
    await server.wait_exit()
    await tab.composer.fill("!say at last")
    await tab.composer.press("Enter")
    await expect(tab.page.get_by_role("alert")).to_contain_text("Not sent")
    await expect(tab.composer).to_have_value("!say at last")
    await server.start()
    await tab.send_button.click()
    await tab.ended()
    await expect(tab.answer).to_have_text("at last")


async def test_drafts_are_kept_per_conversation(shared_server: ServeProcess, open_tab: Open) -> None:
    tab = await open_tab(shared_server)
    await tab.say("!say a place")
    await tab.ended()
    await tab.composer.fill("for this one")
    await tab.page.get_by_role("button", name="New conversation").click()
    await expect(tab.composer).to_have_value("")
    await tab.composer.fill("for a new one")
    await tab.page.go_back()
    await expect(tab.composer).to_have_value("for this one")
    await tab.page.go_forward()
    await tab.page.reload()
    await expect(tab.composer).to_have_value("for a new one")
