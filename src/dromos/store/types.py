"""Column types that behave the same on both databases, and how their values become the driver's and come back.

`Instant` is RFC 3339 UTC text with microseconds (sorts as time, readable in any SQL shell); `Json` is JSON text;
`Text` compares by code points on both databases. What no database takes is replaced here a last time: NUL and
lone surrogates become U+FFFD. A NaN or an infinity in JSON is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from math import isfinite
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from dromos.domain.errors import Fault, Invalid
from dromos.domain.text import clean_json, clean_text, moment_text

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Text in code point order. (Other collations sort ids and keys differently on each machine.)"""

Converter = Callable[[Any], Any]


def from_text(text: str) -> datetime:
    return datetime.fromisoformat(text)


def to_json(value: Any) -> str:
    """JSON text of a value. Raises `Invalid` for NaN, infinities and what has no JSON form."""
    try:
        encoded = orjson.dumps(value, default=_plain)
    except TypeError:  # a lone surrogate, a key that is no string, or no JSON at all
        encoded = _cleaned(value)
    else:
        # orjson writes NaN as null and NUL as an escape: look closer only where one of them may be
        if b"\\u0000" in encoded or (b"null" in encoded and _has_not_a_number(value)):
            encoded = _cleaned(value)
    return encoded.decode()


def from_json(text: str) -> Any:
    return orjson.loads(text)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


_HARMLESS = frozenset({str, int, bool, type(None)})


def _has_not_a_number(value: Any) -> bool:
    """True where a NaN or an infinity stands somewhere inside; most nulls are just None."""
    kind = type(value)
    if kind is dict:
        inner = value.values()
    elif kind is list or kind is tuple:
        inner = value
    elif isinstance(value, float):
        return not isfinite(value)
    elif isinstance(value, str):
        return False
    elif isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    else:
        return False
    return any(type(one) not in _HARMLESS and _has_not_a_number(one) for one in inner)


def _cleaned(value: Any) -> bytes:
    cleaned, not_a_number = clean_json(dict(value) if isinstance(value, Mapping) else value)
    if not_a_number:
        message = "NaN and infinities are not JSON; send null or a text instead"
        raise Invalid(message, code="not_a_number", faults=[Fault("not_a_number", "", message)])
    try:
        return orjson.dumps(cleaned, default=_plain)
    except TypeError as error:
        raise Invalid(f"this value cannot be stored as JSON: {error}", code="not_json") from error


class Instant(TypeDecorator[datetime]):
    """An aware datetime, stored as text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else moment_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        return None if value is None else from_text(value)


class Json(TypeDecorator[Any]):
    """A JSON value, stored as text; None is NULL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else to_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else from_json(value)


def encoder(kind: TypeEngine[Any]) -> Converter | None:
    """What turns a Python value (never None) of this column type into the driver's; None: nothing to do."""
    if isinstance(kind, Instant):
        return moment_text
    if isinstance(kind, Json):
        return to_json
    if isinstance(kind, sa.Text):
        return clean_text
    return None


def decoder(kind: TypeEngine[Any]) -> Converter | None:
    """What turns the driver's value (never None) of this column type into Python's; None: nothing to do."""
    if isinstance(kind, Instant):
        return from_text
    if isinstance(kind, Json):
        return from_json
    if isinstance(kind, sa.Boolean):
        return bool
    return None
