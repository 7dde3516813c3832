"""All live documents and all their readers of this process; see `ports.live.LiveDocuments`.

A document's home is the process that works on its run, or the row where its owner is outside of every process. Told
of a save that another process made, readers here take the document from the row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from dromos.live.channel import Channel, Subscription
from dromos.live.mirror import Mirror
from dromos.live.pen import Pen
from dromos.ports.live import DocumentSnapshot, Frame, Patched
from dromos.ports.wakeup import Wakeup, document_topic


class LiveHub:
    """`wakeup` brings word of what other processes saved; None: there are none."""

    def __init__(self, wakeup: Wakeup | None = None, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._wakeup = wakeup
        self._pens: dict[str, Pen] = {}
        self._mirrors: dict[str, Mirror] = {}
        self._channels: dict[str, Channel] = {}
        self._deaf: dict[str, Callable[[], None]] = {}  # by conversation: stop listening

    # --- owners
    def open(self, run_id: str, conversation_id: str, epoch: int, content: Mapping[str, Any]) -> Pen:
        channel = self._channels.get(conversation_id)
        pen = Pen(self._loop, run_id, conversation_id, epoch, content, channel, self._put_down)
        before = self._pens.get(run_id)
        if before is not None:
            before.silence()  # an owner that has lost the run and does not know it yet
        self._pens[run_id] = pen
        self._mirrors.pop(run_id, None)
        if channel is not None:
            channel.wake()
        return pen

    def relay(self, patched: Patched) -> None:
        channel = self._channels.get(patched.conversation_id)
        if channel is None:
            return
        mirror = self._mirrors.get(patched.run_id)
        if mirror is None:
            mirror = self._mirrors[patched.run_id] = Mirror(self._loop, channel, patched)
        mirror.take(patched)

    def ended(self, run_id: str) -> None:
        home = self._pens.get(run_id) or self._mirrors.pop(run_id, None)
        if home is not None:
            home.tell()

    def _put_down(self, pen: Pen) -> None:
        if self._pens.get(pen.run_id) is pen:
            del self._pens[pen.run_id]

    # --- readers
    def snapshot(self, run_id: str) -> DocumentSnapshot | None:
        home = self._pens.get(run_id) or self._mirrors.get(run_id)
        return None if home is None else home.shown()

    def mark(self, conversation_id: str) -> int:
        channel = self._channels.get(conversation_id)
        return 0 if channel is None else channel.next

    def subscribe(self, conversation_id: str, on_frame: Callable[[], None]) -> Subscription:
        channel = self._channels.get(conversation_id)
        if channel is None:
            channel = self._channels[conversation_id] = Channel(self._loop)
            for pen in self._pens_of(conversation_id):
                pen.attach(channel)
            if self._wakeup is not None:
                topic = document_topic(conversation_id)
                self._deaf[conversation_id] = self._wakeup.listen(topic, lambda: self._saved(conversation_id))
        watched = channel

        def left(reader: Subscription) -> None:
            watched.readers.discard(reader)
            if not watched.readers and self._channels.get(conversation_id) is watched:
                self._nobody(conversation_id)

        reader = Subscription(channel, on_frame, left)
        channel.readers.add(reader)
        return reader

    def watched(self, conversation_id: str) -> bool:
        return conversation_id in self._channels

    def focused(self) -> list[str]:
        return list(self._channels)

    def server(self, conversation_id: str, run_id: str, fields: Mapping[str, Any]) -> None:
        channel = self._channels.get(conversation_id)
        if channel is not None:
            data = orjson.dumps({"run_id": run_id, **fields})
            channel.publish(Frame.of("run.server", data, run_id))

    # --- inside
    def _saved(self, conversation_id: str) -> None:
        """A document of this conversation was saved by another process."""
        self._forget_mirrors(conversation_id)
        channel = self._channels.get(conversation_id)
        if channel is not None:
            channel.refresh()

    def _nobody(self, conversation_id: str) -> None:
        """The last reader left."""
        for pen in self._pens_of(conversation_id):
            pen.attach(None)
        self._forget_mirrors(conversation_id)
        self._channels.pop(conversation_id).close()
        stop = self._deaf.pop(conversation_id, None)
        if stop is not None:
            stop()

    def _pens_of(self, conversation_id: str) -> list[Pen]:
        return [pen for pen in self._pens.values() if pen.conversation_id == conversation_id]

    def _forget_mirrors(self, conversation_id: str) -> None:
        gone = [m for m in self._mirrors.values() if m.conversation_id == conversation_id]
        for mirror in gone:
            mirror.silence()
            del self._mirrors[mirror.run_id]
