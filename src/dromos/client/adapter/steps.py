"""What is being done: `Current`, and `Step`, one row of the box. Texts are cut here where a box could not show them.

It must not know the box it is shown in, nor HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args

from dromos.domain.text import moment_text

Json = dict[str, Any]
StepKind = Literal["model", "tool", "step"]
StepStatus = Literal["running", "done", "failed", "cancelled", "unknown"]

MOST_SHOWN: Final = 2000
"""Characters of one text of the box; the server takes 8 KiB."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far something is: `value` of `total` (None: unknown)."""

    value: float
    total: float | None = None
    message: str | None = None

    def as_json(self) -> Json:
        return {"value": self.value, "total": self.total, "message": shown(self.message)}


@dataclass(frozen=True, slots=True)
class Current:
    """What the agent is doing now. `since` is filled in with the server's time."""

    kind: StepKind
    name: str
    summary: str | None = None
    progress: Progress | None = None
    since: datetime | None = None

    def as_json(self, now: datetime) -> Json:
        return {
            "kind": self.kind,
            "name": shown(self.name),
            "summary": shown(self.summary),
            "since": moment_text(self.since or now),
            "progress": None if self.progress is None else self.progress.as_json(),
        }


class Step:
    """One step under way: a model call, a tool call, or a part of the work that is worth a row.

    `summary` and `usage` (`{"input", "output", "cached", "reasoning"}`, tokens) may be set until it ends.
    """

    def __init__(
        self,
        step_id: str,
        kind: StepKind,
        name: str,
        summary: str | None,
        *,
        started_at: datetime,
        monotonic: Callable[[], float],
        on_end: Callable[[Step], None],
    ) -> None:
        one_of("kind", kind, StepKind)
        self.id, self.kind, self.name = step_id, kind, name
        self.summary = summary
        self.usage: Mapping[str, int] | None = None
        self.status: StepStatus = "running"
        self.ms: int | None = None
        self.started_at = started_at
        self._monotonic, self._began, self._on_end = monotonic, monotonic(), on_end

    def end(self, status: StepStatus = "done", *, summary: str | None = None) -> None:
        """The step is over. A second call changes nothing."""
        if self.status != "running":
            return
        one_of("status", status, StepStatus)
        self.status = status
        self.ms = max(0, round(1000 * (self._monotonic() - self._began)))
        if summary is not None:
            self.summary = summary
        self._on_end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.end()
        elif isinstance(error, Exception):
            self.end("failed", summary=str(error) or type(error).__name__)
        else:
            self.end("cancelled")

    def as_json(self) -> Json:
        """Its entry in the document."""
        return {
            "id": self.id,
            "kind": self.kind,
            "name": shown(self.name),
            "status": self.status,
            "summary": shown(self.summary),
            "started_at": moment_text(self.started_at),
            "ms": self.ms,
        }

    def as_report(self) -> Json:
        """Its row as it is stored with the run."""
        report = {name: value for name, value in self.as_json().items() if value is not None}
        return report if self.usage is None else {**report, "usage": dict(self.usage)}

    def as_current(self) -> Current:
        return Current(self.kind, self.name, self.summary, None, self.started_at)


def shown(text: str | None) -> str | None:
    """A text as a box can show it: cut, with a sign that it was."""
    return text if text is None or len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


def one_of(what: str, value: str, allowed: Any) -> None:
    """Raises ValueError where `value` is none of the names of a Literal."""
    names = get_args(allowed)
    if value not in names:
        raise ValueError(f"{what} is {value!r}; it is one of {', '.join(names)}")
