"""The stream: time to the first token, tokens/s to one reader and to twenty, bytes on the wire."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import orjson

from benchmarks.measure import Row, interleave
from benchmarks.wire import Connection, served
from dromos.testing.processes import ServeProcess

WORDS = 20_000
RATE = 200
SECONDS = 20


async def start(connection: Connection, script: str) -> tuple[str, str, float]:
    """(conversation, run, time of the POST) of a message to the assistant."""
    made = await connection.ask("POST", "/v1/conversations", {"agent": "assistant"})
    return made["id"], *(await post(connection, made["id"], script))


async def post(connection: Connection, conversation: str, script: str) -> tuple[str, float]:
    began = time.perf_counter()
    posted = await connection.ask("POST", f"/v1/conversations/{conversation}/messages", {"content": script})
    return posted["run"]["id"], began


async def first_token(process: ServeProcess) -> float:
    """Seconds from the POST to the first `run.text` of a stream that was open before."""
    async with Connection(process.port) as sender, Connection(process.port) as reader:
        made = await sender.ask("POST", "/v1/conversations", {"agent": "assistant"})
        seen: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        ready = asyncio.Event()

        async def read() -> None:
            async for event, _, _ in reader.events(f"/v1/stream?focus={made['id']}"):
                ready.set()
                if event == b"run.text":
                    seen.set_result(time.perf_counter())
                    return

        task = asyncio.create_task(read())
        await ready.wait()
        _, began = await post(sender, made["id"], "!say hello there")
        arrived = await asyncio.wait_for(seen, 20)
        await task
        return arrived - began


async def duration(process: ServeProcess, readers: int, script: str) -> float:
    """Seconds from claim to end of a run, as the server tells them, watched by `readers`."""
    async with AsyncExitStack() as stack:
        sender = await stack.enter_async_context(Connection(process.port))
        made = await sender.ask("POST", "/v1/conversations", {"agent": "assistant"})
        watchers = [await stack.enter_async_context(Connection(process.port)) for _ in range(readers)]
        over = asyncio.Event()
        ready = [asyncio.Event() for _ in watchers]

        async def read(reader: Connection, ready: asyncio.Event) -> None:
            async for event, data, _ in reader.events(f"/v1/stream?focus={made['id']}"):
                ready.set()
                if event == b"run.status" and orjson.loads(data)["payload"]["run"]["finished_at"]:
                    over.set()
                    return

        tasks = [asyncio.create_task(read(w, r)) for w, r in zip(watchers, ready, strict=True)]
        await asyncio.gather(*(one.wait() for one in ready))
        run_id, _ = await post(sender, made["id"], script)
        if readers:
            await asyncio.gather(*tasks)
        while True:
            run = await sender.ask("GET", f"/v1/runs/{run_id}")
            if run["finished_at"]:
                break
            await asyncio.sleep(0.2)
        assert run["status"] == "completed", run
        return _seconds(run["finished_at"]) - _seconds(run["started_at"])


def _seconds(moment: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(moment).timestamp()


async def wire_ratio(process: ServeProcess) -> float:
    """Bytes of all frames from the first token to the end, over the bytes of the text."""
    async with Connection(process.port) as sender, Connection(process.port) as reader:
        made = await sender.ask("POST", "/v1/conversations", {"agent": "assistant"})
        wire = text = 0
        ready = asyncio.Event()

        async def read() -> None:
            nonlocal wire, text
            async for event, data, size in reader.events(f"/v1/stream?focus={made['id']}"):
                ready.set()
                if event == b"run.text":
                    text += len(orjson.loads(data)["text"].encode())
                if text:
                    wire += size
                if event == b"run.status" and orjson.loads(data)["payload"]["run"]["finished_at"]:
                    return

        task = asyncio.create_task(read())
        await ready.wait()
        await post(sender, made["id"], f"!tokens {RATE * SECONDS} {RATE}")
        await asyncio.wait_for(task, 60)
        return wire / text


async def measure(rounds: int) -> list[Row]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        process = await stack.enter_async_context(served(folder))
        await duration(process, 0, "!say warm")
        first = statistics.median([await first_token(process) for _ in range(5 * rounds)])
        script = f"!tokens {WORDS} 0"
        seen = await interleave(
            {
                "unwatched": lambda: duration(process, 0, script),
                "one": lambda: duration(process, 1, script),
                "twenty": lambda: duration(process, 20, script),
            },
            rounds,
        )
        ratio = await wire_ratio(process)
    one, twenty = seen["one"] / seen["unwatched"], seen["twenty"] / seen["unwatched"]
    return [
        Row("POST to the first token on the stream", f"{1000 * first:.1f} ms", "", "", "printed", None),
        Row(
            "a run watched by one reader",
            f"{WORDS / seen['one']:.0f} tokens/s",
            f"{WORDS / seen['unwatched']:.0f} tokens/s unwatched",
            f"{one:.2f}× the time",
            "≤ 1.1×",
            one <= 1.1,
        ),
        Row(
            "a run watched by 20 readers",
            f"{WORDS / seen['twenty']:.0f} tokens/s to each",
            f"{WORDS / seen['unwatched']:.0f} tokens/s unwatched",
            f"{twenty:.2f}× the time",
            "≤ 1.1×",
            twenty <= 1.1,
        ),
        Row(
            f"bytes on the wire at {RATE} tokens/s, all frames",
            f"{ratio:.2f}× the text",
            "",
            f"{ratio:.2f}×",
            "≤ 3×",
            ratio <= 3,
        ),
    ]
