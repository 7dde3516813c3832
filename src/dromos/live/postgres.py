"""Wake-ups between processes that share a PostgreSQL: LISTEN and NOTIFY on connections of their own.

A notification carries only a topic. Whoever loses the connection wakes every listener once it is back, so that what
was missed is read from the rows; until then the sweep finds everything, only later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg
import structlog

from dromos.live.memory import MemoryWakeup

log = structlog.get_logger("dromos.live")

CHANNEL = "dromos"
RECONNECT_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
BATCH = 200
TELL_SECONDS = 0.01
"""What is to be told within so long goes out together."""
LAST_WORDS_SECONDS = 0.5


class PostgresWakeup:
    """`ports.wakeup.Wakeup` over NOTIFY; wake-ups inside this process do not take the way through the database."""

    def __init__(self, url: str, own_id: str) -> None:
        self._url, self._own_id = url, own_id
        self._local = MemoryWakeup()
        self._loop = asyncio.get_running_loop()
        self._outgoing: dict[str, None] = {}  # topics to tell others, in order, each once
        self._something, self._all_told = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.reconnects = 0

    async def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._stay_connected(self._listen), name="wakeup:listen"),
            asyncio.create_task(self._stay_connected(self._tell), name="wakeup:notify"),
        ]

    async def aclose(self) -> None:
        """What is still to be told is told before, if that takes no time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await asyncio.sleep(0)  # what was enqueued from here is there then
                while self._outgoing or not self._all_told.is_set():
                    await self._all_told.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def notify(self, topic: str, news: Sequence[Any] = ()) -> None:
        self._local.notify(topic, news)
        self._loop.call_soon_threadsafe(self._enqueue, topic)

    def notify_elsewhere(self, topic: str) -> None:
        self._loop.call_soon_threadsafe(self._enqueue, topic)

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self._local.listen(topic, callback)

    def follow(self, topic: str, callback: Callable[[Sequence[Any]], None]) -> Callable[[], None]:
        return self._local.follow(topic, callback)

    def _enqueue(self, topic: str) -> None:
        self._outgoing[topic] = None
        self._all_told.clear()
        self._something.set()

    async def _stay_connected(self, work: Callable[[psycopg.AsyncConnection], Awaitable[None]]) -> None:
        tries = 0
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
                async with connection:
                    tries = 0
                    await work(connection)
            except psycopg.Error as error:
                delay = RECONNECT_SECONDS[min(tries, len(RECONNECT_SECONDS) - 1)]
                tries += 1
                self.reconnects += 1
                log.warning("wakeup.disconnected", error=str(error).strip(), again_in=delay)
                await asyncio.sleep(delay)

    async def _listen(self, connection: psycopg.AsyncConnection) -> None:
        await connection.execute(f"LISTEN {CHANNEL}")
        self._local.notify_all()  # whatever was said while nobody listened is read from the rows
        async for notification in connection.notifies():
            sender, _, topic = notification.payload.partition(" ")
            if sender != self._own_id:
                self._local.notify(topic)

    async def _tell(self, connection: psycopg.AsyncConnection) -> None:
        while True:
            while self._outgoing:
                await asyncio.sleep(TELL_SECONDS)
                topics = list(self._outgoing)[:BATCH]
                for topic in topics:  # one that comes again meanwhile is told again
                    del self._outgoing[topic]
                try:
                    await connection.execute(
                        "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload",
                        (CHANNEL, [f"{self._own_id} {topic}" for topic in topics]),
                    )
                except psycopg.Error:
                    self._outgoing.update(dict.fromkeys(topics))
                    raise
            self._something.clear()
            self._all_told.set()
            await self._something.wait()
