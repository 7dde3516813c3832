"""The clock of the machine a terminal runs on: what is read there is measured by it, and nothing decided by it."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """Aware, UTC."""
    return datetime.now(UTC)
