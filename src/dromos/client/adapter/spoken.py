"""The text of the message being written: what was said, and what of it the server has. Pure.

Offsets and lengths count UTF-16 code units, and no piece splits a pair. It must not know HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dromos.domain.text import clean_text, utf16_from, utf16_length

Json = dict[str, Any]

MOST_AT_ONCE: Final = 16 * 1024
"""UTF-16 code units of one piece: at most 48 KiB as UTF-8."""
MOST_SHOWN: Final = 1024 * 1024
"""Bytes of UTF-8 that the live text holds. What is said beyond it is not shown live; it is in the answer."""


class Spoken:
    """One message at a time; `end` closes it, the next word begins another under a new id."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._begin()

    def _begin(self) -> None:
        self.message_id: str | None = None
        self._said: list[str] = []
        self._unsent: list[str] = []
        self._half = ""
        self._shown_bytes = 0
        self._given_up = False
        self.confirmed = 0  # units the server has

    @property
    def text(self) -> str:
        """All of the message so far."""
        if len(self._said) > 1:
            self._said = ["".join(self._said)]
        return self._said[0] if self._said else ""

    @property
    def unsent(self) -> int:
        """Characters that the server does not have yet."""
        return sum(map(len, self._unsent))

    def say(self, text: str) -> None:
        """Append to the message. Half a surrogate pair at the end waits for its other half."""
        text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        text = clean_text(text)
        if not text:
            return
        if self.message_id is None:
            self.message_id = self._new_id()
        self._said.append(text)
        room = MOST_SHOWN - self._shown_bytes
        if room > 0 and not self._given_up:
            encoded = text.encode()
            if len(encoded) > room:
                text = encoded[:room].decode("utf-8", "ignore")
            self._shown_bytes += len(encoded)
            self._unsent.append(text)

    def end(self) -> tuple[str | None, str]:
        """Close the message: its id (None where nothing was said) and its text. Nothing of it is sent any more."""
        ended = (self.message_id, self.text)
        self._begin()
        return ended

    def give_up(self) -> None:
        """Show nothing more of this message: the server takes no more of it. It stays in `text`."""
        self._unsent, self._given_up = [], True

    def piece(self) -> Json | None:
        """The next `{"message_id", "offset", "append"}` to send; None where the server has everything."""
        if not self._unsent:
            return None
        self._unsent = ["".join(self._unsent)]
        return {
            "message_id": self.message_id,
            "offset": self.confirmed,
            "append": _head(self._unsent[0], MOST_AT_ONCE),
        }

    def took(self, piece: Mapping[str, Any]) -> None:
        """The server took this piece."""
        if piece["message_id"] != self.message_id or piece["offset"] != self.confirmed:
            return
        rest = "".join(self._unsent)[len(piece["append"]) :]
        self._unsent = [rest] if rest else []
        self.confirmed += utf16_length(piece["append"])

    def seen(self, shown: Mapping[str, Any]) -> None:
        """The server's document shows this text: `{"message_id", "length"}`; go on from there."""
        if self._given_up:
            return
        length = shown["length"] if shown.get("message_id") == self.message_id else 0
        whole = self.text.encode()[:MOST_SHOWN].decode("utf-8", "ignore")
        self.confirmed = min(length, utf16_length(whole))
        rest = utf16_from(whole, self.confirmed)
        self._unsent = [rest] if rest else []


def _head(text: str, units: int) -> str:
    """The beginning of a text, at most `units` UTF-16 code units long, no pair split."""
    if utf16_length(text) <= units:
        return text
    return text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore")
