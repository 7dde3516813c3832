"""mcp.json: which MCP servers there are, in the form other MCP programs share (`mcpServers`).

Reads one file into values. Keys we do not know are other programs' business; a wrong type, a missing variable
or a form we cannot serve is refused with file, key and cure. It must not start or reach anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dromos.domain.errors import DromosError

NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Server names: they become the first part of tool names, which models take only in these characters."""

_HTTP_TYPES = ("http", "streamable-http", "streamableHttp", "streamable_http")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class McpConfigurationError(DromosError):
    """mcp.json cannot be used; the message names the file, the key and the cure."""


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server that runs as our child process and speaks over its stdin and stdout."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that is reached by streamable HTTP."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


ServerEntry = StdioServer | HttpServer


def read_servers(path: Path, environment: Mapping[str, str]) -> tuple[ServerEntry, ...]:
    """The enabled servers of a file, in its order; `${VAR}` and `${VAR:-default}` come from `environment`.

    Raises McpConfigurationError.
    """
    reader = _Reader(path, environment)
    servers = reader.mapping(reader.content(), "mcpServers")
    entries = (reader.entry(name, servers[name]) for name in servers)
    return tuple(entry for entry in entries if entry is not None)


class _Reader:
    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self._path = path
        self._environment = environment

    def content(self) -> Any:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
        except OSError as problem:
            raise self._refusal(
                "", f"cannot be read ({problem.strerror}); create it or correct its path"
            ) from None
        except ValueError as problem:
            raise self._refusal("", f"is not JSON ({problem}); correct it there") from None
        if not isinstance(content, dict):
            raise self._refusal("", 'must be an object: {"mcpServers": {…}}')
        return content

    def entry(self, name: str, value: Any) -> ServerEntry | None:
        key = f"mcpServers.{name}"
        if not NAME.fullmatch(name):
            cure = "rename it with at most 40 letters, digits, '-' and '_'"
            raise self._refusal(key, f"is no name that tool names can begin with; {cure}")
        if not isinstance(value, dict):
            raise self._refusal(key, 'must be an object with "command" or "url"')
        disabled = value.get("disabled", False)
        if not isinstance(disabled, bool):
            raise self._refusal(f"{key}.disabled", "must be true or false")
        if disabled:
            return None
        if ("command" in value) == ("url" in value):
            cure = '"command" for a program started here, or "url" for a server elsewhere'
            raise self._refusal(key, f"must have one of the two: {cure}")
        return self._stdio(name, key, value) if "command" in value else self._http(name, key, value)

    def _stdio(self, name: str, key: str, value: dict[str, Any]) -> StdioServer:
        self._check_type(key, value, ("stdio",))
        args = value.get("args", [])
        if not isinstance(args, list):
            raise self._refusal(f"{key}.args", 'must be a list of strings, for example ["-y", "some-server"]')
        cwd = self._text(f"{key}.cwd", value["cwd"]) if "cwd" in value else None
        return StdioServer(
            name,
            self._text(f"{key}.command", value["command"]),
            tuple(self._text(f"{key}.args[{at}]", arg) for at, arg in enumerate(args)),
            self._texts(f"{key}.env", value.get("env", {})),
            None if cwd is None else self._path.parent / cwd,
        )

    def _http(self, name: str, key: str, value: dict[str, Any]) -> HttpServer:
        self._check_type(key, value, _HTTP_TYPES)
        url = self._text(f"{key}.url", value["url"])
        if not re.match(r"https?://[^/]", url):
            raise self._refusal(f"{key}.url", "must begin with http:// or https:// and name a host")
        return HttpServer(name, url, self._texts(f"{key}.headers", value.get("headers", {})))

    def _check_type(self, key: str, value: dict[str, Any], known: tuple[str, ...]) -> None:
        kind = value.get("type", known[0])
        if kind not in known:
            hint = " (the older SSE transport is not supported)" if kind == "sse" else ""
            raise self._refusal(f"{key}.type", f'must be "{known[0]}" here or be left out{hint}')

    def mapping(self, value: dict[str, Any], key: str) -> dict[str, Any]:
        found = value.get(key, {})
        if not isinstance(found, dict):
            raise self._refusal(key, "must be an object of servers by name")
        return found

    def _texts(self, key: str, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            raise self._refusal(key, "must be an object of strings")
        return {name: self._text(f"{key}.{name}", text) for name, text in value.items()}

    def _text(self, key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self._refusal(key, f"must be a string, not {json.dumps(value)}; put it in quotes")
        return _VARIABLE.sub(lambda match: self._variable(key, match), value)

    def _variable(self, key: str, match: re.Match[str]) -> str:
        name: str = match[1]
        found: str | None = self._environment.get(name, match[2])
        if found is None:
            cure = f'set it where Dromos starts, give a default (${{{name}:-…}}) or set "disabled": true'
            raise self._refusal(key, f"uses ${{{name}}}, which is not set; {cure}")
        return found

    def _refusal(self, key: str, problem: str) -> McpConfigurationError:
        return McpConfigurationError(f"{self._path}: {key} {problem}" if key else f"{self._path} {problem}")
