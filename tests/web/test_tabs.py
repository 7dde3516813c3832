"""Tabs of one browser: many of them, whichever way they share a connection, with what is drafted and chosen in each."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest
from playwright.async_api import expect

from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import eventually
from tests.web.conftest import Open
from tests.web.tab import WAIT_MS

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

NO_WORKERS = "delete globalThis.SharedWorker"
NO_LOCKS = NO_WORKERS + "; delete Navigator.prototype.locks"
ASK_SERVER = """async () => {
  const start = performance.now();
  await fetch('/v1/me');
  return performance.now() - start;
}"""


async def streams(server: ServeProcess) -> int:
    """How many event streams the server has open."""
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        found = re.search(r"^dromos_streams_open (\S+)$", (await client.get("/metrics")).text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


async def has_streams(server: ServeProcess, wanted: int) -> None:
    async def fits() -> bool:
        found = await streams(server)
        assert found == wanted
        return True

    await eventually(fits, what=f"{wanted} open streams")


async def running(server: ServeProcess, count: int, text: str = "!tokens 2000 20") -> list[str]:
    """So many conversations with an answer that goes on for long."""
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        made = []
        for number in range(count):
            conversation = (await client.post("/v1/conversations", json={"title": f"talk {number}"})).json()
            path = f"/v1/conversations/{conversation['id']}/messages"
            (await client.post(path, json={"content": text})).raise_for_status()
            made.append(conversation["id"])
    return made


@pytest.mark.slow(90)
@pytest.mark.case("P97")
async def test_eight_tabs_with_a_running_answer_in_each_all_load_and_answer_over_few_connections(
    server: ServeProcess, open_tab: Open
) -> None:
    conversations = await running(server, 8)
    first = await open_tab(server, f"/c/{conversations[0]}")
    tabs = [first, *[await open_tab(server, f"/c/{each}", beside=first) for each in conversations[1:]]]
    for tab in tabs:
        await expect(tab.answer).to_contain_text(re.compile(r"(\w+ ){3}"))
    # Each goes on, those too that have no stream of their own, and the connections left over answer at once.
    before = [len(await tab.answer.inner_text()) for tab in tabs]
    for tab, length in zip(tabs, before, strict=True):
        await expect(tab.answer).to_have_text(re.compile(rf"^[\s\S]{{{length + 20},}}$"), timeout=WAIT_MS)
    took = [await asyncio.gather(*(tab.page.evaluate(ASK_SERVER) for tab in tabs)) for _ in range(3)]
    assert min(map(max, took)) < 1_000, took  # a busy machine may take the processor away from some of them
    assert await streams(server) == 3

    for tab in tabs:
        await tab.hide()
    await has_streams(server, 1)
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        runs = (await client.get("/v1/runs?status=running")).json()["items"]
        for run in runs:
            await client.post(f"/v1/runs/{run['id']}/cancel?wait_s=10", json={})
    await tabs[4].show()
    await tabs[4].ended("cancelled")
    await has_streams(server, 1)


@pytest.mark.full
@pytest.mark.slow(60)
@pytest.mark.parametrize(("without", "while_hidden"), [(NO_WORKERS, 1), (NO_LOCKS, 0)])
async def test_a_browser_without_shared_workers_shares_by_a_tab_or_holds_a_stream_only_while_shown(
    server: ServeProcess, open_tab: Open, without: str, while_hidden: int
) -> None:
    first = await open_tab(server, init=without)
    await first.say("!say one")
    await first.ended()
    second = await open_tab(server, f"/c/{first.conversation}", beside=first)
    third = await open_tab(server, f"/c/{first.conversation}", beside=first)
    shared = while_hidden > 0
    await has_streams(server, 1 if shared else 3)
    await second.say("!say two")
    for tab in (first, second, third):
        await tab.ended(boxes=2)
    # The one that holds the connection for all goes; another takes its place.
    await first.close()
    await third.say("!say three")
    for tab in (second, third):
        await tab.ended(boxes=3)
        await expect(tab.answer).to_have_text("three")
    await has_streams(server, 1 if shared else 2)
    for tab in (second, third):
        await tab.hide()
    await has_streams(server, while_hidden)
    await second.post(f"/v1/conversations/{second.conversation}/messages", {"content": "!say four"})
    await second.show()
    await second.ended(boxes=4)


@pytest.mark.full
async def test_hidden_tabs_follow_over_the_shared_stream_and_read_when_they_are_shown(
    server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(server)
    await tab.say("!say one")
    await tab.ended()
    await tab.say("!tokens 40 20")
    await expect(tab.answer).to_contain_text(re.compile(r"(\w+ ){4}"))
    await tab.hide()
    asked: list[str] = []
    tab.page.on("request", lambda request: request.method == "GET" and asked.append(request.url))
    other = await open_tab(server, f"/c/{tab.conversation}")
    await other.ended(boxes=2)
    await tab.ended(boxes=2)
    await other.say("!say three")
    for each in (other, tab):
        await each.ended(boxes=3)
    assert asked == []
    await tab.show()
    await expect(tab.answers).to_have_text(["one", re.compile("w1 .*w40"), "three"])
    missed = tab.boxes.nth(1)
    await missed.locator("button.toggle").click()
    run = await missed.get_attribute("data-run")
    document = await (await tab.page.request.get(f"{tab.base}/v1/runs/{run}/document")).json()
    wanted = f"{document['version']}.{document['run_version']}"
    await expect(missed).to_have_attribute("data-version", wanted)


@pytest.mark.slow(60)
@pytest.mark.case("P99")
async def test_a_reload_in_mid_answer_shows_all_of_it_so_far_and_keeps_draft_and_choices(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say("!tokens 160 20")
    await tab.choose_way("Steer")
    for words in (16, 80, 144):
        await expect(tab.answer).to_contain_text(re.compile(rf"^(\S+\s+){{{words}}}"), timeout=WAIT_MS)
        await tab.composer.fill(f"typed at {words}")
        before = (await tab.answer.inner_text()).strip()
        await tab.page.reload()
        await expect(tab.answer).to_contain_text(before)
        assert (await tab.answer.inner_text()).startswith(before)
        await expect(tab.composer).to_have_value(f"typed at {words}")
        if words < 144:  # at the end of the answer there is nothing left to steer
            assert await tab.chosen_way() == "Steer"
    await tab.ended()
    said = await tab.page.request.get(f"{tab.base}/v1/conversations/{tab.conversation}/messages")
    whole = (await said.json())["items"][-1]["content"]
    assert (await tab.answer.inner_text()).split() == whole.split()


@pytest.mark.full
async def test_a_draft_and_a_choice_are_the_same_in_a_tab_beside_that_shows_the_same(
    shared_server: ServeProcess, open_tab: Open
) -> None:
    tab = await open_tab(shared_server)
    await tab.say('!call t__gate {"name": "beside"}')
    await tab.status("running")
    beside = await open_tab(shared_server, f"/c/{tab.conversation}", beside=tab)
    await beside.status("running")
    await tab.choose_way("Steer")
    await tab.composer.fill("begun here")
    await expect(beside.composer).to_have_value("begun here")
    assert await beside.chosen_way() == "Steer"
    await beside.composer.fill("begun here, gone on there")
    await expect(tab.composer).to_have_value("begun here, gone on there")
    elsewhere = await open_tab(shared_server, beside=tab)
    await expect(elsewhere.composer).to_have_value("")
    await beside.composer.fill("")
    await expect(tab.composer).to_have_value("")
    await tab.box.get_by_role("button", name="Stop", exact=True).click()
    await tab.ended("cancelled")
