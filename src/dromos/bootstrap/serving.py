"""One server until a signal: its socket, its signals, its log."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import structlog

from dromos.bootstrap.assembling import System, assemble
from dromos.bootstrap.garbage import collect_less, keep_what_is_loaded
from dromos.domain.errors import Unavailable
from dromos.settings import Settings

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    import uvicorn


log = structlog.get_logger("dromos")

STUCK_MILLISECONDS = 30_000

SAME_SIGNAL_SECONDS = 0.5
"""Supervisors often signal a process and its group: what comes so close together is one wish."""


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, then drain. Returns the exit code; raises `Unavailable` with the cure."""
    import uvloop

    from dromos.agents.langgraph.threads import Threads

    configure_logging(settings)
    collect_less()
    threads = Threads(2 * settings.worker.concurrency)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(_serve(settings, threads))
    if threads.at_work:  # an interpreter waits for its threads, and a function that hangs never returns
        log.warning(
            "serve.threads_left", hint="a tool's function did not return; its run is known as it stands"
        )
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


async def _serve(settings: Settings, threads: ThreadPoolExecutor) -> int:
    import uvicorn

    asyncio.get_running_loop().set_default_executor(threads)
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
            system.warming.add_done_callback(_keep_what_is_loaded)
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
    if hasattr(
        socket, "TCP_USER_TIMEOUT"
    ):  # inherited by every connection: who takes nothing for so long is gone
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


def _keep_what_is_loaded(warming: asyncio.Task[None]) -> None:
    if not warming.cancelled():
        keep_what_is_loaded()


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
