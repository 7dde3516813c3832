"""Memory and starts: idle, per idle stream, cold start to ready, kill to a recovered run that executes again."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import orjson

from benchmarks.measure import Row, rss_kib
from benchmarks.streaming import start
from benchmarks.wire import Connection, served
from dromos.testing.processes import ServeProcess

STREAMS = 500


async def cold_start(folder: Path) -> float:
    """Seconds from the command to the first good `/readyz`, on an empty data folder."""
    process = ServeProcess(folder / f"data-{time.monotonic_ns()}", cwd=folder)
    began = time.perf_counter()
    async with process:
        seconds = time.perf_counter() - began
        process.term()
        await process.wait_exit(30)
    return seconds


async def per_stream(process: ServeProcess) -> float:
    """KiB of resident memory for each of many idle streams."""
    async with AsyncExitStack() as stack:

        async def open_one() -> None:
            connection = await stack.enter_async_context(Connection(process.port))
            events = connection.events("/v1/stream")
            await anext(events)
            opened.append(events)

        opened: list[object] = []
        for _ in range(20):
            await open_one()
        before = rss_kib(process.pid)
        for _ in range(STREAMS):
            await open_one()
        return (rss_kib(process.pid) - before) / STREAMS


async def first_words(reader: Connection, conversation: str) -> None:
    """Wait until the conversation's run has said something."""
    async for event, data, _ in reader.events(f"/v1/stream?focus={conversation}"):
        text = orjson.loads(data).get("document", {}).get("text") or {}
        if event == b"run.text" or text.get("length"):
            return


async def recovery(folder: Path) -> float:
    """Seconds from ready to the first sign of the recovered run's new attempt at work."""
    process = ServeProcess(folder / f"data-{time.monotonic_ns()}", cwd=folder)
    async with process:
        async with Connection(process.port) as connection:
            conversation, run_id, _ = await start(connection, "!tokens 100000 20")
        async with Connection(process.port) as reader:
            await first_words(reader, conversation)
        process.kill()
        await process.restart()
        ready = time.perf_counter()
        async with Connection(process.port) as reader:
            await first_words(reader, conversation)
        seconds = time.perf_counter() - ready
        async with Connection(process.port) as connection:
            await connection.ask("POST", f"/v1/runs/{run_id}/cancel?wait_s=10", {})
    return seconds


async def measure(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        starts = statistics.median([await cold_start(folder) for _ in range(rounds)])
        async with served(folder / "served") as process:
            idle = rss_kib(process.pid) / 1024
            stream = await per_stream(process)
        recovered = statistics.median([await recovery(folder) for _ in range(rounds)])
    return [
        Row(
            "resident memory, idle, engine loaded",
            f"{idle:.0f} MiB",
            "",
            "",
            "≤ 260 MB (180 the aim)",
            idle <= 248,
        ),
        Row("resident memory for an idle stream", f"{stream:.0f} KiB", "", "", "≤ 40 KB", stream <= 39),
        Row("cold start to ready", f"{starts:.2f} s", "", "", "≤ 5 s (2 s the aim)", starts <= 5),
        Row(
            "after a kill: ready to the recovered run executing",
            f"{recovered:.2f} s",
            "",
            "",
            "≤ 1 s",
            recovered <= 1,
        ),
    ]
