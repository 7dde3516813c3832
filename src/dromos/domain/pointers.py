"""JSON pointers (RFC 6901), and when two JSON values are the same."""

from __future__ import annotations

import re
from typing import Any

_BAD_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,8})", re.ASCII)


def pointer(*parts: object) -> str:
    """`/a/b~1c` of the parts `a` and `b/c`."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def parts_of(path: str) -> list[str] | None:
    """The parts of a pointer, `[]` for the whole document; None where it is no pointer."""
    if not path:
        return []
    if path[0] != "/":
        return None
    if "~" not in path:
        return path[1:].split("/")
    if _BAD_ESCAPE.search(path):
        return None
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def index_of(part: str) -> int | None:
    """The place in a list that a part names (no sign, no leading zeros); None where it names none."""
    return int(part) if _INDEX.fullmatch(part) else None


def same(a: Any, b: Any) -> bool:
    """Equality of JSON: numbers by value, `true` is not 1, objects without order."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def copied(value: Any) -> Any:
    """The same JSON in objects and lists of its own."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value
