"""A model's text on its way to readers: whole characters only.

Models may split a character beyond the basic plane over two chunks, each with half of a surrogate pair. The first
half waits here for the second; a half that stays alone becomes U+FFFD.
"""

from __future__ import annotations

from dromos.domain.text import clean_text
from dromos.ports.live import LiveRun


class LiveText:
    """Appends to the message being written; one attempt's."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self._message_id = ""
        self._half = ""

    def add(self, message_id: str, text: str) -> None:
        """One chunk of a message. A new `message_id` begins another message."""
        if message_id != self._message_id:
            self.flush()
            self._message_id = message_id
        text = self._half + text
        self._half = ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        if text:
            self._live.text(message_id, clean_text(text))

    def flush(self) -> None:
        """The message is complete: nothing may wait."""
        if self._half:
            half, self._half = self._half, ""
            self._live.text(self._message_id, clean_text(half))
