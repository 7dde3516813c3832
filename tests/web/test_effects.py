"""What may have an effect outside, in a person's hands: edited, allowed for good, stopped, of unknown outcome."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from playwright.async_api import Locator, Request, expect

from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import eventually
from tests.web.conftest import Open, open_gate
from tests.web.looks import faults
from tests.web.tab import WAIT_MS, Tab

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

Json = dict[str, Any]
PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}


def cards(tab: Tab) -> Locator:
    return tab.box.locator("section.card")


def button(place: Locator, name: str) -> Locator:
    return place.get_by_role("button", name=name, exact=True)


def stations(tab: Tab) -> Locator:
    return tab.box.get_by_role("list", name="The way of the stop").get_by_role("listitem")


def decisions_of(tab: Tab) -> list[Json]:
    """The decisions that this tab sends from now on."""
    sent: list[Json] = []

    def note(request: Request) -> None:
        if request.url.endswith("/decision"):
            sent.append(request.post_data_json)

    tab.page.on("request", note)
    return sent


async def test_arguments_are_edited_in_the_form_of_the_tool_and_the_other_device_is_told(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say('!call t__sleep {"s": 0.1}\n!say rested')
    await tab.ended("waiting_input")
    phone = await open_tab(shared_server, f"/c/{tab.conversation}", **PHONE)
    await expect(cards(phone)).to_have_count(1)
    sent = decisions_of(tab)

    card = cards(tab)
    await expect(card).to_contain_text("runs exactly what is shown")
    await expect(tab.page.locator("details").first).to_contain_text("needs you")  # not: running
    await button(card, "Edit").focus()
    await tab.page.keyboard.press("Enter")
    seconds = card.get_by_role("textbox", name="S", exact=True)
    await expect(seconds).to_be_focused()
    await expect(seconds).to_have_value("0.1")
    await expect(card.get_by_role("textbox", name="Progress Every")).to_have_value(
        ""
    )  # a default is no entry
    assert await faults(tab.page) == []
    await seconds.press("Escape")
    await expect(button(card, "Edit")).to_be_focused()
    await tab.page.keyboard.press("Enter")
    await seconds.fill("long")
    await seconds.press("Enter")
    await button(card, "Approve with these").click()
    await expect(card.get_by_role("alert")).to_have_text("✕ A number is needed.")
    await expect(seconds).to_be_focused()
    assert sent == []

    await button(cards(phone), "Deny").click()
    writing = cards(phone).get_by_role("textbox")
    await writing.fill("not so")
    await seconds.fill("0.2")
    await button(card, "Approve with these").click()
    await expect(cards(phone)).to_have_count(0)
    told = phone.box.locator("[data-settled]")
    await expect(told).to_contain_text(re.compile(r"Approved with other arguments by \w+ at \d\d:\d\d"))
    await expect(told.locator("dl.args")).to_have_text(re.compile(r"s\s*0.2"))
    spoken = phone.page.get_by_role("status").filter(has_text="Approved with other arguments")
    await expect(spoken).to_have_count(1)
    await expect(told.get_by_role("button", name="Close")).to_be_focused()  # it was in the card that went
    assert await faults(phone.page) == []
    await tab.ended()
    await expect(tab.box.locator("[data-settled]")).to_have_count(0)
    assert [(one["decision"], one["arguments"]) for one in sent] == [("edit", {"s": 0.2})]
    await tab.page.locator("details summary").first.click()
    await expect(tab.page.locator("details").first).to_contain_text("slept 0.2 s")
    await phone.page.reload()
    await phone.ended()
    await expect(cards(phone)).to_have_count(0)


async def test_leave_for_good_is_given_in_two_explicit_sizes_listed_and_taken_back(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    call = '!call t__sleep {"s": 0.05}\n!say rested'
    tab = await open_tab(shared_server, **PHONE)
    await tab.say(call)
    await tab.ended("waiting_input")
    sent = decisions_of(tab)
    card = cards(tab)
    await button(card, "Always allow…").focus()
    await tab.page.keyboard.press("Enter")
    await expect(button(card, "Cancel")).to_be_focused()  # a key held down allows nothing
    choices = card.get_by_role("group", name="Always allow").get_by_role("button")
    await expect(choices).to_have_text(
        [re.compile("exactly this call"), re.compile("every call of t__sleep"), "Cancel"]
    )
    assert await faults(tab.page) == []
    await choices.first.click()
    await tab.ended()
    assert [(one["decision"], one["grant"]) for one in sent] == [("approve", "call")]
    chip = button(tab.page.locator("main"), "Always allowed here: 1")
    await expect(chip).to_be_visible()
    await tab.say(call)
    await tab.ended("completed", boxes=2)  # it was not asked

    await tab.page.reload()
    await chip.focus()
    await tab.page.keyboard.press("Enter")
    listed = tab.page.get_by_role("dialog", name="Always allowed here")
    await expect(listed).to_be_visible()
    await tab.page.keyboard.press("Escape")
    await expect(chip).to_be_focused()
    await tab.page.keyboard.press("Enter")
    await expect(listed.locator("[data-grant]")).to_contain_text("t__sleep exactly this call")
    await listed.locator("summary").click()
    await expect(listed.locator("dl.args")).to_have_text(re.compile(r"s\s*0.05"))
    assert await faults(tab.page) == []
    await listed.get_by_role("button", name="Revoke: t__sleep").click()
    await expect(listed.locator("[data-grant]")).to_have_count(0)
    await expect(button(listed, "Close")).to_be_focused()
    await tab.page.keyboard.press("Escape")
    await expect(listed).to_have_count(0)
    await expect(chip).to_have_count(0)

    await tab.say(call)
    await tab.ended("waiting_input", boxes=3)
    other = await open_tab(shared_server, f"/c/{tab.conversation}")
    await button(other.box, "Stop").click()
    await tab.ended("cancelled", boxes=3)
    await expect(cards(tab)).to_have_count(0)  # void: there is nothing to answer, here or after a reload
    await tab.page.reload()
    await tab.ended("cancelled", boxes=3)
    await expect(cards(tab)).to_have_count(0)
    await expect(tab.page).to_have_title(re.compile(r"^(?!\()"))


@pytest.mark.slow(60)
async def test_of_a_call_that_the_policy_forbids_by_now_the_card_offers_to_deny_it(
    server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(server)
    tab.may_lose_server = True
    await tab.say('!call t__sleep {"s": 0.05}\n!say so be it')
    await tab.ended("waiting_input")
    await expect(tab.box.locator(".what")).to_have_text("approve t__sleep")
    settings = server.data.parent / "dromos.toml"
    before = settings.read_text()
    try:
        settings.write_text(before.replace('policy = "ask"', 'policy = "deny"'))
        server.kill()
        await server.restart()
        await button(cards(tab), "Approve").click()
        await expect(cards(tab)).to_contain_text("does not allow t__sleep any more", timeout=WAIT_MS)
        await expect(tab.box.locator(".what")).to_have_text("deny t__sleep")
        await expect(tab.column.get_by_role("link")).to_contain_text("deny t__sleep · waits")
        await expect(cards(tab).get_by_role("button")).to_have_text(["Deny"])
        await expect(cards(tab)).to_contain_text("nothing is called")
        await expect(cards(tab)).not_to_contain_text("runs exactly what is shown")
        assert await faults(tab.page) == []
        await button(cards(tab), "Deny").click()
        await button(cards(tab), "Deny").click()
        await tab.ended()
        await expect(tab.answer).to_have_text("so be it")
        # What waited for a person is no further attempt, and the line has room for what counts.
        await expect(tab.box.locator(".line")).not_to_contain_text("attempt")
    finally:
        settings.write_text(before)
        server.kill()
        await server.restart()


@pytest.mark.slow(60)
async def test_a_stop_shows_its_way_and_what_may_have_happened(server: ServeProcess, open_tab: Open) -> None:
    tab = await open_tab(server)
    phone = await open_tab(server, **PHONE)
    for name, outcome in (("opened", "ended after"), ("shut", "not waited for any longer after")):
        await tab.say(f'!call t__gate {{"name": "{name}"}}\n!say on')
        await tab.status("running")
        await expect(tab.box.locator(".what")).to_contain_text("t__gate")
        await phone.page.goto(tab.page.url)
        stop = button(tab.box, "Stop")
        await stop.click()
        for each in (tab, phone):
            await each.status("cancelling")
            await expect(each.box.locator(".line .what")).to_have_text(
                re.compile(r"^waiting for t__gate to finish, \d s of 4 s$"), timeout=WAIT_MS
            )
            await expect(stations(each)).to_have_text(
                [
                    re.compile(r"done: accepted \d\d:\d\d by you"),
                    re.compile(r"done: delivered after"),
                    re.compile(r"now: waiting for t__gate to finish, \d s of 4 s"),
                    re.compile(r"next: then it is not waited for any longer"),
                ]
            )
            assert await faults(each.page) == []
        await expect(stop).to_have_count(0)
        if name == "opened":
            open_gate(server, name)
        for each in (tab, phone):
            await each.status("cancelled")
            line = each.box.locator(".line .what")
            if name == "opened":
                await expect(line).to_have_text(re.compile("^by you(?!.*may have happened)"))
                if each is tab:
                    await each.box.locator("button.toggle").press("Enter")
                else:  # on a phone the whole first line opens it, the time too
                    await each.box.locator(".line .num").first.click(force=True)
            else:
                await expect(line).to_have_text(re.compile("^by you.* · t__gate may have happened$"))
                if each is tab:
                    cut = await line.evaluate("(e) => e.scrollWidth > e.clientWidth")
                    assert not cut, "what may have happened is not cut off"
                await expect(each.box.locator("ul.unknown li")).to_contain_text("t__gate may have happened")
                await expect(each.page.locator("details").last).to_contain_text("may have happened")
                assert await faults(each.page) == []
            await expect(stations(each).last).to_contain_text(outcome)


@pytest.mark.slow(90)
async def test_of_a_call_that_died_with_its_worker_a_person_says_what_became_of_it(
    server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(server)
    tab.may_lose_server = True
    names = ("again", "by-hand", "left")
    begun = server.data.parent / "effects.begun"
    before = begun.read_text().count("\n") if begun.exists() else 0
    await tab.say("\n".join(f'!call t__gate {{"name": "{name}"}}' for name in names) + "\n!say on it goes")
    await tab.status("running")

    async def all_begun() -> bool:
        return begun.exists() and begun.read_text().count("\n") == before + len(names)

    await eventually(all_begun, what="the begin of the calls")
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=20) as api:
        server.kill()
        await server.wait_exit()
        await server.start()
        await tab.ended("waiting_input")
        phone = await open_tab(server, f"/c/{tab.conversation}", **PHONE)
        phone.may_lose_server = True
        for each in (tab, phone):
            await expect(cards(each)).to_have_count(len(names))
            assert await faults(each.page) == []
        sent = decisions_of(tab)

        def card(name: str) -> Locator:
            return cards(tab).filter(has=tab.page.locator("dd", has_text=re.compile(f"^{name}$")))

        again = card("again")
        await expect(again).to_contain_text(re.compile(r"t__gate was under way .* It may have happened"))
        await expect(again).to_contain_text(re.compile(r"noticed at \d\d:\d\d"))
        await expect(again.get_by_role("button", name="Retry…")).to_have_accessible_description(
            re.compile("Call it once more, with exactly these arguments")
        )
        await button(again, "Retry…").focus()
        await tab.page.keyboard.press("Enter")
        await expect(button(again, "Cancel")).to_be_focused()
        await expect(again).to_contain_text("If it did happen the first time, it then happens twice")
        await tab.page.keyboard.press("Escape")
        await expect(button(again, "Retry…")).to_be_focused()
        assert sent == []

        await button(card("left"), "Skip").click()
        await expect(cards(phone)).to_have_count(2)
        await expect(phone.box.locator("[data-settled]")).to_contain_text(
            re.compile(r"t__gate name = left\s*Skipped by")
        )
        calls = tab.page.locator("details summary .num")
        await expect(calls).to_have_text(["needs you", "needs you", "waits"])  # the run is parked
        await button(card("by-hand"), "Mark done…").click()
        await card("by-hand").get_by_role("textbox").fill("opened by hand")
        await button(card("by-hand"), "Mark done").click()
        await expect(cards(tab)).to_have_count(1)
        open_gate(server, "again")
        await button(again, "Retry…").click()
        await button(again, "Yes, call it again").click()
        await tab.ended()
        await expect(tab.answer).to_have_text("on it goes")
        assert [one["decision"] for one in sent] == ["skip", "mark_done", "retry"]
        said = (await api.get(f"/v1/conversations/{tab.conversation}/messages")).json()["items"]
        results = {one["content"] for one in said if one["role"] == "tool"}
        assert {"again is open", "opened by hand"} < results
        await expect(tab.page.locator("details").last).to_contain_text("may have happened")
