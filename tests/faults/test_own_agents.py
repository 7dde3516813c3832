"""Agents that people bring: the example as it stands, recovery `ask`, and a step limit of one's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dromos.testing.processes import ServeProcess
from tests.faults.driver import Person

EXAMPLE = Path(__file__).parents[2] / "examples" / "01_own_graph"

SLOW_GRAPH = """
import asyncio
from pathlib import Path
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

HERE = Path(__file__).parent

async def first(state):
    with (HERE / "first").open("a") as file:
        file.write("x")
    return {"messages": [AIMessage("first")]}

async def second(state):
    (HERE / "waiting").touch()
    while not (HERE / "open").exists():
        await asyncio.sleep(0.05)
    return {"messages": [AIMessage("second")]}

def again(state):
    return {"messages": [AIMessage("again")]}

builder = StateGraph(MessagesState)
builder.add_node("first", first)
builder.add_node("second", second)
builder.add_edge(START, "first")
builder.add_edge("first", "second")
builder.add_edge("second", END)
graph = builder.compile()

circle = StateGraph(MessagesState)
circle.add_node("again", again)
circle.add_edge(START, "again")
circle.add_conditional_edges("again", lambda state: END if len(state["messages"]) > 7 else "again")
loop = circle.compile()
"""

SETTINGS = """
[agents.careful]
graph = "slow_graph:graph"
recovery = "ask"

[agents.loop]
graph = "slow_graph:loop"
step_limit = 5
"""


@pytest.mark.slow(60)
async def test_the_example_of_ones_own_graph_works_as_its_readme_says(tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("dromos-data", "__pycache__"))
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        desk = await person.conversation()
        posted = await person.say(desk, "When do I have to pay my invoice?")
        assert (await person.end(posted["run"]["id"]))["status"] == "completed"
        history = await person.history(desk)
        assert history[-1]["content"] == "[invoice] Invoices are due after 30 days."

        sizes = (await person.ask("POST", "/v1/conversations", 201, json={"agent": "sizes"}))["id"]
        posted = await person.say(sizes, "twelve chars")
        assert (await person.end(posted["run"]["id"]))["status"] == "completed"
        assert str((await person.history(sizes))[-1]["content"]) == "12"


@pytest.mark.slow(90)
async def test_with_recovery_ask_a_crash_ends_the_run_and_continue_goes_on_from_the_last_step(
    tmp_path: Path,
) -> None:
    (tmp_path / "slow_graph.py").write_text(SLOW_GRAPH)
    (tmp_path / "dromos.toml").write_text(SETTINGS)
    async with ServeProcess(tmp_path / "data") as server, Person(server) as person:
        made = await person.ask("POST", "/v1/conversations", 201, json={"agent": "careful"})
        first = (await person.say(made["id"], "go"))["run"]
        await person.seen(lambda one: "second" in str(one.get("data", "")), focus=made["id"])
        server.kill()
        await server.restart()
        ended = await person.end(first["id"])
        assert (ended["status"], ended["reason"], ended["crashes"]) == ("interrupted", "owner_lost", 1)

        (tmp_path / "open").touch()
        again = await person.ask("POST", f"/v1/conversations/{made['id']}/continue", 201, json={})
        run = again["run"]
        assert run["resume_of"] == first["id"] and run["reason"] == "resume_of"
        assert (await person.end(run["id"]))["status"] == "completed"
        said = [m["content"] for m in await person.history(made["id"]) if m["role"] == "assistant"]
        assert said == ["first", "second"]
        assert (tmp_path / "first").read_text() == "x", "a finished step is not repeated"
        checkpoints = await person.ask("GET", f"/v1/conversations/{made['id']}/checkpoints")
        assert [c["run_id"] for c in checkpoints["items"]].count(run["id"]) == 1


@pytest.mark.slow(60)
@pytest.mark.case("P140")
async def test_the_step_limit_keeps_the_work_and_continue_has_a_fresh_one(tmp_path: Path) -> None:
    (tmp_path / "slow_graph.py").write_text(SLOW_GRAPH)
    (tmp_path / "dromos.toml").write_text(SETTINGS)
    async with ServeProcess(tmp_path / "data") as server, Person(server) as person:
        made = await person.ask("POST", "/v1/conversations", 201, json={"agent": "loop"})
        first = (await person.say(made["id"], "go"))["run"]
        ended = await person.end(first["id"])
        assert (ended["status"], ended["error_code"]) == ("failed", "RECURSION_LIMIT")
        kept = len(await person.history(made["id"]))
        assert kept > 4
        again = await person.ask("POST", f"/v1/conversations/{made['id']}/continue", 201, json={})
        assert (await person.end(again["run"]["id"]))["status"] == "completed"
        said = [m["content"] for m in await person.history(made["id"]) if m["role"] == "assistant"]
        assert said == ["again"] * 7


FIELD_GRAPH = """
from pathlib import Path
from typing import TypedDict
from langgraph.graph import END, START, StateGraph

