"""mcp.json: what is read, and how what cannot be is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dromos.tools.mcp.configuration import HttpServer, McpConfigurationError, StdioServer, read_servers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mcp.json"


def write(path: Path, servers: Any) -> None:
    path.write_text(json.dumps({"mcpServers": servers}))


def test_both_forms_are_read_with_their_variables(path: Path) -> None:
    write(
        path,
        {
            "files": {
                "command": "${RUNNER:-npx}",
                "args": ["-y", "server-${KIND}"],
                "env": {"TOKEN": "t-${KIND}"},
                "cwd": "work",
            },
            "search": {
                "type": "http",
                "url": "https://search.example/${KIND}/mcp",
                "headers": {"Authorization": "Bearer ${KIND}"},
            },
            "off": {"command": "never", "disabled": True},
        },
    )
    assert read_servers(path, {"KIND": "files"}) == (
        StdioServer("files", "npx", ("-y", "server-files"), {"TOKEN": "t-files"}, path.parent / "work"),
        HttpServer("search", "https://search.example/files/mcp", {"Authorization": "Bearer files"}),
    )


def test_what_other_programs_keep_in_the_file_is_left_alone(path: Path) -> None:
    content = {"inputs": [1], "mcpServers": {"a": {"command": "a", "autoApprove": ["x"], "timeout": "soon"}}}
    path.write_text(json.dumps(content))
    assert read_servers(path, {}) == (StdioServer("a", "a"),)


def test_a_file_without_servers_has_none(path: Path) -> None:
    path.write_text("{}")
    assert read_servers(path, {}) == ()


@pytest.mark.parametrize("kind", ["http", "streamable-http", "streamableHttp", "streamable_http"])
def test_every_common_spelling_of_streamable_http_is_taken(path: Path, kind: str) -> None:
    write(path, {"a": {"type": kind, "url": "http://a.example/mcp"}})
    assert read_servers(path, {}) == (HttpServer("a", "http://a.example/mcp"),)


@pytest.mark.parametrize(
    ("server", "complaint"),
    [
        ("a", 'mcpServers.a must be an object with "command" or "url"'),
        ({}, "mcpServers.a must have one of the two"),
        ({"command": "a", "url": "http://a"}, "mcpServers.a must have one of the two"),
        ({"command": 1}, "mcpServers.a.command must be a string, not 1; put it in quotes"),
        ({"command": "a", "args": "x"}, "mcpServers.a.args must be a list of strings"),
        ({"command": "a", "args": ["x", 2]}, "mcpServers.a.args[1] must be a string, not 2"),
        ({"command": "a", "env": ["x"]}, "mcpServers.a.env must be an object of strings"),
        ({"command": "a", "env": {"X": True}}, "mcpServers.a.env.X must be a string, not true"),
        ({"command": "a", "cwd": None}, "mcpServers.a.cwd must be a string, not null"),
        ({"command": "a", "type": "http"}, 'mcpServers.a.type must be "stdio" here or be left out'),
        ({"command": "a", "disabled": "yes"}, "mcpServers.a.disabled must be true or false"),
        ({"url": "a.example"}, "mcpServers.a.url must begin with http:// or https://"),
        ({"url": "http://a", "type": "sse"}, "the older SSE transport is not supported"),
        ({"url": "http://a", "headers": {"X": 1}}, "mcpServers.a.headers.X must be a string, not 1"),
        (
            {"command": "a", "env": {"X": "${GONE}"}},
            "mcpServers.a.env.X uses ${GONE}, which is not set; set it",
        ),
    ],
)
def test_a_bad_server_is_refused_with_file_key_and_cure(path: Path, server: Any, complaint: str) -> None:
    write(path, {"a": server})
    with pytest.raises(McpConfigurationError) as refusal:
        read_servers(path, {})
    assert str(refusal.value).startswith(f"{path}: ")
    assert complaint in str(refusal.value)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "ä", "x" * 41])
def test_a_name_that_tool_names_cannot_begin_with_is_refused(path: Path, name: str) -> None:
    write(path, {name: {"command": "a"}})
    with pytest.raises(McpConfigurationError, match="rename it"):
        read_servers(path, {})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object"),
        ('{"mcpServers": []}', "mcpServers must be an object of servers by name"),
    ],
)
def test_a_file_of_another_form_is_refused(path: Path, content: str, complaint: str) -> None:
    path.write_text(content)
    with pytest.raises(McpConfigurationError, match=complaint):
        read_servers(path, {})


def test_a_missing_file_is_refused_with_the_cure(path: Path) -> None:
    with pytest.raises(McpConfigurationError, match="create it or correct its path"):
        read_servers(path, {})


def test_secrets_are_not_shown_when_an_entry_is_printed() -> None:
    assert "secret" not in repr(StdioServer("a", "a", env={"TOKEN": "secret"}))
    assert "secret" not in repr(HttpServer("a", "http://a", {"Authorization": "secret"}))
