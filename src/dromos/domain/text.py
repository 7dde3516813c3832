"""Texts as they are kept and shown, and the cleaning of text and JSON at the border: what no database and no model API
takes is replaced once.

NUL and lone surrogates become U+FFFD; a surrogate pair that arrived as two halves becomes one character. Bidi
controls stay (a page shows them visibly). NaN and infinities become null and are reported.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

REPLACEMENT = "\ufffd"
_BAD = re.compile("[\x00\ud800-\udfff]")
_MARKS = re.compile(r"^\s*(?:```.*|~~~.*|[-*_=]{3,}\s*$|(?:#{1,6}|>|[-*+])\s+)|\*\*|`")
_SENTENCE_END = re.compile(r"[.!?…](?=\s)|[。！？]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def clean_text(text: str) -> str:
    """The text with NUL and lone surrogates replaced by U+FFFD."""
    if text.isascii() and "\x00" not in text:
        return text
    if not _BAD.search(text):
        return text
    joined = _PAIR.sub(lambda m: m.group().encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return _BAD.sub(REPLACEMENT, joined)


def clean_json(value: Any) -> tuple[Any, bool]:
    """A JSON value with every string cleaned; the flag is True where a NaN or infinity became null."""
    if isinstance(value, str):
        return clean_text(value), False
    if isinstance(value, float) and not math.isfinite(value):
        return None, True
    if isinstance(value, dict):
        flagged = False
        out: dict[str, Any] = {}
        for key, item in value.items():
            cleaned, bad = clean_json(item)
            out[clean_text(str(key))] = cleaned
            flagged = flagged or bad
        return out, flagged
    if isinstance(value, list | tuple):
        pairs = [clean_json(item) for item in value]
        return [item for item, _ in pairs], any(bad for _, bad in pairs)
    return value, False


@lru_cache(maxsize=256)  # one operation writes its time a dozen times
def moment_text(moment: datetime) -> str:
    """`2026-11-29T13:46:04.123456Z`: fixed width, so text order is time order. Refuses a naive datetime."""
    if moment.tzinfo is not UTC:
        if moment.tzinfo is None:
            raise ValueError(f"{moment!r} has no time zone; only aware datetimes are taken")
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"


def first_line(text: str) -> str:
    """The first line that is not blank, without the space around it; '' where there is none."""
    return next((part.strip() for part in text.splitlines() if part.strip()), "")


def one_line(text: str, limit: int) -> str:
    """What a text says, in one line: its first line that holds words, without Markdown's marks, and of a long one the
    sentences that fit; '' where there are no words."""
    line = next((found for part in text.splitlines() if (found := _MARKS.sub("", part).strip())), "")
    if len(line) <= limit:
        return line
    ends = [match.end() for match in _SENTENCE_END.finditer(line[: limit + 1])]
    if ends and ends[-1] >= limit // 4:
        return line[: ends[-1]].rstrip()
    cut = line[: limit - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut[limit // 2 :] else cut).rstrip(" ,;:.") + "…"


def title_of(text: str, limit: int = 60) -> str:
    """A conversation's first title: the first line of its first message, cut at a word."""
    line = first_line(text)
    if len(line) <= limit:
        return line
    return line[:limit].rsplit(" ", 1)[0].rstrip(" ,;:.") + "…"


def utf16_length(text: str) -> int:
    """Length in UTF-16 code units, the unit of offsets on the stream."""
    return len(text) + sum(1 for char in text if char > "\uffff") if not text.isascii() else len(text)


def utf16_from(text: str, units: int) -> str:
    """The text behind its first `units` UTF-16 code units."""
    if units <= 0:
        return text
    if text.isascii():
        return text[units:]
    return text.encode("utf-16-le", "surrogatepass")[2 * units :].decode("utf-16-le", "replace")


def text_of(content: Any) -> str:
    """The readable text of a message's content: a string, or a list with text blocks; other content gives ''."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(map(_text_of_block, content))
    return ""


def _text_of_block(block: Any) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, dict) and isinstance(block.get("text"), str):
        return str(block["text"])
    return ""
