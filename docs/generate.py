"""Write the parts of the guide that follow from the code: the state machine, its picture, the live document, settings.

    python docs/generate.py            write them
    python docs/generate.py --check    exit 1 when a written part is stale

A generated part stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`. This script reads the
product's own data; it must not hold a fact about runs of its own, except where a status stands in the picture.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from dromos.domain import document
from dromos.domain.limits import MAX_DEPTH, MAX_KEY, MAX_STRING, SAFE
from dromos.domain.machine import CREATION, EDGES, SETTLED_EDGES
from dromos.domain.reasons import REASON_OF_CODE, ErrorCode
from dromos.domain.statuses import FINAL, OWNED, TRIGGER_STATUS, RunStatus
from dromos.settings import SETTINGS, Setting

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from docs import faults, matrix, moves  # noqa: E402

# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────


def _code(words: object) -> str:
    return " ".join(f"`{word}`" for word in sorted(str(word) for word in words))  # type: ignore[attr-defined]


def edges() -> str:
    """Every row of the machine: name, from, to, who, reasons."""
    rows = [f"| {CREATION.name} | – | `queued` | {CREATION.by} | {_code(CREATION.reasons)} |"]
    rows += [
        f"| {edge.name} | `{source}` | `{target}` | {edge.by} | {_code(edge.reasons)} |"
        for (source, target), edge in EDGES.items()
    ]
    return "\n".join(["| row | from | to | by | reasons |", "|---|---|---|---|---|", *rows])


def statuses() -> str:
    """Every status: whether it has an owner, whether it ends, and what its message shows meanwhile."""
    rows = [
        f"| `{status}` | {'yes' if status in OWNED else 'no'} | {'yes' if status in FINAL else 'no'} "
        f"| `{TRIGGER_STATUS[status]}` |"
        for status in RunStatus
    ]
    head = "| status | has an owner | is an end | the person's message shows |"
    return "\n".join([head, "|---|---|---|---|", *rows])


def pairs() -> str:
    """All 81 pairs as a matrix: the row's name where a move is allowed."""
    names = list(RunStatus)
    head = "| from \\ to | " + " | ".join(names) + " |"
    rows = [
        f"| `{source}` | "
        + " | ".join(EDGES[source, target].name if (source, target) in EDGES else "·" for target in names)
        + " |"
        for source in names
    ]
    return "\n".join([head, "|---" * (len(names) + 1) + "|", *rows])


def settled() -> str:
    """Which ends put the conversation in order at once."""
    return ", ".join(sorted(SETTLED_EDGES, key=lambda name: int(name[1:])))


def reasons_of_codes() -> str:
    """The reason a failed run carries beside each error code."""
    rows = [f"| `{code}` | `{REASON_OF_CODE[code]}` |" for code in ErrorCode]
    return "\n".join(["| error code | reason of the run |", "|---|---|", *rows])


def _default(setting: Setting) -> str:
    if setting.required:
        return "needed"
    return "" if setting.default in (None, "", ()) else f"`{setting.default}`"


def settings() -> str:
    """Every setting of the server itself: key, variable, flag, default, meaning."""
    rows = []
    for setting in SETTINGS:
        if ".NAME." in setting.key:
            continue
        variables = " ".join(f"`{name}`" for name in setting.variables)
        flag = f"`{setting.flag}`" if setting.flag else ""
        meaning = setting.description.replace("|", "\\|")
        rows.append(f"| `{setting.key}` | {variables} | {flag} | {_default(setting)} | {meaning} |")
    return "\n".join(["| key | environment | flag | default | meaning |", "|---|---|---|---|---|", *rows])


def named_settings() -> str:
    """Every setting that stands in a table with a name of its own, in the file only."""
    rows = [
        f"| `{setting.key}` | {_default(setting)} | {setting.description} |"
        for setting in SETTINGS
        if ".NAME." in setting.key
    ]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


def document_paths() -> str:
    """Every path of the live document that a patch may touch."""
    rows = [f"| `{path}` | {what} |" for path, what in document.paths()]
    return "\n".join(["| path | what stands there |", "|---|---|", *rows])


