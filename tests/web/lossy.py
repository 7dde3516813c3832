"""A proxy between browser and server that loses connections as networks do: cut, or without a word."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class LossyProxy:
    """Passes TCP connections on to the server's port; its address stays the same while the server is away."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._streams: set[asyncio.StreamWriter] = set()
        self._silent: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._away = False
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def silence_streams(self) -> None:
        """Connections that carry an event stream stay open and nothing comes over them any more."""
        self._silent |= self._streams

    def cut(self) -> None:
        """Every connection ends, and new ones end at once until `restore`."""
        self._away = True
        for writer in tuple(self._writers):
            writer.transport.abort()

    def restore(self) -> None:
        self._away = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self._away:
                return
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(back)
            try:
                await asyncio.gather(self._up(reader, back, writer), self._down(there, writer))
            finally:
                self._writers.discard(back)
                back.transport.abort()
        except OSError:
            pass  # the server is away: so is this connection
        finally:
            self._writers.discard(writer)
            self._streams.discard(writer)
            self._silent.discard(writer)
            writer.transport.abort()
            self._tasks.discard(task)

    async def _up(
        self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            if data.startswith(b"GET /v1/stream"):
                self._streams.add(client)
            back.write(data)
            await back.drain()
        back.transport.abort()

    async def _down(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await there.read(65536):
            if writer not in self._silent:
                writer.write(data)
                await writer.drain()
        if writer not in self._silent:
            writer.transport.abort()
