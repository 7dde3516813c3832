"""The composition root: the only place that knows every room. It wires and decides nothing.

`assemble` builds a whole server as a context manager; `serve` runs one until a signal. `migrate` and `inspect` are the
other two things the command line needs from inside.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import structlog
import uuid_utils

from dromos.domain.errors import DromosError, SchemaMismatch, Unavailable
from dromos.domain.reasons import ErrorCode
from dromos.domain.retries import DEFAULT_POLICIES, RetryPolicy
from dromos.domain.statuses import LIVE, Recovery
from dromos.settings import Settings

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from dromos.agents.process import CommandConfig
    from dromos.agents.registry import AgentRegistry
    from dromos.lifecycle import Lifecycle
    from dromos.ports.agent import ModelChoice
    from dromos.ports.meter import Meter
    from dromos.ports.store import Store
    from dromos.ports.tool import Toolbox, ToolSourceHealth
    from dromos.settings.sections import AgentSettings
    from dromos.store.migrations import Migrated
    from dromos.store.sql_store import SqlStore
    from dromos.worker import Worker
    from dromos.worker.stall import StallPolicy

log = structlog.get_logger("dromos")

LOCAL_USER = "local"
"""The one person of this release; every row carries an owner all the same."""


STUCK_MILLISECONDS = 30_000

SAME_SIGNAL_SECONDS = 0.5
"""Supervisors often signal a process and its group: what comes so close together is one wish."""


class SystemClock:
    """`ports.clock.Clock`."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class TimeOrderedIds:
    """`ports.clock.Ids`: UUIDv7, and what nobody can guess."""

    def new(self) -> str:
        return str(uuid_utils.uuid7())

    def secret(self) -> str:
        return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class System:
    """A server that is assembled: the parts that tests, benchmarks and `serve` reach for."""

    app: ASGIApp
    lifecycle: Lifecycle
    store: SqlStore
    worker: Worker
    agents: AgentRegistry
    closing: asyncio.Event


