"""The records of an attempt's steps: model calls, tool calls and other nodes, while they run and afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dromos.domain.runs import Run
from dromos.domain.text import moment_text
from dromos.ports.store import Row

SUMMARY_LIMIT = 200
"""Characters of a step's summary."""


@dataclass(slots=True, eq=False)
class Step:
    """One model call, tool call or node. `begun` is monotonic; `num` orders the steps of a run.

    `task` is the engine's task it runs in, `call` the engine's name of it and `parent` that of the call that made it;
    `inner`: inside of a helper, or of a tool.
    """

    id: str
    kind: str  # model | tool | step
    name: str
    started_at: datetime
    begun: float
    num: int = 0
    summary: str | None = None
    status: str = "running"  # running | done | failed | cancelled | unknown
    ms: int | None = None
    read_only: bool = False
    task: str = ""
    call: object = None
    parent: object = None
    inner: bool = False
    progress: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    cost: dict[str, Any] | None = None

    @property
    def since(self) -> str:
        return moment_text(self.started_at)

    def shown(self) -> dict[str, Any]:
        """As an entry of the live document's `/steps`."""
        return {
            "id": self.id,
            "kind": self.kind,
            "name": self.name,
            "status": self.status,
            "summary": self.summary,
            "started_at": self.since,
            "ms": self.ms,
        }

    def row(self, run: Run, checkpoint_id: str | None) -> Row:
        """As a row of `run_steps`; `checkpoint_id` is the checkpoint that ended it."""
        return {
            "run_id": run.id,
            "id": self.id,
            "conversation_id": run.conversation_id,
            "num": self.num,
            "attempt": run.attempt,
            "kind": self.kind,
            "name": self.name,
            "status": self.status,
            "summary": self.summary,
            "checkpoint_id": checkpoint_id,
            "started_at": self.started_at,
            "ms": self.ms,
            "usage": self.usage,
            "cost": self.cost,
        }


class StepRecords:
    """Ended steps on their way into the store: handed out until somebody says they are `stored`."""

    def __init__(self, run: Run, first_num: int = 1) -> None:
        self._run, self._next = run, first_num
        self._ended: list[Step] = []
        self._handed: list[Step] = []

    def number(self, step: Step) -> None:
        """Give a step its place in the run."""
        step.num = self._next
        self._next += 1

    def add(self, step: Step) -> None:
        """A step ended."""
        self._ended.append(step)

    def rows(self, checkpoint_id: str) -> list[Row]:
        """Records to store with this checkpoint."""
        self._handed.extend(self._ended)
        self._ended.clear()
        return [step.row(self._run, checkpoint_id) for step in self._handed]

    def stored(self) -> None:
        """What was handed out is on disk."""
        self._handed.clear()

    def left(self) -> list[Row]:
        """Records that no checkpoint took: of the steps in which the attempt ended."""
        steps, self._handed, self._ended = [*self._handed, *self._ended], [], []
        return [step.row(self._run, None) for step in steps]
