"""Command-line agents as real processes: the example, stop, crash, long lines, and what they may use."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import eventually
from tests.faults.driver import Person, gone

EXAMPLE = Path(__file__).parents[2] / "examples" / "03_command_agent"

PLAYER = """
import json, os, subprocess, sys, time
from pathlib import Path

here = Path(__file__).parent
prompt = sys.stdin.read()
resumed = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else None

def tell(kind, **values):
    print(json.dumps({"type": kind, "session_id": resumed or "s-1", **values}), flush=True)

def call(number, name, **arguments):
    part = {"type": "tool_use", "id": f"c{number}", "name": name, "input": arguments}
    tell("assistant", message={"id": f"m{number}", "content": [part]})

def hang(name):
    (here / name).write_text(str(os.getpid()))
    while True:
        time.sleep(60)

with (here / "prompts").open("a") as file:
    file.write(json.dumps([prompt, resumed]) + "\\n")
if "hang first" in prompt and not (here / "hanging").exists():
    hang("hanging")
tell("system", subtype="init", model=os.environ.get("SHOWN_MODEL", "m-1"))
if "say and hang" in prompt:
    tell("stream_event", event={"type": "message_start"})
    tell("stream_event", event={"delta": {"type": "text_delta", "text": "half an ans"}})
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (here / "grandchild").write_text(str(child.pid))
    hang("hanging")
if "call and hang" in prompt:
    call(1, "pay", amount=5)
    hang("hanging")
if "two calls" in prompt:
    parts = [{"type": "tool_use", "id": one, "name": "pay", "input": {}} for one in ("c7", "c8")]
    tell("assistant", message={"id": "m7", "content": parts})
    tell("user", message={"content": [{"type": "tool_result", "tool_use_id": "c7", "content": "paid"}]})
    hang("calling")
if "ignore" in prompt:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang("hanging")
if "long" in prompt:
    call(2, "Read", file="big")
    part = {"type": "tool_result", "tool_use_id": "c2", "content": "x" * 3_000_000}
    tell("user", message={"content": [part]})
if "die" in prompt:
    sys.stderr.write("no licence\\n")
    sys.exit(3)
if "turns" in prompt:
    tell("result", subtype="error_max_turns", is_error=True, result="stopped after 3 turns")
    sys.exit(1)
print("not json", flush=True)
tell("assistant", message={"id": "m9", "content": [{"type": "text", "text": "done: " + prompt}]})
tell("result", subtype="success", result="done: " + prompt)
"""

SETTINGS = f"""
default_agent = "player"

[agents.player]
command = ["{sys.executable}", "player.py"]
resume_arguments = ["--resume", "{{session}}"]

[agents.absent]
command = ["no-such-program-anywhere"]

[agents.bound]
command = ["{sys.executable}", "player.py"]
model = "here:m-1"
environment = {{ SHOWN_MODEL = "m-2" }}

[agents.bound.backend_policy]
models = ["here:m-1", "here:m-3"]

[agents.steady]
command = ["{sys.executable}", "player.py"]
resume_arguments = ["--resume", "{{session}}"]
recovery = "auto"

[agents.slow]
command = ["{sys.executable}", "player.py"]

[agents.slow.stall]
tool_s = 0.3
policy = "fail"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "player.py").write_text(PLAYER)
    (tmp_path / "dromos.toml").write_text(SETTINGS)
    return tmp_path


def prompts(folder: Path) -> list[list[str | None]]:
    return [json.loads(line) for line in (folder / "prompts").read_text().splitlines()]


async def started(folder: Path, name: str = "hanging") -> int:
    return int(await eventually((folder / name).read_text, seconds=15, what=f"the command reached {name}"))


async def agent(person: Person, name: str) -> str:
    return (await person.ask("POST", "/v1/conversations", 201, json={"agent": name}))["id"]


