"""Messages to a busy conversation on real servers: around a run's end, through a kill, into a run at work.

`FULL=1` repeats what chance decides ten times as often.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from dromos.testing.processes import ServeProcess
from tests.faults.driver import Json, Person, gather, open_gate, tools
from tests.faults.test_kill import GATE, at_the_gate

FULL = os.environ.get("FULL") == "1"
RACES = 500 if FULL else 50
KILLS = 60 if FULL else 4
SIDE_BY_SIDE = 5


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServeProcess]:
    async with ServeProcess(tmp_path / "data", env=tools(tmp_path)) as process:
        yield process


@pytest.fixture
async def person(server: ServeProcess) -> AsyncIterator[Person]:
    async with Person(server) as somebody:
        yield somebody


async def read(person: Person, conversation: str) -> Json:
    return await person.ask("GET", f"/v1/conversations/{conversation}")


async def idle(person: Person, conversation: str) -> Json:
    """The conversation once no run of it is live."""
    while True:
        view = await read(person, conversation)
        live = {run["id"] for run in view["runs"] if run["finished_at"] is None}
        if not live:
            return view

        def ended(one: Json, live: set[str] = live) -> bool:
            data = one.get("data") or {}
            if one.get("event") != "run.status" or data["run_id"] not in live:
                return False
            return data["payload"]["run"]["finished_at"] is not None

        await person.seen(ended, after=view["seq"], seconds=30)


async def users(person: Person, conversation: str) -> list[str]:
    page = await person.ask("GET", f"/v1/conversations/{conversation}/messages?limit=200")
    return [message["content"] for message in page["items"] if message["role"] == "user"]


async def moment(at: float) -> None:
    """Return at this time of the loop's clock."""
    come = asyncio.Event()
    asyncio.get_running_loop().call_at(at, come.set)
    await come.wait()


class Races:
    """Runs that end a known time after they were accepted, and messages sent around that moment."""

    def __init__(self, people: list[Person], seed: int) -> None:
        self.people, self.chance = people, random.Random(seed)
        self.takes = 0.3  # seconds from acceptance to the end, as the last runs took
        self.consumed: dict[str, int] = {"started a run": 0, "waited": 0}

    async def race(self, number: int) -> None:
        first, second = (self.people[(number + n) % len(self.people)] for n in (0, 1))
        modes = ["queue"] * 3 if number % 2 else ["queue", "steer", "steer"]
        offsets = sorted(self.chance.uniform(-0.05, 0.05) for _ in modes)
        conversation = await first.conversation()
        loop = asyncio.get_running_loop()
        begun = await first.say(conversation, "!silent 0.2\n!say done")
        accepted, takes = loop.time(), self.takes
        texts = [f"!say {number}.{place}" for place in range(len(modes))]
        for text, mode, offset in zip(texts, modes, offsets, strict=True):
            await moment(accepted + takes + offset)
            answer = await second.http.post(
                f"/v1/conversations/{conversation}/messages", json={"content": text, "when_busy": mode}
            )
            assert answer.status_code in (201, 202), answer.text
            self.consumed["started a run" if answer.status_code == 201 else "waited"] += 1
        view = await idle(first, conversation)
        assert view["followups"] == []
        said = (await users(second, conversation))[1:]
        assert sorted(said) == texts, "each accepted message was consumed exactly once"
        if "steer" not in modes:
            assert said == texts, "in the order of their acceptance"
        run = await first.run(begun["run"]["id"])
        self.takes += 0.2 * (seconds(run) - self.takes)


def seconds(run: Json) -> float:
    from datetime import datetime

    begin, end = (datetime.fromisoformat(run[key]) for key in ("created_at", "finished_at"))
    return (end - begin).total_seconds()


@pytest.mark.full
@pytest.mark.slow(1800 if FULL else 240)
@pytest.mark.case("P77")
@pytest.mark.parametrize("servers", [1, 2], ids=["one server", "two servers"])
async def test_messages_at_any_moment_around_a_runs_end_are_consumed_once_and_in_order(
    servers: int, request: pytest.FixtureRequest, tmp_path: Path, stack: AsyncExitStack
) -> None:
    url = request.getfixturevalue("postgres_url") if servers > 1 else None
    people = []
    for number in range(servers):
        process = ServeProcess(tmp_path / f"s{number}", database=url, ready_within=60)
        await stack.enter_async_context(process)
        people.append(await stack.enter_async_context(Person(process)))
    races = Races(people, seed=servers)
    for start in range(0, RACES, SIDE_BY_SIDE):
        await gather(*(races.race(number) for number in range(start, start + SIDE_BY_SIDE)))
    assert min(races.consumed.values()) > 0, f"some came before an end and some after: {races.consumed}"


