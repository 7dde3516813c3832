"""kill -9 of the server under an adapter that knows nothing but HTTP: its run, its token and its reports survive."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import within
from tests.faults.driver import Person

Json = dict[str, Any]
SETTINGS = """
[agents.researcher]
remote = true

[adapters]
grace_s = {grace}
"""


class Adapter:
    """Claims and reports over a person's connection; keeps its claim in memory only."""

    def __init__(self, person: Person, session: str = "session-1") -> None:
        self.person, self.session = person, session
        self.claim: Json = {}

    async def take(self, wait_s: float = 0, key: str | None = None) -> Json:
        body = {"agents": ["researcher"], "adapter_session": self.session, "wait_s": wait_s}
        headers = {"idempotency-key": key} if key else {}
        self.claim = await self.person.ask("POST", "/v1/adapter/claim", json=body, headers=headers)
        return self.claim

    async def tell(self, what: str, body: Json, expect: int = 200) -> Json:
        path = f"/v1/adapter/runs/{self.claim['run']['id']}/{what}"
        headers = {"authorization": f"Bearer {self.claim['token']}"}
        return await self.person.ask("POST", path, expect, json=body, headers=headers)

    async def say(self, text: str, id: str) -> Json:
        message = {"role": "assistant", "content": text, "id": id}
        return await self.tell("messages", {"messages": [message]})


def configured(tmp_path: Path, grace: float) -> ServeProcess:
    (tmp_path / "dromos.toml").write_text(SETTINGS.format(grace=grace))
    patient = {"DROMOS_WORKER_STOP_DEADLINE_S": "120"}  # a slow machine restarts slowly; that forces no stop
    return ServeProcess(tmp_path / "data", env=patient, ready_within=90.0)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServeProcess]:
    async with configured(tmp_path, 30) as process:
        yield process


@pytest.fixture
async def person(server: ServeProcess) -> AsyncIterator[Person]:
    async with Person(server) as somebody:
        yield somebody


async def a_run(person: Person, content: str = "hello") -> str:
    conversation = (await person.ask("POST", "/v1/conversations", 201, json={"agent": "researcher"}))["id"]
    await person.say(conversation, content)
    return str(conversation)


def as_if_away_for_an_hour(data: Path) -> None:
    """The server is down: the last sign of life becomes an old one."""
    with sqlite3.connect(data / "dromos.db") as shell:
        shell.execute(
            "UPDATE runs SET renewed_at = '2020-01-01T00:00:00.000000Z' WHERE renewed_at IS NOT NULL"
        )
    shell.close()


@pytest.mark.full
@pytest.mark.slow(240)
@pytest.mark.case("P01")
async def test_a_server_that_was_killed_and_away_for_an_hour_has_not_lost_the_adapters_run(
    server: ServeProcess, person: Person
) -> None:
    conversation = await a_run(person)
    adapter = Adapter(person)
    run_id = (await adapter.take())["run"]["id"]
    await adapter.say("before", "m1")
    server.kill()
    await server.wait_exit()
    as_if_away_for_an_hour(server.data)
    await server.start()
    renewed = await adapter.tell("renew", {})
    assert renewed["stop"] is None
    await adapter.say("before", "m1")  # whether the first one arrived it could not know
    await adapter.say("after", "m2")
    ended = (await adapter.tell("transition", {"to": "completed"}))["run"]
    assert (ended["status"], ended["attempt"], ended["crashes"]) == ("completed", 1, 0)
    shown = [(one["role"], one["content"]) for one in await person.history(conversation) if one["role"]]
    assert shown == [("user", "hello"), ("assistant", "before"), ("assistant", "after")]
    events = (await person.ask("GET", f"/v1/runs/{run_id}/events"))["items"]
    statuses = [one["payload"]["run"]["status"] for one in events if one["type"] == "run.status"]
    assert statuses == ["queued", "running", "completed"]


@pytest.mark.full
@pytest.mark.slow(240)
@pytest.mark.case("P70")
async def test_everything_that_was_answered_is_on_disk_when_the_server_dies_a_moment_later(
    server: ServeProcess, person: Person
) -> None:
    conversation = await a_run(person)
    adapter = Adapter(person)
    first = await adapter.take(key="claim-1")
    server.kill()
    await server.restart()
    again = await adapter.take(key="claim-1")
    assert (again["run"]["id"], again["token"]) == (first["run"]["id"], first["token"])
    for number in range(2):
        await adapter.say(f"part {number}", f"m{number}")
        await adapter.tell(
            "steps", {"steps": [{"id": f"s{number}", "kind": "step", "name": "s", "status": "done"}]}
        )
        server.kill()
        await server.restart()
    ended = (await adapter.tell("transition", {"to": "completed"}))["run"]
    server.kill()
    await server.restart()
    assert (await person.run(ended["id"])) == ended
    assert ended["steps"] == 2
    said = [one["content"] for one in await person.history(conversation) if one["role"] == "assistant"]
    assert said == ["part 0", "part 1"]
    refused = await adapter.tell("renew", {}, 409)
    assert refused["code"] == "run_not_active"


@pytest.mark.full
@pytest.mark.slow(240)
async def test_a_stop_that_was_accepted_before_the_kill_reaches_the_adapter_after_it(
    server: ServeProcess, person: Person
) -> None:
    await a_run(person)
    adapter = Adapter(person)
    run_id = (await adapter.take())["run"]["id"]
    await person.ask("POST", f"/v1/runs/{run_id}/cancel", 202, json={})
    server.kill()
    await server.restart()
    assert (await adapter.tell("renew", {}))["stop"]["cause"] == "cancel_requested"
    ended = (await adapter.tell("transition", {"to": "cancelled"}))["run"]
    assert (ended["status"], ended["stop"]["outcome"]) == ("cancelled", "acknowledged")


@pytest.mark.full
@pytest.mark.slow(240)
async def test_an_adapter_that_does_not_come_back_is_followed_by_another_that_was_already_waiting(
    tmp_path: Path,
) -> None:
    async with configured(tmp_path, 3) as server, Person(server) as person:
        await a_run(person)
        gone = Adapter(person, "gone")
        run_id = (await gone.take())["run"]["id"]
        server.kill()
        await server.restart()
        other = Adapter(person, "other")
        waiting = asyncio.create_task(other.take(wait_s=18))
        claim = await within(25, waiting, "the takeover")
        assert (claim["run"]["id"], claim["run"]["attempt"], claim["run"]["crashes"]) == (run_id, 2, 1)
        assert (await gone.tell("renew", {}, 403))["code"] == "lease_lost"
        ended = await other.tell("transition", {"to": "completed", "answer": "taken over"})
        assert ended["run"]["status"] == "completed"
