"""The graphs that both sides run, and the bare side: LangGraph with its own saver, nothing of ours."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph

STEPS = int(os.environ.get("BENCH_STEPS", "50"))
TEXT = "x" * 216


class Counting(MessagesState):
    """A state with a history and a counter."""

    count: int


def counting(steps: int, each_says: bool = False) -> StateGraph[Any, Any, Any, Any]:
    """A loop of `steps` trivial steps; with `each_says` every step adds a message of 216 characters."""

    async def step(state: Counting) -> dict[str, Any]:
        count = state.get("count", 0) + 1
        if count >= steps or each_says:
            return {"count": count, "messages": [AIMessage(TEXT)]}
        return {"count": count}

    def more(state: Counting) -> str:
        return END if state["count"] >= steps else "step"

    builder = StateGraph(Counting)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", more)
    return builder


def fifty() -> Any:
    """`benchmarks.graphs:fifty`: the graph of the steps figure."""
    return counting(STEPS).compile()


def thousand() -> Any:
    """`benchmarks.graphs:thousand`: the graph of the growth figure."""
    return counting(999, each_says=True).compile()


def noop() -> Any:
    """`benchmarks.graphs:noop`: one step, one answer."""
    return counting(1).compile()


@asynccontextmanager
async def stock_sqlite(path: Path) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        await saver.setup()
        yield saver


@asynccontextmanager
async def stock_postgres(url: str) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(url, kwargs=options, max_size=16, open=False)
    async with pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield saver


async def bare_run(graph: Any, limit: int = 10_000) -> None:
    """One run of a compiled graph with its saver, synchronous durability, a thread of its own."""
    config = {"configurable": {"thread_id": str(uuid.uuid4())}, "recursion_limit": limit}
    async for _ in graph.astream({"messages": [HumanMessage("go")]}, config, durability="sync"):
        pass


async def timed(runs: int, at_once: int, one: Any) -> float:
    """Seconds for `runs` calls of `one`, `at_once` at a time."""
    gate = asyncio.Semaphore(at_once)

    async def guarded() -> None:
        async with gate:
            await one()

    began = time.perf_counter()
    await asyncio.gather(*(guarded() for _ in range(runs)))
    return time.perf_counter() - began