@pytest.mark.slow(90)
@pytest.mark.case("P78")
async def test_what_waits_survives_its_client_and_its_server_and_goes_on(
    server: ServeProcess, tmp_path: Path, stack: AsyncExitStack
) -> None:
    laptop = Person(server)
    async with laptop:
        me = await laptop.ask("GET", "/v1/me")
        conversation = await laptop.conversation()
        await laptop.say(conversation, GATE)
        await at_the_gate(laptop, conversation)
        sent = [await laptop.say(conversation, f"!say {text}", 202) for text in ("a", "b", "c", "d")]
    server.kill()
    await server.restart()

    phone = await stack.enter_async_context(Person(server))
    waiting = (await read(phone, conversation))["followups"]
    assert waiting == [one["followup"] for one in sent], (
        "as they were accepted, in order, with author and time"
    )
    assert {one["author_id"] for one in waiting} == {me["id"]}
    a, b, c, d = waiting
    path = "/v1/followups/{}"
    edited = await phone.ask(
        "PATCH", path.format(b["id"]), json={"version": b["version"], "content": "!say b, better"}
    )
    await phone.ask("PATCH", path.format(d["id"]), json={"version": d["version"], "position": 0})
    await phone.ask("DELETE", path.format(c["id"]), params={"version": c["version"]})
    open_gate(tmp_path, "g")
    assert (await idle(phone, conversation))["followups"] == []
    texts = [m["content"] for m in await phone.history(conversation) if m["role"] in ("user", "assistant")]
    said = ["!say d", "d", "!say a", "a", "!say b, better", "b, better"]
    assert texts[-6:] == said
    told = await phone.ask("GET", path.format(b["id"]))
    assert (told["status"], told["version"] > edited["version"]) == ("applied", True)
    assert [(one["num"], one["content"]) for one in told["revisions"]] == [
        (1, "!say b"),
        (2, "!say b, better"),
    ]
    refused = await phone.ask(
        "PATCH", path.format(a["id"]), 409, json={"version": a["version"], "content": "too late"}
    )
    assert refused["followup"]["status"] == "applied"


@pytest.mark.full
@pytest.mark.slow(60)
async def test_a_run_at_work_reads_what_its_person_sends_and_every_device_sees_it(
    server: ServeProcess, person: Person, tmp_path: Path
) -> None:
    conversation = await person.conversation()
    run_id = (await person.say(conversation, GATE))["run"]["id"]
    await at_the_gate(person, conversation)
    sent = await person.say(conversation, "!say turned left", 202, when_busy="steer")
    followup = sent["followup"]
    assert (followup["when_busy"], followup["asked"], followup["run_id"]) == ("steer", "steer", run_id)
    open_gate(tmp_path, "g")

    def applied(one: Json) -> bool:
        data = one.get("data") or {}
        return one.get("event") == "followup.changed" and data["payload"]["followup"]["status"] == "applied"

    told = (await person.seen(applied))["data"]["payload"]["followup"]
    assert (await person.end(run_id))["status"] == "completed"
    roles = ["user", None, "assistant", "tool", "user", "assistant"]
    history = await person.history(conversation)
    assert [message["role"] for message in history] == roles
    assert (history[4]["id"], history[4]["run_id"]) == (told["message_id"], run_id)
    assert history[5]["content"] == "turned left"
    view = await read(person, conversation)
    assert (view["conversation"]["message_count"], view["followups"], len(view["runs"])) == (5, [], 0)
    lines = (await person.http.get(f"/v1/conversations/{conversation}/export?format=jsonl")).text
    assert '"message_count":5' in lines.splitlines()[-1].replace(" ", "")


@pytest.mark.full
@pytest.mark.slow(900 if FULL else 180)
async def test_a_kill_around_the_delivery_neither_loses_nor_doubles_the_message(
    server: ServeProcess, person: Person, tmp_path: Path
) -> None:
    chance = random.Random(7)
    loop = asyncio.get_running_loop()
    for number in range(KILLS):
        name = f"g{number}"
        conversation = await person.conversation()
        await person.say(conversation, f'!call t__gate {{"name": "{name}"}}\n!say as planned')
        await at_the_gate(person, conversation)
        await person.say(conversation, "!tokens 5 100\n!say steered", 202, when_busy="steer")
        open_gate(tmp_path, name)
        await moment(loop.time() + chance.uniform(0.0, 0.12))
        server.kill()
        await server.restart()
        view = await idle(person, conversation)
        texts: list[Any] = [m["content"] for m in view["messages"] if m["role"] == "user"]
        assert texts.count("!tokens 5 100\n!say steered") == 1 and len(texts) == 2
        shown = [m for m in view["messages"] if m["kind"] != "run"]
        assert view["conversation"]["message_count"] == len([m for m in shown if not m["interrupted"]])