@pytest.mark.slow(60)
async def test_the_example_of_a_command_works_as_its_readme_says(tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("dromos-data", "sessions"))
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        books = await person.conversation()
        run_id = (await person.say(books, "How long are the books?"))["run"]["id"]
        run = await person.end(run_id)
        assert (run["status"], run["model"]) == ("completed", "counting-1")
        assert run["session_id"].startswith("session-")
        assert run["backend_policy"] == {"models": ["local:counting-*"]}
        assert run["usage"]["tool_calls"] == 5 and run["usage"]["cached"] == 60 * run["usage"]["model_calls"]
        assert run["cost"]["currency"] == "USD" and float(run["cost"]["amount"]) > 0
        history = await person.history(books)
        assert history[-1]["content"] == "clocks.txt has 13 words, sea.txt has 12 words."
        shown = (await person.ask("GET", f"/v1/runs/{run_id}/document"))["document"]
        assert [item["status"] for item in shown["plan"]] == ["done", "done"]
        assert shown["current"] is None and shown["stall"] is None
        steps = (await person.ask("GET", f"/v1/runs/{run_id}/steps"))["items"]
        assert [step["name"] for step in steps if step["kind"] == "tool"].count("Read") == 2
        assert {step["status"] for step in steps} == {"done"}

        again = await person.end((await person.say(books, "And now?"))["run"]["id"])
        assert again["session_id"] == run["session_id"]
        assert "I know 2 of 2 books." in str((await person.history(books))[-4]["content"])

        wider = {"content": "x", "run": {"backend_policy": {"models": ["*"]}}}
        refused = await person.ask("POST", f"/v1/conversations/{books}/messages", 400, json=wider)
        assert "narrow" in refused["detail"]
        other = await person.say(books, "x", run={"model": "openai:gpt-x"})
        ended = await person.end(other["run"]["id"])
        assert (ended["status"], ended["error_code"]) == ("failed", "CONFIG_INVALID")
        assert "local:counting-*" in ended["error_message"]


@pytest.mark.slow(60)
@pytest.mark.case("P30")
async def test_a_stop_ends_the_whole_group_and_keeps_the_text_so_far(folder: Path) -> None:
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        talk = await person.conversation()
        run_id = (await person.say(talk, "say and hang"))["run"]["id"]
        pid, grandchild = await started(folder), await started(folder, "grandchild")
        await person.ask("POST", f"/v1/runs/{run_id}/cancel", 202, json={})
        ended = await person.end(run_id)
        assert ended["status"] == "cancelled"
        assert gone(pid) and gone(grandchild)
        last = (await person.history(talk))[-1]
        assert (last["content"], last["interrupted"]) == ("half an ans", True)
        followed = await person.end((await person.say(talk, "go on"))["run"]["id"])
        assert followed["status"] == "completed"
        assert prompts(folder) == [["say and hang", None], ["go on", "s-1"]]


@pytest.mark.full
@pytest.mark.slow(60)
async def test_a_call_cut_by_a_stop_is_named_as_one_that_may_have_happened(folder: Path) -> None:
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        talk = await person.conversation()
        run_id = (await person.say(talk, "call and hang"))["run"]["id"]
        await started(folder)
        await person.seen(lambda one: '"pay"' in str(one.get("data", "")).replace("'", '"'), focus=talk)
        await person.ask("POST", f"/v1/runs/{run_id}/cancel", 202, json={})
        ended = await person.end(run_id)
        assert ended["stop"]["unknown_calls"] == ["pay"]
        results = [one for one in await person.history(talk) if one["role"] == "tool"]
        assert [(one["tool_call_id"], "may have happened" in one["content"]) for one in results] == [
            ("c1", True)
        ]


@pytest.mark.full
@pytest.mark.case("P129")
@pytest.mark.slow(60)
async def test_a_command_that_ignores_the_polite_request_is_killed(folder: Path) -> None:
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        talk = await person.conversation()
        run_id = (await person.say(talk, "ignore"))["run"]["id"]
        pid = await started(folder)
        await person.ask("POST", f"/v1/runs/{run_id}/cancel", 202, json={})
        assert (await person.end(run_id))["status"] == "cancelled"
        assert gone(pid)


