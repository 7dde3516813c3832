"""Wake-ups inside one process. Several at the same moment become one; losing one costs latency only."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class MemoryWakeup:
    """`ports.wakeup.Wakeup` for one event loop; `notify` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self._pending: set[str] = set()
        self._lock = threading.Lock()

    def notify(self, topic: str) -> None:
        with self._lock:
            if topic in self._pending or topic not in self._listeners:
                return
            self._pending.add(topic)
        if threading.get_ident() == self._thread:
            self._loop.call_soon(self._deliver, topic)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, topic)

    def notify_elsewhere(self, topic: str) -> None:
        """There is nobody elsewhere."""

    def notify_all(self) -> None:
        """Wake every listener of every topic: something may have been missed."""
        with self._lock:
            topics = tuple(self._listeners)
        for topic in topics:
            self.notify(topic)

    def _deliver(self, topic: str) -> None:
        with self._lock:
            self._pending.discard(topic)
            callbacks = tuple(self._listeners.get(topic, ()))
        for callback in callbacks:
            callback()

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        with self._lock:
            self._listeners.setdefault(topic, []).append(callback)

        def stop() -> None:
            with self._lock:
                callbacks = self._listeners.get(topic)
                if callbacks and callback in callbacks:
                    callbacks.remove(callback)
                    if not callbacks:
                        del self._listeners[topic]

        return stop
