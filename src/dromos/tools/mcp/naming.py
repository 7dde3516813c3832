"""Names of MCP tools as models see them: `server__tool`, in the characters and length that model APIs take.

Pure. Two tools never share a name: where cleaning or cutting would make them equal, a short digest tells them
apart.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

SEPARATOR = "__"
LONGEST = 64


def tool_names(server: str, tools: Iterable[str]) -> dict[str, str]:
    """The outside name of each of a server's tools: outside name → the server's own name.

    A name depends only on the tool's own name, unless two differ in nothing that may stay.
    """
    names: dict[str, str] = {}
    for tool in tools:
        if tool in names.values():
            continue
        name = _outside(server, tool)
        names[name if name not in names else _with_digest(name, tool)] = tool
    return names


def tool_behind(server: str, name: str) -> str | None:
    """The tool's own name as far as an outside name tells it, None if it is not this server's."""
    prefix = server + SEPARATOR
    return name.removeprefix(prefix) if name.startswith(prefix) else None


def _outside(server: str, tool: str) -> str:
    name = server + SEPARATOR + re.sub(r"[^A-Za-z0-9_-]", "_", tool)
    return name if len(name) <= LONGEST else _with_digest(name, tool)


def _with_digest(name: str, tool: str) -> str:
    digest = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: LONGEST - 9]}_{digest}"
