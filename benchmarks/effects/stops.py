"""A stop while a real model server streams: how soon the run has ended, and what is still taken from the model."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.effects.stage import Client, Hall
from benchmarks.measure import Row
from dromos.testing.processes import RealProcess, free_port
from dromos.testing.waiting import eventually

RATE = 100
LOOK = 0.005


@dataclass
class Stopped:
    ended: list[float] = field(default_factory=list)
    """Seconds from the answer to the stop to the run's end, as the database has both."""
    seen: list[float] = field(default_factory=list)
    """Seconds from sending the stop to seeing the end."""
    closed: list[float] = field(default_factory=list)
    """Seconds from sending the stop to the closed connection at the model's side."""
    pulled: list[int] = field(default_factory=list)
    """Tokens that were taken after the stop was answered."""
    wrong: list[str] = field(default_factory=list)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


async def stop_one(client: Client, model: httpx.AsyncClient, told: Stopped) -> None:
    conversation = (await client.create("/v1/conversations", {}))["id"]
    text = {"content": f"!tokens 5000 {RATE}"}
    run_id = (await client.create(f"/v1/conversations/{conversation}/messages", text))["run"]["id"]

    async def newest() -> dict[str, Any]:
        recent: list[dict[str, Any]] = (await model.get("/stats")).json()["recent"]
        return recent[-1] if recent else {"open": False, "tokens": 0}

    async def streams() -> bool:
        one = await newest()
        return bool(one["open"] and one["tokens"] > 5)

    await eventually(streams, seconds=30, what="a stream", every=LOOK)
    began = time.perf_counter()
    answer = (await client.ask("POST", f"/v1/runs/{run_id}/cancel", {})).json()
    at_answer = (await newest())["tokens"]

    async def over() -> bool:
        return not (await newest())["open"]

    async def ended() -> dict[str, Any] | None:
        run = await client.get(f"/v1/runs/{run_id}")
        return run if run["finished_at"] else None

    async def timed(look: Any, what: str) -> tuple[Any, float]:
        value = await eventually(look, seconds=20, what=what, every=LOOK)
        return value, time.perf_counter() - began

    (_, closed), (run, seen) = await asyncio.gather(timed(over, "the closed call"), timed(ended, "the end"))
    told.closed.append(closed)
    told.seen.append(seen)
    accepted = (run["stop"] or answer["run"]["stop"])["accepted_at"]
    told.ended.append(_between(accepted, run["finished_at"]))
    told.pulled.append((await newest())["tokens"] - at_answer)
    if run["status"] != "cancelled":
        told.wrong.append(f"I5: {run_id} is {run['status']}")


def _between(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


async def run(stops: int) -> Stopped:
    told, port = Stopped(), free_port()
    with tempfile.TemporaryDirectory(prefix="dromos-stops-") as folder:
        model = RealProcess(
            [sys.executable, "-m", "dromos.testing.model_server", "--port", str(port)],
            log=Path(folder) / "model.log",
        )
        url = f"http://127.0.0.1:{port}"
        env = {
            "DROMOS_MODEL": "openai:scripted",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "x",
        }
        async with model:
            await eventually(lambda: "http" in model.logs(), seconds=30, what="the model server")
            async with Hall(Path(folder) / "hall", env=env).open_doors() as hall:
                async with Client(hall, "person") as client:
                    async with httpx.AsyncClient(base_url=url, trust_env=False) as stats:
                        for _ in range(stops):
                            await stop_one(client, stats, told)
                told.wrong += await hall.violations()
    return told


async def measure(full: bool) -> list[Row]:
    stops = 200 if full else 10
    told = await run(stops)
    ended, closed = percentile(told.ended, 0.95), percentile(told.closed, 1.0)
    most = max(told.pulled)
    return [
        Row(
            f"stop accepted → run ended, {stops} streaming model calls",
            f"p50 {percentile(told.ended, 0.5) * 1000:.0f} ms",
            f"seen by a client p95 {percentile(told.seen, 0.95) * 1000:.0f} ms",
            f"p95 {ended * 1000:.0f} ms",
            "≤ 300 ms",
            ended <= 0.3 and not told.wrong,
        ),
        Row(
            "stop sent → connection closed at the model",
            f"p50 {percentile(told.closed, 0.5) * 1000:.0f} ms",
            "",
            f"longest {closed * 1000:.0f} ms",
            "≤ 1 s",
            closed <= 1.0,
        ),
        Row(
            f"tokens taken after the stop was answered, at {RATE}/s",
            f"{sum(told.pulled)} in {stops}",
            "",
            f"{most} at most",
            "near zero",
            most <= RATE * 0.3,
        ),
    ]
