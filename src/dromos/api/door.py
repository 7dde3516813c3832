"""What the doors are handed by the composition root, and what they share while the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from prometheus_client import CollectorRegistry
from starlette.requests import Request

from dromos.lifecycle import Lifecycle
from dromos.ports.agent import Agents
from dromos.ports.clock import Clock, Ids
from dromos.ports.live import LiveDocuments
from dromos.ports.wakeup import Wakeup

if TYPE_CHECKING:
    from dromos.api.auth import Principal
    from dromos.api.feed import Feeds
    from dromos.api.metrics import HttpMetrics
    from dromos.api.snapshots import Documents


@dataclass(frozen=True, slots=True)
class Options:
    """Limits and names of the doors. Sizes in bytes, times in seconds.

    `hosts` are names this server answers to besides loopback (`*`: any); `origins` are pages of other addresses
    that may change things.
    """

    max_body: int = 8 * 1024 * 1024
    heartbeat: float = 5.0
    reread: float = 3.0
    stop_deadline: float = 15.0
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()


async def nothing_to_check() -> None:
    """A server without anything that could be missing."""


@dataclass(frozen=True, slots=True)
class Deps:
    """The ports behind the doors.

    `check` raises `Unavailable` with the cure where the store cannot serve; `closing` is set when the server
    begins to shut down, streams then say goodbye and end.
    """

    lifecycle: Lifecycle
    live: LiveDocuments
    wakeup: Wakeup
    agents: Agents
    clock: Clock
    ids: Ids
    principal: Callable[[Request], Principal]
    closing: asyncio.Event
    version: str
    check: Callable[[], Awaitable[None]] = nothing_to_check
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    options: Options = Options()


@dataclass(frozen=True, slots=True)
class Door:
    """`Deps` and what is made once per application."""

    deps: Deps
    feeds: Feeds
    metrics: HttpMetrics
    documents: Documents

    @property
    def lifecycle(self) -> Lifecycle:
        return self.deps.lifecycle


def door_of(request: Request) -> Door:
    """The door this request came in by."""
    return cast("Door", request.app.state.door)


def caller(request: Request) -> Principal:
    """Who sent the request."""
    return door_of(request).deps.principal(request)
