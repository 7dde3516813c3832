"""Durable events of a run: the same number whatever it shows and however many steps it takes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.live.stage import conversation, stage, tick
from benchmarks.measure import Row
from benchmarks.wire import Connection

RATES = (0, 1, 10, 100, 1000)
STEPS = (10, 1000)


async def count(rates: tuple[int, ...], steps: tuple[int, ...], seconds: float) -> dict[tuple[int, int], int]:
    """By (patches a second, steps): how many numbers the person's log moved on."""
    found: dict[tuple[int, int], int] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with stage(Path(folder)) as process, Connection(process.port) as sender:
            for many in steps:
                for rate in rates:
                    made = await conversation(sender)
                    before = (await sender.ask("GET", f"/v1/conversations/{made}"))["seq"]
                    run = await tick(process, made, seconds=seconds, rate=rate, steps=many)
                    after = (await sender.ask("GET", f"/v1/conversations/{made}"))["seq"]
                    assert run["steps"] == many, run["steps"]
                    found[rate, many] = after - before
    return found


async def measure(full: bool) -> list[Row]:
    rates, steps, seconds = (RATES, STEPS, 10.0) if full else ((0, 10, 1000), (10, 100), 1.0)
    found = await count(rates, steps, seconds)
    numbers = sorted(set(found.values()))
    sizes = f"{', '.join(map(str, rates))} patches/s × {', '.join(map(str, steps))} steps, {seconds:g} s or more each"
    return [
        Row(
            f"durable events of a run ({sizes})",
            " ".join(map(str, numbers)),
            "",
            "equal" if len(numbers) == 1 else "not equal",
            "equal",
            len(numbers) == 1,
        )
    ]
