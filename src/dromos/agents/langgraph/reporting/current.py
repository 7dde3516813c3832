"""What the box says is being done right now, out of everything that is open at once.

A tool comes before a model, a model before a plain node, and the oldest of its kind first; the others are counted.
What happens inside of a helper or a tool is told there and is not meant here. Tools and models are told at once;
nodes, and that nothing is done, only where it lasts.
"""

from __future__ import annotations

from typing import Any

from dromos.agents.langgraph.reporting.later import Later
from dromos.agents.langgraph.steps import Step
from dromos.ports.live import LiveRun

_RANKS = ("tool", "model", "step")
_PATH = "/current"


class Current:
    """One attempt's open steps and its `/current`."""

    __slots__ = ("_first", "_later", "_live", "_open", "_others")

    def __init__(self, live: LiveRun, later: Later) -> None:
        self._live, self._later = live, later
        self._open: dict[str, dict[str, Step]] = {kind: {} for kind in _RANKS}
        self._first: Step | None = None
        self._others = 0

    def begin(self, step: Step, instead_of: Step | None = None) -> None:
        """`instead_of` is the node that the step does the work of, and that need not be told from now on."""
        if instead_of is not None:
            self._open[instead_of.kind].pop(instead_of.id, None)
        self._open[step.kind][step.id] = step
        self._show()

    def end(self, step: Step) -> None:
        if self._open[step.kind].pop(step.id, None) is not None:
            self._show()

    def moved(self, step: Step) -> None:
        """The step made progress."""
        if step is self._first:
            self._show(again=True)
        else:
            self._live.touch()

    def _show(self, *, again: bool = False) -> None:
        first: Step | None = None
        others = 0
        for steps in self._open.values():
            if steps:
                first, others = next(iter(steps.values())), len(steps) - 1
                break
        if first is self._first and others == self._others and not again:
            return
        self._first, self._others = first, others
        if first is None or (first.kind == "step" and not again):
            self._later.set(_PATH, self._now)
        else:
            self._later.drop(_PATH)
            self._live.set(_PATH, self._now())

    def _now(self) -> dict[str, Any] | None:
        return None if self._first is None else _said(self._first, self._others)


def _said(step: Step, others: int) -> dict[str, Any]:
    """As the document holds it; of several that are open, the summary counts the others."""
    summary = step.summary
    if others:
        summary = f"{summary} (+{others} more)" if summary else f"+{others} more"
    return {
        "kind": step.kind,
        "name": step.name,
        "summary": summary,
        "since": step.since,
        "progress": step.progress,
    }
