"""The labs of the documentation are run as they stand: every `sh` block, in one shell, against the real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dromos.testing.processes import free_port

LABS = Path(__file__).parents[2] / "docs" / "lab"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "=== block "


def run_lab(name: str, tmp_path: Path) -> list[str]:
    return run_blocks(LABS / name, tmp_path)


def run_blocks(page: Path, tmp_path: Path) -> list[str]:
    """Run all `sh` blocks of a page in one bash; returns what each printed. Fails if the shell does."""
    for tool in ("curl", "jq", "sqlite3"):
        if shutil.which(tool) is None:
            pytest.skip(f"the lab needs {tool}; install your system's `{tool}` package")
    blocks = BLOCK.findall(page.read_text())
    script = "\n".join(f"echo '{MARK}{number}'\n{block}" for number, block in enumerate(blocks))
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("DROMOS_", "OLLAMA_"))
    }
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PORT": str(free_port()),
        "TMPDIR": str(tmp_path),
    }
    script = "trap 'kill -KILL $SERVER 2>/dev/null' EXIT\n" + script
    script = "set -o history -o histexpand\n" + script  # as a person's shell: `!` in double quotes
    shell = subprocess.Popen(
        ["bash", "-c", script],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = shell.communicate(timeout=150)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)  # the server of the lab with it
        shell.communicate()
        raise
    logs = "".join(log.read_text() for log in tmp_path.glob("*/server.log"))
    assert shell.returncode == 0, f"{stdout}\n{stderr}\n{logs}"
    return [part.split("\n", 1)[1] for part in stdout.split(MARK)[1:]]


def table(text: str) -> list[dict[str, str]]:
    """Rows of `sqlite3 -header -column`: columns are as wide as the dashes under their names."""
    lines = [line for line in text.splitlines() if line]
    spans = [match.span() for match in re.finditer(r"-+", lines[1])]
    ends = [start for start, _ in spans[1:]] + [None]
    cut = [[line[start:end].strip() for (start, _), end in zip(spans, ends, strict=True)] for line in lines]
    return [dict(zip(cut[0], row, strict=True)) for row in cut[2:]]


@pytest.mark.slow(170)
@pytest.mark.promise("S5")
@pytest.mark.promise("S8")
def test_the_lab_on_execution_state_shows_what_it_says(tmp_path: Path) -> None:
    output = run_lab("execution-state.md", tmp_path)
    built, failed, resumed, conversations, runs, export, details, links = output[2:]

    conversation = built.strip().splitlines()[-1]
    assert [row["id"] for row in table(conversations)] == [conversation]

    rows = table(runs)
    assert [row["status"] for row in rows] == ["completed", "completed", "failed", "completed"]
    assert [row["error_code"] for row in rows] == ["", "", "MODEL_UNAVAILABLE", ""]
    assert all(row["started_at"] <= row["finished_at"] for row in rows)
    for text in (failed, resumed):
        assert '"conversation"' in text

    checkpoints = [json.loads(line) for line in export.splitlines()]
    steps = [checkpoint["step"] for checkpoint in checkpoints]
    assert steps == list(range(-1, len(steps) - 1)), "step numbers go on across runs"
    assert [c["source"] for c in checkpoints].count("input") == 3
    assert checkpoints[-1]["next"] == []
    assert checkpoints[-1]["role"] == "assistant"
    assert int(table(conversations)[0]["message_count"]) == checkpoints[-1]["message_count"] == 6

    lines = details.splitlines()
    metadata = [json.loads(line) for line in lines if line.startswith('{"') and '"role"' not in line]
    run_ids = [row["id"] for row in rows]
    assert metadata and all(item["run_id"] in run_ids for item in metadata)
    assert sum("__error__" in line for line in lines) == 1
    messages = [json.loads(line) for line in lines if '"role"' in line]
    assert [message["role"] for message in messages].count("assistant") == 3
    assert not {message["id"] for message in messages} & set(run_ids)

    by_run = {row["run_id"]: row for row in table(links)}
    assert int(by_run[run_ids[3]]["checkpoints"]) == 1, "the resume added exactly the missing checkpoint"
    assert set(by_run) == set(run_ids)


def lines(block: str) -> list[Any]:
    """The lines of a block that are JSON."""
    return [json.loads(line) for line in block.splitlines() if line[:1] in "{["]


@pytest.mark.slow(170)
def test_the_lab_on_stop_shows_what_it_says(tmp_path: Path) -> None:
    pressed, waited, forced, died, after = run_lab("stop.md", tmp_path)[2:]
    assert lines(pressed) == [{"status": "cancelling", "cause": "cancel_requested"}]

    waiting, ended, result = lines(waited)
    assert waiting == {"tool": "tasks__create_task"}
    assert ended == {"status": "cancelled", "outcome": "acknowledged", "unknown": []}
    assert result["status"] is None and "water the plants" in result["content"]

    given_up = {"status": "cancelled", "outcome": "forced", "unknown": ["slow__create_task"]}
    ended, result = lines(forced)
    assert ended == given_up
    assert result["status"] == "error" and "may have happened" in result["content"]

    assert died.split("\n")[0] == "202"
    assert lines(died) == [given_up]
    assert lines(after) == [{"status": "completed"}]
    assert after.splitlines()[1:4] == ["water the plants", "feed the cat", "lock the door"]


@pytest.mark.slow(170)
def test_the_lab_on_an_approval_shows_what_it_says(tmp_path: Path) -> None:
    asked, nothing, restarted, wrong, race, ended, late = run_lab("approve.md", tmp_path)[1:]
    parked, request = lines(asked)
    assert parked == {"status": "waiting_input", "reason": "approval_required"}
    assert (request["kind"], request["arguments"]) == ("approval", {"title": "pay the rent"})
    assert nothing.split() == ["0", "0"]

    assert restarted.startswith("the same\n")
    assert lines(restarted) == [{"status": "waiting_input", "attempt": 1, "crashes": 0}]
    assert lines(wrong) == [{"status": 409, "code": "version_conflict"}]
    assert lines(race) == [["already_decided", "taken"]]

    run, decided = lines(ended)
    assert run == {"status": "completed", "attempt": 2, "crashes": 0}
    assert decided["consumed"] is True and decided["decision"] in ("approve", "deny")
    *_, row, tasks = ended.strip().splitlines()
    assert row.split() == ["tasks__create_task", "done", "1", "1"]
    assert int(tasks) == (1 if decided["decision"] == "approve" else 0)
    assert late.split("\n")[:2] == ["already_decided", "it stands"]


@pytest.mark.slow(170)
def test_the_lab_on_a_kill_between_effect_and_record_shows_what_it_says(tmp_path: Path) -> None:
    killed, repeated, keys, asked, told = run_lab("never-twice.md", tmp_path)[1:]
    known = {"tool": "known__create_task", "replay": "keyed"}
    strange = {"tool": "strange__create_task", "replay": "unsafe"}
    before = {"status": "intent", "tries": "1", "no_outcome": "1"}
    assert table(killed) == [{**known, **before}, {**strange, **before}]

    assert [run["status"] for run in lines(repeated)] == ["completed"]
    assert (repeated.split()[-1], keys.strip()) == ("1", "the same")

    run, request = lines(asked)
    assert (run["status"], run["reason"]) == ("waiting_input", "tool_outcome_unknown")
    assert request["kind"] == "tool_outcome_unknown"
    assert request["decisions"] == ["retry", "mark_done", "skip"]
    assert asked.split()[-1] == "1", "nothing was repeated"

    run, result = lines(told)
    assert (run["status"], result["content"]) == ("completed", "it is in the list")
    count, *rows = told.strip().splitlines()[3:]
    after = {"status": "done", "no_outcome": "0"}
    assert count == "1"
    assert table("\n".join(rows)) == [{**known, **after, "tries": "2"}, {**strange, **after, "tries": "1"}]
