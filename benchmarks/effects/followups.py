"""Messages that come just before, at, and just after a run's end: each is used once, in order.

How long a run takes is learned as it goes; each message is sent so that it meets the end to within the offset.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from benchmarks.effects.stage import AGAIN, FINAL, Client, Hall
from benchmarks.measure import Row
from dromos.testing.waiting import eventually

CHAIN = 25
"""Messages in one conversation."""
OFFSET = 0.05


@dataclass
class Met:
    sent: int = 0
    waited: int = 0
    """Came while the run was live, and had to wait."""
    wrong: list[str] = field(default_factory=list)


async def chain(client: Client, name: str, length: int, chance: random.Random, told: Met) -> None:
    """One conversation: each message is sent around the end of the run before it."""
    here = f"/v1/conversations/{(await client.create('/v1/conversations', {}))['id']}"
    texts = [f"!say {name}.{number}" for number in range(length + 1)]
    took = [0.05]
    posted = await client.create(f"{here}/messages", {"content": texts[0]})
    for text in texts[1:]:
        meets = statistics.median(took[-5:]) + chance.uniform(-OFFSET, OFFSET)
        await asyncio.sleep(max(0.0, meets))
        answer = await client.post(f"{here}/messages", {"content": text})
        told.sent += 1
        told.waited += answer.status_code == 202
        if "run" in posted:
            run = await client.get(f"/v1/runs/{posted['run']['id']}")
            if run["status"] in FINAL:
                took.append(_seconds(run["created_at"], run["finished_at"]))
        posted = answer.json()
        if answer.status_code == 202:  # the next offset is from the start of the run that it makes
            await _begins(client, posted["followup"]["id"])

    async def quiet() -> bool:
        runs = (await client.get("/v1/runs", conversation_id=here.rsplit("/", 1)[1], limit=200))["items"]
        return len(runs) == len(texts) and all(run["status"] in FINAL for run in runs)

    await eventually(quiet, seconds=60, what="the end of every run", every=AGAIN)
    items = (await client.get(f"{here}/messages", limit=200))["items"]
    asked = [one["content"] for one in items if one["role"] == "user"]
    answered = [one["content"] for one in items if one["role"] == "assistant"]
    if asked != texts:
        told.wrong.append(f"{name}: asked {asked}")
    if answered != [text.removeprefix("!say ") for text in texts]:
        told.wrong.append(f"{name}: answered {answered}")
    told.wrong += await client.repeated()


async def _begins(client: Client, followup_id: str) -> None:
    async def applied() -> bool:
        return (await client.get(f"/v1/followups/{followup_id}"))["status"] == "applied"  # type: ignore[no-any-return]

    await eventually(applied, seconds=30, what="the message's turn", every=0.01)


def _seconds(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


async def run(messages: int, seed: int = 1) -> Met:
    told = Met()
    with tempfile.TemporaryDirectory(prefix="dromos-followups-") as folder:
        async with Hall(Path(folder) / "hall").open_doors() as hall:
            for number in range(0, messages, CHAIN):
                async with Client(hall, f"chain-{number}") as client:
                    chance = random.Random(f"{seed} {number}")
                    await chain(client, f"{number}", min(CHAIN, messages - number), chance, told)
            told.wrong += await hall.violations()
    return told


async def measure(full: bool) -> list[Row]:
    messages = 500 if full else 50
    told = await run(messages)
    return [
        Row(
            f"{told.sent} messages within ±{OFFSET * 1000:.0f} ms of a run's end",
            f"{told.waited} came before it",
            f"{told.sent - told.waited} after it",
            f"{len(told.wrong)} lost, doubled or out of order",
            "each used once, in order",
            not told.wrong,
        )
    ]
