"""A conversation in the page: answers stream, survive a reload, agree in two tabs, and can be stopped and continued."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Request, Route, expect

from dromos.testing.processes import ServeProcess
from tests.web.conftest import Open, open_gate
from tests.web.tab import WAIT_MS

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_a_message_gets_a_streamed_answer_and_its_box_becomes_one_line(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say("!tokens 40 25")
    await expect(tab.box).to_have_attribute("data-status", "running", timeout=WAIT_MS)
    await expect(tab.answer).to_contain_text(re.compile(r"\w+ \w+ \w+"))
    assert await tab.box.get_attribute("data-status") == "running"  # the text came while it ran
    await tab.ended()
    words = (await tab.answer.inner_text()).split()
    assert len(words) == 40
    await expect(tab.box.get_by_role("button", name="Stop")).to_have_count(0)
    await expect(tab.box).to_have_attribute("aria-label", "Run, Done")
    await expect(tab.column.get_by_role("link", name="tokens 40 25")).to_be_visible()


async def test_a_reload_in_the_middle_of_an_answer_shows_the_same_text_and_then_the_rest(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say("!tokens 80 20")
    await expect(tab.answer).to_contain_text(re.compile(r"(\w+ ){8}"))
    before = (await tab.answer.inner_text()).strip()
    await tab.page.reload()
    await expect(tab.answer).to_contain_text(before)
    after = await tab.answer.inner_text()
    assert after.startswith(before)
    assert await tab.box.get_attribute("data-status") == "running"
    await tab.ended()
    final = await tab.answer.inner_text()
    assert final.startswith(before)
    assert len(final.split()) == 80
    await expect(tab.answers).to_have_count(1)


async def test_a_second_tab_shows_the_same_while_it_runs_and_after(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    first = await open_tab(shared_server)
    await first.say("!tokens 50 20")
    await expect(first.answer).to_contain_text(re.compile(r"\w+ \w+"))
    second = await open_tab(shared_server, f"/c/{first.conversation}", viewport={"width": 390, "height": 844})
    await expect(second.answer).to_contain_text(re.compile(r"\w+ \w+"))
    await first.ended()
    await second.ended()
    assert await second.answer.inner_text() == await first.answer.inner_text()
    await second.say("!say from the second")
    await first.ended(boxes=2)
    await expect(first.answer).to_have_text("from the second")


async def test_stop_shows_stopping_only_by_the_servers_word_and_keeps_what_was_said(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say("!tokens 400 20")
    await expect(tab.answer).to_contain_text(re.compile(r"(\w+ ){4}"))

    async def hold(route: Route) -> None:
        assert await tab.box.get_attribute("data-status") == "running"  # nothing is guessed before the answer
        assert await tab.box.get_by_role("button", name="Stop").is_disabled()
        await route.continue_()

    await tab.page.route("**/v1/runs/*/cancel", hold)
    await tab.box.get_by_role("button", name="Stop").click()
    await tab.ended("cancelled")
    await expect(tab.box).to_contain_text("by you")
    await expect(tab.answer).to_contain_text("interrupted here")
    said = await tab.answer.inner_text()
    await tab.page.reload()
    await expect(tab.answer).to_have_text(re.compile(re.escape(said.split("\n")[0][:40])))
    await expect(tab.answers).to_have_count(1)


async def test_a_failed_run_says_why_and_continue_makes_a_new_run(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say("!error 401")
    await tab.ended("failed")
    await expect(tab.box).to_contain_text("nothing is lost")
    failed = await tab.box.get_attribute("data-run")
    await tab.box.get_by_role("button", name="Continue").click()
    await tab.ended("failed", boxes=2)
    assert await tab.box.get_attribute("data-run") != failed
    await expect(tab.boxes.first.get_by_role("button", name="Continue")).to_have_count(0)
    await expect(tab.box.get_by_role("button", name="Continue")).to_be_visible()
    await tab.say("!say well again")
    await tab.ended(boxes=3)
    await expect(tab.answer).to_have_text("well again")


async def test_messages_while_a_run_is_live_wait_can_be_moved_and_edited_and_run_in_order(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say('!call t__gate {"name": "waiting"}')
    await tab.status("running")
    await expect(tab.send_button).to_have_text("Queue")
    waiting = tab.page.locator("[data-followup=waiting]")
    for count, text in enumerate(("!say last", "!say first", "!say never"), 1):
        await tab.say(text)
        await expect(waiting).to_have_count(count)
    await waiting.nth(2).get_by_role("button", name="Remove").click()
    await expect(waiting).to_have_count(2)
    await waiting.nth(0).get_by_role("button", name="Move down").click()
    await expect(waiting.nth(1)).to_contain_text("!say last")
    await expect(waiting.nth(1).get_by_role("button", name="Move up")).to_be_focused()
    await waiting.nth(1).get_by_role("button", name="Edit").click()
    await tab.page.get_by_role("textbox", name="Text of the waiting message").fill("!say edited")
    await tab.page.get_by_role("button", name="Save").click()
    await expect(waiting.nth(1)).to_contain_text("!say edited")
    open_gate(shared_server, "waiting")
    await tab.ended(boxes=3)
    await expect(tab.answers).to_have_text([re.compile("waiting is open"), "first", "edited"])
    await expect(waiting).to_have_count(0)
    await expect(tab.send_button).to_have_text("Send")


async def test_a_message_held_back_by_a_stop_is_sent_or_discarded_by_hand(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say("!tokens 400 20")
    await tab.status("running")
    await tab.say("!say the held one")
    await tab.say("!say another")
    await expect(tab.page.locator("[data-followup=waiting]")).to_have_count(2)
    await tab.box.get_by_role("button", name="Stop").click()
    await tab.ended("cancelled")
    held = tab.page.locator("[data-followup=held]")
    await expect(held).to_have_count(2)
    await expect(tab.box).to_contain_text("Not sent, because the run ended first")
    await held.nth(1).get_by_role("button", name="Discard").click()
    await expect(held).to_have_count(1)
    await held.get_by_role("button", name="Send").click()
    await tab.ended(boxes=2)
    await expect(tab.answer).to_have_text("the held one")
    await expect(held).to_have_count(0)


async def test_a_send_whose_answer_is_lost_keeps_the_text_and_is_not_done_twice(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    tab.may_lose_server = tab.may_be_refused = True
    await tab.say("!say first")
    await tab.ended()
    keys: list[str | None] = []

    async def lose_answer(route: Route) -> None:
        keys.append(route.request.headers.get("idempotency-key"))
        if len(keys) == 1:
            await route.fetch()  # the server does it, the browser never hears of it
            await route.abort("connectionreset")
        else:
            await route.continue_()

    await tab.page.route("**/v1/conversations/*/messages", lose_answer)
    await tab.composer.fill("!say once only")
    await tab.composer.press("Enter")
    await expect(tab.page.get_by_role("alert")).to_contain_text("Your text is kept here")
    await expect(tab.composer).to_have_value("!say once only")
    await tab.page.reload()
    await expect(tab.composer).to_have_value("!say once only")
    await tab.ended(boxes=2)
    await tab.composer.press("Enter")
    await expect(tab.composer).to_have_value("")
    await tab.say("!say last")
    await tab.ended(boxes=3)
    assert keys[0] is not None
    assert keys[0] == keys[1]
    assert keys[2] != keys[1]
    await expect(tab.page.get_by_role("article", name="You")).to_have_text(
        ["!say first", "!say once only", "!say last"]
    )


async def test_an_impatient_double_send_makes_one_message(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    sent: list[Request] = []
    tab.page.on(
        "request", lambda r: sent.append(r) if r.method == "POST" and r.url.endswith("/messages") else None
    )
    await tab.composer.fill("!say one")
    await tab.page.evaluate(
        "() => { const form = document.querySelector('form.compose'); form.requestSubmit(); form.requestSubmit(); }"
    )
    await tab.ended()
    assert len(sent) == 1
    await expect(tab.page.get_by_role("article", name="You")).to_have_count(1)


async def test_a_running_tool_shows_in_the_box_and_in_the_history_and_its_result_after_it(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say('!say Let me see.\n!call t__gate {"name": "shown"}\n!say There it is.')
    call = tab.page.locator("details")
    await expect(tab.box.locator(".what")).to_contain_text("t__gate")
    await expect(tab.box.locator("dd").first).to_contain_text("t__gate name = shown · since")
    await expect(call.locator("summary")).to_contain_text("running")
    await expect(tab.answers).to_have_text(["Let me see."])
    open_gate(shared_server, "shown")
    await tab.ended()
    await expect(call.locator("summary")).to_contain_text("done")
    await expect(tab.answers).to_have_text(["Let me see.", "There it is."])
    await expect(tab.box.locator("dl")).to_have_count(0)  # it has closed to its line


async def test_tool_calls_show_name_arguments_and_result_with_hidden_characters_visible(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say('!call nowhere__tool {"path": "report\\u202egpj.exe", "deep": {"n": 1}}\n!say after')
    await tab.ended()
    call = tab.page.locator("details").first
    await expect(call.locator("summary")).to_contain_text("nowhere__tool")
    await expect(call.locator("summary .hidden-char")).to_have_text("U+202E")
    await call.locator("summary").click()
    await expect(call.get_by_role("region", name="Arguments")).to_contain_text('"deep": {')
    await expect(call.get_by_role("region", name="Result")).not_to_be_empty()
    await tab.box.get_by_role("button", name=re.compile("step", re.IGNORECASE)).click()
    step = tab.box.get_by_role("listitem").filter(has=tab.page.get_by_text("nowhere__tool", exact=True))
    await expect(step).to_contain_text("failed")


async def test_markdown_is_drawn_and_nothing_of_it_is_loaded_or_run(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say(
        "# Title **bold** <img src=https://evil.example/x.png onerror=alert(1)> "
        "![pixel](https://evil.example/p.png) [site](https://example.org/a) [bad](javascript:alert(1)) `code`"
    )
    await tab.ended()
    answer = tab.answer
    await expect(answer.get_by_role("heading")).to_contain_text("Title bold")
    await expect(answer.locator("strong")).to_have_text("bold")
    await expect(answer.locator("img")).to_have_count(0)
    await expect(answer).to_contain_text("<img src=https://evil.example/x.png")
    await expect(answer.get_by_role("link", name="image: pixel")).to_have_attribute(
        "rel", re.compile("noreferrer")
    )
    await expect(answer.get_by_role("link", name="site")).to_have_attribute("href", "https://example.org/a")
    await expect(answer.get_by_role("link", name="bad")).to_have_count(0)


async def test_rename_export_and_delete_a_conversation(shared_server: ServeProcess, open_tab: Open) -> None:
    tab = await open_tab(shared_server)
    await tab.say("!say to be renamed")
    await tab.ended()
    await tab.column.locator("li.on").hover()
    await tab.column.locator("li.on").get_by_role("button", name="Actions for").click()
    await expect(tab.page.get_by_role("menuitem", name="Rename")).to_be_focused()
    await expect(tab.page.get_by_role("menuitem", name="Export")).to_have_attribute(
        "href", re.compile("format=md")
    )
    await tab.page.keyboard.press("Enter")
    await tab.page.get_by_role("textbox", name="Title").fill("A better name")
    await tab.page.keyboard.press("Enter")
    await expect(tab.column.get_by_role("link", name="A better name")).to_be_visible()
    await expect(tab.page).to_have_title(re.compile("A better name"))
    gone = tab.page.url
    await tab.column.locator("li.on").get_by_role("button", name="Actions for").click()
    await tab.page.get_by_role("menuitem", name="Delete").click()
    await tab.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(tab.column.get_by_role("link", name="A better name")).to_have_count(0)
    await expect(tab.page.get_by_role("heading", name="Start a conversation")).to_be_visible()
    tab.may_be_refused = True
    await tab.page.goto(gone)
    await expect(tab.page.get_by_role("heading", name="There is no such conversation")).to_be_visible()


async def test_what_changed_elsewhere_is_marked_until_it_is_looked_at(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say("!say here")
    await tab.ended()
    here = tab.column.locator("li.on")
    other = await tab.post("/v1/conversations", {"title": "Somewhere else"})
    await tab.post(f"/v1/conversations/{other['id']}/messages", {"content": "!say there"})
    there = tab.column.get_by_role("link", name="Somewhere else")
    await expect(there).to_contain_text("new")
    await expect(here).not_to_contain_text("new")
    async with tab.page.expect_response(lambda r: r.request.method == "PATCH") as seen:
        await there.click()
    assert (await seen.value).ok
    await expect(there).not_to_contain_text("new")
    await tab.page.goto(tab.base)
    await expect(there).to_be_visible()
    await expect(there).not_to_contain_text("new")
