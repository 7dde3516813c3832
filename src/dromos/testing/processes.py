"""Real server processes for tests: started, watched, and hit with real signals.

A process gets its own group, a log file and an environment without this machine's Dromos settings. It is
waited for with a bound, and its whole group is gone when the context ends. It must not know what the server
does, only its command line and `/readyz`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from dromos.testing.waiting import NotSeenInTimeError, within

LOG_SHOWN = 4_000
"""Characters of a log's end that an error shows."""

SERVER_PORTS = range(10_000, 32_000)
"""Where `free_port` looks: below what Linux (32768), macOS and Windows (49152) give to connections."""

_offsets = itertools.count(secrets.randbelow(len(SERVER_PORTS)))


class ProcessDiedError(AssertionError):
    """The process ended while something was expected of it; the message ends with its log."""


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that was free a moment ago and that no outgoing connection is given by the system.

    A port from the system's own range could be taken by any connection while its server is down between two
    starts; these lie below that range and are not given twice by one process.

    Raises OSError if no port of a whole round is free.
    """
    for offset in itertools.islice(_offsets, len(SERVER_PORTS)):
        port = SERVER_PORTS[offset % len(SERVER_PORTS)]
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port on {host} in {SERVER_PORTS.start}-{SERVER_PORTS.stop - 1}")


class RealProcess:
    """One command in a process group of its own, its output in a log file; may be started again after its
    end."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.command = tuple(command)
        self.log = log
        self.cwd = cwd
        self.env = clean_environment() | dict(env or {})
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Process id of the last start."""
        return self._started().pid

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def returncode(self) -> int | None:
        """Exit code of the last start (negative: the signal), None while it runs."""
        return self._started().returncode

    async def start(self) -> None:
        """Start the command. Its log is appended to.

        Raises RuntimeError if it runs already, OSError if it cannot be started.
        """
        if self.running:
            raise RuntimeError(f"process {self.pid} runs already; end it before starting it again")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd=self.cwd,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL the process, not its group: what a crash does."""
        self._signal(signal.SIGKILL)

    def term(self) -> None:
        """SIGTERM: asks for an orderly end."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """SIGSTOP: freezes it where it is, as a suspended machine does."""
        self._signal(signal.SIGSTOP)

    def cont(self) -> None:
        """SIGCONT: lets a stopped process go on."""
        self._signal(signal.SIGCONT)

    async def wait_exit(self, timeout: float = 10.0) -> int:
        """Wait for its end; returns the exit code, negative for a signal.

        Raises NotSeenInTimeError after `timeout` seconds; the process is left as it is.
        """
        try:
            return await within(timeout, self._started().wait(), f"the end of process {self.pid}")
        except NotSeenInTimeError as late:
            raise NotSeenInTimeError(f"{late}\n{self.logs_tail()}") from None

    async def close(self) -> None:
        """End the whole group at once, however it is; harmless if it has ended."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        await within(10, self._process.wait(), f"the end of killed process {self._process.pid}")

    def logs(self) -> str:
        """Everything written to stdout and stderr, over all starts."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def logs_tail(self) -> str:
        """The end of the log, for error messages."""
        return f"--- end of {self.log.name} ---\n{self.logs()[-LOG_SHOWN:]}"

    def _signal(self, number: signal.Signals) -> None:
        if self._started().returncode is not None:
            raise ProcessDiedError(f"process {self.pid} has ended ({self.returncode})\n{self.logs_tail()}")
        os.kill(self.pid, number)

    def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the process was not started")
        return self._process

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class ServeProcess(RealProcess):
    """`dromos serve` on a data folder and a port that stay the same over restarts.

    Without `port` a free one is taken. `database` is a database URL; without it the data folder's own SQLite
    file is used. The model is `scripted` unless `env` says otherwise. `args` go after `serve`; `cwd` is where
    `dromos.toml` and `mcp.json` are looked for (default: the folder that holds `data`).
    """

    def __init__(
        self,
        data: Path,
        *,
        port: int | None = None,
        database: str | None = None,
        env: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
        cwd: Path | None = None,
        ready_within: float = 30.0,
    ) -> None:
        self.data = data
        self.host = "127.0.0.1"
        self.port = free_port(self.host) if port is None else port
        self.ready_within = ready_within
        where = ["--data", str(data), "--host", self.host, "--port", str(self.port)]
        if database is not None:
            where += ["--database", database]
        super().__init__(
            [sys.executable, "-m", "dromos", "serve", *where, *args],
            log=data.parent / f"{data.name}-serve-{self.port}.log",
            env={"DROMOS_MODEL": "scripted"} | dict(env or {}),
            cwd=cwd or data.parent,
        )

    @property
    def url(self) -> str:
        """Base address without a trailing slash."""
        return f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        """Start and wait until `/readyz` answers 200.

        Raises ProcessDiedError if it ends first, NotSeenInTimeError if it is not ready in time.
        """
        await super().start()
        await self.wait_ready()

    async def restart(self) -> None:
        """Start again on the same data and port once the process has ended (after `kill` or `term`)."""
        await self.wait_exit()
        await self.start()

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until `/readyz` answers 200; see `start` for errors."""
        seconds = self.ready_within if timeout is None else timeout
        try:
            await within(seconds, self._ready(), f"{self.url}/readyz")
        except NotSeenInTimeError as late:
            raise NotSeenInTimeError(f"{late}\n{self.logs_tail()}") from None

    async def _ready(self) -> None:
        async with httpx.AsyncClient(base_url=self.url, timeout=2.0, trust_env=False) as client:
            while self.running:
                try:
                    if (await client.get("/readyz")).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.02)
        raise ProcessDiedError(f"`dromos serve` ended with {self.returncode}\n{self.logs_tail()}")


def clean_environment() -> dict[str, str]:
    """This process's environment without what would change which model, database or key a server uses."""
    ours = ("DROMOS_", "OLLAMA_", "OPENAI_", "ANTHROPIC_", "LANGSMITH_", "LANGCHAIN_", "CT_FILE")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