def document_limits() -> str:
    """What a patch and a document may measure."""
    rows = [
        ("content part, without the text", f"{document.MAX_CONTENT // 1024} KiB as JSON"),
        ("the text of one message", f"{document.MAX_TEXT // 1024} KiB in UTF-8"),
        ("one patch", f"{document.MAX_PATCH // 1024} KiB and {document.MAX_OPERATIONS} operations"),
        ("one string", f"{MAX_STRING // 1024} KiB in UTF-8"),
        ("an id that you choose (`<id>`)", f"1 to {MAX_KEY} characters"),
        ("levels", str(MAX_DEPTH)),
        ("`/steps`", f"the newest {document.MAX_STEPS}"),
        ("whole numbers", f"to {SAFE} either way; larger ones as text"),
    ]
    return "\n".join(["| of | at most |", "|---|---|", *(f"| {of} | {most} |" for of, most in rows)])


PARTS: dict[str, Callable[[], str]] = {
    "stops": moves.stops,
    "asks": moves.asks,
    "calls": moves.decisions,
    "people": lambda: matrix.table(matrix.PEOPLE),
    "crash points": faults.crash_points,
    "signals": lambda: matrix.table(matrix.SIGNALS),
    "document paths": document_paths,
    "document limits": document_limits,
    "edges": edges,
    "statuses": statuses,
    "pairs": pairs,
    "settled": settled,
    "reasons of codes": reasons_of_codes,
    "settings": settings,
    "named settings": named_settings,
}


# ── picture ───────────────────────────────────────────────────────────────────────────────────────────────────

WIDTH, HEIGHT = 920, 560
BOX = (128, 40)
# Where each status stands: the life runs from left to right, ends are on the right.
PLACES: dict[RunStatus, tuple[int, int]] = {
    RunStatus.QUEUED: (120, 250),
    RunStatus.RUNNING: (390, 170),
    RunStatus.WAITING_INPUT: (390, 360),
    RunStatus.CANCELLING: (610, 250),
    RunStatus.COMPLETED: (830, 60),
    RunStatus.FAILED: (830, 155),
    RunStatus.INTERRUPTED: (830, 250),
    RunStatus.EXPIRED: (830, 345),
    RunStatus.CANCELLED: (830, 440),
}
# A bend (pixels to the left of the direction of travel) for arrows that would cross a box or each other.
BENDS: dict[tuple[RunStatus, RunStatus], int] = {
    (RunStatus.QUEUED, RunStatus.RUNNING): 22,
    (RunStatus.RUNNING, RunStatus.QUEUED): 22,
    (RunStatus.QUEUED, RunStatus.FAILED): 165,
    (RunStatus.QUEUED, RunStatus.INTERRUPTED): 40,
    (RunStatus.QUEUED, RunStatus.EXPIRED): -120,
    (RunStatus.QUEUED, RunStatus.CANCELLED): -160,
    (RunStatus.RUNNING, RunStatus.INTERRUPTED): 30,
    (RunStatus.WAITING_INPUT, RunStatus.INTERRUPTED): -30,
    (RunStatus.WAITING_INPUT, RunStatus.EXPIRED): -12,
    (RunStatus.WAITING_INPUT, RunStatus.CANCELLED): -20,
}
# How far along its arrow a name stands, where the middle would meet another name.
NAMES_AT: dict[tuple[RunStatus, RunStatus], float] = {
    (RunStatus.RUNNING, RunStatus.INTERRUPTED): 0.7,
    (RunStatus.QUEUED, RunStatus.INTERRUPTED): 0.3,
    (RunStatus.WAITING_INPUT, RunStatus.CANCELLED): 0.4,
}


