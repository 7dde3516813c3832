"""JSON at the door: bytes in, cleaned values out, and the other way.

The usual body takes the quick way, one pass of a fast parser. Whatever that refuses or could not see (lone
surrogates, NUL, NaN, numbers no database takes) is read once more, slowly, to clean it or to say where it is.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from dromos.domain.errors import Fault, Invalid
from dromos.domain.text import clean_text

MAX_DEPTH = 64
_INT_RANGE = range(-(2**63), 2**64)
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SQUARE = bytes.maketrans(b"{}", b"[]")
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
"""The fast parser rounds whole numbers that are too long instead of saying so."""
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def dumps(value: Any) -> bytes:
    return orjson.dumps(value)


def pointer(*parts: object) -> str:
    """A JSON pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def loads(body: bytes) -> Any:
    """The cleaned value of a JSON body. Raises `Invalid` with the place and the cure."""
    if _too_deep(body):
        raise Invalid(
            f"The body is nested more than {MAX_DEPTH} levels deep. Flatten it.",
            faults=[Fault("too_deep", "", f"nested more than {MAX_DEPTH} levels deep")],
        )
    if _LONG_NUMBER.search(body):
        return _slowly(body)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _slowly(body)
    return _cleaned(value) if b"\\u0000" in body else value


def _too_deep(body: bytes) -> bool:
    """Pairs of brackets are taken away from the inside out, once for each level; what is left was deeper."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _STRINGS.sub(b"", body).translate(_SQUARE, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        before = len(brackets)
        brackets = brackets.replace(b"[]", b"")
        if len(brackets) == before:
            break
    return b"[" in brackets


def _slowly(body: bytes) -> Any:
    try:
        text = body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise _not_json(f"it is not UTF-8 (byte {error.start})") from None
    try:
        value = json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise _not_json(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except ValueError:
        raise _not_json("it has a number of thousands of digits; send that as a string") from None
    return _cleaned(value)


def _not_json(why: str) -> Invalid:
    return Invalid(f"The body is not JSON: {why}.", faults=[Fault("not_json", "", why)])


def _cleaned(value: Any) -> Any:
    """Text cleaned; numbers that cannot be stored refused, with their place."""
    faults: list[Fault] = []

    def walk(item: Any, path: str) -> Any:
        if isinstance(item, str):
            return clean_text(item)
        if isinstance(item, dict):
            return {clean_text(key): walk(below, path + pointer(key)) for key, below in item.items()}
        if isinstance(item, list):
            return [walk(below, f"{path}/{index}") for index, below in enumerate(item)]
        if isinstance(item, float) and not math.isfinite(item):
            faults.append(Fault("not_finite", clean_text(path), "NaN and infinities are not JSON; send null"))
        elif isinstance(item, int) and item not in _INT_RANGE:
            faults.append(Fault("number_too_large", clean_text(path), "send it as a string"))
        return item

    cleaned = walk(value, "")
    if faults:
        raise Invalid("The body has numbers that cannot be stored; see `errors`.", faults=faults)
    return cleaned
