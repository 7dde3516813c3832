"""How the benchmarks measure: sides interleaved in one run, medians, a table at the end.

A time alone says little on a noisy machine; the ratio of two sides that took turns says more.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Side = Callable[[], Awaitable[float]]
"""Does the work once and returns its figure (seconds, or a rate)."""


@dataclass(frozen=True)
class Row:
    """One line of the committed table."""

    figure: str
    ours: str
    theirs: str
    ratio: str
    aim: str
    holds: bool | None


async def interleave(sides: dict[str, Side], rounds: int) -> dict[str, float]:
    """The median figure of each side over `rounds` turns."""
    return {name: statistics.median(values) for name, values in (await turns(sides, rounds)).items()}


async def turns(sides: dict[str, Side], rounds: int) -> dict[str, list[float]]:
    """Each side's figures, the order turned round each time; one warm-up each."""
    for side in sides.values():
        await side()
    seen: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        names = list(sides)
        for name in names if number % 2 == 0 else reversed(names):
            seen[name].append(await sides[name]())
    return seen


class Stopwatch:
    """`with Stopwatch() as watch: …` then `watch.seconds`."""

    def __enter__(self) -> Stopwatch:
        self._began = time.perf_counter()
        self.seconds = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began


def rss_kib(pid: int) -> int:
    """Resident memory of a process in KiB, its children not counted."""
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise RuntimeError(f"no VmRSS for {pid}")


def table(rows: list[Row]) -> str:
    lines = [
        "| figure | Dromos | compared with | ratio or value | aim | holds |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        holds = {True: "yes", False: "**no**", None: ""}[row.holds]
        lines.append(f"| {row.figure} | {row.ours} | {row.theirs} | {row.ratio} | {row.aim} | {holds} |")
    return "\n".join(lines)


def machine() -> str:
    return f"{os.cpu_count()} cores"
