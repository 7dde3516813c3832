"""Graphs of a person's own, loaded by the server under test: for the crash points that the assistant does not reach.

`own` asks by itself, stops at a breakpoint, counts outside once, and answers in a field. `pruned` tidies up its own
thread while it works. `late` is left out when a claim makes the inputs, so that its attempt makes its own. It must not
know when the server dies.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypedDict

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from dromos.agents.langgraph.durable import durable
from dromos.domain.effects import arguments_digest
from dromos.lifecycle.claim import Compose
from dromos.worker.service import Worker

LATE = "late"
CHECKPOINTER = "__pregel_checkpointer"
"""Where LangGraph hands a node the saver of its graph."""


class Work(TypedDict, total=False):
    task: str
    asked: str
    said: str


def _count(label: str, idempotency_key: str | None = None) -> str:
    """As the counting tool does, and into the same file."""
    effect = {
        "run": None,
        "call": None,
        "key": idempotency_key,
        "arguments": arguments_digest({"label": label}),
        "tool": "own",
        "label": label,
    }
    with Path(os.environ["CT_FILE"]).open("a") as file:
        file.write(json.dumps(effect) + "\n")
    return f"counted {label}"


count = durable(_count, name="own_count", replay="unsafe")


def _ask(state: Work) -> Work:
    return {"asked": interrupt("Was it good?")}


def _work(state: Work) -> Work:
    count(state["task"])
    return {"said": f"{state['asked']} good: {state['task']}"}


def _look(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage("I look")]}


async def _tidy(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    places = config["configurable"]
    await places[CHECKPOINTER].aprune([places["thread_id"]])
    return {}


def _tell(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"I saw {len(state['messages'])}")]}


def _own() -> Any:
    graph = StateGraph(Work)
    graph.add_node("ask", _ask)
    graph.add_node("work", _work)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "work")
    graph.add_edge("work", END)
    return graph.compile(interrupt_before=["work"])


def _pruned() -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("look", _look)
    graph.add_node("tidy", _tidy)
    graph.add_node("tell", _tell)
    graph.add_edge(START, "look")
    graph.add_edge("look", "tidy")
    graph.add_edge("tidy", "tell")
    graph.add_edge("tell", END)
    return graph.compile()


def _late() -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("tell", _tell)
    graph.add_edge(START, "tell")
    graph.add_edge("tell", END)
    return graph.compile()


def _leave_out(worker: type[Worker]) -> None:
    """From now on this worker's claims make no input for `late`."""
    all_of_them = worker._composers

    def but_one(self: Worker) -> dict[str, Compose]:
        return {name: compose for name, compose in all_of_them(self).items() if name != LATE}

    worker._composers = but_one  # type: ignore[method-assign]


own, pruned, late = _own(), _pruned(), _late()
_leave_out(Worker)
