"""kill -9 and its relatives against the real server: nothing acknowledged is lost, nothing runs for ever."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dromos.testing.processes import ServeProcess
from tests.faults.driver import FINAL, Person, effects, gather, open_gate, tools

DRAIN = 3.0
GATE = '!call t__gate {"name": "g"}\n!say through the gate'


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServeProcess]:
    env = tools(tmp_path) | {"DROMOS_WORKER_DRAIN_S": str(DRAIN)}
    async with ServeProcess(tmp_path / "data", env=env) as process:
        yield process


@pytest.fixture
async def person(server: ServeProcess) -> AsyncIterator[Person]:
    async with Person(server) as somebody:
        yield somebody


async def at_the_gate(person: Person, conversation: str, attempt: int = 1) -> None:
    """Wait until the document of the conversation's run shows the gate's call under way in this attempt."""

    def is_there(one: dict[str, Any]) -> bool:
        data = one.get("data") or {}
        if one.get("event") == "run.document":
            current = data["document"]["current"]
        elif one.get("event") == "run.patch":
            current = next((op["value"] for op in data["patch"] if op["path"] == "/current"), None)
        else:
            return False
        # The epoch in the version is raised by each claim and by each loss of an owner.
        return data["version"] >> 32 == 2 * attempt - 1 and (current or {}).get("name") == "t__gate"

    await person.seen(is_there, focus=conversation)


@pytest.mark.slow(90)
@pytest.mark.case("P01")
@pytest.mark.case("P17")
async def test_after_a_kill_the_run_goes_on_and_new_runs_start_at_once(
    server: ServeProcess, person: Person, tmp_path: Path
) -> None:
    first, second = await person.conversation(), await person.conversation()
    posted = await person.say(first, GATE)
    await at_the_gate(person, first)
    server.kill()
    await server.restart()

    other = await person.say(second, "!say hello")
    assert (await person.end(other["run"]["id"]))["status"] == "completed"
    await at_the_gate(person, first, attempt=2)
    run = await person.run(posted["run"]["id"])
    assert (run["status"], run["attempt"], run["crashes"]) == ("running", 2, 1)

    open_gate(tmp_path, "g")
    ended = await person.end(posted["run"]["id"])
    assert (ended["status"], ended["reason"]) == ("completed", "finished")
    history = await person.history(first)
    assert [message["role"] for message in history] == ["user", None, "assistant", "tool", "assistant"]
    assert history[-1]["content"] == "through the gate"
    assert (await person.ask("GET", "/v1/runs?status=running&status=queued"))["items"] == []
    figures = (await person.http.get("/metrics")).text
    assert {line for line in figures.splitlines() if line.startswith("dromos_runs_live{")} == {
        f'dromos_runs_live{{status="{status}"}} 0.0'
        for status in ("queued", "running", "waiting_input", "cancelling")
    }
    assert "dromos_workers 1.0" in figures.splitlines()


@pytest.mark.slow(120)
@pytest.mark.case("P03")
@pytest.mark.case("P19")
async def test_a_run_that_kills_its_worker_ends_after_three_and_frees_its_conversation(
    server: ServeProcess, person: Person, tmp_path: Path
) -> None:
    conversation = await person.conversation()
    posted = await person.say(conversation, '!call t__count {"label": "x"}\n!call t__kill_worker {}')
    for _ in range(3):
        await server.wait_exit(30)
        await server.start()
    ended = await person.end(posted["run"]["id"])
    assert (ended["status"], ended["reason"], ended["error_code"]) == (
        "failed",
        "attempts_exhausted",
        "ATTEMPTS_EXHAUSTED",
    )
    assert (ended["attempt"], ended["crashes"]) == (3, 3)
    following = await person.say(conversation, "!say all is well")
    assert (await person.end(following["run"]["id"]))["status"] == "completed"
    calls = [call["id"] for m in await person.history(conversation) for call in m.get("tool_calls") or ()]
    results = [m["tool_call_id"] for m in await person.history(conversation) if m["role"] == "tool"]
    assert sorted(results) == sorted(calls), "each call has exactly one result"


@pytest.mark.slow(60)
async def test_every_acknowledged_message_survives_a_kill_at_that_moment(
    server: ServeProcess, person: Person
) -> None:
    conversations = await gather(*(person.conversation() for _ in range(8)))
    posted = await gather(*(person.say(c, f"!say answer {n}") for n, c in enumerate(conversations)))
    server.kill()
    await server.restart()
    for number, (conversation, one) in enumerate(zip(conversations, posted, strict=True)):
        assert (await person.end(one["run"]["id"]))["status"] == "completed"
        history = await person.history(conversation)
        assert [m["content"] for m in history if m["role"] == "assistant"] == [f"answer {number}"]


@pytest.mark.full
@pytest.mark.slow(60)
@pytest.mark.case("P14")
async def test_each_attempt_keeps_its_own_times_and_reason(
    server: ServeProcess, person: Person, tmp_path: Path
) -> None:
    conversation = await person.conversation()
    run_id = (await person.say(conversation, GATE))["run"]["id"]
    await at_the_gate(person, conversation)
    server.kill()
    await server.restart()
    open_gate(tmp_path, "g")
    ended = await person.end(run_id)
    attempts = (await person.ask("GET", f"/v1/runs/{run_id}/attempts"))["items"]
    assert [a["reason"] for a in attempts] == ["owner_lost", "finished"]
    assert all(a["started_at"] <= a["ended_at"] for a in attempts)
    assert ended["error_code"] is None and ended["reason"] == "finished"
    events = (await person.ask("GET", f"/v1/runs/{run_id}/events"))["items"]
    ends = [e for e in events if e["type"] == "run.status" and e["payload"]["run"]["status"] in FINAL]
    assert len(ends) == 1 and events[-1] == ends[0]


@pytest.mark.full
@pytest.mark.slow(90)
async def test_after_a_takeover_the_usage_and_the_steps_are_those_of_the_whole_run(
    server: ServeProcess, person: Person, tmp_path: Path
) -> None:
    """Killed before the document was ever saved, and after."""
    conversation = await person.conversation()
    script = (
        '!usage in=100 out=10\n!call t__count {"label": "x"}\n!usage in=200 out=20 cached=50\n!say and\n'
        + GATE.replace("!say", "!usage in=400 out=40\n!say")
    )
    run_id = (await person.say(conversation, script))["run"]["id"]
    for attempt in (1, 2):
        await at_the_gate(person, conversation, attempt)
        server.kill()
        await server.restart()
    await at_the_gate(person, conversation, attempt=3)
    document = (await person.ask("GET", f"/v1/runs/{run_id}/document"))["document"]
    assert [(step["kind"], step["status"]) for step in document["steps"]] == [
        ("model", "done"),
        ("tool", "done"),
        ("model", "done"),
        ("tool", "running"),
    ]
    assert (document["usage"]["input"], document["usage"]["model_calls"]) == (300, 2)
    open_gate(tmp_path, "g")
    ended = await person.end(run_id)
    usage = {"input": 700, "output": 70, "cached": 50, "reasoning": 0, "model_calls": 3}
    assert ended["usage"] == usage | {"tool_calls": 2}
    steps = (await person.ask("GET", f"/v1/runs/{run_id}/steps"))["items"]
    assert [(step["kind"], step["status"], step["attempt"]) for step in steps] == [
        ("model", "done", 1),
        ("tool", "done", 1),
        ("model", "done", 1),
        ("tool", "done", 3),
        ("model", "done", 3),
    ]
    assert ended["steps"] == len(steps)


@pytest.mark.slow(60)
async def test_a_drain_hands_runs_back_without_counting_a_crash(
    server: ServeProcess, person: Person, tmp_path: Path
) -> None:
    conversation = await person.conversation()
    script = "\n".join(f'!call t__sleep {{"s": 0.3}}\n!say step {n}' for n in range(6))
    run_id = (await person.say(conversation, script))["run"]["id"]
    await person.seen(lambda one: "t__sleep" in str(one.get("data", "")), focus=conversation)
    server.term()
    assert await server.wait_exit(25) == 0
    await server.start()
    ended = await person.end(run_id)
    assert (ended["status"], ended["crashes"]) == ("completed", 0)
    assert ended["attempt"] == 2
    said = [m["content"] for m in await person.history(conversation) if m["role"] == "assistant"]
    assert said[-1] == "step 5"


@pytest.mark.full
@pytest.mark.slow(60)
@pytest.mark.case("P138")
async def test_at_shutdown_a_stream_gets_a_goodbye_and_its_cursor_works_on_the_next_server(
    server: ServeProcess, person: Person
) -> None:
    conversation = await person.conversation()
    run_id = (await person.say(conversation, "!tokens 2000 50"))["run"]["id"]
    cursor, frames, told, asked = 0, [], False, 0.0
    async for one in person.events(0, conversation):
        frames.append(one)
        cursor = int(one.get("id", cursor))
        if one["event"] == "run.text" and not told:
            told = True
            server.term()
            asked = time.monotonic()
    assert time.monotonic() - asked < 1.0 + DRAIN, "streams do not wait for the drain"
    assert frames[-1]["event"] == "goodbye" and frames[-1]["data"] == {"reason": "drain"}
    assert await server.wait_exit(DRAIN + 10) == 0
    await server.start()
    following = await person.seen(
        lambda one: one.get("event") == "run.status" and one["data"]["run_id"] == run_id, after=cursor
    )
    assert int(following["id"]) > cursor
    await person.ask("POST", f"/v1/runs/{run_id}/cancel?wait_s=15", 200, json={})


@pytest.mark.slow(60)
async def test_a_second_server_on_the_same_data_refuses_and_says_why(server: ServeProcess) -> None:
    second = ServeProcess(server.data)
    second.log = server.data.parent / "second.log"
    with pytest.raises(AssertionError):
        await second.start()
    assert second.returncode not in (0, None)
    assert f"in use by process {server.pid}" in second.logs() and "--data" in second.logs()


@pytest.mark.slow(90)
@pytest.mark.case("P04")
async def test_a_run_left_running_without_any_lease_is_recovered_by_the_first_sweep(
    server: ServeProcess, person: Person, tmp_path: Path
) -> None:
    import sqlite3

    conversation = await person.conversation()
    run_id = (await person.say(conversation, GATE))["run"]["id"]
    await at_the_gate(person, conversation)
    server.kill()
    await server.wait_exit()
    with sqlite3.connect(server.data / "dromos.db") as database:
        database.execute("DELETE FROM leases")
    open_gate(tmp_path, "g")
    await server.start()
    assert (await person.end(run_id))["status"] == "completed"


@pytest.mark.slow(60)
async def test_a_tool_effect_of_a_finished_step_is_not_repeated_after_a_kill(
    server: ServeProcess, person: Person, tmp_path: Path
) -> None:
    conversation = await person.conversation()
    script = '!call t__count {"label": "once"}\n!say counted\n' + GATE
    run_id = (await person.say(conversation, script))["run"]["id"]
    await at_the_gate(person, conversation)
    server.kill()
    await server.restart()
    open_gate(tmp_path, "g")
    assert (await person.end(run_id))["status"] == "completed"
    assert [e["label"] for e in effects(tmp_path)] == ["once"]
