"""Agents that people name themselves: graphs, factories, fields, broken ones, langgraph.json, late imports."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from dromos.agents.langgraph_json import read_project
from dromos.agents.registry import AgentConfig, AgentRegistry, AgentsConfig, merge
from dromos.domain.errors import Unavailable
from dromos.domain.reasons import ErrorCode
from dromos.ports.agent import Attempt, Failed, Finished, InputMessage
from tests.agents.kit import Counted, FunctionToolbox, LiveNotes, SystemClock, desk, history

GRAPHS = """
    import operator
    from typing import Annotated, TypedDict
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, MessagesState, StateGraph


    async def answer(state):
        return {"messages": [AIMessage(f"echo: {state['messages'][-1].content}")]}


    def chat():
        graph = StateGraph(MessagesState)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        return graph


    builder = chat()
    compiled = chat().compile()


    def factory():
        return chat().compile()


    async def with_config(config):
        graph = StateGraph(MessagesState)
        told = config.get("configurable", {}).get("model", "none")
        graph.add_node("answer", lambda state: {"messages": [AIMessage(f"model: {told}")]})
        graph.add_edge(START, "answer")
        return graph.compile()


    class Fields(TypedDict):
        question: object
        answer: object


    def double(state):
        return {"answer": state["question"]}


    fields = StateGraph(Fields)
    fields.add_node("double", double)
    fields.add_edge(START, "double")
    fields = fields.compile()
    number = 7


    def broken():
        raise KeyError("nothing here")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    name = f"graphs_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(GRAPHS))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path / f"{name}.py"


def registry(store: Any, project: Path, **agents: AgentConfig) -> AgentRegistry:
    config = AgentsConfig(root=project.parent, agents=agents, model="scripted")
    return AgentRegistry(config, store=store, toolbox=FunctionToolbox(), clock=SystemClock(), ids=Counted())


async def say(room: Any, agent: Any, content: Any, **changes: Any) -> Any:
    run, recorder = await room.run(**changes)
    engine_input = agent.compose([InputMessage(f"{run.id}-m", "user", content)])
    assert json.loads(json.dumps(engine_input)) == engine_input
    return await agent.attempt(
        Attempt(run, engine_input, recorder, LiveNotes(), asyncio.Event(), desk=desk(recorder))
    )


@pytest.mark.parametrize("attribute", ["builder", "compiled", "factory"])
async def test_a_graph_in_any_of_its_forms_answers(sqlite_room, project, attribute):
    await sqlite_room.conversation()
    agents = registry(sqlite_room.store, project, mine=AgentConfig(f"{project.stem}:{attribute}"))

    assert await say(sqlite_room, agents.get("mine"), "hi") == Finished()

    assert [row["content"] for row in await history(sqlite_room.store)] == ["hi", "echo: hi"]


async def test_a_factory_with_a_config_argument_gets_the_runs_model(sqlite_room, project):
    await sqlite_room.conversation()
    agents = registry(
        sqlite_room.store, project, mine=AgentConfig(f"{project.stem}:with_config", model="a:b")
    )

    assert await say(sqlite_room, agents.get("mine"), "hi") == Finished()
    assert await say(sqlite_room, agents.get("mine"), "hi", model="c:d") == Finished()

    told = [row["content"] for row in await history(sqlite_room.store) if row["role"] == "assistant"]
    assert told == ["model: a:b", "model: c:d"]


@pytest.mark.parametrize(
    ("content", "answer"),
    [("six", "six"), ('{"a": [1]}', '{"a": [1]}'), ({"a": 1}, '{"a": 1}'), ("{no json", "{no json")],
)
async def test_a_graph_without_messages_takes_and_gives_its_fields(sqlite_room, project, content, answer):
    await sqlite_room.conversation()
    entry = AgentConfig(f"{project.stem}:fields", input="question", output="answer")
    agents = registry(sqlite_room.store, project, mine=entry)

    assert await say(sqlite_room, agents.get("mine"), content) == Finished()

    stored = await history(sqlite_room.store)
    assert [(row["role"], row["content"]) for row in stored] == [("assistant", answer)]


