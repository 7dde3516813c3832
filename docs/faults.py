"""Where a server was killed and what was wrong afterwards: the committed figures and the registry, shown by the guide.

`generate.py` writes it into the guide. It must hold no figure of its own: they are those of the last full run.
"""

from __future__ import annotations

import re
from pathlib import Path

from dromos.ports.probe import UNCALLED, Moment, Point

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "RESULTS-faults.md"
DATABASES = ("SQLite", "PostgreSQL")
_HEAD = re.compile(
    r"^(?P<day>[\d-]+), (?P<machine>.+), (?P<minutes>\d+) minutes: (?P<cases>\d+) of (?P<planned>\d+) cases, "
    r"(?P<deaths>\d+) deaths of the server, (?P<effects>\d+) effects outside, (?P<faults>\d+) faults\.",
    re.MULTILINE,
)
_ROW = re.compile(r"^\| `(?P<point>\w+)` \| (?P<kills>[\d +|]+) \|$", re.MULTILINE)

Kills = dict[Point, list[tuple[int, ...]]]
"""By point: for each moment the kills on each database."""


def kills(text: str) -> Kills:
    """Points that the table has and the registry has not are of an earlier release."""
    known = {point.value: point for point in Point}
    found: Kills = {}
    for row in _ROW.finditer(text):
        if (point := known.get(row["point"])) is not None:
            cells = row["kills"].split("|")
            found[point] = [tuple(int(count) for count in cell.split("+")) for cell in cells]
    return found


def crash_points() -> str:
    """Points × moments × databases, the cases and what was wrong; then each point; then those without a case."""
    return shown(RESULTS.read_text())


def shown(text: str) -> str:
    head, counted = _HEAD.search(text), kills(text)
    assert head is not None, f"{RESULTS.name} has no line of the crash points"
    struck = [point for point in Point if point in counted]
    cells = sum(count > 0 for point in struck for moment in counted[point] for count in moment)
    total = len(struck) * len(Moment) * len(DATABASES)
    lines = [
        f"{len(struck)} points × {len(Moment)} moments × {len(DATABASES)} databases: {cells} of {total} struck in "
        f"{head['cases']} cases, {head['deaths']} deaths of the server, {head['effects']} effects outside, "
        f"**{head['faults']} faults** ({head['day']}, {head['machine']}, {head['minutes']} minutes). "
        f"Cases by moment, {' · '.join(Moment)}:",
        "",
        "| point | " + " | ".join(DATABASES) + " |",
        "|---" * (len(DATABASES) + 1) + "|",
    ]
    for point in struck:
        of = [
            " · ".join(str(moment[number]) for moment in counted[point]) for number in range(len(DATABASES))
        ]
        lines.append(f"| `{point}` | " + " | ".join(of) + " |")
    if missing := [point for point in Point if point not in counted and point not in UNCALLED]:
        lines += ["", "Not struck in that run: " + ", ".join(f"`{point}`" for point in missing) + "."]
    lines += [
        "",
        "No server comes to " + "; ".join(f"`{one}` ({why})" for one, why in UNCALLED.items()) + ".",
    ]
    return "\n".join(lines)
