"""A family of figures from the command line: each is measured by a module of its own; full sizes keep their table."""

from __future__ import annotations

import argparse
import asyncio
import importlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measure import Row, machine, table


def run(package: str, names: Sequence[str], results: Path, title: str) -> None:
    """Measure the figures named on the command line, all without; `package.NAME.measure(full)` gives their rows."""
    parser = argparse.ArgumentParser(prog=package)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; all without")
    parser.add_argument("--full", action="store_true", help="the full sizes; all of them take half an hour")
    chosen = parser.parse_args()
    for name in chosen.names or names:
        module = importlib.import_module(f"{package}.{name}")
        rows = asyncio.run(module.measure(chosen.full))
        print(table(rows), flush=True)
        if chosen.full:
            head = f"# {title}\n\nWritten by `python -m {package} --full`, figure by figure.\n"
            _keep(results, head, names, name, rows)


def _keep(results: Path, head: str, names: Sequence[str], name: str, rows: list[Row]) -> None:
    """Replace this figure's part of the committed table, and no other's."""
    parts = dict(_parts(results.read_text())) if results.exists() else {}
    day = datetime.now(UTC).date()
    parts[name] = f"\n{day}, {machine()}.\n\n{table(rows)}\n"
    results.write_text(head + "".join(f"\n## {one}\n{parts[one]}" for one in names if one in parts))


def _parts(text: str) -> list[tuple[str, str]]:
    found = []
    for part in text.split("\n## ")[1:]:
        name, _, rest = part.partition("\n")
        found.append((name, rest))
    return found
