"""The real clock and the real identifiers: made here and handed in everywhere else."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

import uuid_utils


class SystemClock:
    """`ports.clock.Clock`."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class TimeOrderedIds:
    """`ports.clock.Ids`: UUIDv7, and what nobody can guess."""

    def new(self) -> str:
        return str(uuid_utils.uuid7())

    def secret(self) -> str:
        return secrets.token_urlsafe(32)
