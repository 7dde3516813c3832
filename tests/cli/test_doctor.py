"""What `dromos doctor` concludes from the facts: a verdict for each, and a cure wherever something is to do."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from dromos.bootstrap import AgentFacts, DatabaseFacts, Inspection
from dromos.cli.doctor import Finding, judge, port_state
from dromos.ports.agent import ModelChoice
from dromos.ports.tool import ToolSourceHealth
from dromos.settings import Settings, load
from dromos.testing.processes import free_port


def database(**changes: Any) -> DatabaseFacts:
    return replace(DatabaseFacts("SQLite 3.45.1", "current", None, False), **changes)


def agent(name: str = "assistant", error: str | None = None) -> AgentFacts:
    return AgentFacts(name, "the built-in one", error)


LOCAL = ModelChoice("local", "the small built-in model", "install Ollama for a better one")


def facts_with(**changes: Any) -> Inspection:
    """What a sound installation tells, with changes."""
    return replace(Inspection(database(), (agent(),), "assistant", LOCAL, None, ()), **changes)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load({"port": free_port()}, environment={}, directory=tmp_path)


def findings(
    settings: Settings, facts: Inspection, port: Literal["free", "dromos", "taken"] = "free"
) -> dict[str, Finding]:
    return {finding.subject: finding for finding in judge(settings, facts, port)}


def test_a_sound_installation_has_no_problem_and_says_how_to_get_a_better_model(settings: Settings) -> None:
    found = findings(settings, facts_with())
    assert {finding.verdict for finding in found.values()} == {"ok"}
    assert found["model"].detail == "local · the small built-in model"
    assert found["model"].cure == "install Ollama for a better one"
    assert found["database"].detail.startswith(f"sqlite:///{settings.sqlite_path} · SQLite 3.45.1")


@pytest.mark.parametrize(
    ("facts", "subject", "verdict", "cure"),
    [
        (facts_with(database=database(schema="old")), "database", "warning", "dromos migrate"),
        (
            facts_with(database=database(schema="newer")),
            "database",
            "problem",
            "run the version that wrote it",
        ),
        (
            facts_with(database=database(schema="unknown", error="start PostgreSQL")),
            "database",
            "problem",
            "start PostgreSQL",
        ),
        (facts_with(database=database(locked=True)), "lock", "problem", "--data"),
        (
            facts_with(agents=(agent(error="no module named x"),)),
            "agent assistant",
            "problem",
            "no module named x",
        ),
        (
            facts_with(agents=(agent(), agent("desk", error="no module named x"))),
            "agent desk",
            "warning",
            "no module named x",
        ),
        (facts_with(default_agent="writer"), "default agent", "problem", "name one that is: assistant"),
        (facts_with(model=None, model_error="set DROMOS_MODEL"), "model", "problem", "set DROMOS_MODEL"),
        (facts_with(model_error="start Ollama"), "model", "warning", "start Ollama"),
        (
            facts_with(tools=(ToolSourceHealth("files", False, "npx not found"),)),
            "tool server files",
            "warning",
            "npx not found",
        ),
    ],
)
def test_what_is_wrong_gets_its_verdict_and_a_cure(
    settings: Settings, facts: Inspection, subject: str, verdict: str, cure: str
) -> None:
    finding = findings(settings, facts)[subject]
    assert finding.verdict == verdict
    assert finding.cure is not None and cure in finding.cure


def test_whatever_is_no_ok_says_what_to_do(settings: Settings) -> None:
    broken = facts_with(
        database=database(schema="newer", locked=True),
        agents=(agent(error="cannot import"),),
        default_agent="x",
        model=None,
        tools=(ToolSourceHealth("files", False, "exit code 1"),),
    )
    found = judge(settings, broken, "taken")
    assert [finding.subject for finding in found if finding.verdict != "ok" and not finding.cure] == []


def test_a_file_of_tool_servers_that_cannot_be_read_is_a_problem_because_the_server_will_not_start(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text("{")
    settings = load({"port": free_port()}, environment={}, directory=tmp_path)
    unread = facts_with(tools=(ToolSourceHealth(str(file), False, "is not JSON; correct it"),))
    found = findings(settings, unread)["tool servers"]
    assert (found.verdict, found.cure) == ("problem", "is not JSON; correct it")


def test_a_folder_held_by_the_server_that_answers_is_fine(settings: Settings) -> None:
    found = findings(settings, facts_with(database=database(locked=True)), "dromos")
    assert {finding.verdict for finding in found.values()} == {"ok"}


def test_a_data_folder_that_is_a_file_is_a_problem(settings: Settings) -> None:
    settings.data.write_text("")
    assert findings(settings, facts_with())["data folder"].verdict == "problem"


def test_a_password_is_not_in_the_report(tmp_path: Path) -> None:
    url = "postgresql://me:hidden@db.example/x"
    settings = load({"database": url}, environment={}, directory=tmp_path)
    found = findings(settings, facts_with(database=database(version="PostgreSQL 18.6")))
    assert "hidden" not in str(found)
    assert found["database"].detail.startswith("postgresql://me:***@db.example/x")


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_a_port_that_another_program_has_is_told(tmp_path: Path, listening: int) -> None:
    settings = load({"port": listening}, environment={}, directory=tmp_path)
    assert port_state(settings, answer_seconds=0.2) == "taken"
    assert port_state(load({"port": free_port()}, environment={}, directory=tmp_path)) == "free"
    elsewhere = load({"host": "203.0.113.7"}, environment={}, directory=tmp_path)
    assert port_state(elsewhere) == "unknown address"
