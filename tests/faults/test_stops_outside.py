"""Stops and what works outside: tool servers hear of a cut, and a function that hangs keeps no process alive."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import eventually
from tests.faults.driver import Json, Person, effects, gone, open_gate, tools

HANGS = """
import threading
from pathlib import Path
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph

@tool
def hang(what: str) -> str:
    "Never returns."
    Path(__file__).with_name(f"hangs-{threading.get_ident()}").touch()
    threading.Event().wait()
    return what

def work(state):
    return {"messages": [AIMessage(hang.invoke({"what": "for ever"}))]}

builder = StateGraph(MessagesState)
builder.add_node("work", work)
builder.add_edge(START, "work")
builder.add_edge("work", END)
graph = builder.compile()
"""

SETTINGS = """
[worker]
stop_deadline_s = 1
drain_s = 1
[tools."t__gate"]
replay = "read"
[tools."k__gate"]
replay = "keyed"
[tools."u__gate"]
replay = "unsafe"
"""


def lines(folder: Path, name: str) -> list[Json]:
    file = folder / f"effects.{name}"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.full
@pytest.mark.slow(60)
@pytest.mark.case("P124")
async def test_tool_servers_hear_of_every_call_that_a_stop_cut(tmp_path: Path) -> None:
    """What may be repeated is cut at once, the other call at the deadline; then nothing is at work any more."""
    tools(tmp_path)
    file = tmp_path / "mcp.json"
    one = json.loads(file.read_text())["mcpServers"]["t"]
    file.write_text(json.dumps({"mcpServers": {"t": one, "k": one, "u": one}}))
    (tmp_path / "dromos.toml").write_text(SETTINGS)
    async with ServeProcess(tmp_path / "data") as server, Person(server) as person:
        talk = await person.conversation()
        script = "\n".join(f'!call {name}__gate {{"name": "shut"}}' for name in "tku")
        run_id = (await person.say(talk, script))["run"]["id"]
        await eventually(lambda: len(lines(tmp_path, "begun")) == 3, what="three calls at their servers")
        await person.ask("POST", f"/v1/runs/{run_id}/cancel", 202, json={})
        await eventually(lambda: len(lines(tmp_path, "cancelled")) == 2, seconds=1, what="two cuts")
        assert (await person.run(run_id))["status"] == "cancelling"
        ended = await person.end(run_id)
        await eventually(lambda: len(lines(tmp_path, "cancelled")) == 3, seconds=1, what="the last cut")
        assert ended["stop"]["outcome"] == "forced"
        assert sorted(ended["stop"]["unknown_calls"]) == ["k__gate", "u__gate"]
        after = await person.say(talk, '!call t__count {"label": "after"}\n!say usable')
        assert (await person.end(after["run"]["id"]))["line"] == "usable"
        assert [effect["label"] for effect in effects(tmp_path)] == ["after"]


@pytest.mark.slow(60)
async def test_a_function_that_hangs_in_a_thread_keeps_neither_a_stop_nor_the_process(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    (tmp_path / "dromos.toml").write_text(SETTINGS + '[agents.hanging]\ngraph = "hangs:graph"\n')
    async with ServeProcess(tmp_path / "data") as server, Person(server) as person:
        talks = [
            (await person.ask("POST", "/v1/conversations", 201, json={"agent": "hanging"}))["id"]
            for _ in range(2)
        ]
        stopped, left = [(await person.say(talk, "go"))["run"]["id"] for talk in talks]
        await eventually(lambda: len(list(tmp_path.glob("hangs-*"))) == 2, what="both functions at work")
        await person.ask("POST", f"/v1/runs/{stopped}/cancel", 202, json={})
        ended = await person.end(stopped)
        assert (ended["stop"]["outcome"], ended["stop"]["unknown_calls"]) == ("forced", ["hang"])
        server.term()
        asked = time.monotonic()
        assert await server.wait_exit(10) == 0
        assert time.monotonic() - asked < 1 + 2 + 2
        await server.start()
        again = await eventually(lambda: _reclaimed(person, left), what="the next attempt")
        assert again["crashes"] == 0, "it was handed back"


@pytest.mark.slow(120)
@pytest.mark.case("P30")
@pytest.mark.parametrize(("replay", "outcome"), [("read", "acknowledged"), ("unsafe", "forced")])
async def test_what_the_tools_of_a_stopped_run_had_started_ends_and_the_calls_of_others_go_on(
    tmp_path: Path, replay: str, outcome: str
) -> None:
    tools(tmp_path)
    deadline = 10 if replay == "read" else 1
    (tmp_path / "dromos.toml").write_text(
        f'[worker]\nstop_deadline_s = {deadline}\n[tools."t__gate"]\nreplay = "{replay}"\n'
    )
    async with ServeProcess(tmp_path / "data") as server, Person(server) as person:
        talk, elsewhere = await person.conversation(), await person.conversation()

        async def stopped(begun: int) -> int:
            """A run that is stopped in a call; returns the child that another of its calls had started."""
            script = '!call t__spawn\n!call t__gate {"name": "shut"}'
            run_id = (await person.say(talk, script))["run"]["id"]
            await eventually(
                lambda: len(lines(tmp_path, "begun")) == begun, seconds=30, what="the call at its server"
            )
            await person.ask("POST", f"/v1/runs/{run_id}/cancel", 202, json={})
            ended = await person.end(run_id)
            assert (ended["status"], ended["stop"]["outcome"]) == ("cancelled", outcome)
            assert ended["stop"]["unknown_calls"] == (["t__gate"] if replay == "unsafe" else [])
            results = [one["content"] for one in await person.history(talk) if one["role"] == "tool"]
            return int(next(one for one in reversed(results) if one.isdigit()))

        other = (await person.say(elsewhere, '!call t__gate {"name": "other"}\n!say through'))["run"]["id"]
        await eventually(lambda: len(lines(tmp_path, "begun")) == 1, seconds=30, what="the other run's call")
        child = await stopped(2)
        assert not gone(child), "it is in the same group as the other run's call"
        open_gate(tmp_path, "other")
        assert (await person.end(other))["line"] == "through"
        assert "other is open" in str(await person.history(elsewhere))
        await eventually(lambda: gone(child), seconds=15, what="the end of the group")

        child = await stopped(3)
        if replay == "read":
            assert gone(child), "the run ends behind the group"
        await eventually(lambda: gone(child), seconds=15, what="the end of the group")
        after = await person.say(talk, '!call t__count {"label": "after"}\n!say usable')
        assert (await person.end(after["run"]["id"]))["line"] == "usable"
        assert [effect["label"] for effect in effects(tmp_path)] == ["after"]


@pytest.mark.slow(120)
@pytest.mark.case("P129")
async def test_what_tools_had_started_does_not_survive_a_server_that_is_killed(tmp_path: Path) -> None:
    tools(tmp_path)
    async with ServeProcess(tmp_path / "data") as server, Person(server) as person:
        talk = await person.conversation()
        await person.say(talk, '!call t__spawn\n!say then\n!call t__gate {"name": "shut"}')
        await eventually(
            lambda: len(lines(tmp_path, "begun")) == 1, seconds=30, what="the call at its server"
        )
        results = [one["content"] for one in await person.history(talk) if one["role"] == "tool"]
        assert not gone(int(results[0]))
        server.kill()
        await server.wait_exit()
        await eventually(lambda: gone(int(results[0])), seconds=15, what="the end of the group")


async def _reclaimed(person: Person, run_id: str) -> Json | None:
    run = await person.run(run_id)
    return run if run["attempt"] == 2 else None
