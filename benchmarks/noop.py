"""A whole run over HTTP: POST a message, see `completed` on the stream. Against the bare graph, and against DBOS."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.graphs import bare_run, counting, stock_sqlite, timed
from benchmarks.measure import Row, Side, interleave
from benchmarks.wire import Connection, Watcher, served
from dromos.testing.postgres_server import PostgresServer
from dromos.testing.processes import ServeProcess

CLIENTS = 32
RUNS = 320


class Client:
    """One person's connections: one to post, one that watches (shared by all clients of a benchmark)."""

    def __init__(self, connection: Connection, watcher: Watcher) -> None:
        self.connection, self.watcher = connection, watcher

    async def run(self) -> None:
        conversation = await self.connection.ask("POST", "/v1/conversations", {})
        await self.message(conversation["id"])

    async def message(self, conversation: str) -> None:
        path = f"/v1/conversations/{conversation}/messages"
        posted = await self.connection.ask("POST", path, {"content": "go"})
        status = await self.watcher.ended(posted["run"]["id"])
        if status != "completed":
            raise RuntimeError(f"the run ended {status}")


async def clients(process: ServeProcess, number: int, stack: AsyncExitStack) -> list[Client]:
    watching = await stack.enter_async_context(Connection(process.port))
    watcher = Watcher(watching)
    await watcher.start()
    stack.push_async_callback(watcher.aclose)
    return [Client(await stack.enter_async_context(Connection(process.port)), watcher) for _ in range(number)]


async def fresh_conversations(people: list[Client], number: int) -> list[str]:
    made = []
    for index in range(number):
        answer = await people[index % len(people)].connection.ask("POST", "/v1/conversations", {})
        made.append(answer["id"])
    return made


def loaded(people: list[Client], runs: int) -> Side:
    """runs/s, every client sending its next message when its run has ended, each in a conversation of its own."""

    async def side() -> float:
        conversations = await fresh_conversations(people, runs)
        queue = iter(conversations)

        async def work(client: Client) -> None:
            for conversation in queue:
                await client.message(conversation)

        began = time.perf_counter()
        await asyncio.gather(*(work(client) for client in people))
        return runs / (time.perf_counter() - began)

    return side


def one_by_one(client: Client, runs: int) -> Side:
    """Seconds a run, one at a time."""

    async def side() -> float:
        conversations = await fresh_conversations([client], runs)
        began = time.perf_counter()
        for conversation in conversations:
            await client.message(conversation)
        return (time.perf_counter() - began) / runs

    return side


async def measure(rounds: int) -> list[Row]:
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        process = await stack.enter_async_context(served(folder))
        saver = await stack.enter_async_context(stock_sqlite(folder / "stock.db"))
        graph = counting(1).compile(checkpointer=saver)
        people = await clients(process, CLIENTS, stack)

        async def bare() -> float:
            return await timed(40, 1, lambda: bare_run(graph)) / 40

        seen = await interleave({"ours": one_by_one(people[0], 40), "bare": bare}, rounds)
        ratio = seen["ours"] / seen["bare"]
        rows.append(
            Row(
                "a no-op run end to end over HTTP, SQLite, one at a time",
                f"{1000 * seen['ours']:.1f} ms",
                f"{1000 * seen['bare']:.1f} ms (bare graph, stock saver)",
                f"{ratio:.2f}×",
                "≤ 2.0×",
                ratio <= 2.0,
            )
        )
        on_sqlite = (await interleave({"ours": loaded(people, RUNS)}, rounds))["ours"]
    with PostgresServer() as server:
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = stack.enter_context(server.database())
            process = await stack.enter_async_context(served(folder, url))
            people = await clients(process, CLIENTS, stack)
            workflow = await stack.enter_async_context(dbos(stack.enter_context(server.database())))

            async def theirs() -> float:
                return RUNS / await timed(RUNS, CLIENTS, workflow)

            seen = await interleave({"ours": loaded(people, RUNS), "dbos": theirs}, rounds)
    ratio = seen["ours"] / seen["dbos"]
    rows.append(
        Row(
            f"runs/s over HTTP, PostgreSQL, {CLIENTS} clients",
            f"{seen['ours']:.0f}",
            f"{seen['dbos']:.0f} (DBOS, one-step workflows in process)",
            f"{ratio:.2f}×",
            "≥ 1.0×",
            ratio >= 1.0,
        )
    )
    rows.append(
        Row(f"the same on SQLite, {CLIENTS} clients", f"{on_sqlite:.0f}", "", f"{on_sqlite:.0f}/s", "", None)
    )
    return rows


@asynccontextmanager
async def dbos(url: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A one-step workflow of DBOS on a database of its own."""
    from dbos import DBOS, DBOSConfig

    config: DBOSConfig = {"name": "bench", "system_database_url": url}
    DBOS(config=config)

    @DBOS.step()
    async def step() -> str:
        return "x"

    @DBOS.workflow()
    async def workflow() -> str:
        return await step()

    DBOS.launch()

    async def once() -> None:
        handle = await DBOS.start_workflow_async(workflow)
        await handle.get_result()

    try:
        yield once
    finally:
        DBOS.destroy()