class State(TypedDict, total=False):
    order: object
    receipt: str

def check(state):
    if state["order"] == "tea" and not (Path(__file__).parent / "delivered").exists():
        raise RuntimeError("no tea left")
    return {}

def write(state):
    return {"receipt": f"one {state['order']}"}

builder = StateGraph(State)
builder.add_node("check", check)
builder.add_node("write", write)
builder.add_edge(START, "check")
builder.add_edge("check", "write")
builder.add_edge("write", END)
graph = builder.compile()
"""


@pytest.mark.slow(60)
async def test_an_agent_without_messages_gets_each_message_alone_and_can_be_continued(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FIELD_GRAPH)
    (tmp_path / "dromos.toml").write_text(
        '[agents.shop]\ngraph = "shop:graph"\ninput = "order"\noutput = "receipt"\n'
    )
    async with ServeProcess(tmp_path / "data") as server, Person(server) as person:
        shop = (await person.ask("POST", "/v1/conversations", 201, json={"agent": "shop"}))["id"]
        for order in ("coffee", "milk"):
            run = (await person.say(shop, order))["run"]
            ended = await person.end(run["id"])
            assert (ended["status"], ended["line"]) == ("completed", f"one {order}")
            told = (await person.ask("GET", f"/v1/runs/{run['id']}/events"))["items"]
            answers = [e["payload"]["message"] for e in told if e["type"] == "message.created"]
            assert answers[-1]["content"] == f"one {order}", "devices are told the answer"

        failed = await person.end((await person.say(shop, "tea"))["run"]["id"])
        assert (failed["status"], failed["error_message"]) == ("failed", "RuntimeError: no tea left")
        (tmp_path / "delivered").touch()
        again = (await person.ask("POST", f"/v1/conversations/{shop}/continue", 201, json={}))["run"]
        assert again["resume_of"] == failed["id"]
        assert (await person.end(again["id"]))["line"] == "one tea"

        history = [m["content"] for m in await person.history(shop) if m["kind"] != "run"]
        assert history == ["coffee", "one coffee", "milk", "one milk", "tea", "one tea"]
        view = await person.ask("GET", f"/v1/conversations/{shop}")
        lines = (await person.http.get(f"/v1/conversations/{shop}/export?format=jsonl")).text.splitlines()
        last = json.loads(lines[-1])
        assert view["conversation"]["message_count"] == last["message_count"] == 6
        assert last["last_message"]["content"] == "one tea"


FAULTY = """
import threading
from typing import Any, TypedDict
from langgraph.graph import END, START, StateGraph

class Mine(Exception):
    pass

class State(TypedDict, total=False):
    order: str
    receipt: Any

def work(state):
    match state["order"]:
        case "raise":
            raise Mine("as asked")
        case "lock":
            return {"receipt": threading.Lock()}
        case "group":
            raise ExceptionGroup("several", [ValueError("one"), Mine("two")])
        case "nul":
            raise Mine("with \\x00 and \\ud800")
        case "circle":
            return {"receipt": [float("nan"), {1: "one"}]}
    return {"receipt": "fine"}

builder = StateGraph(State)
builder.add_node("work", work)
builder.add_edge(START, "work")
builder.add_edge("work", END)
graph = builder.compile()
"""


@pytest.mark.slow(90)
@pytest.mark.case("P85", "P86")
async def test_whatever_an_agent_does_wrong_its_run_has_one_end_and_the_server_goes_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(FAULTY)
    (tmp_path / "dromos.toml").write_text(
        '[agents.shop]\ngraph = "shop:graph"\ninput = "order"\noutput = "receipt"\n'
    )
    expected = {
        "raise": ("failed", "Mine: as asked"),
        "lock": ("failed", "receipt"),
        "group": ("failed", "several"),
        "nul": ("failed", "Mine: with \ufffd and \ufffd"),
        "circle": ("completed", None),
        "well": ("completed", None),
    }
    async with ServeProcess(tmp_path / "data") as server, Person(server) as person:
        for order, (status, words) in expected.items():
            shop = (await person.ask("POST", "/v1/conversations", 201, json={"agent": "shop"}))["id"]
            run = (await person.say(shop, order))["run"]
            ended = await person.end(run["id"])
            assert ended["status"] == status, (order, ended)
            if words is not None:
                assert (ended["error_code"], ended["reason"]) == ("AGENT_FAILURE", "agent_error"), order
                assert words in ended["error_message"], (order, ended)
            told = (await person.ask("GET", f"/v1/runs/{run['id']}/events"))["items"]
            ends = [e for e in told if e["type"] == "run.status" and e["payload"]["run"]["finished_at"]]
            assert len(ends) == 1 and told[-1] == ends[0]
            assert await person.run(run["id"]) == ends[0]["payload"]["run"]
            following = await person.say(shop, "well")
            assert (await person.end(following["run"]["id"]))["line"] == "fine"
