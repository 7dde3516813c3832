"""The box of a whole server: a model that refuses for hours, and a kill in the midst of counting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dromos.testing.model_server import ModelServer
from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import within
from tests.faults.driver import Person, open_gate, tools
from tests.faults.test_kill import at_the_gate


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.mark.full
@pytest.mark.slow(90)
@pytest.mark.case("P139")
async def test_a_model_that_refuses_for_hours_keeps_no_slot_and_the_box_says_until_when(
    tmp_path: Path, model: ModelServer
) -> None:
    env = {
        "DROMOS_MODEL": "openai:scripted",
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "k",
        "DROMOS_WORKER_CONCURRENCY": "1",
    }
    async with ServeProcess(tmp_path / "data", env=env) as server, Person(server) as person:
        refused, other = await person.conversation(), await person.conversation()
        posted = await person.say(refused, "!error 429 retry-after=10800 endless")
        waiting = await person.status_event(posted["run"]["id"], "queued")
        if waiting["reason"] != "rate_limited":  # the first queued is its creation
            waiting = await person.seen(
                lambda one: (
                    one.get("event") == "run.status"
                    and one["data"]["payload"]["run"]["reason"] == "rate_limited"
                )
            )
            waiting = waiting["data"]["payload"]["run"]

        assert (waiting["wait"]["reason"], waiting["wait"]["then"]) == ("rate_limited", "try 2 of 5")
        until = datetime.fromisoformat(waiting["wait"]["until"])
        assert timedelta(hours=2.9) < until - datetime.now(UTC) < timedelta(hours=3.1)
        told = (await person.ask("GET", f"/v1/runs/{posted['run']['id']}/document"))["document"]
        assert told["status"] == "queued"
        assert told["retries"]["last"]["code"] == "MODEL_RATE_LIMITED"
        assert (told["retries"]["last"]["attempt"], told["retries"]["last"]["of_attempts"]) == (2, 5)

        free = await person.say(other, "!say the slot is free")
        assert (await person.end(free["run"]["id"]))["status"] == "completed"
        stopped = await person.ask("POST", f"/v1/runs/{posted['run']['id']}/cancel", 202, json={})
        assert stopped["run"]["status"] == "cancelled"


@pytest.mark.full
@pytest.mark.slow(90)
async def test_a_kill_neither_forgets_nor_repeats_what_was_used(tmp_path: Path) -> None:
    env = tools(tmp_path) | {"DROMOS_MODEL": "scripted"}
    script = '!usage in=100 out=10 cached=50\n!call t__gate {"name": "g"}\n!usage in=300 out=30\n!say through the gate'
    async with ServeProcess(tmp_path / "data", env=env) as server:
        async with Person(server) as person:
            conversation = await person.conversation()
            run_id = (await person.say(conversation, script))["run"]["id"]
            await at_the_gate(person, conversation)
            await within(20, until_saved(person, run_id), "the saved document of the call under way")
            server.kill()
        await server.restart()
        async with Person(server) as person:
            await at_the_gate(person, conversation, attempt=2)
            open_gate(tmp_path, "g")
            run = await person.end(run_id)
            steps = (await person.ask("GET", f"/v1/runs/{run_id}/steps"))["items"]

    assert run["status"] == "completed"
    usage = run["usage"]
    assert (usage["input"], usage["output"], usage["cached"]) == (400, 40, 50)
    assert (usage["model_calls"], usage["tool_calls"]) == (2, 2)
    assert [(step["kind"], step["status"], step["attempt"]) for step in steps] == [
        ("model", "done", 1),
        ("tool", "unknown", 1),
        ("tool", "done", 2),
        ("model", "done", 2),
    ]
    assert run["cost"]["amount"] is None


async def until_saved(person: Person, run_id: str) -> None:
    """The run's row repeats what its saved document tells, which is at most a second old."""
    while (await person.run(run_id))["usage"].get("tool_calls") != 1:
        pass
