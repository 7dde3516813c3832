"""A whole server as a context manager: every room made, joined, and ended in the opposite order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from dromos.bootstrap.crashing import make_probe
from dromos.bootstrap.parts import (
    make_gate,
    make_registry,
    make_toolbox,
    make_wakeup,
    recovery_of,
    retry_policies,
    stall_policy,
)
from dromos.bootstrap.reality import SystemClock, TimeOrderedIds
from dromos.domain.statuses import LIVE, Recovery
from dromos.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from dromos.agents.registry import AgentRegistry
    from dromos.lifecycle import Lifecycle
    from dromos.store.sql_store import SqlStore
    from dromos.worker import Worker


LOCAL_USER = "local"
"""The one person of this release; every row carries an owner all the same."""


@dataclass(frozen=True, slots=True)
class System:
    """A server that is assembled: the parts that tests, benchmarks and `serve` reach for."""

    app: ASGIApp
    lifecycle: Lifecycle
    store: SqlStore
    worker: Worker
    agents: AgentRegistry
    closing: asyncio.Event
    warming: asyncio.Task[None]  # done once everything that runs need is loaded


@asynccontextmanager
async def assemble(settings: Settings) -> AsyncIterator[System]:
    """A whole server but its socket: store, agents, tools, worker and application. Raises `Unavailable` with the cure.

    Leaving the context drains the worker and closes everything in turn.
    """
    from prometheus_client import CollectorRegistry

    from dromos.api.app import create_app
    from dromos.api.auth import single_user
    from dromos.api.door import Deps, Options
    from dromos.api.metrics import StoreMetrics, WakeupMetrics, WorkMetrics
    from dromos.lifecycle import Lifecycle
    from dromos.lifecycle.contract import AgentPolicy, Policy
    from dromos.live import LiveHub
    from dromos.ports.store import In, Table
    from dromos.ports.tool import ToolAnnotations
    from dromos.store.opening import open_store
    from dromos.web.mount import mount
    from dromos.worker import Worker
    from dromos.worker.service import WorkerOptions

    clock, ids = SystemClock(), TimeOrderedIds()
    limits = settings.worker
    alone = settings.sqlite_path is not None
    async with AsyncExitStack() as stack:
        if settings.sqlite_path is not None:
            from dromos.store.sqlite.folder_lock import DataFolderLock

            stack.enter_context(DataFolderLock(settings.sqlite_path.parent))
        store = await open_store(settings.database_url)
        stack.push_async_callback(store.aclose)
        registry = CollectorRegistry()
        meter = WorkMetrics(registry)
        StoreMetrics(store.statistics.figures, registry)
        wakeup = await make_wakeup(settings, ids, stack)
        if not alone:
            WakeupMetrics(lambda: wakeup.reconnects, registry)
        live = LiveHub(wakeup)
        probe = make_probe(os.environ)
        gate = make_gate(settings)
        lifecycle = Lifecycle(
            store,
            wakeup,
            ids,
            Policy(
                stop_deadline=limits.stop_deadline_s,
                queue_deadline=limits.queue_deadline_s,
                step_limit=limits.step_limit,
                recovery=Recovery(limits.recovery),
                agents={
                    name: AgentPolicy(
                        agent.step_limit,
                        recovery_of(agent),
                        agent.backend_policy.model_dump(mode="json", exclude_none=True),
                        steers=agent.input is None and agent.command is None,
                    )
                    for name, agent in settings.agents.items()
                },
                idempotency_days=settings.retention.idempotency_days,
                event_retention_days=settings.retention.events_days,
                waiting_limit=settings.conversations.waiting_limit,
                adapter_grace=settings.adapters.grace_s,
                stall=stall_policy(settings),
                retries=retry_policies(settings),
                tool_rule=lambda tool, own: gate.rule(tool, "", ToolAnnotations(), own_replay=own),
                approval_expires=settings.approvals.expires_s,
                approval_on_timeout=settings.approvals.on_timeout,
            ),
            probe=probe,
            meter=meter,
        )
        await lifecycle.ensure_user(LOCAL_USER, "You")
        toolbox = make_toolbox(settings, clock)
        stack.push_async_callback(toolbox.aclose)
        agents = make_registry(settings, store, toolbox, clock, ids, meter)
        stack.push_async_callback(agents.aclose)
        worker = Worker(
            lifecycle,
            live,
            wakeup,
            agents,
            gate,
            clock,
            ids,
            WorkerOptions(
                slots=limits.concurrency,
                lease=None if alone else limits.lease_s,
                stop_deadline=limits.stop_deadline_s,
                drain=limits.drain_s,
                stall=stall_policy(settings),
                retries=retry_policies(settings),
            ),
            None if alone else store.lease_keeper(),
        )
        closing = asyncio.Event()
        app = create_app(
            Deps(
                lifecycle=lifecycle,
                live=live,
                wakeup=wakeup,
                agents=agents,
                clock=clock,
                ids=ids,
                principal=single_user(LOCAL_USER, "You"),
                closing=closing,
                version=version("dromos"),
                check=store.check,
                registry=registry,
                options=Options(
                    stop_deadline=limits.stop_deadline_s,
                    hosts=frozenset(settings.allowed_hosts),
                    origins=frozenset(settings.allowed_origins),
                ),
            )
        )
        mount(app)
        if await store.read(lambda tx: tx.count(Table.RUNS, {"status": In(tuple(LIVE))})):
            await agents.warm_up()  # a run that is to be recovered should not wait for imports
        warming = asyncio.create_task(agents.warm_up(), name="warm-up")
        stack.push_async_callback(_let_go, warming)
        await worker.start()
        stack.push_async_callback(worker.drain)
        yield System(
            app if probe is None else probe.around(app), lifecycle, store, worker, agents, closing, warming
        )
        closing.set()


async def _let_go(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
