"""kill -9 inside of calls with effects, against the real server: one effect a key, and nothing unsafe made twice."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import eventually
from tests.faults.driver import Json, Person

EXAMPLE = Path(__file__).parents[2] / "examples" / "05_replay_safe_tools"

BANK = """
import json, os, signal
from pathlib import Path
from typing import Annotated
from langchain.agents import create_agent
from langchain_core.tools import InjectedToolArg, tool
from dromos.agents.langgraph.durable import DurableTools, idempotency_key
from dromos.agents.langgraph.scripted.chat_model import ScriptedChatModel

HERE = Path(__file__).parent

def line(name, key):
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(json.dumps([name, key]) + "\\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    marked = HERE / f"killed-{name}"
    if not marked.exists():
        marked.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{name} done"

@tool
async def look() -> str:
    "Reads only."
    return line("look", idempotency_key())

@tool
async def pay(euros: int, idempotency_key: Annotated[str, InjectedToolArg]) -> str:
    "Has a key."
    return line("pay", idempotency_key)

@tool
def send(to: str) -> str:
    "Neither, in a thread."
    return line("send", idempotency_key())

DURABLE = DurableTools(policy={"send": "ask"}, replay={"look": "read", "pay": "keyed"})
graph = create_agent(ScriptedChatModel(), [look, pay, send], middleware=[DURABLE])
"""


def tasks_of(folder: Path) -> list[str]:
    file = folder / "tasks.db"
    if not file.exists():
        return []
    db = sqlite3.connect(file)
    try:
        return [title for (title,) in db.execute("SELECT title FROM tasks ORDER BY id")]
    except sqlite3.OperationalError:  # it is being made
        return []
    finally:
        db.close()


@pytest.mark.slow(90)
@pytest.mark.case("P66")
async def test_the_example_of_replay_safe_tools_works_as_its_readme_says(tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("dromos-data", "__pycache__", "*.db*"))
    env = {"TASKS_PYTHON": sys.executable}
    async with ServeProcess(folder / "data", cwd=folder, env=env) as server, Person(server) as person:
        conversation = await person.conversation()
        script = '!call tasks__create_task {"title": "post the letter"}\n!say done'
        run = (await person.say(conversation, script))["run"]
        await eventually(lambda: tasks_of(folder), what="the task", seconds=20)
        server.kill()
        await server.restart()
        ended = await person.end(run["id"], seconds=30)
        assert (ended["status"], ended["crashes"]) == ("completed", 1)
        assert tasks_of(folder) == ["post the letter"]
        told = [message for message in await person.history(conversation) if message["role"] == "tool"]
        assert len(told) == 1
        assert '"id": 1' in told[0]["content"]

        letters = (await person.ask("POST", "/v1/conversations", 201, json={"agent": "letters"}))["id"]
        run = (await person.say(letters, "Dear Ada"))["run"]
        assert (await person.end(run["id"]))["status"] == "completed"
        (letter,) = (folder / "letters.txt").read_text().splitlines()
        assert letter[64:] == " Dear Ada"


def ledger(folder: Path) -> list[tuple[str, str]]:
    """Tool and key of each effect of the bank's tools."""
    return [tuple(json.loads(line)) for line in (folder / "ledger").read_text().splitlines()]


def with_bank(folder: Path) -> Path:
    (folder / "bank.py").write_text(BANK)
    (folder / "dromos.toml").write_text('[agents.bank]\ngraph = "bank:graph"\n')
    return folder / "data"


async def begin(person: Person, script: str) -> Json:
    bank = (await person.ask("POST", "/v1/conversations", 201, json={"agent": "bank"}))["id"]
    run: Json = (await person.say(bank, script))["run"]
    return run


@pytest.mark.full
@pytest.mark.slow(90)
@pytest.mark.case("P65")
async def test_an_approved_tool_that_kills_its_worker_is_asked_about_and_not_called_again(
    tmp_path: Path,
) -> None:
    async with ServeProcess(with_bank(tmp_path)) as server, Person(server) as person:
        run = await begin(person, '!call send {"to": "anna"}\n!say done')
        await person.status_event(run["id"], "waiting_input")
        await decide(person, run, "approve")
        await server.restart()
        parked = await asked(person, run, "tool_outcome_unknown")
        assert (parked["tool"], parked["arguments"]) == ("send", {"to": "anna"})
        assert len(ledger(tmp_path)) == 1
        await decide(person, run, "mark_done", answer="it went out")
        assert (await person.end(run["id"]))["status"] == "completed"
        assert len(ledger(tmp_path)) == 1


@pytest.mark.full
@pytest.mark.slow(120)
@pytest.mark.case("P66")
async def test_tools_that_kill_their_worker_and_are_safe_to_repeat_are_called_again_with_their_key(
    tmp_path: Path,
) -> None:
    async with ServeProcess(with_bank(tmp_path)) as server, Person(server) as person:
        for script in ("!call look", '!call pay {"euros": 7}'):
            run = await begin(person, f"{script}\n!say done")
            await server.restart()
            assert (await person.end(run["id"], seconds=30))["status"] == "completed"
        assert [tool for tool, _ in ledger(tmp_path)] == ["look", "look", "pay", "pay"]
        assert len({key for tool, key in ledger(tmp_path) if tool == "pay"}) == 1


async def asked(person: Person, run: Json, kind: str) -> Json:
    """The open question of the run, once it is of this kind."""

    def fits(one: Json) -> bool:
        request = (one.get("data") or {}).get("payload", {}).get("request", {})
        return one.get("event") == "request.opened" and request.get("kind") == kind

    seen = await person.seen(fits, seconds=30)
    request: Json = seen["data"]["payload"]["request"]
    assert request["run_id"] == run["id"]
    return request


async def decide(person: Person, run: Json, decision: str, **said: str) -> None:
    (request,) = (await person.ask("GET", "/v1/requests?status=open"))["items"]
    assert request["run_id"] == run["id"]
    body = {
        "decision": decision,
        "request_version": request["version"],
        "arguments_sha256": request["arguments_sha256"],
        **said,
    }
    await person.ask("POST", f"/v1/requests/{request['id']}/decision", json=body)


@pytest.mark.full
@pytest.mark.slow(1800)
@pytest.mark.case("P67")
async def test_killed_at_random_points_ten_keyed_steps_have_ten_effects(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(
        (EXAMPLE / "mcp.json").read_text().replace('"--answer-delay", "10"', '"--answer-delay", "0.2"')
    )
    (tmp_path / "dromos.toml").write_text('[approvals]\ntrusted_servers = ["tasks"]\n')
    chance = random.Random(67)
    env = {"TASKS_PYTHON": sys.executable}
    async with ServeProcess(tmp_path / "data", env=env) as server, Person(server) as person:
        for number in range(15):
            titles = [f"{number}.{step}" for step in range(10)]
            script = "".join(f'!call tasks__create_task {{"title": "{one}"}}\n!say next\n' for one in titles)
            conversation = await person.conversation()
            run = (await person.say(conversation, f"{script}!say done"))["run"]
            for _ in range(2):
                target = chance.randrange(10 * number, 10 * number + 10)
                await eventually(lambda t=target: len(tasks_of(tmp_path)) > t, what="a step", seconds=40)
                server.kill()
                await server.restart()
            ended = await person.end(run["id"], seconds=60)
            assert ended["status"] == "completed"
            assert tasks_of(tmp_path)[-10:] == titles
            assert len(tasks_of(tmp_path)) == 10 * (number + 1)
