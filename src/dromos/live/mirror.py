"""The document of a run that is worked on outside of this process, while somebody looks at it here.

It is handed each change that was stored by this process, and tells readers. A change that does not follow the one
before it was preceded by one that came in elsewhere: readers then take the document anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from dromos.domain.text import utf16_length
from dromos.live.channel import Channel
from dromos.live.teller import Teller
from dromos.ports.live import DocumentSnapshot, Patched, TextAppended


class Mirror(Teller):
    """Begins with the state before the first change it is handed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: Channel, first: Patched) -> None:
        super().__init__(loop, first.run_id, first.base_version, channel)
        self.conversation_id = first.conversation_id
        self._now = first.base_version
        self._content: Mapping[str, Any] = first.content
        self._gathered = 0  # units of text that is not told yet
        shown = first.content["text"]
        if first.text is None:
            self._begin_message(shown["message_id"], shown["length"])
        elif first.text.offset:
            self._begin_message(first.text.message_id, first.text.offset)

    def take(self, patched: Patched) -> None:
        assert self._channel is not None
        follows = patched.base_version == self._now and self._text_follows(patched.text)
        self._content, self._now = patched.content, patched.version
        if not follows:
            self._edits.take()
            self._pieces.clear()
            self._gathered = 0
            self.version = patched.version
            shown = patched.content["text"]
            self._begin_message(shown["message_id"], shown["length"])
            self._channel.refresh()
            return
        for operation in patched.operations:
            self._edits.add(operation)
        if self._edits and self._patch_timer is None:
            self._arm_patch()
        if patched.text is not None:
            if patched.text.message_id != self.message_id:
                if self._hurried():
                    self._take_text()  # it is replaced in a moment
                self._tell_text()
                self._begin_message(patched.text.message_id)
            self._pieces.append(patched.text.text)
            self._gathered += utf16_length(patched.text.text)
            if self._text_timer is None:
                self._arm_text()

    def shown(self) -> DocumentSnapshot:
        self.tell()
        return DocumentSnapshot(self.run_id, self._now, self._content)

    # --- inside
    def _text_follows(self, text: TextAppended | None) -> bool:
        if text is None:
            return True
        if text.message_id != self.message_id:
            return text.offset == 0
        return text.offset == self.length + self._gathered

    def _next_version(self) -> int:
        return self._now

    def _take_text(self) -> str:
        text = "".join(self._pieces)
        self._pieces.clear()
        self._gathered = 0
        return text
