"""The models' text on its way to readers: whole characters only, one message at a time.

A document shows one message being written. Where several models write at once, the first keeps the place until it is
done; what the others say meanwhile waits, and the next of those still writing then shows all of its text.

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
        self._writer: object = None
        self._message_id = ""
        self._half = ""
        self._waiting: dict[object, tuple[str, list[str]]] = {}  # id and chunks, by call, the oldest first

    def add(self, call: object, message_id: str, text: str) -> None:
        """One chunk of the message that a model call writes; `call` is only told from others."""
        if call is not self._writer:
            if self._writer is not None:
                self._waiting.setdefault(call, (message_id, []))[1].append(text)
                self._live.touch()
                return
            self._writer, self._message_id = call, message_id
        if self._half:
            text, self._half = self._half + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        if text:
            self._live.text(message_id, clean_text(text))

    def end(self, call: object) -> None:
        """The call's message is complete, or will never be."""
        if call is not self._writer:
            self._waiting.pop(call, None)
            return
        if self._half:
            half, self._half = self._half, ""
            self._live.text(self._message_id, clean_text(half))
        self._writer = None
        if self._waiting:
            following = next(iter(self._waiting))
            message_id, chunks = self._waiting.pop(following)
            self.add(following, message_id, "".join(chunks))
