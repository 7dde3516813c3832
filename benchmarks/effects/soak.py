"""Runs of ten steps with counting tools, gates and approvals, on a server that is killed, frozen and ended at random.

Seeded: what is done and after how long, not where it meets the server. It goes on until every run has ended.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.effects.stage import Client, Hall, Json
from benchmarks.effects.talks import follow
from benchmarks.measure import Row
from dromos.testing.processes import ProcessDiedError

STEPS = 10
BLOWS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)
KILLS = 2
"""So many kills a wave at most: a run that loses its third owner ends as failed, and shows nothing more."""
WAVES = 10


@dataclass
class Soaked:
    runs: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    blows: Counter[str] = field(default_factory=Counter)
    doubled: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    effects: int = 0
    seconds: float = 0.0

    def add(self, other: Soaked) -> None:
        self.runs += other.runs
        self.ends += other.ends
        self.blows += other.blows
        self.doubled += other.doubled
        self.lost += other.lost
        self.wrong += other.wrong
        self.effects += other.effects
        self.seconds += other.seconds


def script(name: str, chance: random.Random) -> tuple[str, list[str]]:
    """Ten turns with a call each; the labels that it counts."""
    lines, labels = [], []
    for step in range(STEPS):
        tool = chance.choice(("t__count", "t__count", "t__count_keyed", "a__count", "t__gate", "t__sleep"))
        if step == 0:
            tool = "t__count"
        label = f"{name}.{step}"
        if "count" in tool:
            labels.append(label)
            lines.append(f'!say step {step}\n!call {tool} {{"label": "{label}"}}')
        elif tool == "t__gate":
            lines.append(f'!say step {step}\n!call {tool} {{"name": "all"}}')
        else:
            lines.append(f'!say step {step}\n!call {tool} {{"s": 0.1}}')
    return "\n".join([*lines, "!say through"]), labels


async def strike(hall: Hall, chance: random.Random, told: Soaked, most: int, pause: float) -> None:
    """Blow by blow, until cancelled or `most` were given; a server that is away is waited for."""
    kills = 0
    for _ in range(most):
        await asyncio.sleep(chance.uniform(0.1, pause))
        await hall.up()
        blow = chance.choice(BLOWS if kills < KILLS else BLOWS[1:])
        kills += blow is signal.SIGKILL
        try:
            match blow:
                case signal.SIGKILL:
                    hall.server.kill()
                case signal.SIGTERM:
                    hall.server.term()
                case _:
                    hall.server.stop()
                    try:
                        await asyncio.sleep(chance.uniform(0.1, 2 * pause))
                    finally:
                        hall.server.cont()
        except ProcessDiedError:
            continue
        told.blows[blow.name] += 1


async def soak(
    folder: Path, *, runs: int, seed: int, blows: int, pause: float = 2.0, database: str | None = None
) -> Soaked:
    """`runs` conversations side by side."""
    told, chance, began = Soaked(runs), random.Random(seed), time.monotonic()
    async with Hall(folder, database).open_doors() as hall:
        hall.open("all")
        expected: dict[str, list[str]] = {}

        async def one(number: int) -> None:
            async with Client(hall, f"soak-{seed}-{number}") as client:
                text, labels = script(f"{number}", random.Random(f"{seed} {number}"))
                conversation = (await client.create("/v1/conversations", {}))["id"]
                posted = await client.create(f"/v1/conversations/{conversation}/messages", {"content": text})
                run: Json = await follow(client, posted["run"]["id"])
                told.ends[f"{run['status']} ({run['reason']})"] += 1
                if run["status"] == "completed":
                    expected[posted["run"]["id"]] = labels
                told.wrong += await client.repeated()

        striking = asyncio.create_task(strike(hall, chance, told, blows, pause))
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(runs):
                    group.create_task(one(number))
        finally:
            striking.cancel()
            await asyncio.gather(striking, return_exceptions=True)
        counted = hall.counted()
        told.effects = counted.total()
        told.doubled = [label for label, count in counted.items() if count > 1]
        told.lost = [label for labels in expected.values() for label in labels if counted[label] == 0]
        told.wrong += await hall.violations()
    told.seconds = time.monotonic() - began
    return told


async def waves(number: int, runs: int, blows: int) -> Soaked:
    """One after the other, each on a server of its own and with its number as seed."""
    told = Soaked()
    for seed in range(1, number + 1):
        with tempfile.TemporaryDirectory(prefix="dromos-soak-") as folder:
            told.add(await soak(Path(folder) / "hall", runs=runs, seed=seed, blows=blows))
    return told


async def measure(full: bool) -> list[Row]:
    told = await waves(WAVES, 6, 8) if full else await waves(1, 3, 3)
    ends = ", ".join(f"{count} {how}" for how, count in sorted(told.ends.items()))
    hit = ", ".join(f"{count} {name}" for name, count in sorted(told.blows.items()))
    faults = len(told.doubled) + len(told.lost) + len(told.wrong)
    return [
        Row(
            f"{told.runs} runs of {STEPS} steps under random signals",
            ends,
            hit,
            f"{told.effects} effects, {len(told.doubled)} doubled, {len(told.lost)} lost, "
            f"{len(told.wrong)} broken invariants",
            "0 doubled, 0 lost, 0 broken",
            faults == 0,
        )
    ]
