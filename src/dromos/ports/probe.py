"""Named crash points: the fault tests hold or kill the process at a commit boundary by its name."""

from __future__ import annotations

from typing import Protocol


class Probe(Protocol):
    def reach(self, point: str) -> None:
        """Called at every named boundary; a test's probe may block or kill here. Costs nothing in production."""
        ...


class NoProbe:
    """The probe of production."""

    def reach(self, point: str) -> None:
        return None
