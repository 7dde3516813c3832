"""Figures for Prometheus: what the doors answered, what the database holds, and what other rooms count.

`WorkMetrics` is the `ports.meter.Meter` of production; `StoreMetrics` reads the store's own counts when asked. It must
not know which store or which agents there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dromos.domain.statuses import LIVE
from dromos.lifecycle.contract import Figures


class HttpMetrics:
    """Counters of one application, in the registry that was handed in."""

    def __init__(self, registry: CollectorRegistry, streams: Callable[[], int]) -> None:
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
        self.events = Gauge("dromos_events", "Durable events so far", registry=registry)
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
        self.events.set(figures.events)


class WorkMetrics:
    """`ports.meter.Meter` that counts in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._runs = Counter(
            "dromos_runs_ended",
            "Runs that ended, by status and error code",
            ["status", "error_code"],
            registry=registry,
        )
        self._models = Counter(
            "dromos_model_calls", "Calls of models, by outcome", ["outcome"], registry=registry
        )
        self._tools = Counter(
            "dromos_tool_calls", "Calls of tools, by outcome", ["outcome"], registry=registry
        )
        self._late = Counter(
            "dromos_late_writes",
            "Writes refused because their run belongs to somebody else or has ended",
            registry=registry,
        )

    def run_ended(self, status: str, error_code: str | None) -> None:
        self._runs.labels(status, error_code or "").inc()

    def model_call(self, outcome: str) -> None:
        self._models.labels(outcome).inc()

    def tool_call(self, outcome: str) -> None:
        self._tools.labels(outcome).inc()

    def late_write(self) -> None:
        self._late.inc()


class StoreCounts(Protocol):
    """What a store counts since it was opened."""

    @property
    def commits(self) -> int: ...
    @property
    def operations(self) -> int: ...
    @property
    def retries(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def reads(self) -> int: ...
    @property
    def write_seconds(self) -> float: ...
    @property
    def waiting(self) -> int: ...
    @property
    def largest_group(self) -> int: ...


class StoreMetrics(Collector):
    """The store's counts, read at each scrape."""

    def __init__(self, counts: Callable[[], StoreCounts], registry: CollectorRegistry) -> None:
        self._counts = counts
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        now = self._counts()
        yield CounterMetricFamily("dromos_store_commits", "Transactions committed", now.commits)
        yield CounterMetricFamily(
            "dromos_store_writes", "Write operations in them; several share one commit", now.operations
        )
        yield CounterMetricFamily(
            "dromos_store_write_seconds", "From asking for a write to its answer, summed", now.write_seconds
        )
        yield CounterMetricFamily("dromos_store_reads", "Reads", now.reads)
        yield CounterMetricFamily("dromos_store_retries", "Operations that were repeated", now.retries)
        yield CounterMetricFamily(
            "dromos_store_failures", "Operations that the database failed", now.failures
        )
        yield GaugeMetricFamily("dromos_store_waiting", "Writes that wait for a commit", now.waiting)
        yield GaugeMetricFamily(
            "dromos_store_largest_group", "Most writes that shared one commit", now.largest_group
        )


class WakeupMetrics(Collector):
    """How often the connection that brings word of other processes was lost; what came meanwhile is read from rows."""

    def __init__(self, reconnects: Callable[[], int], registry: CollectorRegistry) -> None:
        self._reconnects = reconnects
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "dromos_wakeup_reconnects", "Lost connections for wake-ups", self._reconnects()
        )


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
