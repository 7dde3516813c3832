"""What earlier attempts of a run did, used and cost, from their rows; and what of it only their document knew.

An owner that vanished left steps without rows: those under way, and those that no checkpoint had taken yet. Its saved
document names them (all but its newest second). They become rows with the next attempt, so that nothing is forgotten
and nothing counted twice: from then on the rows are the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dromos.domain.cost import COUNTS, Spent
from dromos.domain.runs import Run
from dromos.ports.store import ReadTx, Row, Table
from dromos.wire.shapes import moment

STEPS_SHOWN = 50
"""Newest steps that a live document holds."""
LOST = "the worker was lost meanwhile"
_SHOWN = ("id", "kind", "name", "status", "summary", "started_at", "ms")
_COUNTED = ("id", "num", "kind", "status", "usage", "cost")
_TOKENS = ("input", "output", "cached", "reasoning")


@dataclass(frozen=True, slots=True)
class Earlier:
    """`next_num` is the number of the next step; `steps` are the newest as the document shows them. `lost` are rows
    to store: steps that had none."""

    next_num: int = 1
    steps: list[dict[str, Any]] = field(default_factory=list)
    usage: Mapping[str, int] = field(default_factory=dict)
    spent: Spent = field(default_factory=Spent)
    lost: list[Row] = field(default_factory=list)


def earlier_attempts(tx: ReadTx, run: Run, shown: Iterable[Mapping[str, Any]] = ()) -> Earlier:
    """Empty for a run's first attempt. `shown` are the steps of the document that the last owner saved."""
    if run.attempt <= 1:
        return Earlier(usage=dict(run.usage))
    rows = tx.find(Table.RUN_STEPS, {"run_id": run.id}, order=("num",), columns=_COUNTED)
    next_num = (rows[-1]["num"] if rows else 0) + 1
    stored = {row["id"] for row in rows}
    lost = [
        _lost(run, step, num)
        for num, step in enumerate((step for step in shown if step["id"] not in stored), start=next_num)
    ]
    _give_rest(lost, run.usage, _sum_of(rows))
    newest = tx.find(Table.RUN_STEPS, {"run_id": run.id}, order=("-num",), limit=STEPS_SHOWN)
    told = _sum_of([*rows, *lost])
    return Earlier(
        next_num + len(lost),
        [_as_shown(row) for row in [*reversed(newest), *lost][-STEPS_SHOWN:]],
        {
            **{name: max(run.usage.get(name) or 0, told[name]) for name in COUNTS},
            **({"estimated": True} if _any_estimated([run.usage, *(row["usage"] for row in rows)]) else {}),
        },
        Spent.of([row["cost"] for row in rows if _counts(row)]),
        lost,
    )


def _lost(run: Run, step: Mapping[str, Any], num: int) -> Row:
    """A row for a step that was shown but never stored; one under way has no known outcome."""
    status, summary = step["status"], step.get("summary")
    if status == "running":
        status = "unknown" if step["kind"] == "tool" else "failed"
        summary = f"{summary} ({LOST})" if summary else LOST
    return {
        "run_id": run.id,
        "id": step["id"],
        "conversation_id": run.conversation_id,
        "num": num,
        "attempt": run.attempt - 1,
        "kind": step["kind"],
        "name": step["name"],
        "status": status,
        "summary": summary,
        "checkpoint_id": None,
        "started_at": datetime.fromisoformat(step["started_at"]),
        "ms": step.get("ms"),
        "usage": None,
        "cost": None,
    }


def _give_rest(lost: list[Row], saved: Mapping[str, Any], told: Mapping[str, int]) -> None:
    """Tokens that the run is known to have used and no row tells are those of its lost model calls."""
    rest = {name: (saved.get(name) or 0) - told[name] for name in _TOKENS}
    calls = [row for row in lost if row["kind"] == "model"]
    if calls and any(count > 0 for count in rest.values()):
        calls[-1]["usage"] = {name: max(count, 0) for name, count in rest.items()}


def _sum_of(rows: Iterable[Row]) -> dict[str, int]:
    told = dict.fromkeys(COUNTS, 0)
    for row in rows:
        if row["kind"] in ("model", "tool"):
            told[f"{row['kind']}_calls"] += 1
        for name in _TOKENS:
            told[name] += (row["usage"] or {}).get(name) or 0
    return told


def _counts(row: Row) -> bool:
    """A call that used something, or that was answered without a word about it."""
    return row["kind"] == "model" and (row["usage"] is not None or row["status"] == "done")


def _any_estimated(usages: Iterable[Mapping[str, Any] | None]) -> bool:
    return any(usage is not None and usage.get("estimated") for usage in usages)


def _as_shown(row: Row) -> dict[str, Any]:
    return {**{name: row[name] for name in _SHOWN}, "started_at": moment(row["started_at"])}