@asynccontextmanager
async def assemble(settings: Settings) -> AsyncIterator[System]:
    """A whole server but its socket: store, agents, tools, worker and application. Raises `Unavailable` with the cure.

    Leaving the context drains the worker and closes everything in turn.
    """
    from prometheus_client import CollectorRegistry

    from dromos.api.app import create_app
    from dromos.api.auth import single_user
    from dromos.api.door import Deps, Options
    from dromos.api.metrics import StoreMetrics, WorkMetrics
    from dromos.lifecycle import Lifecycle
    from dromos.lifecycle.contract import AgentPolicy, Policy
    from dromos.live import LiveHub
    from dromos.ports.store import In, Table
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
        wakeup = await _wakeup(settings, ids, stack)
        live = LiveHub(wakeup)
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
                        _recovery(agent),
                        agent.backend_policy.model_dump(mode="json", exclude_none=True),
                        steers=agent.input is None and agent.command is None,
                    )
                    for name, agent in settings.agents.items()
                },
                idempotency_days=settings.retention.idempotency_days,
                event_retention_days=settings.retention.events_days,
                waiting_limit=settings.conversations.waiting_limit,
                adapter_grace=settings.adapters.grace_s,
            ),
            meter=meter,
        )
        await lifecycle.ensure_user(LOCAL_USER, "You")
        toolbox = _toolbox(settings, clock)
        stack.push_async_callback(toolbox.aclose)
        agents = _registry(settings, store, toolbox, clock, ids, meter)
        stack.push_async_callback(agents.aclose)
        worker = Worker(
            lifecycle,
            live,
            wakeup,
            agents,
            clock,
            ids,
            WorkerOptions(
                slots=limits.concurrency,
                lease=None if alone else limits.lease_s,
                stop_deadline=limits.stop_deadline_s,
                drain=limits.drain_s,
                stall=_stall_policy(settings),
                retries=_retry_policies(settings),
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
        yield System(app, lifecycle, store, worker, agents, closing)
        closing.set()


async def _let_go(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _wakeup(settings: Settings, ids: TimeOrderedIds, stack: AsyncExitStack) -> Any:
    if settings.sqlite_path is not None:
        from dromos.live import MemoryWakeup

        return MemoryWakeup()
    from dromos.live.postgres import PostgresWakeup

    wakeup = PostgresWakeup(settings.database_url, ids.new())
    await wakeup.start()
    stack.push_async_callback(wakeup.aclose)
    return wakeup


def _toolbox(settings: Settings, clock: SystemClock) -> Toolbox:
    from dromos.tools.gateway import ToolGateway
    from dromos.tools.local import LocalToolbox

    local = LocalToolbox(clock)
    if settings.mcp is None:
        return ToolGateway(local)
    from dromos.tools.mcp.configuration import read_servers
    from dromos.tools.mcp.toolbox import McpToolbox

    return ToolGateway(local, McpToolbox(read_servers(settings.mcp, os.environ)))


def _command(name: str, agent: AgentSettings, root: Path) -> CommandConfig:
    from dromos.agents.process import CommandConfig

    return CommandConfig(
        name,
        agent.command or (),
        agent.folder or root,
        agent.description,
        agent.model,
        agent.prompt,
        agent.model_arguments,
        agent.resume_arguments,
        agent.resume_prompt,
        agent.environment,
    )


def _recovery(agent: AgentSettings) -> Recovery | None:
    """A command's own work is in no journal of ours: what it did before a crash is for a person to judge."""
    if agent.recovery is None:
        return Recovery.ASK if agent.command is not None else None
    return Recovery(agent.recovery)


def _stall_policy(settings: Settings) -> StallPolicy:
    from dromos.worker.stall import StallLimits, StallPolicy

    common = settings.stall
    default = StallLimits(common.model_s, common.tool_s, common.policy)
    own = {
        name: StallLimits(
            agent.stall.model_s or default.model,
            agent.stall.tool_s or default.tool,
            agent.stall.policy or default.policy,
        )
        for name, agent in settings.agents.items()
    }
    return StallPolicy(default, own)


def _retry_policies(settings: Settings) -> Mapping[ErrorCode, RetryPolicy]:
    policies = dict(DEFAULT_POLICIES)
    for code, retry in settings.retries.items():
        known = ErrorCode(code)
        honours = policies[known].honours_retry_after if known in policies else False
        policies[known] = RetryPolicy(retry.tries, tuple(retry.delays_s) or (0.0,), honours)
    return policies


def _registry(
    settings: Settings,
    store: Store,
    toolbox: Toolbox,
    clock: SystemClock,
    ids: TimeOrderedIds,
    meter: Meter | None = None,
) -> AgentRegistry:
    from dromos.agents.langgraph.model_facts import ModelConfig
    from dromos.agents.registry import AgentConfig, AgentRegistry, AgentsConfig, merge

    environ = dict(os.environ)
    configured = {
        name: AgentConfig(agent.graph, agent.description, agent.input, agent.output, agent.model)
        for name, agent in settings.agents.items()
        if agent.graph is not None
    }
    commands = {
        name: _command(name, agent, settings.root)
        for name, agent in settings.agents.items()
        if agent.command is not None
    }
    if settings.langgraph_json is not None:
        from dromos.agents.langgraph_json import read_project

        try:
            project = read_project(settings.langgraph_json)
        except ValueError as error:
            raise Unavailable(str(error)) from error
        project.enter(os.environ)
        configured = merge(configured, project.graphs)
    config = AgentsConfig(
        root=settings.root,
        agents=configured,
        commands=commands,
        remote={name: agent.description for name, agent in settings.agents.items() if agent.remote},
        default=settings.default_agent,
        model=settings.model,
        ollama_host=settings.ollama_host,
        policies=_retry_policies(settings),
        models={
            pattern: ModelConfig(model.context_limit, model.price_as)
            for pattern, model in settings.models.items()
        },
        environ=environ,
    )
    return AgentRegistry(config, store=store, toolbox=toolbox, clock=clock, ids=ids, meter=meter)


# ── serving ───────────────────────────────────────────────────────────────────────────────────────────────────


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, then drain. Returns the exit code; raises `Unavailable` with the cure."""
    import uvloop

    configure_logging(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    import uvicorn

    listener = _listen(settings)
    try:
        async with assemble(settings) as system:
            server = uvicorn.Server(
                uvicorn.Config(
                    system.app,
                    log_config=None,
                    access_log=False,
                    lifespan="on",
                    timeout_graceful_shutdown=2,
                    timeout_keep_alive=30,
                    server_header=False,
                )
            )
            _end_on_signals(server, system)
            if not ip_address(listener.getsockname()[0]).is_loopback:
                log.warning(
                    "serve.open", hint="whoever reaches this address can use it: there is no login yet"
                )
            host, port = listener.getsockname()[:2]
            sys.stdout.write(f"Dromos is at http://{_readable(host)}:{port}\n")
            sys.stdout.flush()
            await server.serve(sockets=[listener])
    finally:
        listener.close()
    return 0


def _listen(settings: Settings) -> socket.socket:
    """The socket, before anything else is started: a port in use is told at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # inherited by every connection: who takes nothing for so long is gone
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_MILLISECONDS)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"Port {settings.port} on {settings.host} cannot be used ({error.strerror}). "
            "Stop what uses it, or choose another one with --port."
        ) from error
    return listener


def _end_on_signals(server: uvicorn.Server, system: System) -> None:
    """The first signal closes streams and drains; the second ends the process as a crash would."""
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    loop = asyncio.get_running_loop()
    first: float | None = None

    def end() -> None:
        nonlocal first
        if first is not None and loop.time() - first < SAME_SIGNAL_SECONDS:
            return
        if first is not None:
            log.warning("serve.second_signal", hint="ending at once; runs are recovered at the next start")
            os._exit(1)
        first = loop.time()
        log.info("serve.draining", runs=system.worker.running, hint="a second signal ends at once")
        system.closing.set()
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)


