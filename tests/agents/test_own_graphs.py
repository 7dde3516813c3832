"""Graphs that people bring: one without messages gets one thing at a time; each node's record names its checkpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dromos.agents.engine_input import chat_input, field_input
from dromos.agents.langgraph.adapter import LangGraphAgent
from dromos.agents.langgraph.configured import ConfiguredSource
from dromos.ports.agent import Attempt, Failed, Finished, InputMessage
from dromos.ports.store import Table
from tests.agents.kit import LiveNotes, SystemClock, assistant, desk, rows
from tests.agents.test_attempts import attempt_of

SUMMARY = """
from pathlib import Path
from typing import TypedDict
from langgraph.graph import END, START, StateGraph

class State(TypedDict, total=False):
    document: str
    summary: str

def read(state):
    if state["document"] == "broken" and not (Path(__file__).parent / "repaired").exists():
        raise ValueError("cannot be read")
    return {}

def write(state):
    return {"summary": f"about {state['document']}"}

builder = StateGraph(State)
builder.add_node("read", read)
builder.add_node("write", write)
builder.add_edge(START, "read")
builder.add_edge("read", "write")
builder.add_edge("write", END)
graph = builder.compile()
"""


def said(*contents: Any) -> list[InputMessage]:
    return [
        InputMessage(f"m{n}", "user" if n % 2 == 0 else "assistant", content)
        for n, content in enumerate(contents)
    ]


@pytest.mark.parametrize(
    ("contents", "value"),
    [
        (["one"], "one"),
        (["one", "an answer", "two"], "two"),
        (['{"n": 1}'], {"n": 1}),
        (["one", "an answer", '{"n": 2}'], {"n": 2}),
        (["[1, 2]"], "[1, 2]"),
        (["{broken"], "{broken"),
        ([[{"type": "text", "text": "parts"}]], [{"type": "text", "text": "parts"}]),
    ],
)
def test_a_field_gets_the_newest_message_alone(contents, value):
    assert field_input("document", said(*contents)) == {"document": value}


@pytest.mark.parametrize(
    ("content", "given"),
    [
        ("one", "one"),
        (["one", {"type": "text", "text": "two"}], ["one", {"type": "text", "text": "two"}]),
        ({"n": 1, "ü": None}, '{"n":1,"ü":null}'),
        ([1, 2], "[1,2]"),
        ([{"n": 1}], '[{"n":1}]'),
    ],
)
async def test_a_chat_gets_content_that_is_no_message_as_its_json_text(room, content, given):
    assert chat_input(said(content))["messages"][0]["content"] == given

    await room.conversation()
    agent = assistant(room.store)
    for message in (content, "!say next"):
        run, recorder = await room.run()
        said_now = InputMessage(f"{run.id}-m", "user", message)
        attempt = Attempt(
            run, agent.compose([said_now]), recorder, LiveNotes(), asyncio.Event(), desk=desk(recorder)
        )
        assert await agent.attempt(attempt) == Finished()
    stored = await rows(room.store, Table.MESSAGES, order=("position",))
    assert [row["content"] for row in stored][2:] == ["!say next", "next"]


@pytest.fixture
def summary(room, tmp_path: Path) -> LangGraphAgent:
    file = tmp_path / "summary.py"
    file.write_text(SUMMARY)
    source = ConfiguredSource(
        "summary", f"{file}:graph", tmp_path, input_field="document", output_field="summary"
    )
    return LangGraphAgent(source, room.store, SystemClock())


async def test_each_node_is_recorded_with_the_checkpoint_that_ended_it(room, summary):
    await room.conversation()
    run, recorder = await room.run()

    assert await summary.attempt(attempt_of(run, recorder, summary, "bees")) == Finished()

    steps = await rows(room.store, Table.RUN_STEPS, order=("num",))
    by_step = {summary.step: summary.checkpoint_id for summary in await summary.checkpoints("c1")}
    assert [(row["name"], row["status"], row["checkpoint_id"]) for row in steps] == [
        ("read", "done", by_step[1]),
        ("write", "done", by_step[2]),
    ]


async def test_a_node_that_failed_is_recorded_as_failed_and_its_repeat_once_more(room, summary, tmp_path):
    await room.conversation()
    run, recorder = await room.run()
    assert isinstance(await summary.attempt(attempt_of(run, recorder, summary, "broken")), Failed)
    (tmp_path / "repaired").touch()
    again, recorder = await room.run(resume_of=run.id)
    assert await summary.attempt(attempt_of(again, recorder, summary)) == Finished()

    steps = await rows(room.store, Table.RUN_STEPS, order=("run_id", "num"))
    assert [(row["run_id"], row["name"], row["status"]) for row in steps] == [
        (run.id, "read", "failed"),
        (again.id, "read", "done"),
        (again.id, "write", "done"),
    ]
    answers = await rows(room.store, Table.MESSAGES, role="assistant")
    assert [(row["content"], row["run_id"]) for row in answers] == [("about broken", again.id)]
