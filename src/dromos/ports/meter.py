"""Counting what happens, for whoever watches the server. A count is never waited for, never fails, decides nothing."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Called after the fact, on any thread. Statuses and codes are closed sets; nothing here takes a person's words."""

    def run_ended(self, status: str, error_code: str | None) -> None:
        """A run has its end, on disk."""
        ...

    def model_call(self, outcome: str) -> None:
        """done | failed | cancelled: one call of a model, retries counted one by one."""
        ...

    def tool_call(self, outcome: str) -> None:
        """done | failed | cancelled | unknown"""
        ...

    def late_write(self) -> None:
        """A write was refused, or a result dropped, because its run has another owner, or takes no more."""
        ...


class NoMeter:
    """Nobody watches."""

    def run_ended(self, status: str, error_code: str | None) -> None:
        return None

    def model_call(self, outcome: str) -> None:
        return None

    def tool_call(self, outcome: str) -> None:
        return None

    def late_write(self) -> None:
        return None
