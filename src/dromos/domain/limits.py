"""What any JSON in a document keeps to: lengths, depth, and numbers that every device reads alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from dromos.domain.errors import Fault
from dromos.domain.pointers import pointer
from dromos.domain.text import clean_text, moment_text

MAX_STRING = 8 * 1024
"""Bytes of one string in UTF-8."""
MAX_KEY = 200
"""Characters of a name that whoever writes the document chooses."""
MAX_DEPTH = 32
"""Levels of a document, the document itself being the first."""
SAFE = 2**53 - 1
"""The largest whole number that every device reads as the same number."""
CUT = "…"

VIOLATION = "schema_violation"
TOO_LARGE = "document_too_large"


def long_fault(path: str) -> Fault:
    return Fault(TOO_LARGE, path, f"a text here has at most {MAX_STRING} bytes; shorten it")


def free_faults(value: Any, path: str, depth: int) -> Iterator[Fault]:
    """What is wrong with JSON that has no form: limits, and numbers that devices would read differently."""
    if isinstance(value, str):
        if too_long(value):
            yield long_fault(path)
    elif isinstance(value, dict | list):
        if depth > MAX_DEPTH:
            yield Fault(TOO_LARGE, path, f"nested more than {MAX_DEPTH} levels deep; flatten it")
            return
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            place = path + pointer(key)
            if isinstance(key, str) and too_long(key):
                yield long_fault(path)
            yield from free_faults(item, place, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        yield Fault(VIOLATION, path, "NaN and infinities are not JSON; send null")
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) > SAFE:
        yield Fault(VIOLATION, path, f"a whole number beyond {SAFE} is not read alike everywhere; send text")


def conform_free(value: Any, depth: int) -> Any:
    """A copy within the limits: texts cleaned and cut, what lies too deep left out."""
    if isinstance(value, str):
        return shortened(clean_text(value))
    if isinstance(value, Mapping | list | tuple):
        if depth > MAX_DEPTH:
            return CUT
        if isinstance(value, Mapping):
            return {
                shortened(clean_text(str(k)), MAX_KEY): conform_free(v, depth + 1) for k, v in value.items()
            }
        return [conform_free(item, depth + 1) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= SAFE else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime) and value.tzinfo is not None:
        return moment_text(value)
    return shortened(clean_text(str(value)))


def too_long(text: str) -> bool:
    return len(text) > MAX_STRING or (not text.isascii() and len(text.encode(errors="replace")) > MAX_STRING)


def shortened(text: str, most: int = MAX_STRING) -> str:
    """The text in at most `most` bytes of UTF-8; one that was cut ends with `…`."""
    if len(text) * 4 <= most or (text.isascii() and len(text) <= most):
        return text
    raw = text.encode()
    if len(raw) <= most:
        return text
    return raw[: most - len(CUT.encode())].decode(errors="ignore") + CUT
