"""`python -m benchmarks [NAME …] [--rounds N]`: measure and print the table; with all names, write it to RESULTS.md."""

from __future__ import annotations

import argparse
import asyncio
import importlib
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.economy import EXPLANATION
from benchmarks.measure import Row, machine, table

NAMES = ("steps", "growth", "noop", "economy", "streaming", "footprint")
RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all without")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    rows: list[Row] = []
    for name in chosen.names or NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        found = asyncio.run(module.measure(chosen.rounds))
        rows += found
        print(table(found), flush=True)
    if not chosen.names:
        day = datetime.now(UTC).date()
        RESULTS.write_text(
            "# Results\n\n"
            f"Written by `make bench` on {day}, {machine()}, {chosen.rounds} rounds, sides interleaved, medians. "
            "A time alone depends on the machine; a ratio was measured in one run.\n\n"
            + table(rows)
            + "\n"
            + EXPLANATION
        )


if __name__ == "__main__":
    main()
