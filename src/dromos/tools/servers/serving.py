"""What the shipped servers have in common: the key of a call, its command line, stdio or streamable HTTP.

It must not know any of their tools.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from dromos.domain.text import clean_json
from dromos.tools.servers.keyed_file import Answered, Effect, KeyedFile, Refused, Unopened

KEY = "dev.dromos/idempotency-key"
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
KEYED = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
"""Safe to repeat with the same key, which is what a caller that trusts the hint does."""
KEYED_AND_DESTRUCTIVE = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
NO_KEY = "This call came without an idempotency key: made once more, it would have its effect once more."


class Calls:
    """Carries calls out against the file. `delay`: seconds between an effect and the answer to it."""

    def __init__(self, file: KeyedFile, delay: float = 0.0) -> None:
        self.file, self._delay = file, delay

    def once(self, ctx: Context, tool: str, arguments: Mapping[str, Any], effect: Effect) -> dict[str, Any]:
        """The answer, with `note` where nothing protects the call. Raises ToolError for a refusal."""
        key = key_of(ctx)
        kept, _ = clean_json(dict(arguments))
        try:
            answered: Answered = self.file.once(key, tool, kept, effect)
        except Refused as refused:
            raise ToolError(str(refused)) from None
        if self._delay and not answered.repeated:
            time.sleep(self._delay)  # in a thread of the server's
        value: dict[str, Any] = answered.value
        return value if key is not None else {**value, "note": NO_KEY}


def key_of(ctx: Context) -> str | None:
    """The idempotency key of a call, from the protocol's `_meta`."""
    key = dict(ctx.request_context.meta or {}).get(KEY)
    if key is None or key == "":
        return None
    if not isinstance(key, str) or len(key) > 500:
        raise ToolError(f"`{KEY}` in `_meta` must be a text of at most 500 characters. Nothing was changed.")
    return key


def main(name: str, what: str, tables: str, make: Callable[[Calls], MCPServer]) -> None:
    """Serve until stdin ends or, over HTTP, until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog=f"python -m dromos.tools.servers.{name}",
        description=f"An MCP server for {what}, safe to call again; stdio unless --http.",
    )
    parser.add_argument("--file", type=Path, default=Path(f"{name}.db"), help="the SQLite file it keeps")
    parser.add_argument("--http", action="store_true", help="serve streamable HTTP at /mcp")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on, with --http")
    parser.add_argument("--port", type=int, default=8765, help="port to listen on, with --http")
    parser.add_argument(
        "--answer-delay",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="wait so long between an effect and its answer, to try what happens when an answer is lost",
    )
    options = parser.parse_args()
    try:
        file = KeyedFile(options.file, tables)
    except Unopened as problem:
        sys.exit(f"{name}: {problem}")
    try:
        server = make(Calls(file, options.answer_delay))
        if options.http:
            server.run("streamable-http", host=options.host, port=options.port)
        else:
            server.run()
    except KeyboardInterrupt:
        pass
    finally:
        file.close()
