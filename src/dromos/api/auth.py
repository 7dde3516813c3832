"""Who is calling, and from where.

This release has one person: whoever reaches the port. `Principal` is the seam where accounts will come in. What is
refused already: names this server does not go by (a page that had its own name point here), and pages of
other addresses that want to change something.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from dromos.api.problems import RefusedByDoor

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
READING = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Principal:
    """The person a request acts for."""

    user_id: str
    name: str


def single_user(user_id: str, name: str) -> Callable[[Request], Principal]:
    """Every request is this person's."""
    person = Principal(user_id, name)
    return lambda request: person


class Gate:
    """ASGI wrapper that lets in what is addressed to this server and does not come from a strange page.

    `hosts` besides loopback and the address the connection came in at; `*` lets in any name.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str], origins: frozenset[str]) -> None:
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts) | LOOPBACK
        self.any_host = "*" in hosts
        self.origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            self._check_host(scope, headers)
            if scope["method"] not in READING:
                self._check_origin(headers)
        await self.app(scope, receive, send)

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        if self.any_host:
            return
        name = host_name(headers.get("host", ""))
        own = scope.get("server")
        if name not in self.hosts and not (own and name == own[0]):
            raise RefusedByDoor(
                421,
                "host_not_allowed",
                "The request names a host this server does not go by. Use http://127.0.0.1, or add the name to "
                "`allowed_hosts` in the server's configuration.",
            )

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None:
            strange = headers.get("sec-fetch-site") == "cross-site"
        else:
            origin = origin.lower().rstrip("/")
            own = headers.get("host", "").lower()
            strange = origin not in self.origins and origin not in (f"http://{own}", f"https://{own}")
        if strange:
            raise RefusedByDoor(
                403,
                "cross_origin",
                "A page of another address may not change anything here. Open this server's own page, or add the "
                "address to `allowed_origins` in the server's configuration.",
            )


def host_name(value: str) -> str:
    """The name in a Host header, without port and brackets."""
    value = value.strip().lower()
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.partition(":")[0]
