"""Questions to a person: cards that show everything, forms, decisions on several devices, and the list of all."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Route, expect

from dromos.testing.processes import ServeProcess
from tests.web.conftest import Open
from tests.web.looks import faults
from tests.web.lossy import LossyProxy
from tests.web.puppet import Puppet, Stage
from tests.web.tab import WAIT_MS, Tab

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

Json = dict[str, Any]

SCHEMA: Json = {
    "type": "object",
    "required": ["project", "priority"],
    "properties": {
        "project": {"type": "string", "title": "Project"},
        "priority": {"enum": ["low", "normal", "high"], "default": "normal"},
        "days": {"type": "integer", "minimum": 1, "description": "Days from today"},
        "notify": {"type": "boolean", "title": "Tell the team"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "owner": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    },
}


@pytest_asyncio.fixture(loop_scope="session")
async def stage(shared_server: ServeProcess) -> AsyncIterator[Stage]:
    async with Stage(shared_server.url) as stage:
        yield stage


async def asked(stage: Stage, *requests: Json, title: str = "Asks") -> Puppet:
    """A run that waits for answers to these."""
    puppet = await stage.begin(title)
    await puppet.ask(*requests)
    return puppet


def cards(tab: Tab) -> Locator:
    return tab.box.locator("section.card")


async def decisions(stage: Stage) -> list[Json]:
    """What the run is told when it is claimed again."""
    puppet = await stage.claim()
    await puppet.end()
    return [one["decision"] for one in puppet.decisions]


async def test_an_approval_shows_all_arguments_and_runs_exactly_what_is_shown(
    shared_server: ServeProcess, stage: Stage, open_tab: Open
) -> None:
    body = "Dear all,\n\n" + "and so on " * 400 + "the very end"
    arguments = {
        "to": ["a@example.org", "b@example.org"],
        "body": body,
        "file\u202ename": "report\u202egpj.exe",
        "meta": {f"key {i}": i for i in range(40)},
    }
    puppet = await asked(
        stage,
        {"kind": "approval", "prompt": "Send it?", "tool": "mail__send\u200b", "arguments": arguments},
    )
    tab = await open_tab(shared_server, f"/c/{puppet.conversation}", viewport={"width": 390, "height": 844})
    card = cards(tab)
    await expect(card).to_contain_text("Send it?")
    assert await card.locator(".args dt").all_inner_texts() == ["to", "body", "fileU+202Ename", "meta"]
    values = card.locator(".args dd")
    await expect(values.nth(0)).to_have_text('["a@example.org","b@example.org"]')
    await expect(values.nth(1)).to_contain_text("the very end")
    await expect(values.nth(2).locator(".hidden-char")).to_have_text("U+202E")
    await expect(values.nth(3)).to_contain_text('"key 39": 39')
    await expect(card.locator(".tool .hidden-char")).to_have_text("U+200B")
    scrolls = await values.nth(1).evaluate("(e) => [e.scrollHeight > e.clientHeight, e.clientHeight < 200]")
    assert scrolls == [True, True]
    await expect(card).to_contain_text(re.compile(r"runs exactly what is shown · #[0-9a-f]{6} · no expiry"))
    assert await faults(tab.page) == []

    name = await card.get_attribute("data-request")
    sent: list[Json] = []

    async def hold(route: Route) -> None:
        sent.append(route.request.post_data_json)
        assert await card.get_by_role("button", name="Approve", exact=True).is_disabled()
        assert await card.get_by_role("button", name="Deny", exact=True).is_disabled()
        assert await tab.box.get_attribute("data-status") == "waiting_input"  # nothing is guessed
        await route.continue_()

    await tab.page.route("**/v1/requests/*/decision", hold)
    approve = card.get_by_role("button", name="Approve", exact=True)
    await approve.focus()
    await tab.page.keyboard.press("Enter")
    await expect(card).to_have_count(0)
    await expect(tab.box.locator(".what")).to_contain_text("decided")
    await expect(tab.box.locator("button.toggle")).to_be_focused()
    request = (await stage.call("GET", f"/v1/requests/{name}")).json()
    assert request["arguments"] == arguments
    assert sent == [
        {
            "decision": "approve",
            "request_version": 1,
            "arguments_sha256": request["arguments_sha256"],
        }
    ]
    assert [one["decision"] for one in await decisions(stage)] == ["approve"]


async def test_the_second_click_of_a_double_click_decides_nothing_that_moved_under_it(
    shared_server: ServeProcess, stage: Stage, open_tab: Open
) -> None:
    pay: Json = {"kind": "approval", "prompt": "Pay?", "tool": "pay", "arguments": {"n": 1}}
    puppet = await asked(stage, pay, {**pay, "arguments": {"n": 2}})
    tab = await open_tab(shared_server, f"/c/{puppet.conversation}")
    approve = cards(tab).first.get_by_role("button", name="Approve", exact=True)
    place = await approve.bounding_box()
    assert place is not None
    x, y = place["x"] + 20, place["y"] + 10
    await tab.page.mouse.click(x, y)
    await expect(cards(tab)).to_have_count(1)
    moved = await approve.bounding_box()
    assert moved is not None and moved["y"] == pytest.approx(place["y"], abs=8)  # it lies under the pointer
    await tab.page.mouse.down(click_count=2)
    await tab.page.mouse.up(click_count=2)
    await expect(tab.box.locator(".what")).to_have_text("approve pay")
    await expect(approve).to_be_enabled()
    await tab.page.mouse.click(x, y)
    await expect(cards(tab)).to_have_count(0)
    assert [one["decision"] for one in await decisions(stage)] == ["approve", "approve"]


async def test_a_denial_carries_its_reason_to_the_agent(
    shared_server: ServeProcess, stage: Stage, open_tab: Open
) -> None:
    puppet = await asked(
        stage, {"kind": "approval", "prompt": "Pay?", "tool": "pay", "arguments": {"amount": 41}}
    )
    tab = await open_tab(shared_server, f"/c/{puppet.conversation}")
    await cards(tab).get_by_role("button", name="Deny", exact=True).click()
    why = cards(tab).get_by_role("textbox", name="Why not?")
    await expect(why).to_be_focused()
    await tab.page.keyboard.press("Escape")
    await expect(why).to_have_count(0)
    await cards(tab).get_by_role("button", name="Deny", exact=True).click()
    await why.fill("not this week")
    await cards(tab).get_by_role("button", name="Deny", exact=True).click()
    await expect(cards(tab)).to_have_count(0)
    assert await decisions(stage) == [{"decision": "deny", "answer": None, "comment": "not this week"}]


async def test_questions_are_answered_by_a_button_by_text_or_by_a_form_of_their_schema(
    shared_server: ServeProcess, stage: Stage, open_tab: Open
) -> None:
    puppet = await asked(
        stage,
        {
            "kind": "question",
            "prompt": "Which?",
            "options": ["a", {"value": {"n": 2}, "label": "the second"}],
        },
        {"kind": "question", "prompt": "What shall it be called?"},
        {"kind": "question", "prompt": "Where should it go?", "schema": SCHEMA},
        {"kind": "question", "prompt": "Free form", "schema": {"type": "object", "minProperties": 1}},
    )
    tab = await open_tab(shared_server, f"/c/{puppet.conversation}")
    await expect(cards(tab)).to_have_count(4)
    assert await faults(tab.page) == []

    def card(prompt: str) -> Locator:
        return cards(tab).filter(has=tab.page.get_by_role("heading", name=prompt))

    await card("Which?").get_by_role("button", name="the second").click()
    await expect(cards(tab)).to_have_count(3)
    await card("called").get_by_role("textbox").fill("Notes on logs")
    await tab.page.keyboard.press("Enter")
    await expect(cards(tab)).to_have_count(2)

    form = card("Where")
    await form.get_by_label("days").fill("0")
    await form.get_by_role("button", name="Answer", exact=True).click()
    await expect(form.get_by_role("textbox", name="Project")).to_be_focused()
    await expect(form.get_by_role("alert")).to_have_text(["✕ This is needed.", "✕ At least 1."])
    assert await faults(tab.page) == []
    await form.get_by_role("textbox", name="Project").fill("storage-notes")
    await form.get_by_label("priority").select_option(label="high")
    await form.get_by_label("days").fill("3")
    await form.get_by_role("checkbox", name="Tell the team").check()
    await form.get_by_role("button", name="Add").click()
    await form.get_by_role("textbox", name="labels 1").fill("wal")
    await form.get_by_role("textbox", name="name").fill("Ann")
    await form.get_by_role("button", name="Answer", exact=True).click()
    await expect(cards(tab)).to_have_count(1)

    free = card("Free form")
    field = free.get_by_role("textbox", name="Answer as JSON")
    tab.may_be_refused = True
    await field.fill("{}")
    await free.get_by_role("button", name="Answer", exact=True).click()
    await expect(free.get_by_role("alert").first).to_be_visible()  # the server has the last word
    await field.fill('{"x": 1}')
    await free.get_by_role("button", name="Answer", exact=True).click()
    await expect(cards(tab)).to_have_count(0)

    answers = [one["answer"] for one in await decisions(stage)]
    assert sorted(answers, key=str) == sorted(
        [
            {"n": 2},
            "Notes on logs",
            {
                "project": "storage-notes",
                "priority": "high",
                "days": 3,
                "notify": True,
                "labels": ["wal"],
                "owner": {"name": "Ann"},
            },
            {"x": 1},
        ],
        key=str,
    )


async def test_whoever_is_second_is_told_who_decided_what_and_when(
    shared_server: ServeProcess, stage: Stage, open_tab: Open
) -> None:
    puppet = await asked(stage, {"kind": "approval", "prompt": "Pay?", "tool": "pay", "arguments": {"n": 1}})
    tab = await open_tab(shared_server, f"/c/{puppet.conversation}")
    tab.may_be_refused = True
    other = await open_tab(shared_server, f"/c/{puppet.conversation}", viewport={"width": 390, "height": 844})
    await expect(cards(other)).to_have_count(1)

    async def let_the_other_be_first(route: Route) -> None:
        await cards(other).get_by_role("button", name="Deny", exact=True).click()
        await cards(other).get_by_role("textbox").fill("too early")
        await cards(other).get_by_role("button", name="Deny", exact=True).click()
        await expect(cards(other)).to_have_count(0)
        await route.continue_()

    await tab.page.route("**/v1/requests/*/decision", let_the_other_be_first)
    await cards(tab).get_by_role("button", name="Approve", exact=True).click()
    await expect(cards(tab)).to_have_count(0)
    told = tab.box.locator("[data-settled]")
    await expect(told).to_contain_text(re.compile(r"Denied by \w+ at \d\d:\d\d · “too early”"))
    await told.get_by_role("button", name="Close").click()
    await expect(told).to_have_count(0)
    assert [one["decision"] for one in await decisions(stage)] == ["deny"]


async def test_a_card_that_was_closed_while_the_device_was_away_is_gone_when_it_is_back(
    shared_server: ServeProcess, stage: Stage, open_tab: Open
) -> None:
    pay = {"kind": "approval", "prompt": "Pay?", "tool": "pay", "arguments": {"n": 1}}
    puppet = await asked(stage, pay)
    async with LossyProxy(shared_server.port) as proxy:
        away = await open_tab(proxy, f"/c/{puppet.conversation}")
        away.may_lose_server = away.may_be_refused = True
        here = await open_tab(shared_server, f"/c/{puppet.conversation}")
        lost = away.page.get_by_text("The server does not answer")
        told = away.box.locator("[data-settled]")

        await expect(cards(away)).to_have_count(1)
        proxy.cut()
        await expect(lost).to_be_visible(timeout=WAIT_MS)
        await cards(here).get_by_role("button", name="Approve", exact=True).click()
        await expect(cards(here)).to_have_count(0)
        proxy.restore()
        await expect(cards(away)).to_have_count(0, timeout=WAIT_MS)
        await expect(told).to_contain_text(re.compile(r"Approved by \w+ at \d\d:\d\d"))
        await told.get_by_role("button", name="Close").click()

        await (await stage.claim()).ask(pay)
        await expect(cards(away)).to_have_count(1)

        async def let_the_stop_be_first(route: Route) -> None:
            await here.box.get_by_role("button", name="Stop", exact=True).click()
            await here.ended("cancelled")
            await route.continue_()

        await away.page.route("**/v1/requests/*/decision", let_the_stop_be_first)
        await cards(away).get_by_role("button", name="Approve", exact=True).click()
        await expect(told).to_contain_text("Withdrawn")
        for each in (away, here):
            await expect(cards(each)).to_have_count(0)
            await each.page.reload()
            await each.ended("cancelled")
            await expect(each.box.locator("section.card, [data-settled]")).to_have_count(0)
        await away.close()


@pytest.mark.case("P143")
async def test_what_needs_a_person_is_shown_and_decided_on_the_first_screen_and_leads_to_its_place(
    shared_server: ServeProcess, stage: Stage, open_tab: Open
) -> None:
    refund = await asked(
        stage,
        {"kind": "approval", "prompt": "Refund it?", "tool": "refund", "arguments": {"order": 8831}},
        title="Refund for order 8831",
    )
    import_ = await asked(
        stage, {"kind": "question", "prompt": "Which day?", "options": ["today"]}, title="Nightly import"
    )
    tab = await open_tab(shared_server)
    await expect(tab.page).to_have_title(re.compile(r"^\(2\)"))
    list = tab.page.get_by_role("region", name=re.compile("^Needs you"))
    await expect(list.locator("section.card")).to_have_count(2)
    assert await faults(tab.page) == []
    item = tab.column.get_by_role("link", name="Refund for order 8831")
    await expect(item).to_contain_text("approve refund · waits as long as it takes")
    await list.get_by_role("button", name="today").click()
    await expect(list.locator("section.card")).to_have_count(1)
    await expect(tab.column.get_by_role("link", name="Nightly import")).not_to_contain_text("Needs you")

    await item.click()
    await expect(tab.page).to_have_url(re.compile(f"/c/{refund.conversation}$"))
    approve = cards(tab).get_by_role("button", name="Approve", exact=True)
    await expect(approve).to_be_focused()
    await expect(approve).to_be_in_viewport()

    await tab.page.goto(tab.base)
    await expect(list.locator("section.card")).to_have_count(1)
    await tab.composer.blur()
    await tab.page.keyboard.press("a")
    await expect(list.get_by_role("button", name="Approve", exact=True)).to_be_focused()
    request = await list.locator("section.card").get_attribute("data-request")
    deep = await open_tab(shared_server, f"/c/{refund.conversation}#request-{request}", beside=tab)
    await expect(cards(deep).get_by_role("button", name="Approve", exact=True)).to_be_focused()
    await deep.page.keyboard.press("Enter")
    await expect(cards(deep)).to_have_count(0)
    await expect(list).to_have_count(0)  # handled here, gone there
    await expect(tab.page).to_have_title(re.compile(r"^Dromos"))
    for puppet in (await stage.claim(), await stage.claim()):
        assert puppet.conversation in (refund.conversation, import_.conversation)
        await puppet.end()


FOCUSABLE = """() => [...document.querySelectorAll(
    'button, a[href], input, textarea, select, summary, [tabindex="0"]')]
  .filter((e) => !e.matches(':disabled') && e.checkVisibility({ visibilityProperty: true }))
  .map((e, i) => (e.dataset.walk = String(i)))"""

UNREACHED = """(reached) => [...document.querySelectorAll('[data-walk]')]
  .filter((e) => !reached.includes(e.dataset.walk)).map((e) => e.outerHTML.slice(0, 80))"""

FOCUSED = """() => {
  const e = document.activeElement;
  const style = getComputedStyle(e);
  const framed = e.closest('form.compose');
  const seen = framed && e.matches('textarea')
    ? getComputedStyle(framed).borderTopColor !== getComputedStyle(framed.querySelector('.row')).borderTopColor
    : style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
  return [e.dataset.walk ?? '', seen ? '' : e.outerHTML.slice(0, 80)];
}"""


async def test_tab_reaches_every_button_and_field_and_the_focus_is_always_seen(
    shared_server: ServeProcess, stage: Stage, open_tab: Open
) -> None:
    puppet = await stage.begin("Keys")
    await puppet.show(plan=[{"id": "1", "title": "Look", "status": "active"}])
    for text in ("first", "second"):
        await stage.send(puppet.conversation, text)
    await puppet.ask(
        {"kind": "approval", "prompt": "Pay?", "tool": "pay", "arguments": {"note": "long " * 100}},
        {"kind": "question", "prompt": "Where should it go?", "schema": SCHEMA},
    )
    tab = await open_tab(shared_server, f"/c/{puppet.conversation}")
    await expect(cards(tab)).to_have_count(2)
    await expect(tab.page.locator("[data-followup=waiting]")).to_have_count(2)
    await tab.page.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0); }")
    wanted = set(await tab.page.evaluate(FOCUSABLE))
    assert len(wanted) > 25
    reached: set[str] = set()
    unseen: list[str] = []
    for _ in range(len(wanted) + 10):
        await tab.page.keyboard.press("Tab")
        walk, fault = await tab.page.evaluate(FOCUSED)
        reached.add(walk)
        if walk and fault:
            unseen.append(fault)
        if wanted <= reached:
            break
    left = await tab.page.evaluate(UNREACHED, list(reached))
    assert left == []
    assert unseen == []
