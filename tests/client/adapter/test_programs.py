"""The example and the guide's program as their readers start them: processes of their own beside a real server."""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dromos.client import RunView
from dromos.testing.processes import RealProcess, ServeProcess
from tests.client.adapter.conftest import Person, person_at

pytestmark = pytest.mark.slow(90)
ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "02_plain_loop"
GUIDE = (ROOT / "docs" / "sdk.md").read_text()
LINES = ["one two", "three four", "five six", "seven eight", "nine ten", "eleven twelve"]
TURNED = "Turned 6 lines around."


def turned(line: str) -> str:
    return "".join(f"{word[::-1]} " for word in line.split())


@asynccontextmanager
async def example(
    tmp_path: Path, pace: str = "0.15", grace: str = "120"
) -> AsyncIterator[tuple[ServeProcess, RealProcess, Person]]:
    """The server and the agent as the README starts them, and somebody who talks to it."""
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("dromos-data", "__pycache__"))
    async with ServeProcess(folder / "data", cwd=folder, env={"DROMOS_ADAPTERS_GRACE_S": grace}) as server:
        command = [sys.executable, str(folder / "agent.py")]
        surroundings = {"PACE": pace, "DROMOS_SERVER": server.url}
        agent = RealProcess(command, log=tmp_path / "agent.log", env=surroundings, cwd=folder)
        async with agent, person_at(server.url) as person:
            yield server, agent, person


def working_on(number: int) -> Callable[[RunView], bool]:
    """The plan's entry `number` is active."""
    return lambda view: [one["status"] for one in view.document["plan"]][number - 1 : number] == ["active"]


@pytest.mark.full
async def test_the_example_shows_its_work_and_is_steered(tmp_path: Path) -> None:
    async with example(tmp_path) as (_, _, person):
        await person.say("- one two\n- three four")
        view = await person.sees(working_on(1))
        assert [one["title"] for one in view.document["plan"]] == ["one two", "three four"]
        await person.sees(lambda view: (view.document["current"] or {}).get("name") == "one two")
        await person.say("five six", when_busy="steer")
        run = await person.end()
        assert (run["status"], run["line"]) == ("completed", "3 of 3 turned around")
        document = await person.document()
        assert [(one["title"], one["status"]) for one in document["plan"]] == [
            ("one two", "done"),
            ("three four", "done"),
            ("five six", "done"),
        ]
        assert [(one["name"], one["status"]) for one in document["steps"]] == [
            ("one two", "done"),
            ("three four", "done"),
            ("five six", "done"),
        ]
        said = [content for role, content in await person.said() if role == "assistant"]
        assert said == [turned("one two"), turned("three four"), turned("five six"), "Turned 3 lines around."]


@pytest.mark.full
async def test_the_example_is_stopped_in_the_middle(tmp_path: Path) -> None:
    async with example(tmp_path, pace="0.5") as (_, _, person):
        await person.say("\n".join(LINES))
        await person.sees(working_on(2))
        await person.client.cancel(person.run_id)
        run = await person.end()
        assert (run["status"], run["stop"]["outcome"]) == ("cancelled", "acknowledged")
        document = await person.document()
        done = [one["status"] for one in document["plan"]].count("done")
        assert document["line"] == f"{done} of 6 turned around"
        assert document["steps"][-1]["status"] == "cancelled"
        await person.say("again")
        assert (await person.end())["status"] == "completed", "the agent takes the next run"


@pytest.mark.full
async def test_the_example_outlives_the_death_of_the_server(tmp_path: Path) -> None:
    async with example(tmp_path) as (server, _, person):
        await person.say("\n".join(LINES))
        await person.sees(working_on(3))
        server.kill()
        await server.restart()
        run = await person.end(seconds=40)
        assert (run["status"], run["attempt"]) == ("completed", 1)
        said = [content for role, content in await person.said() if role == "assistant"]
        assert said == [*map(turned, LINES), TURNED]
        assert {one["status"] for one in (await person.document())["plan"]} == {"done"}


@pytest.mark.full
async def test_the_example_goes_on_behind_its_last_line_when_it_dies_itself(tmp_path: Path) -> None:
    async with example(tmp_path, grace="3") as (_, agent, person):
        await person.say("\n".join(LINES))
        await person.sees(working_on(3))
        agent.kill()
        await agent.wait_exit()
        await agent.start()
        run = await person.end(seconds=40)
        assert (run["status"], run["attempt"], run["crashes"]) == ("completed", 2, 1)
        said = [content for role, content in await person.said() if role == "assistant"]
        assert said == [*map(turned, LINES), TURNED], "no line twice"


@pytest.mark.full
async def test_sigterm_lets_the_example_finish_what_it_has(tmp_path: Path) -> None:
    async with example(tmp_path) as (_, agent, person):
        await person.say("one two\nthree four")
        await person.sees(working_on(1))
        agent.term()
        assert (await person.end())["status"] == "completed"
        assert await agent.wait_exit() == 0


def test_the_example_has_at_most_forty_lines() -> None:
    assert len((EXAMPLE / "agent.py").read_text().splitlines()) <= 40


@pytest.mark.full
async def test_the_guides_agent_works_as_it_stands(tmp_path: Path) -> None:
    (settings,) = re.findall(r"```toml\n(.+?)```", GUIDE, re.DOTALL)
    program = next(
        block for block in re.findall(r"```python\n(.+?)```", GUIDE, re.DOTALL) if "asyncio.run" in block
    )
    (tmp_path / "dromos.toml").write_text(settings)
    (tmp_path / "greeter.py").write_text(program)
    async with ServeProcess(tmp_path / "data", cwd=tmp_path) as server:
        command = [sys.executable, str(tmp_path / "greeter.py"), server.url]
        async with (
            RealProcess(command, log=tmp_path / "agent.log"),
            person_at(server.url, agent="greeter") as person,
        ):
            await person.say("I am Ada")
            run = await person.end()
            assert (run["status"], run["line"]) == ("completed", "Greeted Ada.")
            assert await person.said() == [("user", "I am Ada"), ("assistant", "Good morning, Ada ")]


def test_every_python_block_of_the_guide_is_python_that_names_what_there_is() -> None:
    from dromos.client.adapter import AdapterRun, AdapterSession, Box

    offered: dict[str, Any] = {"run": AdapterRun, "box": Box, "session": AdapterSession}
    instance = {
        "input",
        "history",
        "progress",
        "decisions",
        "model",
        "backend_policy",
        "attempt",
        "stop",
        "result",
    }
    for block in re.findall(r"```python\n(.+?)```", GUIDE, re.DOTALL):
        indented = "".join(f"    {line}\n" for line in block.splitlines())
        ast.parse(f"async def guide():\n{indented}")
    for owner, name in re.findall(r"\b(run|box|session)\.(\w+)", GUIDE):
        assert hasattr(offered[owner], name) or name in instance, f"{owner}.{name}"
