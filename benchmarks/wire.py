"""A client as thin as can be: HTTP/1.1 over asyncio streams, so that the figures are the server's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from benchmarks.side import write_settings
from dromos.testing.processes import ServeProcess


class Connection:
    """One keep-alive connection; one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**22)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def _send(self, method: str, path: str, body: bytes = b"") -> int:
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        if body:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)
        status = int((await self._reader.readline()).split()[1])
        self._length = 0
        while (line := await self._reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                self._length = int(value)
        return status

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        status = await self._send(method, path, orjson.dumps(body) if body is not None else b"")
        answer = await self._reader.readexactly(self._length)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer[:500]!r}")
        return orjson.loads(answer) if answer else None

    async def events(self, path: str) -> AsyncIterator[tuple[bytes, bytes, int]]:
        """(event, data, bytes on the wire) of a stream, until it ends."""
        await self._send("GET", path)
        event, size, rest = b"", 0, b""
        while head := await self._reader.readline():
            try:
                chunk = await self._reader.readexactly(int(head, 16) + 2)
            except asyncio.IncompleteReadError:
                return  # the connection was cut
            size += len(head) + 2
            *lines, rest = (rest + chunk[:-2]).split(b"\n")  # a chunk may end inside a line
            for line in lines:
                size += len(line) + 1
                if line.startswith(b"event: "):
                    event = line[7:]
                elif line.startswith(b"data: "):
                    yield event, line[6:], size
                    size = 0


@asynccontextmanager
async def served(folder: Path, database: str | None = None, **env: str) -> AsyncIterator[ServeProcess]:
    """The real server in a process of its own, with the benchmark's graphs, its engine loaded."""
    write_settings(folder)
    root = str(Path(__file__).parents[1])
    process = ServeProcess(
        folder / "data", database=database, env={"PYTHONPATH": root, **env}, cwd=folder, ready_within=60
    )
    async with process:
        async with Connection(process.port) as reader, Connection(process.port) as sender:
            watcher = Watcher(reader)
            await watcher.start()
            for agent in ("assistant", "noop"):  # both kinds of agent are loaded before anything is measured
                made = await sender.ask("POST", "/v1/conversations", {"agent": agent})
                path = f"/v1/conversations/{made['id']}/messages"
                posted = await sender.ask("POST", path, {"content": "!say warm"})
                await watcher.ended(posted["run"]["id"])
            await watcher.aclose()
        yield process
        process.term()
        await process.wait_exit(30)


class Watcher:
    """One stream of the user; tells when a run has ended."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._ended: dict[str, asyncio.Future[str]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        ready = asyncio.Event()
        self._task = asyncio.create_task(self._read(ready))
        await ready.wait()

    async def _read(self, ready: asyncio.Event) -> None:
        async for event, data, _ in self._connection.events("/v1/stream"):
            if event == b"hello":
                ready.set()
            elif event == b"run.status":
                run = orjson.loads(data)["payload"]["run"]
                if run["finished_at"]:
                    self.ended(run["id"]).set_result(run["status"])

    def ended(self, run_id: str) -> asyncio.Future[str]:
        return self._ended.setdefault(run_id, asyncio.get_running_loop().create_future())

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