@pytest.mark.parametrize(
    ("entry", "cure"),
    [
        (AgentConfig("{module}:fields"), "Set `input` and `output`"),
        (AgentConfig("{module}:fields", input="questions", output="answer"), "It has: answer, question"),
        (AgentConfig("{module}:nothing"), "has no 'nothing'"),
        (AgentConfig("{module}:number"), "not a LangGraph graph"),
        (AgentConfig("{module}:broken"), "nothing here"),
        (AgentConfig("no_such_module:graph"), "cannot be imported"),
        (AgentConfig("nonsense"), "module:attribute"),
    ],
)
async def test_a_broken_agent_is_listed_and_its_runs_say_the_cure(sqlite_room, project, entry, cure):
    await sqlite_room.conversation()
    entry = AgentConfig(entry.graph.replace("{module}", project.stem), input=entry.input, output=entry.output)
    agents = registry(sqlite_room.store, project, bad=entry)

    await agents.warm_up()

    assert [info.name for info in agents.infos()] == ["assistant", "bad"]
    assert cure in (await agents.faults())["bad"]
    outcome = await say(sqlite_room, agents.get("bad"), "hi")
    assert isinstance(outcome, Failed)
    assert outcome.code is ErrorCode.CONFIG_INVALID
    assert cure in outcome.message
    with pytest.raises(Unavailable, match=re.escape(cure)):
        await agents.get("bad").pending("c1")
    assert await say(sqlite_room, agents.get("assistant"), "!say fine") == Finished()
    await agents.aclose()


async def test_an_unknown_agent_is_none(sqlite_room, project):
    agents = registry(sqlite_room.store, project)

    assert agents.get("nobody") is None
    assert agents.default == "assistant"


async def test_a_langgraph_json_runs_unchanged(sqlite_room, project):
    await sqlite_room.conversation()
    (project.parent / "lib").mkdir()
    (project.parent / "vars.env").write_text("# set\nexport A_WORD='yes'\n\nOTHER=1\n")
    path = project.parent / "langgraph.json"
    path.write_text(
        json.dumps(
            {
                "dependencies": [".", "./lib", "langchain"],
                "env": "vars.env",
                "graphs": {
                    "one": f"./{project.name}:compiled",
                    "two": {"path": f"{project.stem}:factory", "description": "The second."},
                },
            }
        )
    )

    found = read_project(path)
    environ = {"OTHER": "kept"}
    found.enter(environ)

    assert environ == {"OTHER": "kept", "A_WORD": "yes"}
    agents = registry(sqlite_room.store, project, **merge({}, found.graphs))
    assert await say(sqlite_room, agents.get("one"), "hi") == Finished()
    assert await say(sqlite_room, agents.get("two"), "ho") == Finished()
    assert {info.name: info.description for info in agents.infos()}["two"] == "The second."
    answers = [row["content"] for row in await history(sqlite_room.store) if row["role"] == "assistant"]
    assert answers == ["echo: hi", "echo: ho"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "graphs"),
        ('{"graphs": {"a": "x"}}', "not written as"),
        (None, "cannot be read"),
    ],
)
def test_a_langgraph_json_that_is_wrong_says_where(tmp_path, text, problem):
    path = tmp_path / "langgraph.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ValueError, match=problem):
        read_project(path)


def test_the_registry_loads_neither_langgraph_nor_langchain():
    code = "import sys, dromos.agents.registry; print([m for m in sys.modules if m.startswith(('lang', 'httpx'))])"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )

    assert done.stdout.strip() == "[]"


async def test_an_agent_that_runs_elsewhere_has_a_name_here_and_nothing_to_load(sqlite_room, project):
    config = AgentsConfig(
        root=project.parent, remote={"far": "Looks things up", "other": ""}, model="scripted"
    )
    room = sqlite_room
    agents = AgentRegistry(
        config, store=room.store, toolbox=FunctionToolbox(), clock=SystemClock(), ids=Counted()
    )
    infos = {info.name: info for info in agents.infos()}
    assert set(infos) == {"assistant", "far", "other"}
    assert (infos["far"].kind, infos["far"].description) == ("remote", "Looks things up")
    assert infos["other"].description
    far = agents.get("far")
    assert far is not None
    assert (await far.pending("c1"), await far.checkpoints("c1")) == ((), [])
    await room.conversation()
    run, recorder = await room.run()
    refused = await far.attempt(Attempt(run, None, recorder, LiveNotes(), asyncio.Event()))
    assert isinstance(refused, Failed)
    assert refused.code is ErrorCode.CONFIG_INVALID
    assert "remote = true" in refused.message
