"""Figures of the doors for Prometheus: requests by route and status, open streams. Other rooms add theirs."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dromos.domain.statuses import LIVE
from dromos.lifecycle.contract import Figures


class HttpMetrics:
    """Counters of one application, in the registry that was handed in."""

    def __init__(self, registry: CollectorRegistry, streams: Callable[[], int]) -> None:
        self.registry = registry
        self.requests = Counter(
            "dromos_http_requests",
            "Requests answered, by route and status",
            ["route", "status"],
            registry=registry,
        )
        self.open_streams = Gauge("dromos_streams_open", "Event streams that are open", registry=registry)
        self.open_streams.set_function(lambda: float(streams()))
        self.live_runs = Gauge(
            "dromos_runs_live", "Runs that have not ended, by status", ["status"], registry=registry
        )
        self.workers = Gauge("dromos_workers", "Worker incarnations with a valid lease", registry=registry)
        self.queue_age = Gauge(
            "dromos_queue_age_seconds",
            "How long the oldest run has been waiting for a worker",
            registry=registry,
        )
        self._children: dict[tuple[str, int], Counter] = {}

    def count(self, route: str, status: int) -> None:
        key = (route, status)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self.requests.labels(route, str(status))
        child.inc()

    def show(self, figures: Figures) -> None:
        """Set the gauges that are read from the database when asked."""
        for status in LIVE:
            self.live_runs.labels(status.value).set(figures.live.get(status, 0))
        self.workers.set(figures.workers)
        self.queue_age.set(figures.queue_age)


class Counted:
    """ASGI wrapper: one count for each answer, under the route's template so that ids make no series."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "unknown")
                self.metrics.count(f"{scope['method']} {route}", message["status"])
            await send(message)

        await self.app(scope, receive, watch)
