"""`python -m benchmarks.live [NAME …] [--full]`: measure and print; with `--full` and all names, write the table."""

from __future__ import annotations

import argparse
import asyncio
import importlib
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measure import Row, machine, table

NAMES = ("fuzzed", "events", "devices", "stuck", "bytes")
RESULTS = Path(__file__).parents[1] / "RESULTS-live.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.live")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all without")
    parser.add_argument("--full", action="store_true", help="the full sizes; about an hour")
    chosen = parser.parse_args()
    rows: list[Row] = []
    for name in chosen.names or NAMES:
        module = importlib.import_module(f"benchmarks.live.{name}")
        found = asyncio.run(module.measure(chosen.full))
        rows += found
        print(table(found), flush=True)
    if chosen.full and not chosen.names:
        day = datetime.now(UTC).date()
        RESULTS.write_text(
            "# Results of the live box\n\n"
            f"Written by `python -m benchmarks.live --full` on {day}, {machine()}.\n\n" + table(rows) + "\n"
        )


if __name__ == "__main__":
    main()
