"""An MCP server whose tools count, block, fail, grow and kill on command, for faults that go through real MCP.

`python -m dromos.testing.tools_server` speaks stdio; with `--http --port N` streamable HTTP at `/mcp`. What the
tools did is written to the file named by `CT_FILE`, outside every database, and beside it. It must not know
Dromos' rooms: run, call and key reach it only in `_meta`.

Files: `CT_FILE` one JSON line a count (`run`, `call`, `key`, `arguments`: digest, `tool`, `label`) ·
`CT_FILE.NAME` opens the gate NAME · `CT_FILE.begun` and `CT_FILE.cancelled` one JSON line (`tool`, `call`) for
each `gate` and `sleep` that began or was cancelled here · `CT_FILE.spawn` one line every 100 ms from each
spawned child.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from dromos.domain.effects import arguments_digest
from dromos.testing.local_http import LocalHTTP

RUN_ID = "dev.dromos/run-id"
CALL_ID = "dev.dromos/tool-call-id"
KEY = "dev.dromos/idempotency-key"
WORKER_PID = "dev.dromos/worker-pid"

CHILD_LIVES = 120
"""Seconds after which a spawned child ends by itself, so that a forgotten one does not stay."""

_CHILD = """
import sys, time
for _ in range(int(sys.argv[2]) * 10):
    with open(sys.argv[1], "a") as file:
        file.write("alive\\n")
    time.sleep(0.1)
"""

READ_ONLY = ToolAnnotations(read_only_hint=True)
IDEMPOTENT = ToolAnnotations(read_only_hint=False, idempotent_hint=True)

_children: list[subprocess.Popen[bytes]] = []

server = MCPServer("dromos-test-tools", instructions="Tools for tests; they do what they are told.")


@server.tool()
async def count(label: str, ctx: Context) -> str:
    """Count one effect. Not safe to repeat: each call adds a line."""
    _append(_effects(), _effect("count", label, ctx))
    return f"counted {label}"


@server.tool(annotations=IDEMPOTENT)
async def count_keyed(label: str, ctx: Context) -> str:
    """Count one effect for an idempotency key; a key that was counted before is ignored."""
    effect = _effect("count_keyed", label, ctx)
    with _locked(_effects()) as file:
        file.seek(0)
        if effect["key"] is not None and any(json.loads(line)["key"] == effect["key"] for line in file):
            return f"{label} was counted before"
        file.write(json.dumps(effect) + "\n")
    return f"counted {label}"


@server.tool(annotations=READ_ONLY)
async def gate(name: str, ctx: Context) -> str:
    """Block until the file `CT_FILE.NAME` exists."""
    opened = _beside(name)
    with _noted("gate", ctx):
        while not opened.exists():
            await asyncio.sleep(0.02)
    return f"{name} is open"


@server.tool(annotations=READ_ONLY)
async def sleep(s: float, ctx: Context, progress_every: float = 0) -> str:
    """Take `s` seconds, reporting progress every `progress_every` seconds if that is not 0."""
    clock = asyncio.get_running_loop()
    begun = clock.time()
    with _noted("sleep", ctx):
        while (left := begun + s - clock.time()) > 0:
            await asyncio.sleep(min(left, progress_every or left))
            if progress_every:
                await ctx.report_progress(clock.time() - begun, s, "still asleep")
    return f"slept {s:g} s"


@server.tool()
async def fail(text: str) -> str:
    """Fail with this text."""
    raise ToolError(text)


@server.tool(annotations=READ_ONLY)
async def big(mb: float) -> str:
    """Return this many megabytes of text."""
    return "0123456789abcde\n" * int(mb * 65_536)


@server.tool()
def spawn() -> str:
    """Start a child process that appends to `CT_FILE.spawn` every 100 ms; returns its process id."""
    command = [sys.executable, "-c", _CHILD, str(_beside("spawn")), str(CHILD_LIVES)]
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    _children.append(child)
    return str(child.pid)


@server.tool(annotations=READ_ONLY)
async def kill_worker(ctx: Context) -> str:
    """SIGKILL the process that made this call: the one named in `_meta`, else the parent of this server."""
    os.kill(int(_meta(ctx).get(WORKER_PID) or os.getppid()), signal.SIGKILL)
    return "killed"


@server.tool()
async def die() -> str:
    """SIGKILL this server in the middle of the call."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "unreachable"


def _effect(tool: str, label: str, ctx: Context) -> dict[str, Any]:
    meta = _meta(ctx)
    return {
        "run": meta.get(RUN_ID),
        "call": meta.get(CALL_ID),
        "key": meta.get(KEY),
        "arguments": arguments_digest({"label": label}),
        "tool": tool,
        "label": label,
    }


def _meta(ctx: Context) -> dict[str, Any]:
    return dict(ctx.request_context.meta or {})


def _effects() -> Path:
    path = os.environ.get("CT_FILE")
    if not path:
        raise ToolError("CT_FILE is not set; start this server with CT_FILE naming a file it may append to")
    return Path(path)


def _beside(name: str) -> Path:
    effects = _effects()
    return effects.with_name(f"{effects.name}.{name}")


def _append(path: Path, line: dict[str, Any]) -> None:
    with _locked(path) as file:
        file.write(json.dumps(line) + "\n")


@contextmanager
def _locked(path: Path) -> Generator[TextIO, None, None]:
    """The file open for reading and appending, with every other process of ours kept out."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


@contextmanager
def _noted(tool: str, ctx: Context) -> Generator[None, None, None]:
    line = {"tool": tool, "call": _meta(ctx).get(CALL_ID)}
    _append(_beside("begun"), line)
    try:
        yield
    except asyncio.CancelledError:
        _append(_beside("cancelled"), line)
        raise


def main() -> None:
    """Serve until stdin ends or, over HTTP, until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m dromos.testing.tools_server", description="MCP tools for tests; stdio unless --http."
    )
    parser.add_argument("--http", action="store_true", help="serve streamable HTTP and print the URL")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    options = parser.parse_args()
    try:
        asyncio.run(_serve_http(options.host, options.port) if options.http else server.run_stdio_async())
    except OSError as problem:
        sys.exit(f"tools_server: {problem}")
    except KeyboardInterrupt:
        pass


async def _serve_http(host: str, port: int) -> None:
    async with LocalHTTP(server.streamable_http_app(host=host), host=host, port=port) as http:
        print(f"{http.url}/mcp", flush=True)
        await http.serve_until_ended()


if __name__ == "__main__":
    main()