@pytest.mark.slow(90)
async def test_a_killed_server_takes_its_commands_along_and_continue_goes_on_in_the_session(
    folder: Path,
) -> None:
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        talk = await person.conversation()
        first = (await person.say(talk, "call and hang"))["run"]
        pid = await started(folder)
        await person.seen(lambda one: '"pay"' in str(one.get("data", "")).replace("'", '"'), focus=talk)
        server.kill()
        await server.wait_exit()
        await eventually(lambda: gone(pid), what="the command ended with its server")
        await server.start()
        ended = await person.end(first["id"])
        assert (ended["status"], ended["reason"], ended["session_id"]) == ("interrupted", "owner_lost", "s-1")
        answer = await person.ask("POST", f"/v1/conversations/{talk}/continue", 201, json={})
        run = await person.end(answer["run"]["id"])
        assert (run["status"], run["reason"], run["resume_of"]) == ("completed", "finished", first["id"])
        assert prompts(folder)[-1] == ["Continue.", "s-1"]
        calls = [one for one in await person.history(talk) if one.get("tool_calls")]
        results = [one["tool_call_id"] for one in await person.history(talk) if one["role"] == "tool"]
        assert [call["id"] for one in calls for call in one["tool_calls"]] == results


@pytest.mark.full
@pytest.mark.slow(90)
async def test_a_takeover_asks_what_the_command_never_heard_and_leaves_no_call_without_a_result(
    folder: Path,
) -> None:
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        talk, other = await agent(person, "steady"), await agent(person, "steady")
        await person.end((await person.say(talk, "hello"))["run"]["id"])
        unheard = (await person.say(talk, "hang first"))["run"]
        paying = (await person.say(other, "two calls"))["run"]
        await started(folder)
        await started(folder, "calling")

        async def paid() -> bool:
            return (await person.history(other))[-1]["content"] == "paid"

        await eventually(paid, what="the first result is stored")
        server.kill()
        await server.wait_exit()
        await server.start()
        for run in (unheard, paying):
            assert (await person.end(run["id"]))["status"] == "completed"
        assert ["hang first", "s-1"] in prompts(folder)[-2:]
        assert ["Continue.", "s-1"] in prompts(folder)[-2:]
        history = await person.history(other)
        assert [one.get("tool_call_id") for one in history[-3:]] == ["c7", "c8", None]
        assert "may have happened" in history[-2]["content"]


@pytest.mark.full
@pytest.mark.case("P128")
@pytest.mark.slow(60)
async def test_a_line_of_megabytes_is_read_and_the_next_ones_too(folder: Path) -> None:
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        talk = await person.conversation()
        run = await person.end((await person.say(talk, "long"))["run"]["id"])
        assert run["status"] == "completed"
        history = await person.history(talk)
        assert history[-1]["content"] == "done: long"
        assert len(history[-2]["content"]) == 3_000_000


@pytest.mark.full
@pytest.mark.slow(60)
async def test_a_command_that_ends_without_a_result_fails_with_its_last_words(folder: Path) -> None:
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        talk = await person.conversation()
        died = await person.end((await person.say(talk, "die"))["run"]["id"])
        assert (died["status"], died["error_code"]) == ("failed", "AGENT_FAILURE")
        assert "exit code 3" in died["error_message"] and "no licence" in died["error_message"]
        other = await person.conversation()
        turns = await person.end((await person.say(other, "turns"))["run"]["id"])
        assert (turns["error_code"], "3 turns" in turns["error_message"]) == ("RECURSION_LIMIT", True)

        absent = await agent(person, "absent")
        missing = await person.end((await person.say(absent, "hello"))["run"]["id"])
        assert missing["error_code"] == "CONFIG_INVALID"
        assert (
            "no-such-program-anywhere" in missing["error_message"] and "Install" in missing["error_message"]
        )


@pytest.mark.full
@pytest.mark.slow(60)
async def test_a_command_that_uses_another_model_than_it_may_is_ended(folder: Path) -> None:
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        bound = await agent(person, "bound")
        run = await person.end((await person.say(bound, "hello"))["run"]["id"])
        assert (run["status"], run["error_code"]) == ("failed", "CONFIG_INVALID")
        assert "here:m-2" in run["error_message"] and "here:m-1, here:m-3" in run["error_message"]


@pytest.mark.full
@pytest.mark.slow(60)
async def test_a_silent_tool_of_a_command_is_a_stall(folder: Path) -> None:
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        slow = await agent(person, "slow")
        run = await person.end((await person.say(slow, "call and hang"))["run"]["id"])
        assert (run["status"], run["reason"], run["error_code"]) == ("failed", "stalled", "STALLED")
        assert "pay" in run["error_message"] and "may have happened" in run["error_message"]
