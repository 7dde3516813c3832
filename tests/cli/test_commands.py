"""The commands as a person types them, most of them against a real server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dromos.client import Client
from dromos.testing.processes import ServeProcess, free_port
from tests.cli.conftest import Command

pytestmark = pytest.mark.slow(60)


async def chat(dromos: Command, server_url: str, text: str, *more: str) -> Any:
    done = await dromos("chat", text, "--server", server_url, "--json", *more)
    return json.loads(done.out)


# ── without a server ──────────────────────────────────────────────────────────────────────────────────────────


async def test_help_names_every_command(dromos: Command) -> None:
    done = await dromos("--help")
    assert done.code == 0
    assert all(name in done.out for name in ("serve", "migrate", "doctor", "runs", "export", "chat"))


async def test_help_loads_nothing_heavy(dromos: Command) -> None:
    heavy = "fastapi", "langchain_core", "langgraph", "sqlalchemy", "httpx", "pydantic", "rich", "mcp"
    code = f"import sys, dromos.cli.app; print([m for m in {heavy} if m in sys.modules])"
    import asyncio

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert out.decode().strip() == "[]"


async def test_the_version_is_the_installed_one(dromos: Command) -> None:
    from importlib.metadata import version

    assert (await dromos("--version")).out == f"dromos {version('dromos')}\n"


@pytest.mark.parametrize(
    "arguments", [("serve", "--nothing"), ("fly",), ("export",), ("serve", "--port", "x")]
)
async def test_wrong_usage_ends_with_2(dromos: Command, arguments: tuple[str, ...]) -> None:
    done = await dromos(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err


@pytest.mark.parametrize("command", ["serve", "migrate"])
async def test_wrong_settings_end_with_2_and_the_cure(dromos: Command, tmp_path: Path, command: str) -> None:
    (tmp_path / "dromos.toml").write_text("prot = 1\n")
    done = await dromos(command)
    assert (done.code, done.out) == (2, "")
    assert "did you mean `port`?" in done.err
    assert not (tmp_path / "dromos-data").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("runs", "list"),
        ("runs", "show", "x"),
        ("export", "x"),
        ("chat", "hello"),
        ("chat", "hello", "--json"),
    ],
)
async def test_without_a_server_the_cure_is_told_and_the_end_is_3(
    dromos: Command, arguments: tuple[str, ...]
) -> None:
    done = await dromos(*arguments, env={"DROMOS_SERVER": f"http://127.0.0.1:{free_port()}"})
    assert (done.code, done.out) == (3, "")
    assert "dromos serve" in done.err
    assert "Traceback" not in done.err


async def test_an_address_that_is_none_is_told(dromos: Command) -> None:
    done = await dromos("runs", "list", "--server", "localhost:8321")
    assert done.code == 1
    assert "not an address" in done.err


# ── doctor, migrate, serve ────────────────────────────────────────────────────────────────────────────────────


async def test_the_doctor_finds_a_new_folder_ready_and_writes_nothing(
    dromos: Command, tmp_path: Path
) -> None:
    done = await dromos("doctor", env={"DROMOS_PORT": str(free_port())})
    assert done.code == 0, done.out + done.err
    assert "Ready to serve." in done.out
    assert "env:DROMOS_MODEL" in done.out
    assert list(tmp_path.iterdir()) == []


async def test_the_doctor_s_report_for_programs_names_every_source(dromos: Command, tmp_path: Path) -> None:
    (tmp_path / "dromos.toml").write_text(f"port = {free_port()}\n[worker]\nstep_limit = 7\n")
    done = await dromos("doctor", "--json", "--data", "here")
    report = json.loads(done.out)
    sources = {entry["key"]: entry["source"] for entry in report["settings"]}
    assert report["serves"] is True
    assert sources["data"] == "flag"
    assert sources["worker.step_limit"] == f"file:{tmp_path / 'dromos.toml'}"
    assert sources["model"] == "env:DROMOS_MODEL"
    assert sources["worker.drain_s"] == "default"
    assert {"python", "database", "model", "port", "agent assistant"} <= {
        f["subject"] for f in report["findings"]
    }


async def test_the_doctor_tells_what_stops_serving_and_ends_with_1(dromos: Command, tmp_path: Path) -> None:
    broken = '[agents.writer]\ngraph = "no_such_module:graph"\n'
    (tmp_path / "dromos.toml").write_text(broken)
    done = await dromos("doctor", "--port", str(free_port()))
    assert (done.code, "only its own runs fail" in done.out) == (0, True)
    (tmp_path / "dromos.toml").write_text(f'default_agent = "writer"\n{broken}')
    done = await dromos("doctor", "--port", str(free_port()))
    assert done.code == 1
    assert "agent writer" in done.out
    assert "no_such_module" in done.out
    (tmp_path / "dromos.toml").write_text("prot = 1")
    done = await dromos("doctor")
    assert done.code == 1
    assert "did you mean `port`?" in done.out


@pytest.mark.parametrize(
    ("env", "verdict", "cure"),
    [
        ({"DROMOS_MODEL": "scripted"}, "ok", "Set by DROMOS_MODEL"),
        ({"DROMOS_MODEL": "openai:gpt-5"}, "warning", "OPENAI_API_KEY"),
        pytest.param(
            {"DROMOS_MODEL": "openai:gpt-5", "OPENAI_API_KEY": "x"},
            "ok",
            "Set by DROMOS_MODEL",
            marks=pytest.mark.full,
        ),
        pytest.param({"DROMOS_MODEL": "gpt-5"}, "warning", "provider:model", marks=pytest.mark.full),
        pytest.param({"DROMOS_MODEL": "nobody:x"}, "warning", "nobody", marks=pytest.mark.full),
        pytest.param(
            {"DROMOS_MODEL": "ollama:qwen3", "OLLAMA_HOST": "127.0.0.1:9"},
            "warning",
            "does not answer",
            marks=pytest.mark.full,
        ),
        ({"DROMOS_MODEL": "", "OLLAMA_HOST": "127.0.0.1:9"}, "problem", "unset OLLAMA_HOST"),
        ({"DROMOS_MODEL": "", "OLLAMA_HOST": ""}, "ok", "For better answers"),
    ],
)
async def test_the_doctor_says_which_model_answers_and_what_it_lacks(
    dromos: Command, env: dict[str, str], verdict: str, cure: str
) -> None:
    done = await dromos("doctor", "--json", "--port", str(free_port()), env=env)
    model = next(f for f in json.loads(done.out)["findings"] if f["subject"] == "model")
    assert model["verdict"] == verdict, model
    assert cure in model["cure"]


async def test_the_doctor_lists_every_setting(dromos: Command) -> None:
    from dromos.settings import SETTINGS

    done = await dromos("doctor", "--settings")
    assert [setting.key for setting in SETTINGS if setting.key not in done.out] == []
    listed = json.loads((await dromos("doctor", "--settings", "--json")).out)
    assert [setting["key"] for setting in listed] == [setting.key for setting in SETTINGS]


async def test_a_database_is_migrated_once(dromos: Command, tmp_path: Path) -> None:
    first = await dromos("migrate", "--data", "d")
    assert first.code == 0, first.err
    assert (tmp_path / "d" / "dromos.db").exists()
    second = await dromos("migrate", "--data", "d")
    assert second.code == 0
    assert second.out != first.out, "the second time says that nothing was to do"
    told = json.loads((await dromos("migrate", "--data", "d", "--json")).out)
    assert (told["changed"], told["before"]) == (False, told["after"])


async def test_a_second_server_on_the_same_folder_refuses(dromos: Command, tmp_path: Path) -> None:
    async with ServeProcess(tmp_path / "data") as server:
        second = await dromos("serve", "--data", "data", "--port", str(free_port()))
        assert second.code == 1
        assert "--data" in second.err
        assert "Traceback" not in second.err
        migrate = await dromos("migrate", "--data", "data")
        assert migrate.code == 1
        assert f"in use by process {server.pid}" in migrate.err and "stop that one" in migrate.err
        assert "Traceback" not in migrate.err
        doctor = await dromos("doctor", "--data", "data", "--json", env={"DROMOS_PORT": str(server.port)})
        findings = {finding["subject"]: finding for finding in json.loads(doctor.out)["findings"]}
        assert doctor.code == 0, doctor.out
        assert "running server" in findings["lock"]["detail"]
        elsewhere = await dromos("doctor", "--data", "data", env={"DROMOS_PORT": str(free_port())})
        assert elsewhere.code == 1


async def test_a_port_that_is_taken_is_told_with_the_cure(dromos: Command, server_url: str) -> None:
    done = await dromos("serve", "--port", server_url.rpartition(":")[2])
    assert done.code == 1
    assert "--port" in done.err
    assert "Traceback" not in done.err


# ── against a running server ──────────────────────────────────────────────────────────────────────────────────


async def test_runs_are_listed_and_shown(dromos: Command, server_url: str) -> None:
    said = await chat(dromos, server_url, "hello there")
    run_id, conversation = said["run"]["id"], said["conversation_id"]

    listed = await dromos("runs", "list", "--server", server_url, "--conversation", conversation)
    assert listed.code == 0
    assert run_id in listed.out and "✓ done" in listed.out
    as_json = await dromos(
        "runs", "list", "--json", "--status", "completed", "--limit", "200", "--server", server_url
    )
    assert run_id in [run["id"] for run in json.loads(as_json.out)["items"]]

    shown = await dromos("runs", "show", run_id, "--server", server_url)
    assert "attempts" in shown.out and "steps" in shown.out and conversation in shown.out
    whole = json.loads((await dromos("runs", "show", run_id, "--json", "--server", server_url)).out)
    assert whole["run"]["status"] == "completed"
    assert len(whole["attempts"]) == 1


async def test_an_unknown_run_or_status_is_told(dromos: Command, server_url: str) -> None:
    unknown = "00000000-0000-7000-8000-000000000000"
    done = await dromos("runs", "show", unknown, "--server", server_url)
    assert (done.code, done.out) == (1, "")
    assert "not_found" in done.err
    done = await dromos("runs", "list", "--status", "lost", "--server", server_url)
    assert done.code == 1
    assert "status" in done.err


async def test_a_conversation_is_exported_to_a_file_or_to_a_pipe(
    dromos: Command, server_url: str, tmp_path: Path
) -> None:
    conversation = (await chat(dromos, server_url, "Grüße 🌊"))["conversation_id"]
    piped = await dromos("export", conversation, "--server", server_url)
    assert piped.out.endswith("## User\n\nGrüße 🌊\n\n## Assistant\n\nGrüße 🌊\n")
    done = await dromos(
        "export", conversation, "--format", "jsonl", "-o", "out.jsonl", "--server", server_url
    )
    assert (done.code, done.out) == (0, "")
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    async with Client(server_url) as client:
        assert len(lines) == len(await client.checkpoints(conversation))
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


async def test_an_export_that_cannot_be_written_leaves_the_old_file(
    dromos: Command, server_url: str, tmp_path: Path
) -> None:
    conversation = (await chat(dromos, server_url, "hello"))["conversation_id"]
    done = await dromos("export", conversation, "-o", "no/such/folder.md", "--server", server_url)
    assert done.code == 1
    assert "--output" in done.err
    old = tmp_path / "old.md"
    old.write_text("old")
    gone = await dromos(
        "export", "00000000-0000-7000-8000-000000000000", "-o", "old.md", "--server", server_url
    )
    assert gone.code == 1
    assert old.read_text() == "old"
