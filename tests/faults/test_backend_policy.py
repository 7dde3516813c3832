"""What a run may use, obeyed by graphs: by the built-in assistant at once, by a graph of one's own at each call."""

from __future__ import annotations

from pathlib import Path

import pytest

from dromos.testing.model_server import ModelServer
from dromos.testing.processes import ServeProcess
from tests.faults.driver import Person

GRAPH = """
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

model = ChatOpenAI(model="gpt-own", base_url="{url}", api_key="x", max_retries=0)

async def answer(state):
    return {{"messages": [await model.ainvoke(state["messages"])]}}

builder = StateGraph(MessagesState)
builder.add_node("answer", answer)
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
graph = builder.compile()
"""
SETTINGS = """
[agents.own]
graph = "own_graph:graph"

[agents.own.backend_policy]
providers = ["openai"]
"""


@pytest.mark.slow(120)
async def test_a_graph_asks_no_model_that_its_run_may_not_use(tmp_path: Path) -> None:
    async with ModelServer() as models:
        (tmp_path / "own_graph.py").write_text(GRAPH.format(url=models.base_url))
        (tmp_path / "dromos.toml").write_text(SETTINGS)
        async with ServeProcess(tmp_path / "data", cwd=tmp_path) as server, Person(server) as person:
            made = await person.ask("POST", "/v1/conversations", 201, json={"agent": "own"})
            fine = await person.end((await person.say(made["id"], "!say hello"))["run"]["id"], seconds=40)
            assert (fine["status"], fine["backend_policy"]) == ("completed", {"providers": ["openai"]})
            asked = models.statistics.requests

            narrow = {"backend_policy": {"models": ["gpt-other"]}}
            refused = await person.end(
                (await person.say(made["id"], "!say hello", run=narrow))["run"]["id"], seconds=40
            )
            assert (refused["status"], refused["error_code"]) == ("failed", "CONFIG_INVALID")
            assert "openai:gpt-own" in refused["error_message"] and "gpt-other" in refused["error_message"]
            assert models.statistics.requests == asked

            talk = await person.conversation()
            none = {"backend_policy": {"providers": []}}
            ended = await person.end(
                (await person.say(talk, "!say hello", run=none))["run"]["id"], seconds=40
            )
            assert (ended["status"], ended["error_code"]) == ("failed", "CONFIG_INVALID")
            only = {"backend_policy": {"models": ["scripted"]}}
            done = await person.end((await person.say(talk, "!say hello", run=only))["run"]["id"], seconds=40)
            assert done["status"] == "completed"
