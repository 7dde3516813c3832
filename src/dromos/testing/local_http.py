"""An ASGI application on a local port for as long as a context lasts, in a task of its own.

The port is bound before the context is entered, so it can be told to others at once. It must not know the
application.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import uvicorn


class LocalHTTP:
    """Serves `app` on `host`; port 0 takes a free one.

    Leaving the context closes the port at once and cuts what is still open. Raises OSError on entering if the
    port is taken.
    """

    def __init__(self, app: Any, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._app = app
        self.host = host
        self.port = port
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Base address without a trailing slash."""
        return f"http://{self.host}:{self.port}"

    async def serve_until_ended(self) -> None:
        """Wait until the server ends by itself."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def __aenter__(self) -> Self:
        listening = socket.create_server((self.host, self.port))
        # Accepted sockets inherit it; without it every answer waits for the client's delayed acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            http="httptools",
            ws="none",
            lifespan="auto",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=0,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]), name=f"serve {self.url}")
        await self._server.listening.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task


class _Server(uvicorn.Server):
    """Says when it listens, and leaves the signals to its process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
