"""The live box in every status: told apart by glyph and word, in light and dark, wide and on a phone.

One conversation is led through the statuses by an adapter and by the scripted model; a phone in the dark watches, in
the full size four tabs. Each status is pictured in `test-artifacts/`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

import hatch_build
from dromos.testing.processes import ServeProcess
from tests.web.conftest import Open, with_tools
from tests.web.looks import faults
from tests.web.lossy import LossyProxy
from tests.web.puppet import AGENT, Puppet, Stage
from tests.web.tab import WAIT_MS, Tab

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PICTURES = hatch_build.ROOT / "test-artifacts"
APPROVAL = {
    "kind": "approval",
    "prompt": "Create this task?",
    "tool": "tasks__create_task",
    "arguments": {"title": "Document log truncation on recovery", "project": "storage-notes"},
}
QUESTION = {"kind": "question", "prompt": "Which project is it for?", "options": ["storage-notes", "release"]}


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


class Audience:
    """Tabs on one conversation: of light and dark, wide and 390 px."""

    def __init__(self, tabs: dict[str, Tab]) -> None:
        self.tabs = tabs
        self.seen: dict[str, str] = {}

    async def sees(self, status: str, glyph: str, word: str, what: str, *, at: Tab | None = None) -> None:
        """All tabs show the newest box so, without a fault; a picture of each is kept."""
        self.seen[f"{glyph} {word}"] = status
        for looks, tab in self.tabs.items():
            line = tab.box.locator(".line")
            await expect(line.locator(".st")).to_have_text(word, timeout=WAIT_MS)
            await expect(line.locator(".glyph")).to_have_text(glyph)
            await expect(line.locator(".what")).to_have_text(re.compile(what), timeout=WAIT_MS)
            await expect(tab.box).to_have_attribute("data-status", status)
            assert await faults(tab.page) == [], f"{word}, {looks}"
            name = word.lower().replace(" ", "-")
            file = PICTURES / f"box-{name}-{looks}.png"
            assert len(await tab.page.screenshot(path=file, animations="disabled")) > 5_000


@pytest_asyncio.fixture(loop_scope="session")
async def stage(server: ServeProcess) -> AsyncIterator[Stage]:
    async with Stage(server.url) as stage:
        yield stage


SOME = [("dark", 390)]
ALL = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 390)]


async def watched(
    open_tab: Open, server: ServeProcess, conversation: str, looks: list[tuple[str, int]]
) -> Audience:
    PICTURES.mkdir(exist_ok=True)
    tabs: dict[str, Tab] = {}
    for scheme, width in looks:
        size = {"width": width, "height": 800 if width > 760 else 844}
        tabs[f"{scheme}-{width}"] = await open_tab(
            server, f"/c/{conversation}", viewport=size, color_scheme=scheme
        )
    return Audience(tabs)


async def at_work(puppet: Puppet) -> None:
    """Everything a box can show of a run under way."""
    await puppet.show(
        model="openai:qwen3",
        activity_at=ago(1),
        context={"used": 13_700, "limit": 32_768, "percent": 41.8},
        usage={
            "input": 9000,
            "output": 1200,
            "cached": 0,
            "reasoning": 0,
            "model_calls": 5,
            "tool_calls": 6,
        },
        current={
            "kind": "tool",
            "name": "fetch__fetch",
            "summary": '{"url":"https://example.org/wiki/Write-ahead_logging"}',
            "since": ago(4),
            "progress": {"value": 2, "total": 3, "message": "reading page 2 of 3"},
        },
        plan=[
            {"id": "1", "title": "Read the notes", "status": "done"},
            {"id": "2", "title": "Read the page", "status": "active"},
            {"id": "3", "title": "Compare", "status": "pending"},
        ],
        subagents={
            "a": {
                "title": "compare-notes",
                "status": "running",
                "current": "memory__search",
                "usage": {"input": 1500, "output": 400},
            }
        },
        workflows={
            "w": {
                "title": "nightly-index",
                "status": "running",
                "plan": [{"status": "done"}, {"status": "pending"}],
                "subagents": {"x": {"title": "reader", "status": "done", "line": "4 quotes agree"}},
            }
        },
        background={"j": {"title": "build the search index", "status": "running", "since": ago(65)}},
        retries={
            "count": 1,
            "last": {
                "of": "model",
                "code": "MODEL_RATE_LIMITED",
                "attempt": 1,
                "of_attempts": 5,
                "next_at": ago(60),
            },
        },
    )


@pytest.mark.slow(120)
@pytest.mark.case("P139")
@pytest.mark.parametrize(
    "looks", [pytest.param(SOME, id="phone"), pytest.param(ALL, id="all", marks=pytest.mark.full)]
)
async def test_every_status_is_told_apart_by_glyph_and_word_in_every_scheme_and_width(
    server: ServeProcess, stage: Stage, open_tab: Open, looks: list[tuple[str, int]]
) -> None:
    conversation = await stage.conversation("WAL behaviour, a summary")
    await stage.send(conversation, "Fetch the page, compare it with our notes, and file the differences.")
    all = await watched(open_tab, server, conversation, looks)
    await all.sees("queued", "◌", "Queued", "waiting for a free worker")

    puppet = await stage.claim()
    await all.sees("running", "●", "Running", "starting")
    await puppet.messages({"role": "assistant", "content": "I read the notes first."})
    step = {"id": "s1", "kind": "tool", "name": "notes__read", "status": "done", "ms": 812}
    await puppet.steps(step)
    await puppet.show(steps=[step])
    await puppet.say(
        "said", "The page agrees with your notes on checkpoints, but it describes two cases more."
    )
    await at_work(puppet)
    await stage.send(conversation, "Also look at the section on crash recovery", when_busy="steer")
    await stage.send(conversation, "And write it up in two pages")
    await all.sees("running", "●", "Running", "^fetch__fetch reading page 2 of 3$")
    for name, tab in all.tabs.items():
        await expect(tab.answers.first).to_have_text("I read the notes first.")
        body = tab.box.locator("dl.body")
        assert await body.locator("> dt").all_inner_texts() == [
            "Now",
            "Last said",
            "Plan",
            "Helpers",
            "Background",
            "Waiting",
        ], name
        await expect(body).to_contain_text("url = …/Write-ahead_logging · since")
        await expect(body.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "67")
        await expect(body).to_contain_text("memory__search · 1.9k tokens")
        await expect(body).to_contain_text("reader done · 4 quotes agree")
        await expect(body).to_contain_text("1 of 2 tasks")
        await expect(body.locator("[data-followup=waiting]")).to_have_count(2)
        await expect(body.locator("[data-followup=waiting] small")).to_have_text(["next step", "next run"])
        await expect(tab.box.locator(".foot")).to_contain_text("1 model retry (rate limited)")
        if name.endswith("1280"):
            await expect(tab.box.locator(".line")).to_contain_text("ctx 42 %")

    await puppet.show(stall={"kind": "tool", "since": ago(135)}, activity_at=ago(135))
    await all.sees("running", "◔", "Tool silent", "fetch__fetch silent for 2 min")
    await puppet.show(current={"kind": "model", "name": "openai:qwen3", "since": ago(40)})
    await puppet.show(stall={"kind": "model", "since": ago(40)})
    await all.sees("running", "◔", "Model slow", "openai:qwen3 silent for")
    await puppet.show(
        stall=None,
        retries={
            "count": 2,
            "last": {
                "of": "model",
                "code": "MODEL_BAD_RESPONSE",
                "attempt": 2,
                "of_attempts": 5,
                "next_at": ago(-60),
            },
        },
    )
    await all.sees("running", "●", "Retrying", "tries again in .* · attempt 2 of 5")

    call = {"kind": "tool", "name": "tasks__create_task", "since": ago(4)}
    await puppet.show(retries={"count": 2, "last": None}, current=call)
    await puppet.ask(APPROVAL, QUESTION)
    await all.sees("waiting_input", "▲", "Needs you", "^approve tasks__create_task · 1 more$")
    for tab in all.tabs.values():
        await expect(tab.box.locator("section.card")).to_have_count(2)
        await expect(tab.box.locator("dl.body > dt").get_by_text("Plan")).to_have_count(1)
        await expect(tab.box.locator("dl.body > dt").get_by_text("Now")).to_have_count(0)
    tab = next(iter(all.tabs.values()))
    await tab.box.get_by_role("button", name="release", exact=True).click()
    await expect(tab.box.locator("section.card")).to_have_count(1)
    await tab.box.get_by_role("button", name="Approve", exact=True).click()
    await all.sees("queued", "◌", "Queued", "decided · waiting for a free worker")

    puppet = await stage.claim()
    await all.sees("running", "●", "Running", ".*")
    await tab.box.get_by_role("button", name="Stop", exact=True).click()
    await all.sees("cancelling", "◧", "Stopping", "accepted, on its way to the worker|closing what is open")
    await puppet.end("cancelled")
    await all.sees("cancelled", "■", "Stopped", "^by you")
    for each in all.tabs.values():
        await expect(each.box.locator("[data-followup=held]")).not_to_have_count(0)

    for run, sent in (
        ("failed", {"content": "!error 401"}),
        ("limited", {"content": "!error 429 retry-after=600"}),
    ):
        await stage.send(conversation, sent["content"], run={"agent": "assistant"})
        if run == "failed":
            await all.sees("failed", "✕", "Failed", "refused the key · nothing is lost$")
        else:
            await all.sees("queued", "●", "Rate limited", "model answers again at .* · attempt 2 of 5")
    await stage.send(conversation, "Never mind.", when_busy="interrupt", run={"agent": AGENT})
    puppet = await stage.claim()
    for each in all.tabs.values():
        await expect(each.boxes.nth(-2).locator(".line")).to_contain_text("a newer message took its place")
        await expect(each.boxes.nth(-2).locator(".st")).to_have_text("Interrupted")
    await puppet.end("completed", line="3 tasks filed, 1 difference needed no task")
    await all.sees("completed", "✓", "Done", "^3 tasks filed, 1 difference needed no task$")

    await stage.send(conversation, "In time, please.", run={"deadline_s": 1, "agent": AGENT})
    await all.sees("expired", "⊘", "Expired", "its time is used up")
    assert len(all.seen) == 12, all.seen  # with "Interrupted" and "Worker silent" fourteen


@pytest.mark.slow(90)
@pytest.mark.case("P142")
async def test_a_silent_owner_is_told_from_a_silent_page_and_stop_stays_where_it_is(
    built: Path, tmp_path: Path, open_tab: Open
) -> None:
    async with (
        with_tools(tmp_path, "[adapters]\ngrace_s = 12\n") as server,
        Stage(server.url) as stage,
        LossyProxy(server.port) as proxy,
    ):
        puppet = await stage.begin("Ledger reconciliation")
        tab = await open_tab(proxy, f"/c/{puppet.conversation}")
        tab.may_lose_server = True
        await puppet.show(
            activity_at=ago(600), current={"kind": "tool", "name": "sum__up", "since": ago(600)}
        )
        status, stop = tab.box.locator(".st"), tab.box.get_by_role("button", name="Stop", exact=True)
        elapsed = tab.box.locator(".line .num").first
        await expect(tab.box.locator(".foot")).to_contain_text("last sign 10 min ago")
        await expect(status).to_have_text("Running")
        await expect(stop).to_be_enabled()

        # The line to the server is cut: what is known stays as it was, and the page says so.
        proxy.cut()
        for _ in range(4):
            await puppet.renew()
            await expect(elapsed).not_to_have_text(await elapsed.inner_text())
        await expect(tab.page.get_by_text("The server does not answer")).to_be_visible()
        await expect(status).to_have_text("Running")
        await expect(stop).to_be_enabled()
        proxy.restore()
        await puppet.renew()
        await expect(tab.page.get_by_text("The server does not answer")).to_have_count(0, timeout=WAIT_MS)

        # Nobody renews any more: now the server says since when, and when others take over.
        await expect(status).to_have_text("Worker silent", timeout=20_000)
        await expect(tab.box.locator(".glyph").first).to_have_text("!")
        await expect(tab.box.locator(".what")).to_have_text(
            re.compile(r"^\d+ s without a sign · takeover (in \d s|any moment), nothing is lost$")
        )
        await expect(stop).to_be_enabled()
        await expect(tab.column.get_by_role("link", name="Ledger reconciliation")).to_contain_text(
            "worker silent"
        )
        await tab.page.screenshot(path=PICTURES / "box-worker-silent.png")
        await expect(tab.box).to_have_attribute("data-status", "queued", timeout=25_000)
        await expect(tab.box.locator(".what")).to_contain_text("its worker was lost, nothing else is")
        await tab.close()
