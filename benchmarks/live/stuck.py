"""Clients that connect and never read while runs are busy: the server's memory, and the others' delay."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.live.devices import Seen, look
from benchmarks.live.stage import conversation, send, stage, stuck_client
from benchmarks.measure import Row, rss_kib
from benchmarks.wire import Connection

BUSY_RUNS = 8


@dataclass
class Told:
    """Memory in KiB by seconds since the clients came; what a device that reads saw meanwhile; streams open at the
    end."""

    memory: list[tuple[float, int]] = field(default_factory=list)
    others: Seen = field(default_factory=Seen)
    streams: int = 0

    def slope(self) -> float:
        """KiB a minute, least squares over the second half: caches are full by then."""
        points = self.memory[len(self.memory) // 2 :]
        mean_x = sum(x for x, _ in points) / len(points)
        mean_y = sum(y for _, y in points) / len(points)
        spread = sum((x - mean_x) ** 2 for x, _ in points)
        return 60 * sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


async def run(clients: int, seconds: float) -> Told:
    told = Told()
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            process = await stack.enter_async_context(stage(Path(folder)))
            sender = await stack.enter_async_context(Connection(process.port))
            rooms = [await conversation(sender) for _ in range(BUSY_RUNS)]
            reader = await stack.enter_async_context(Connection(process.port))
            looking = asyncio.create_task(look(reader, rooms[0], told.others))
            raw = []
            for number in range(clients):
                raw.append(stuck_client(process.port, rooms[number % BUSY_RUNS]))
                stack.callback(raw[-1].close)
            began = time.monotonic()
            for room in rooms:
                await send(sender, room, seconds=seconds, rate=100, steps=max(1, int(seconds)))
            while (now := time.monotonic() - began) < seconds:
                told.memory.append((now, rss_kib(process.pid)))
                await asyncio.sleep(min(2.0, seconds / 20))
            async with httpx.AsyncClient(base_url=process.url, trust_env=False) as http:
                figures = (await http.get("/metrics")).text
            told.streams = int(float(figures.split("\ndromos_streams_open ")[1].split("\n")[0]))
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
    return told


async def measure(full: bool) -> list[Row]:
    clients, seconds = (50, 600.0) if full else (10, 12.0)
    told = await run(clients, seconds)
    slope = told.slope() / 1024
    p95 = 1000 * told.others.percentile(0.95)
    size = f"{clients} clients that never read, {BUSY_RUNS} busy runs, {seconds / 60:.1f} minutes"
    growth = (told.memory[-1][1] - told.memory[len(told.memory) // 2][1]) / 1024
    return [
        Row(
            f"resident memory ({size})",
            f"{told.memory[-1][1] / 1024:.0f} MiB",
            f"{growth:+.1f} MiB in the second half",
            f"{slope:+.2f} MiB/min",
            "< 1 MiB/min" if full else "printed",
            slope < 1 if full else None,
        ),
        Row(
            "streams that are open at the end",
            str(told.streams),
            "one of them is read",
            "",
            "1" if full else "printed",
            told.streams == 1 if full else None,
        ),
        Row(
            "from a change to a device that reads, meanwhile",
            f"p95 {p95:.0f} ms",
            "",
            "",
            "≤ 250 ms",
            p95 <= 250,
        ),
    ]
