"""Column types that behave the same on both databases.

`Instant` is RFC 3339 UTC text with microseconds (sorts as time, readable in any SQL shell); `Json` is JSON text.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
from sqlalchemy import Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


def to_text(moment: datetime) -> str:
    """`2026-11-29T13:46:04.123456Z`: fixed width, so text order is time order."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_text(text: str) -> datetime:
    return datetime.fromisoformat(text)


class Instant(TypeDecorator[datetime]):
    """An aware datetime, stored as text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else to_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        return None if value is None else from_text(value)


class Json(TypeDecorator[Any]):
    """A JSON value, stored as text; None is NULL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else orjson.dumps(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else orjson.loads(value)
