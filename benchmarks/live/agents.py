"""The graph that the figures of the live box drive: it works in steps and shows something so many times a second.

The message says how: `{"seconds": 10, "rate": 10, "steps": 5}`. What it shows is the time, so that whoever receives it
can tell how long it took. With `slots` other messages are answered at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph


class Ticking(MessagesState):
    """A history, and the count of steps."""

    count: int


def asked(state: Ticking) -> dict[str, float]:
    human = next(message for message in reversed(state["messages"]) if message.type == "human")
    told: dict[str, float] = json.loads(str(human.content))
    return told


async def step(state: Ticking) -> dict[str, Any]:
    ask, show = asked(state), get_stream_writer()
    count = state.get("count", 0) + 1
    end = time.monotonic() + ask["seconds"] / ask["steps"]
    pause = 1 / ask["rate"] if ask["rate"] else ask["seconds"]
    told = time.monotonic()
    while (now := time.monotonic()) < end:
        while ask["rate"] and told <= now:
            show({"dromos": {"line": f"{time.time():.6f}"}})
            told += pause
        await asyncio.sleep(min(pause, end - now))
    if count < ask["steps"]:
        return {"count": count}
    return {"count": count, "messages": [AIMessage("done")]}


def ticking() -> Any:
    builder = StateGraph(Ticking)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_conditional_edges(
        "step", lambda state: END if state["count"] >= asked(state)["steps"] else "step"
    )
    return builder.compile()
