"""A proxy before a PostgreSQL server that loses connections at chosen moments, as a network does."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit


class SeveringProxy:
    """Listens on a TCP port and passes bytes on to the server's socket, until told to lose a connection.

    `lose_commit`: the next COMMIT is not passed on and its connection is cut. `lose_answer_to_commit`: the next
    COMMIT reaches the server, its answer does not come back.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        folder = parse_qs(parts.query)["host"][0]
        self._target = f"{folder}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{port}{parts.path}"
        self.connections = 0
        self.lost = 0
        self._loses: str | None = None
        self._refuses = False
        self._frozen: list[socket.socket] = []
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_commit(self) -> None:
        self._loses = "commit"

    def lose_answer_to_commit(self) -> None:
        self._loses = "answer"

    def freeze(self) -> None:
        """Existing connections stay open and take bytes, but nothing comes back; new ones work."""
        self._frozen = [*self._sockets]

    def refuse_new_connections(self) -> None:
        self._refuses = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for one in self._sockets:
            _cut(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuses:
                _cut(client)
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            self.connections += 1
            self._sockets += [client, server]
            threading.Thread(target=self._upwards, args=(client, server), daemon=True).start()
            threading.Thread(target=self._downwards, args=(client, server), daemon=True).start()

    def _upwards(self, client: socket.socket, server: socket.socket) -> None:
        while data := _receive(client):
            if client in self._frozen:
                continue
            with self._lock:
                losing = self._loses if b"COMMIT" in data else None
                if losing:
                    self._loses = None
                    self.lost += 1
            if losing == "answer":
                _cut(client)  # before the server can answer
                _send(server, data)
                _receive(server)  # it has done it
            if losing or not _send(server, data):
                break
        _cut(client)
        _cut(server)

    def _downwards(self, client: socket.socket, server: socket.socket) -> None:
        while data := _receive(server):
            if not _send(client, data):
                return


def _receive(one: socket.socket) -> bytes:
    try:
        return one.recv(65536)
    except OSError:
        return b""


def _send(one: socket.socket, data: bytes) -> bool:
    try:
        one.sendall(data)
    except OSError:
        return False
    return True


def _cut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    one.close()
