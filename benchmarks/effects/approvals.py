"""Many people press the same button at once: one of them wins, and what was allowed happens once.

Rounds take turns: all twenty approve, or half of them approve and half deny.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.effects.stage import AGAIN, Client, Hall, Json
from benchmarks.effects.talks import follow
from benchmarks.measure import Row
from dromos.testing.waiting import eventually

PRESSES = 20
LOOK = 0.002


@dataclass
class Pressed:
    rounds: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """From pressing, alone, to the call's effect outside."""

    def percentile(self, share: float) -> float:
        return sorted(self.seconds)[min(int(share * len(self.seconds)), len(self.seconds) - 1)]


async def ask(client: Client, label: str) -> tuple[str, Json]:
    """A run that waits for a person's leave: its id, and the question."""
    conversation = (await client.create("/v1/conversations", {}))["id"]
    text = f'!call a__count {{"label": "{label}"}}\n!say after'
    run_id = (await client.create(f"/v1/conversations/{conversation}/messages", {"content": text}))["run"][
        "id"
    ]

    async def look() -> Json | None:
        items = (await client.get("/v1/requests", status="open", limit=200))["items"]
        return next((one for one in items if one["run_id"] == run_id), None)

    request = await eventually(look, seconds=30, what="the question", every=AGAIN)
    assert request is not None
    return run_id, request


def word(request: Json, decision: str) -> Json:
    seen = {"request_version": request["version"], "arguments_sha256": request["arguments_sha256"]}
    return {"decision": decision, **seen}


async def press(client: Client, rounds: int, told: Pressed) -> None:
    for number in range(rounds):
        label = f"round {number}"
        run_id, request = await ask(client, label)
        mixed = number % 2 == 1
        said = ["deny" if mixed and press % 2 else "approve" for press in range(PRESSES)]
        path = f"/v1/requests/{request['id']}/decision"
        answers = await asyncio.gather(
            *(client.post(path, word(request, decision), also=[409], keep=False) for decision in said)
        )
        await follow(client, run_id)
        told.rounds += 1
        taken = (await client.get(f"/v1/requests/{request['id']}"))["decision"]["decision"]
        fair = all(
            answer.is_success == (decision == taken)
            and (answer.is_success or answer.json()["code"] == "already_decided")
            for answer, decision in zip(answers, said, strict=True)
        )
        events = (await client.get(f"/v1/runs/{run_id}/events"))["items"]
        closed = Counter(one["type"] for one in events)["request.closed"]
        effects = client.hall.counted()[label]
        if not fair or closed != 1 or effects != (taken == "approve"):
            codes = Counter(answer.status_code for answer in answers)
            told.wrong.append(f"{label}: {taken}, {codes}, decided {closed} times, {effects} effects")


async def time_to_call(client: Client, rounds: int, told: Pressed) -> None:
    for number in range(rounds):
        label = f"timed {number}"
        run_id, request = await ask(client, label)
        began = time.perf_counter()
        await client.post(f"/v1/requests/{request['id']}/decision", word(request, "approve"), keep=False)

        def happened(label: str = label) -> bool:
            return client.hall.counted()[label] > 0

        await eventually(happened, seconds=30, what="the effect", every=LOOK)
        told.seconds.append(time.perf_counter() - began)
        await follow(client, run_id)


async def run(rounds: int, timed: int) -> Pressed:
    told = Pressed()
    with tempfile.TemporaryDirectory(prefix="dromos-approvals-") as folder:
        async with Hall(Path(folder) / "hall").open_doors() as hall, Client(hall, "people") as client:
            await press(client, rounds, told)
            await time_to_call(client, timed, told)
            told.wrong += await hall.violations()
    return told


async def measure(full: bool) -> list[Row]:
    rounds, timed = (500, 200) if full else (20, 20)
    told = await run(rounds, timed)
    p95 = told.percentile(0.95) * 1000
    return [
        Row(
            f"{PRESSES} presses on one question at once, {rounds} rounds",
            f"{told.rounds} winners",
            "",
            f"{len(told.wrong)} rounds with another outcome",
            "one winner, one effect each",
            not told.wrong,
        ),
        Row(
            f"approval pressed → its effect outside, {timed} times",
            f"p50 {told.percentile(0.5) * 1000:.0f} ms",
            f"p99 {told.percentile(0.99) * 1000:.0f} ms",
            f"p95 {p95:.0f} ms",
            "≤ 300 ms",
            p95 <= 300,
        ),
    ]