def _readable(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def configure_logging(settings: Settings) -> None:
    """Structured lines on stderr: for people on a terminal, JSON elsewhere."""
    level = logging.getLevelNamesMapping()[settings.log.level.upper()]
    as_json = settings.log.format == "json" or (settings.log.format == "auto" and not sys.stderr.isatty())
    renderer: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    errors: list[Any] = [structlog.processors.format_exc_info] if as_json else []
    structlog.configure(
        processors=[*shared, *errors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *errors, renderer],
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)


# ── the other commands ────────────────────────────────────────────────────────────────────────────────────────


def migrate(settings: Settings) -> Migrated:
    """Bring the schema to this version; returns what was done. Raises `Unavailable` with the cure."""
    from dromos.store.migrations import migrate as upgrade

    with ExitStack() as stack:
        if settings.sqlite_path is not None:
            from dromos.store.sqlite.folder_lock import DataFolderLock

            stack.enter_context(DataFolderLock(settings.sqlite_path.parent))
        return upgrade(settings.database_url)


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """What the database says of itself.

    `schema`: none (no tables yet), current, old, newer (a later version wrote it), unknown (not reachable; `error`
    says why, with the cure). `locked`: a server holds the data folder.
    """

    version: str  # "SQLite 3.45.1", "PostgreSQL 18.6"
    schema: Literal["none", "current", "old", "newer", "unknown"]
    error: str | None
    locked: bool


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """A configured agent; `error` is why it cannot be loaded, with the cure."""

    name: str
    description: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Inspection:
    """What `dromos doctor` judges. `model` is None where none can be chosen; `model_error` then says why."""

    database: DatabaseFacts
    agents: Sequence[AgentFacts]
    default_agent: str
    model: ModelChoice | None
    model_error: str | None
    tools: Sequence[ToolSourceHealth]


def inspect(settings: Settings) -> Inspection:
    """Look at everything a server would use, changing nothing: the database is opened for reading only."""
    return asyncio.run(_inspect(settings))


async def _inspect(settings: Settings) -> Inspection:
    from dromos.ports.tool import ToolSourceHealth
    from dromos.tools.gateway import ToolGateway
    from dromos.tools.local import LocalToolbox

    clock, ids = SystemClock(), TimeOrderedIds()
    database = await asyncio.to_thread(_database_facts, settings)
    async with AsyncExitStack() as stack:
        try:
            toolbox = _toolbox(settings, clock)
            stack.push_async_callback(toolbox.aclose)
            await toolbox.specs()
            tools = [source for source in await toolbox.health() if source.name != "local"]
        except DromosError as error:
            toolbox = ToolGateway(LocalToolbox(clock))
            tools = [ToolSourceHealth(str(settings.mcp), False, str(error))]
        agents = _registry(settings, NoStore(), toolbox, clock, ids)
        stack.push_async_callback(agents.aclose)
        faults = await agents.faults()
        model, model_error = None, None
        try:
            model = await agents.choose_model()
            model_error = await agents.model_fault(model)
        except Unavailable as error:
            model_error = error.detail
        facts = [AgentFacts(info.name, info.description, faults.get(info.name)) for info in agents.infos()]
        return Inspection(database, facts, agents.default, model, model_error, tools)


class NoStore:
    """`ports.store.Store` of a process that only looks: it has none, and says so."""

    async def write(self, fn: object) -> Any:
        raise Unavailable("This command does not open the database.")

    read = write

    async def check(self) -> None:
        raise Unavailable("This command does not open the database.")

    async def aclose(self) -> None:
        return None


def _database_facts(settings: Settings) -> DatabaseFacts:
    from dromos.store.migrations import check_schema, current, known_revisions
    from dromos.store.opening import server_version

    locked = False
    if settings.sqlite_path is not None and settings.sqlite_path.parent.exists():
        from dromos.store.sqlite.folder_lock import DataFolderLock

        locked = DataFolderLock(settings.sqlite_path.parent).is_held()
    address = settings.database_url
    shown = "SQLite" if settings.sqlite_path is not None else "PostgreSQL"
    try:
        shown = server_version(address)
        found = current(address)
        if found is None:
            return DatabaseFacts(shown, "none", None, locked)
        try:
            check_schema(address)
        except SchemaMismatch:
            return DatabaseFacts(shown, "old" if found in known_revisions() else "newer", None, locked)
        return DatabaseFacts(shown, "current", None, locked)
    except DromosError as error:
        return DatabaseFacts(shown, "unknown", getattr(error, "detail", str(error)), locked)
