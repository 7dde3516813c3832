"""Many devices on many live runs: how long a change takes to reach who looks, and that nobody else gets any of it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from benchmarks.live.stage import conversation, send, stage
from benchmarks.measure import Row
from benchmarks.wire import Connection


@dataclass
class Seen:
    """`delays` in seconds; `foreign`: bytes of frames that came to devices without focus."""

    delays: list[float] = field(default_factory=list)
    frames: int = 0
    foreign: int = 0
    events: int = 0

    def percentile(self, part: float) -> float:
        ordered = sorted(self.delays)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


async def watch(devices: int, runs: int, rate: int, seconds: float) -> Seen:
    """`devices` look at `runs` in turn, a tenth as many look at nothing; every run changes `rate` times a second."""
    seen = Seen()
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            process = await stack.enter_async_context(stage(Path(folder)))
            sender = await stack.enter_async_context(Connection(process.port))
            rooms = [await conversation(sender) for _ in range(runs)]
            tasks = []
            for number in range(devices):
                reader = await stack.enter_async_context(Connection(process.port))
                tasks.append(asyncio.create_task(look(reader, rooms[number % runs], seen)))
            for _ in range(max(1, devices // 10)):
                reader = await stack.enter_async_context(Connection(process.port))
                tasks.append(asyncio.create_task(_elsewhere(reader, seen)))
            for room in rooms:
                await send(sender, room, seconds=seconds, rate=rate)
            await asyncio.sleep(seconds + 2)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return seen


async def look(reader: Connection, room: str, seen: Seen) -> None:
    async for event, data, _ in reader.events(f"/v1/stream?focus={room}"):
        if event == b"run.patch":
            now = time.time()
            seen.frames += 1
            for operation in orjson.loads(data)["patch"]:
                if operation["path"] == "/line":
                    seen.delays.append(now - float(operation["value"]))


async def _elsewhere(reader: Connection, seen: Seen) -> None:
    async for event, _, size in reader.events("/v1/stream"):
        seen.events += 1
        if event in (b"run.patch", b"run.text", b"run.document", b"run.server"):
            seen.foreign += size


async def measure(full: bool) -> list[Row]:
    devices, runs, seconds = (200, 50, 60.0) if full else (20, 5, 4.0)
    seen = await watch(devices, runs, 10, seconds)
    p50, p95 = 1000 * seen.percentile(0.5), 1000 * seen.percentile(0.95)
    size = f"{devices} devices, {runs} live runs at 10 changes/s, {seconds:g} s"
    return [
        Row(
            f"from a change to the devices that look ({size})",
            f"p95 {p95:.0f} ms, median {p50:.0f} ms",
            f"{seen.frames} frames",
            "",
            "p95 ≤ 250 ms",
            p95 <= 250,
        ),
        Row(
            "bytes of frames to devices without focus meanwhile",
            str(seen.foreign),
            f"{seen.events} durable events and signs of life",
            "",
            "0",
            seen.foreign == 0 and seen.events > 0,
        ),
    ]
