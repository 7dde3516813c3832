"""A run as a row and back. It knows the columns of `runs` and the domain's `Run`, nothing of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from operator import attrgetter
from typing import Any

from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Run, Stop, Wait
from dromos.domain.statuses import OwnerKind, Recovery, RunStatus
from dromos.domain.text import moment_text
from dromos.store.types import from_text

RUN_COLUMNS = tuple(field.name for field in fields(Run))
"""The columns, in the order of `Run`'s fields; every field has one."""

_values_of = attrgetter(*RUN_COLUMNS)


def _moment(value: datetime | None) -> str | None:
    return None if value is None else moment_text(value)


def _instant(value: str | None) -> datetime | None:
    return None if value is None else from_text(value)


def _stop_to_json(stop: Stop) -> dict[str, Any]:
    return {
        "cause": stop.cause.value,
        "by": stop.by,
        "accepted_at": _moment(stop.accepted_at),
        "comment": stop.comment,
        "delivered_at": _moment(stop.delivered_at),
        "forced_at": _moment(stop.forced_at),
        "outcome": stop.outcome,
        "waiting_for": None if stop.waiting_for is None else dict(stop.waiting_for),
        "unknown_calls": list(stop.unknown_calls),
        "step": stop.step,
    }


def _stop_from_json(value: dict[str, Any]) -> Stop:
    return Stop(
        cause=Reason(value["cause"]),
        by=value["by"],
        accepted_at=from_text(value["accepted_at"]),
        comment=value["comment"],
        delivered_at=_instant(value["delivered_at"]),
        forced_at=_instant(value["forced_at"]),
        outcome=value["outcome"],
        waiting_for=value["waiting_for"],
        unknown_calls=tuple(value["unknown_calls"]),
        step=value.get("step"),
    )


def _wait_to_json(wait: Wait) -> dict[str, Any]:
    return {"reason": wait.reason, "until": _moment(wait.until), "then": wait.then}


def _wait_from_json(value: dict[str, Any]) -> Wait:
    return Wait(value["reason"], _instant(value["until"]), value["then"])


_WAIT, _STOP = RUN_COLUMNS.index("wait"), RUN_COLUMNS.index("stop")
_FROM_ROW = (
    (RUN_COLUMNS.index("status"), RunStatus),
    (RUN_COLUMNS.index("reason"), Reason),
    (RUN_COLUMNS.index("error_code"), ErrorCode),
    (RUN_COLUMNS.index("owner_kind"), OwnerKind),
    (RUN_COLUMNS.index("recovery"), Recovery),
    (_WAIT, _wait_from_json),
    (_STOP, _stop_from_json),
)


def run_to_values(run: Run) -> list[Any]:
    """The run's values in the order of `RUN_COLUMNS`, as the columns take them."""
    values = list(_values_of(run))
    if run.wait is not None:
        values[_WAIT] = _wait_to_json(run.wait)
    if run.stop is not None:
        values[_STOP] = _stop_to_json(run.stop)
    return values


def run_from_values(values: Sequence[Any]) -> Run:
    """A run from column values in the order of `RUN_COLUMNS`."""
    made = list(values)
    for index, make in _FROM_ROW:
        if made[index] is not None:
            made[index] = make(made[index])
    return Run(*made)


def changes(before: Run, after: Run) -> tuple[tuple[str, ...], list[Any]]:
    """The columns in which two states of a run differ, and their new values."""
    old, new = _values_of(before), run_to_values(after)
    names: list[str] = []
    values: list[Any] = []
    for name, was, now, stored in zip(RUN_COLUMNS, old, _values_of(after), new, strict=True):
        if was is not now and was != now:
            names.append(name)
            values.append(stored)
    return tuple(names), values
