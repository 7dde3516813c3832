"""Wake-ups inside one process. Several at the same moment become one; losing one costs latency only."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Callback = TypeVar("Callback", bound=Callable[..., None])


class MemoryWakeup:
    """`ports.wakeup.Wakeup` for one event loop; `notify` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self._followers: dict[str, list[Callable[[Sequence[Any]], None]]] = {}
        self._pending: set[str] = set()
        self._lock = threading.Lock()

    def notify(self, topic: str, news: Sequence[Any] = ()) -> None:
        with self._lock:
            followed = topic in self._followers
            wakes = topic in self._listeners and topic not in self._pending
            if wakes:
                self._pending.add(topic)
        if followed:
            self._soon(self._report, topic, news)
        if wakes:
            self._soon(self._deliver, topic)

    def _soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        if threading.get_ident() == self._thread:
            self._loop.call_soon(callback, *arguments)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def notify_elsewhere(self, topic: str) -> None:
        """There is nobody elsewhere."""

    def notify_all(self) -> None:
        """Wake every listener of every topic: something may have been missed."""
        with self._lock:
            topics = tuple({**self._listeners, **self._followers})
        for topic in topics:
            self.notify(topic)

    def _deliver(self, topic: str) -> None:
        with self._lock:
            self._pending.discard(topic)
            callbacks = tuple(self._listeners.get(topic, ()))
        for callback in callbacks:
            callback()

    def _report(self, topic: str, news: Sequence[Any]) -> None:
        with self._lock:
            callbacks = tuple(self._followers.get(topic, ()))
        for callback in callbacks:
            callback(news)

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self._enter(self._listeners, topic, callback)

    def follow(self, topic: str, callback: Callable[[Sequence[Any]], None]) -> Callable[[], None]:
        return self._enter(self._followers, topic, callback)

    def _enter(
        self, register: dict[str, list[Callback]], topic: str, callback: Callback
    ) -> Callable[[], None]:
        with self._lock:
            register.setdefault(topic, []).append(callback)

        def stop() -> None:
            with self._lock:
                callbacks = register.get(topic)
                if callbacks and callback in callbacks:
                    callbacks.remove(callback)
                    if not callbacks:
                        del register[topic]

        return stop
