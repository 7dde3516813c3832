"""Real servers on one PostgreSQL: starting together, taking over from each other, and a database that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest

from dromos.store.opening import open_store
from dromos.testing.invariants import violations
from dromos.testing.postgres_server import PostgresServer
from dromos.testing.processes import ServeProcess
from tests.faults.driver import FINAL, TRUST, Json, Person, effects, gather, open_gate, tools
from tests.faults.test_kill import GATE, at_the_gate


def serving(folder: Path, name: str, url: str) -> ServeProcess:
    """A server of that name on the database; its tools are those of the folder."""
    return ServeProcess(folder / name, database=url, env=TRUST, ready_within=60)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.mark.full
@pytest.mark.slow(180)
@pytest.mark.case("P134")
async def test_six_servers_start_at_once_on_an_empty_database_and_all_of_them_serve(
    postgres_url: str, tmp_path: Path, stack: AsyncExitStack
) -> None:
    servers = [serving(tmp_path, f"s{n}", postgres_url) for n in range(6)]
    for server in servers:
        stack.push_async_callback(server.close)
    await gather(*(server.start() for server in servers))
    people = [await stack.enter_async_context(Person(server)) for server in servers]
    for person in people:
        assert (await person.ask("GET", "/readyz"))["status"] == "ok"
    with psycopg.connect(postgres_url) as database:
        assert len(database.execute("SELECT version_num FROM alembic_version").fetchall()) == 1
    assert len((await people[0].ask("GET", "/v1/workers"))["items"]) == 6

    conversations = await gather(*(person.conversation() for person in people))
    runs = await gather(
        *(person.say(c, f"!say {n}") for n, (person, c) in enumerate(zip(people, conversations, strict=True)))
    )
    for number, (person, run) in enumerate(zip(people[1:] + people[:1], runs, strict=True)):
        ended = await person.end(run["run"]["id"])  # seen from another server than it was sent to
        assert (ended["status"], ended["line"]) == ("completed", str(number))


@pytest.mark.slow(120)
@pytest.mark.case("P73")
async def test_twenty_messages_at_once_through_two_servers_run_one_by_one_in_the_order_of_acceptance(
    postgres_url: str, tmp_path: Path, stack: AsyncExitStack
) -> None:
    first = await stack.enter_async_context(serving(tmp_path, "a", postgres_url))
    second = await stack.enter_async_context(serving(tmp_path, "b", postgres_url))
    people = [await stack.enter_async_context(Person(server)) for server in (first, second)]
    conversation = await people[0].conversation()

    async def send(number: int) -> int:
        answer = await people[number % 2].http.post(
            f"/v1/conversations/{conversation}/messages", json={"content": f"!say answer {number}"}
        )
        return answer.status_code

    statuses = await gather(*(send(number) for number in range(20)))
    assert sorted(statuses) == [201] + [202] * 19
    ended: list[str] = []
    live: set[str] = set()
    async for one in people[1].events(0):
        if one.get("event") != "run.status":
            continue
        run = one["data"]["payload"]["run"]
        if run["status"] in FINAL:
            ended.append(run["id"])
            live.discard(run["id"])
        else:
            live.add(run["id"])
        assert len(live) <= 1, "one run at a time"
        if len(ended) == 20:
            break
    page = await people[0].ask("GET", f"/v1/conversations/{conversation}/messages?limit=200")
    texts = [m["content"] for m in page["items"] if m["kind"] != "run"]
    asked, answered = texts[0::2], texts[1::2]
    assert len(asked) == 20 and answered == [text.removeprefix("!say ") for text in asked]
    runs = (await people[0].ask("GET", f"/v1/runs?conversation_id={conversation}&limit=200"))["items"]
    assert [run["id"] for run in reversed(runs)] == ended


@pytest.mark.slow(120)
@pytest.mark.case("P43")
@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=[pytest.mark.full, pytest.mark.slow(600)])])
async def test_of_twenty_who_allow_one_call_at_once_through_two_servers_one_is_taken_and_it_happens_once(
    postgres_url: str, tmp_path: Path, stack: AsyncExitStack, rounds: int
) -> None:
    """Rounds take turns: all twenty approve, or half of them approve and half deny."""
    tools(tmp_path)
    (tmp_path / "dromos.toml").write_text('[tools."t__count"]\npolicy = "ask"\n')
    servers = [serving(tmp_path, name, postgres_url) for name in "ab"]
    for server in servers:
        stack.push_async_callback(server.close)
    await gather(*(server.start() for server in servers))
    people = [await stack.enter_async_context(Person(server)) for server in servers]
    for number in range(rounds):
        label = f"round {number}"
        script = f'!call t__count {{"label": "{label}"}}\n!say done'
        run_id = (await people[0].say(await people[0].conversation(), script))["run"]["id"]
        await people[1].status_event(run_id, "waiting_input")
        (request,) = (await people[1].ask("GET", "/v1/requests"))["items"]

        async def press(
            place: int, request: Json = request, mixed: bool = number % 2 == 1
        ) -> tuple[int, Json]:
            word = {
                "decision": "deny" if mixed and place % 4 >= 2 else "approve",
                "comment": f"press {place}",
                "request_version": request["version"],
                "arguments_sha256": request["arguments_sha256"],
            }
            answer = await people[place % 2].http.post(f"/v1/requests/{request['id']}/decision", json=word)
            return answer.status_code, answer.json()

        pressed = await gather(*(press(place) for place in range(20)))
        assert sorted(status for status, _ in pressed) == [200] + [409] * 19
        won = next(place for place, (status, _) in enumerate(pressed) if status == 200)
        kept = (await people[0].ask("GET", f"/v1/requests/{request['id']}"))["decision"]
        assert kept["comment"] == f"press {won}"
        assert {body["code"] for status, body in pressed if status == 409} == {"already_decided"}
        assert {body["request"]["decision"]["comment"] for _, body in pressed} == {kept["comment"]}
        ended = await people[number % 2].end(run_id)
        assert (ended["status"], ended["attempt"]) == ("completed", 2)
        events = (await people[1].ask("GET", f"/v1/runs/{run_id}/events"))["items"]
        assert [event["type"] for event in events].count("request.closed") == 1
        made = [effect["label"] for effect in effects(tmp_path)].count(label)
        assert made == (kept["decision"] == "approve")
    store = await open_store(postgres_url, create=False)
    stack.push_async_callback(store.aclose)
    assert await violations(store, "local", effects(tmp_path), settled=True) == []


@pytest.mark.full
@pytest.mark.slow(120)
@pytest.mark.case("P04", "P10")
async def test_a_run_without_any_lease_is_taken_over_by_one_of_two_servers_and_carried_out_once(
    postgres_url: str, tmp_path: Path, stack: AsyncExitStack
) -> None:
    tools(tmp_path)
    dead = await stack.enter_async_context(serving(tmp_path, "dead", postgres_url))
    somebody = await stack.enter_async_context(Person(dead))
    conversation = await somebody.conversation()
    script = f'{GATE}\n!call t__count {{"label": "once"}}\n!say done'
    run_id = (await somebody.say(conversation, script))["run"]["id"]
    await at_the_gate(somebody, conversation)
    dead.kill()
    await dead.wait_exit()
    with psycopg.connect(postgres_url) as database:
        database.execute("DELETE FROM leases")

    others = [serving(tmp_path, name, postgres_url) for name in ("b", "c")]
    for server in others:
        stack.push_async_callback(server.close)
    await gather(*(server.start() for server in others))
    person = await stack.enter_async_context(Person(others[0]))
    again = await person.run(run_id)
    assert (again["status"], again["attempt"], again["crashes"]) == ("running", 2, 1)
    open_gate(tmp_path, "g")
    assert (await person.end(run_id))["status"] == "completed"
    assert [effect["label"] for effect in effects(tmp_path)] == ["once"]


@pytest.mark.slow(120)
@pytest.mark.case("P107")
async def test_connections_that_are_cut_during_a_model_call_do_not_fail_the_run(
    postgres_url: str, tmp_path: Path, stack: AsyncExitStack
) -> None:
    server = await stack.enter_async_context(serving(tmp_path, "data", postgres_url))
    person = await stack.enter_async_context(Person(server))
    conversation = await person.conversation()
    posted = await person.say(conversation, "!tokens 3\n!silent 3\n!say and on")
    await person.seen(lambda one: one.get("event") == "run.text", focus=conversation)
    with psycopg.connect(postgres_url, autocommit=True) as database:
        cut = database.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert cut is not None and cut[0] >= 3, "writers, readers and the listener"

    ended = await person.end(posted["run"]["id"])
    assert (ended["status"], ended["attempt"], ended["crashes"]) == ("completed", 1, 0)
    following = await person.say(conversation, "!say heard")
    assert (await person.end(following["run"]["id"]))["line"] == "heard"


@pytest.mark.slow(120)
@pytest.mark.case("P63")
async def test_without_its_database_a_server_refuses_and_is_there_again_when_the_database_is(
    tmp_path: Path, stack: AsyncExitStack
) -> None:
    postgres = PostgresServer()
    stack.callback(postgres.close)
    postgres.start()
    url = postgres.url(postgres.create_database())
    server = serving(tmp_path, "data", url)
    stack.push_async_callback(server.close)
    await server.start()
    person = await stack.enter_async_context(Person(server))
    conversation, other = await person.conversation(), await person.conversation()
    under_way = (await person.say(other, "!say first\n!silent 1\n!say held on"))["run"]["id"]
    await person.seen(lambda one: one.get("event") == "run.text", focus=other)

    postgres.stop()
    missing = await person.ask("GET", "/readyz", 503)
    assert missing["code"] == "store_unavailable" and missing["detail"]
    refused = await person.say(conversation, "!say lost?", 503)
    assert refused["code"] == "store_unavailable"
    assert server.running and list((tmp_path / "data").glob("*.db*")) == [], "it never falls back"

    postgres.start()
    poll = asyncio.Event()

    async def ready() -> bool:
        return (await person.http.get("/readyz")).status_code == 200

    async with asyncio.timeout(30):
        while not await ready():
            asyncio.get_running_loop().call_later(0.1, poll.set)
            await poll.wait()
            poll.clear()
    posted = await person.say(conversation, "!say back again")
    assert (await person.end(posted["run"]["id"]))["line"] == "back again"
    assert (await person.end(under_way, seconds=40))["status"] == "completed"


@pytest.mark.slow(60)
@pytest.mark.case("P63")
async def test_a_server_whose_database_cannot_be_reached_does_not_start_and_says_the_cure(
    tmp_path: Path,
) -> None:
    server = serving(tmp_path, "data", "postgresql://nobody:hidden@127.0.0.1:9/none")
    with pytest.raises(AssertionError):
        await server.start()
    assert server.returncode == 1
    assert "start the database server" in server.logs() and "hidden" not in server.logs()
    assert not list(tmp_path.rglob("*.db"))


@pytest.mark.full
@pytest.mark.slow(120)
async def test_a_silent_worker_is_shown_with_the_time_of_its_takeover_and_then_taken_over(
    postgres_url: str, tmp_path: Path, stack: AsyncExitStack
) -> None:
    first = await stack.enter_async_context(serving(tmp_path, "a", postgres_url))
    owner = await stack.enter_async_context(Person(first))
    talk = await owner.conversation()
    run_id = (await owner.say(talk, "!tokens 60 10"))["run"]["id"]
    await owner.seen(lambda one: one.get("event") == "run.text", focus=talk)
    second = await stack.enter_async_context(serving(tmp_path, "b", postgres_url))
    reader = await stack.enter_async_context(Person(second))
    first.stop()
    try:
        told = await reader.seen(lambda one: one.get("event") == "run.server", focus=talk, seconds=20)
        assert "id" not in told
        shown = told["data"]["owner"]
        assert (told["data"]["run_id"], shown["kind"]) == (run_id, "worker")
        assert shown["seen_at"] < shown["takeover_at"]
        fetched = (await reader.ask("GET", f"/v1/runs/{run_id}/document"))["document"]["owner"]
        assert fetched["takeover_at"] == shown["takeover_at"]
        again = await reader.seen(
            lambda one: (
                one.get("event") == "run.status" and one["data"]["payload"]["run"]["reason"] == "reclaimed"
            ),
            seconds=30,
        )
        assert again["data"]["payload"]["run"]["crashes"] == 1
        assert again["data"]["payload"]["document"]["owner"]["takeover_at"] is None
    finally:
        first.cont()
    assert (await reader.end(run_id, seconds=60))["status"] == "completed"
