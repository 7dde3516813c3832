"""The whole of it at once: two browsers, a phone and a terminal watch a LangGraph agent, a command and an agent that
runs elsewhere, through a kill of the server; all show the same, and each agent does its work once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import expect

from dromos.client.adapter import Answer, serve
from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import eventually, within
from tests.cli.test_terminal import Terminal, terminal
from tests.faults.driver import TRUST, open_gate, tools
from tests.web.conftest import Open
from tests.web.tab import Tab
from tests.web.test_devices import PHONE, same_version

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

COMMAND = """
import json, sys, time
from pathlib import Path

here = Path(__file__).parent
resumed = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else None

def tell(kind, **values):
    print(json.dumps({"type": kind, "session_id": resumed or "s-1", **values}), flush=True)

def part(number, **content):
    tell("assistant", message={"id": f"m{number}", "content": [content]})

done = (here / "filed").read_text().split() if (here / "filed").exists() else []
tell("system", subtype="init", model="m")
for number in range(len(done), 3):
    part(number, type="tool_use", id=f"c{number}", name="file_it", input={"number": number})
    with (here / "filed").open("a") as file:
        file.write(f"{number} ")
    tell("user", message={"content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": "filed"}]})
    while number == 1 and not (here / "open").exists():
        time.sleep(0.05)
part(9, type="text", text="the command has filed three")
tell("result", subtype="success", result="")
"""


SAID = {
    "command": "file three",
    "elsewhere": "work there",
    "assistant": '!call t__gate {"name": "open"}\n!say the assistant is done',
}


@pytest_asyncio.fixture(loop_scope="session")
async def house(built: Path, tmp_path: Path) -> AsyncIterator[ServeProcess]:
    """A server with three kinds of agents."""
    (tmp_path / "filer.py").write_text(COMMAND)
    (tmp_path / "dromos.toml").write_text(
        "[adapters]\ngrace_s = 120\n[agents.elsewhere]\nremote = true\n"
        f'[agents.command]\ncommand = ["{sys.executable}", "filer.py"]\nrecovery = "auto"\n'
        'resume_arguments = ["--resume", "{session}"]\n'
    )
    tools(tmp_path)
    async with ServeProcess(tmp_path / "data", cwd=tmp_path, env=TRUST) as server:
        yield server


@pytest.mark.slow(240)
async def test_all_devices_show_the_same_of_all_kinds_of_agents_through_a_kill(
    house: ServeProcess, open_tab: Open, tmp_path: Path
) -> None:
    go_on, claims = asyncio.Event(), []

    async def work(run: object) -> Answer:
        claims.append(run)
        run.box.plan = [{"title": "Wait", "status": "active"}]  # type: ignore[attr-defined]
        await run.say("said from elsewhere")  # type: ignore[attr-defined]
        await go_on.wait()
        return Answer("the agent elsewhere is done")

    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(
            httpx.AsyncClient(base_url=house.url, trust_env=False, timeout=20)
        )
        agent = asyncio.create_task(serve(work, url=house.url, agents=["elsewhere"]))
        stack.callback(agent.cancel)
        talks = {name: await conversation(api, name) for name in SAID}
        watching: dict[str, list[Tab]] = {
            name: [
                await open_tab(house, f"/c/{talk}"),
                await open_tab(house, f"/c/{talk}", color_scheme="dark"),
                await open_tab(house, f"/c/{talk}", **PHONE),
            ]
            for name, talk in talks.items()
        }
        runs = {name: await say(api, talks[name], text) for name, text in SAID.items()}
        shells: dict[str, Terminal] = {
            name: await stack.enter_async_context(terminal("watch", run, "--server", house.url, cwd=tmp_path))
            for name, run in runs.items()
        }
        effects = tmp_path / "filed"
        await eventually(lambda: effects.read_text() == "0 1 ", seconds=40, what="the command has filed two")
        for tab in watching["elsewhere"]:
            await expect(tab.answer).to_contain_text("said from elsewhere", timeout=40_000)
        for name, shell in shells.items():
            await shell.shows("● running", seconds=60)
            for tab in watching[name]:
                await expect(tab.box).to_have_attribute("data-status", "running", timeout=40_000)
        for name in ("command", "elsewhere"):  # nothing moves there while it is compared
            await same_version(house, *watching[name])

        for tab in (tab for tabs in watching.values() for tab in tabs):
            tab.may_lose_server = True
        house.kill()
        await house.restart()
        (tmp_path / "open").touch()
        open_gate(tmp_path, "open")
        go_on.set()

        for name, tabs in watching.items():
            for tab in tabs:
                await expect(tab.box).to_have_attribute("data-status", "completed", timeout=40_000)
            await same_version(house, *tabs)
            await shells[name].shows("✓ done", seconds=60)
            assert await within(20, shells[name].process.wait(), "the end of the watch") == 0
        assert effects.read_text() == "0 1 2 "
        kept = (await api.get(f"/v1/runs/{runs['elsewhere']}/attempts")).json()["items"]
        assert [one["reason"] for one in kept] == ["finished"]
        assert len(claims) == 1
        for tab in watching["assistant"]:
            await expect(tab.answer).to_contain_text("the assistant is done")
        for tab in watching["command"]:
            await expect(tab.answer).to_contain_text("the command has filed three")
        for tab in watching["elsewhere"]:
            await expect(tab.answers.last).to_contain_text("the agent elsewhere is done")


async def conversation(api: httpx.AsyncClient, agent: str) -> str:
    made = (await api.post("/v1/conversations", json={"agent": agent})).raise_for_status().json()
    return str(made["id"])


async def say(api: httpx.AsyncClient, talk: str, text: str) -> str:
    """Starts a run; returns its id."""
    answer = await api.post(f"/v1/conversations/{talk}/messages", json={"content": text})
    return str(answer.raise_for_status().json()["run"]["id"])
