"""Shapes of identifiers: every id the product makes is a UUIDv7 in its usual text form."""

from __future__ import annotations

import re

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_id(text: str) -> bool:
    """True for text that could be an id of ours."""
    return bool(_UUID.fullmatch(text))
