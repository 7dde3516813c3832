"""What failed and was tried again: by us after a wait, or by the agent itself (fallback models, its own retries)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dromos.agents.langgraph.failures import classify
from dromos.agents.langgraph.steps import Step
from dromos.domain.text import moment_text
from dromos.ports.live import LiveRun


class Retries:
    """One attempt's `/retries`, counted on from what the document has of `earlier` attempts."""

    def __init__(self, live: LiveRun, earlier: Mapping[str, Any] | None) -> None:
        self._live = live
        self._count: int = (earlier or {}).get("count", 0)
        self._failed: dict[
            str, tuple[int, str]
        ] = {}  # failures of models in a row, by task, with the last one's code

    def waits(self, code: str, attempt: int, of_attempts: int, next_at: datetime) -> None:
        """The step will be tried again at that time."""
        self._failed.clear()
        self._say(code, attempt, of_attempts, moment_text(next_at))

    def failed(self, step: Step, error: Exception) -> None:
        """A model call failed. If another follows in the same task, the agent tries again by itself."""
        if not step.inner:
            failures, _ = self._failed.get(step.task, (0, ""))
            self._failed[step.task] = (failures + 1, classify(error, from_model=True).code.value)

    def tried_again(self, step: Step) -> None:
        """A model call begins."""
        if self._failed and step.task in self._failed:
            failures, code = self._failed[step.task]
            self._say(code, failures + 1, None, None)

    def succeeded(self, step: Step) -> None:
        if self._failed:
            self._failed.pop(step.task, None)

    def _say(self, code: str, attempt: int, of_attempts: int | None, next_at: str | None) -> None:
        self._count += 1
        last = {
            "of": "model" if code.startswith("MODEL_") else "step",
            "code": code,
            "attempt": attempt,
            "of_attempts": of_attempts,
            "next_at": next_at,
        }
        self._live.set("/retries", {"count": self._count, "last": last})
