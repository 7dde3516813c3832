"""An MCP server as a child process in a group of its own, behind the transport interface of `mcp.Client`.

Owns the process: starts it, carries messages, says when and why it ended, and ends its whole group. Ours
rather than the SDK's because the end must be known while no call runs, a broken character must not cost a
message, and children of a server that exits politely must not stay. It must not know sessions or tools.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from dromos.domain.text import clean_json, clean_text
from dromos.tools.mcp.configuration import StdioServer
from dromos.tools.mcp.survivors import watch

MESSAGE_BYTES = 64 * 1024 * 1024
"""A server that sends a longer message is ended: its memory would become ours."""

STDERR_SHOWN = 5
"""Last lines of stderr that explain an end."""

KILL_AFTER = 1.0
"""Seconds between SIGTERM and SIGKILL of the group."""

_POLL = 0.01

logger = logging.getLogger(__name__)

Incoming = SessionMessage | Exception


@asynccontextmanager
async def stdio_transport(
    server: StdioServer, ended: Callable[[str], None], *, grace: float
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]]:
    """Start the server and yield its message streams.

    `ended` is called once with the reason when the server ends or breaks the protocol by itself. At the end
    stdin is closed, the server has `grace` seconds to exit, then what is left of its group is terminated and
    killed.

    Raises OSError if the command cannot be started.
    """
    child = await _Child.start(server, ended)
    watch.add(child.group)
    to_session, from_server = anyio.create_memory_object_stream[Incoming](0)
    to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as carriers:
            carriers.start_soon(child.read, to_session)
            carriers.start_soon(child.write, from_session)
            carriers.start_soon(child.listen_to_stderr)
            try:
                yield from_server, to_server
            finally:
                with anyio.CancelScope(shield=True):
                    await child.end(grace)
                    watch.remove(child.group)
                carriers.cancel_scope.cancel()
    finally:
        for stream in (to_session, from_server, to_server, from_session):
            stream.close()
        child.release()


class _Child:
    def __init__(
        self,
        name: str,
        process: Process,
        transport: asyncio.SubprocessTransport,
        ended: Callable[[str], None],
    ) -> None:
        self._name = name
        self._process = process
        self._transport = transport
        self._ended = ended
        self._stderr: deque[str] = deque(maxlen=STDERR_SHOWN)
        self._stderr_over = asyncio.Event()

    @property
    def group(self) -> int:
        """The number of its process group."""
        return self._process.pid

    @classmethod
    async def start(cls, server: StdioServer, ended: Callable[[str], None]) -> _Child:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(limit=65_536, loop=loop),
            server.command,
            *server.args,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=get_default_environment() | dict(server.env),
            cwd=server.cwd,
            start_new_session=True,
        )
        return cls(server.name, Process(transport, protocol, loop), transport, ended)

    async def read(self, to_session: ObjectSendStream[Incoming]) -> None:
        """Carry messages from stdout until it closes; then say why."""
        async with to_session:
            reason = None
            try:
                async for line in self._lines():
                    if (message := _parse(line)) is not None:
                        await to_session.send(message)
                    else:
                        logger.debug("mcp server %s wrote a line that is no message", self._name)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # our own end
            except _TooLongError:
                reason = f"it sent a message of more than {MESSAGE_BYTES // 1024 // 1024} MiB and was ended"
            self._ended(reason or await self._why())

    async def _lines(self) -> AsyncIterator[bytes]:
        assert self._process.stdout is not None
        parts: list[bytes] = []
        size = 0
        while chunk := await self._process.stdout.read(65_536):
            *complete, rest = chunk.split(b"\n")
            for line in complete:
                yield b"".join((*parts, line))
                parts, size = [], 0
            parts.append(rest)
            size += len(rest)
            if size > MESSAGE_BYTES:
                raise _TooLongError

    async def write(self, from_session: ObjectReceiveStream[SessionMessage]) -> None:
        """Carry messages to stdin until the session or the server closes."""
        assert self._process.stdin is not None
        try:
            async for message in from_session:
                data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._process.stdin.write(data.encode() + b"\n")
                await self._process.stdin.drain()
        except (OSError, RuntimeError):  # a pipe that is gone; uvloop says so with a RuntimeError
            await from_session.aclose()

    async def listen_to_stderr(self) -> None:
        """Keep the last lines of stderr; a server that is not read would block."""
        assert self._process.stderr is not None
        rest = ""
        while chunk := await self._process.stderr.read(65_536):
            *complete, rest = (rest + chunk.decode("utf-8", "replace")).split("\n")
            rest = rest[-1_000:]
            for line in complete:
                logger.debug("mcp server %s: %s", self._name, line)
                self._stderr.append(clean_text(line[:200]))
        self._stderr_over.set()

    async def _why(self) -> str:
        await self._exited_within(0.5)
        await _within(0.2, self._stderr_over.is_set)
        code = self._process.returncode
        if code is None:
            what = "it closed its output"
        elif code < 0:
            what = f"it was killed by {_signal_name(-code)}"
        else:
            what = f"it ended with exit code {code}"
        said = " | ".join(line for line in self._stderr if line.strip())
        return f"{what} (its last words: {said})" if said else what

    async def end(self, grace: float) -> None:
        """Ask, wait, insist: the group is gone afterwards unless the kernel keeps it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._exited_within(grace)
        if not self._signal_group(signal.SIGTERM):
            return
        if await _within(KILL_AFTER, lambda: not self._signal_group(0)):
            return
        self._signal_group(signal.SIGKILL)
        await self._exited_within(KILL_AFTER)

    def release(self) -> None:
        """Let go of the pipes, which a survivor may still hold."""
        self._transport.close()

    async def _exited_within(self, seconds: float) -> bool:
        # not `process.wait()`: it also waits for the pipes, which a grandchild may hold open
        return await _within(seconds, lambda: self._process.returncode is not None)

    def _signal_group(self, number: int) -> bool:
        """Signal what is left of the group; False when nothing is."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # some of it is not ours to signal; it still exists
        return True


class _TooLongError(Exception):
    pass


async def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        if loop.time() >= end:
            return False
        await asyncio.sleep(_POLL)
    return True


def _parse(line: bytes) -> SessionMessage | None:
    """A message, with broken characters replaced; None if the line is none."""
    if not line.strip():
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        pass
    try:
        content, _ = clean_json(json.loads(line.decode("utf-8", "replace"), strict=False))
        return SessionMessage(jsonrpc_message_adapter.validate_python(content, by_name=False))
    except (ValueError, RecursionError):
        return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