def _border(place: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Where the line from a box's centre towards a point leaves the box."""
    (x, y), (tx, ty) = place, towards
    dx, dy = tx - x, ty - y
    scale = min(
        (BOX[0] / 2 + 3) / abs(dx) if dx else float("inf"), (BOX[1] / 2 + 3) / abs(dy) if dy else float("inf")
    )
    return x + dx * scale, y + dy * scale


def _arrow(source: RunStatus, target: RunStatus, name: str) -> str:
    (x1, y1), (x2, y2) = PLACES[source], PLACES[target]
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    bend = BENDS.get((source, target), 0)
    middle = ((x1 + x2) / 2 + (y2 - y1) / length * bend, (y1 + y2) / 2 - (x2 - x1) / length * bend)
    control = (2 * middle[0] - (x1 + x2) / 2, 2 * middle[1] - (y1 + y2) / 2)
    start, end = _border((x1, y1), control), _border((x2, y2), control)
    along = NAMES_AT.get((source, target), 0.5)
    label = tuple(
        (1 - along) ** 2 * a + 2 * along * (1 - along) * b + along**2 * c
        for a, b, c in zip(start, control, end, strict=True)
    )
    final = ' class="end"' if target in FINAL else ""
    return (
        f'<path{final} d="M{start[0]:.0f} {start[1]:.0f} Q{control[0]:.0f} {control[1]:.0f} {end[0]:.0f} {end[1]:.0f}"'
        f' marker-end="url(#tip)"><title>{name}: {source} to {target}</title></path>'
        f'<text class="name" x="{label[0]:.0f}" y="{label[1] + 4:.0f}">{name}</text>'
    )


def picture() -> str:
    """The machine as an SVG that reads on light and dark ground."""
    boxes = []
    for status in RunStatus:
        x, y = PLACES[status]
        kind = "final" if status in FINAL else "owned" if status in OWNED else "free"
        boxes.append(
            f'<rect class="{kind}" x="{x - BOX[0] / 2:.0f}" y="{y - BOX[1] / 2:.0f}" width="{BOX[0]}" '
            f'height="{BOX[1]}" rx="8"/><text x="{x}" y="{y + 5}">{status}</text>'
        )
    arrows = [_arrow(source, target, edge.name) for (source, target), edge in EDGES.items()]
    style = (
        "text{font:14px system-ui,sans-serif;text-anchor:middle;fill:#1b2a2f}"
        ".name{font-size:11px;font-weight:600;fill:#0b6b62;paint-order:stroke;stroke:#f7faf9;stroke-width:4px}"
        "path{fill:none;stroke:#52666b;stroke-width:1.4}path.end{stroke:#8a9a9e}"
        "rect{stroke:#52666b;stroke-width:1.4;fill:#ffffff}rect.owned{fill:#d5efe9}rect.final{fill:#e9edef}"
    )
    tip = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" style="fill:#52666b;stroke:none"/></marker>'
    )
    x, y = PLACES[RunStatus.QUEUED]
    birth = (
        f'<path d="M{x} {y - 90} L{x} {y - BOX[1] / 2 - 4:.0f}" marker-end="url(#tip)"/>'
        f'<circle cx="{x}" cy="{y - 94}" r="5" fill="#52666b"/>'
        f'<text class="name" x="{x + 16}" y="{y - 55}">{CREATION.name}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="The statuses of a run and the moves between them">'
        f"<style>{style}</style><defs>{tip}</defs>"
        f'<rect x="0" y="0" width="{WIDTH}" height="{HEIGHT}" rx="12" style="fill:#f7faf9;stroke:none"/>'
        + birth
        + "".join(arrows)
        + "".join(boxes)
        + "</svg>\n"
    )


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────


def fill(text: str) -> str:
    """The text with every generated part as the code says it now. Raises KeyError for an unknown part."""

    def part(match: re.Match[str]) -> str:
        return f"<!-- generated: {match[1]} -->\n{PARTS[match[1]]()}\n<!-- end: {match[1]} -->"

    return re.sub(r"<!-- generated: ([\w ]+) -->\n.*?<!-- end: \1 -->", part, text, flags=re.DOTALL)


def wanted() -> dict[Path, str]:
    """Every file this script writes, with what it should hold."""
    schema = json.dumps(document.json_schema(), indent=2, ensure_ascii=False) + "\n"
    files = {
        DOCS / "images" / "lifecycle.svg": picture(),
        DOCS / "schemas" / f"{document.SCHEMA_ID}.json": schema,
    }
    for path in DOCS.rglob("*.md"):
        text = path.read_text()
        if "<!-- generated: " in text:
            files[path] = fill(text)
    return files


def main(arguments: list[str]) -> int:
    stale = [path for path, text in wanted().items() if not path.exists() or path.read_text() != text]
    names = ", ".join(path.relative_to(DOCS.parent).as_posix() for path in stale)
    if arguments == ["--check"]:
        print(f"stale: {names}; run `make fix`" if stale else "generated documents are current")
        return 1 if stale else 0
    for path, text in wanted().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    print(f"written: {names or 'nothing had changed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
