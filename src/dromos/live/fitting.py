"""How a document of this process is kept within its limits: the text at its end, the rest by what is oldest.

Pure but for what it is handed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from dromos.domain import document
from dromos.domain.limits import shortened
from dromos.domain.patches import size_of
from dromos.domain.pointers import pointer
from dromos.domain.text import clean_text

NOTICE = "\n\n[… cut at 1 MiB]"
KEPT_STEPS = 10
SHORT = 200
"""Bytes to which texts of older entries are cut when room is needed."""


class TextRoom:
    """What of one message's pieces may be shown: whole characters, up to the limit, then a notice."""

    __slots__ = ("_left", "ends")

    def __init__(self) -> None:
        self._left = document.MAX_TEXT
        self.ends = False  # nothing comes after these pieces: half a character waits no longer

    def admit(self, pieces: list[str]) -> str:
        """The text of the pieces, which are taken; half of a surrogate pair at the end stays for the next time."""
        text = "".join(map(str, pieces))
        pieces.clear()
        if not self._left:
            return ""
        if not text.isascii():
            if not self.ends and "\ud800" <= text[-1] <= "\udbff":
                pieces.append(text[-1])
                text = text[:-1]
            text = clean_text(text)
        elif "\x00" in text:
            text = clean_text(text)
        size = len(text) if text.isascii() else len(text.encode())
        if size <= self._left - len(NOTICE.encode()):
            self._left -= size
            return text
        room = self._left - len(NOTICE.encode())
        self._left = 0
        return text.encode()[:room].decode(errors="ignore") + NOTICE


def make_room(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Operations that bring the content part within its limit, to be applied one by one as they come.

    Steps give first (all of them are in the store), then entries by id, oldest first, then the plan; at last
    whatever is largest.
    """

    def too_large() -> bool:
        return size_of(content) > document.MAX_CONTENT

    for index in range(len(content["steps"]) - KEPT_STEPS):
        step = content["steps"][index]
        if too_large() and len(orjson.dumps(step.get("summary"))) > SHORT:
            yield _replace(pointer("steps", index, "summary"), shortened(step["summary"], SHORT))
    while too_large() and len(content["steps"]) > KEPT_STEPS:
        yield {"op": "remove", "path": "/steps/0"}
    for name in ("workflows", "background", "subagents"):
        while too_large() and len(content[name]) > 1:
            yield {"op": "remove", "path": pointer(name, next(iter(content[name])))}
    for index in range(len(content["plan"])):
        if too_large() and len(orjson.dumps(content["plan"][index]["title"])) > SHORT:
            yield _replace(pointer("plan", index, "title"), shortened(content["plan"][index]["title"], SHORT))
    while too_large():
        parts = {name: len(orjson.dumps(value)) for name, value in content.items() if name != "text"}
        largest = max(parts, key=parts.__getitem__)
        yield _replace(pointer(largest), document.empty_content()[largest])


def _replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}
