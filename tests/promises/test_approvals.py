"""Leave for tools, end to end: the real assistant, a scripted model, real tool servers, over HTTP, through restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from dromos.ports.store import Table
from dromos.testing.local_http import LocalHTTP
from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import eventually
from tests.faults.driver import Json, Person
from tests.promises.conftest import Tools
from tests.promises.house import House

ASK = '[tools."t__count"]\npolicy = "ask"\n'

Enter = Callable[..., Awaitable[House]]


@pytest.fixture
async def enter(tmp_path: Path, tools_server: Tools) -> AsyncIterator[Enter]:
    """Enters a server with the counting tools as `t`; it is left at the end."""
    houses: list[House] = []

    async def begin(settings: str = ASK, database: str | None = None, **servers: str) -> House:
        folder = tmp_path / f"house-{len(houses)}"
        folder.mkdir()
        house = House(folder, {"t": tools_server.url, **servers}, settings, database)
        await house.__aenter__()
        houses.append(house)
        return house

    yield begin
    for house in reversed(houses):
        await house.__aexit__()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """Both databases, one after the other; None is the data folder's own."""
    if request.param == "sqlite":
        return None
    return str(request.getfixturevalue("postgres_url"))


def counting(*labels: str, then: str = "!say done") -> str:
    return "\n".join([*(f'!call t__count {{"label":"{label}"}}' for label in labels), then])


@pytest.mark.slow(60)
@pytest.mark.case("P45")
@pytest.mark.case("P46")
@pytest.mark.case("P50")
@pytest.mark.case("P54")
@pytest.mark.case("P58")
async def test_what_was_shown_is_what_is_called_once_also_after_two_restarts(
    database: str | None, enter: Enter, tools_server: Tools
) -> None:
    label = "once-own" if database is None else "once-postgres"
    house = await enter(database=database)
    run = await house.send(counting(label))
    (shown,) = await house.asked(run["id"])
    assert (shown["kind"], shown["tool"], shown["arguments"]) == ("approval", "t__count", {"label": label})
    assert shown["decisions"] == ["approve", "edit", "deny"]
    await house.restart()
    await house.restart(
        settings=ASK + '[approvals]\ntrusted_servers = ["other"]\n[worker]\nstep_limit = 40\n'
    )
    assert await house.asked(run["id"]) == [shown], "the same question, by the same id"
    document = (await house.person.ask("GET", f"/v1/runs/{run['id']}/document"))["document"]
    view = await house.person.ask("GET", f"/v1/conversations/{run['conversation_id']}")
    events = (await house.person.ask("GET", f"/v1/runs/{run['id']}/events"))["items"]
    told = [one["payload"]["request"]["id"] for one in events if one["type"] == "request.opened"]
    assert (document["requests"], view["requests"], told) == ([shown], [shown], [shown["id"]])
    assert tools_server.effects(label) == []

    await house.decide(shown, "approve")
    assert (await house.ended(run["id"]))["status"] == "completed"
    (effect,) = tools_server.effects(label)
    assert effect["arguments"] == shown["arguments_sha256"], "shown = stored = executed"
    assert (effect["run"], effect["call"]) == (run["id"], shown["tool_call_id"])
    assert await house.results(run["conversation_id"]) == [f"counted {label}"]
    assert (await house.request(shown))["status"] == "consumed"


@pytest.mark.slow(60)
@pytest.mark.case("P38")
@pytest.mark.case("P40")
@pytest.mark.case("P47")
@pytest.mark.case("P59")
@pytest.mark.case("P69")
async def test_each_gated_call_of_a_turn_is_decided_by_itself_and_its_free_siblings_run_once(
    enter: Enter, tools_server: Tools
) -> None:
    house = await enter()
    script = counting("p1", "p2", "p3", "p4", then="")
    script += '!call t__count_keyed {"label":"pfree"}\n!call t__fail {"text":"broken"}\n!say done'
    run = await house.send(script)
    asked = await house.asked(run["id"], 4)
    one, two, three, four = asked
    assert len({request["id"] for request in asked}) == len({r["tool_call_id"] for r in asked}) == 4
    assert len(tools_server.effects("pfree")) == 1 and tools_server.effects("p1", "p2", "p3", "p4") == []
    waits = await house.person.say(run["conversation_id"], "!say second", expect=202)
    assert waits["followup"]["status"] == "waiting"

    assert (await house.decide(four, "approve"))["run"]["status"] == "waiting_input"
    assert [request["id"] for request in await house.asked(run["id"], 3)] == [
        one["id"],
        two["id"],
        three["id"],
    ]
    await house.decide(three, "deny", comment="not that one")
    wrong = await house.decide(two, "edit", 400, arguments={"label": 7})
    assert [error["path"] for error in wrong["errors"]] == ["/arguments/label"]
    edited = await house.decide(two, "edit", arguments={"label": "p2-edited"})
    kept = edited["request"]
    assert kept["arguments"] == {"label": "p2"} and kept["decision"]["arguments"] == {"label": "p2-edited"}
    assert kept["decision"]["arguments_sha256"] != kept["arguments_sha256"] == two["arguments_sha256"]
    await house.restart()
    assert [request["id"] for request in await house.asked(run["id"])] == [one["id"]]
    assert tools_server.effects("p1", "p2", "p2-edited", "p3", "p4") == [], (
        "it goes on with the last decision"
    )
    assert (await house.decide(one, "approve"))["run"]["status"] == "queued"

    assert (await house.ended(run["id"]))["status"] == "completed"
    made = tools_server.effects("p1", "p2", "p2-edited", "p3", "p4", "pfree")
    assert sorted(effect["label"] for effect in made) == ["p1", "p2-edited", "p4", "pfree"]
    edit = next(effect for effect in made if effect["label"] == "p2-edited")
    assert edit["arguments"] == kept["decision"]["arguments_sha256"]
    results = set(await house.results(run["conversation_id"]))
    assert results > {"counted p1", "counted p4", "counted pfree"}
    assert "The call was not made. It was denied by a person: not that one." in results
    told = next(text for text in results if text.endswith("counted p2-edited"))
    assert "A person changed the arguments" in told
    assert len(results) == 6 and any("broken" in text for text in results)
    opened = (await house.person.ask("GET", f"/v1/runs/{run['id']}/events"))["items"]
    assert [event["type"] for event in opened].count("request.opened") == 4, "nobody is asked twice"

    async def answered() -> bool:
        history = await house.person.history(run["conversation_id"])
        return str(history[-1]["content"]) == "second"

    await eventually(answered, seconds=20, what="the message that waited")


@pytest.mark.case("P39")
@pytest.mark.case("P43")
async def test_a_decision_names_one_open_question_and_of_many_at_once_one_is_taken(
    enter: Enter, tools_server: Tools
) -> None:
    house = await enter()
    run = await house.send(counting("n1", "n2"))
    one, two = await house.asked(run["id"], 2)
    body = {"decision": "approve", "request_version": 1, "arguments_sha256": one["arguments_sha256"]}
    for path, status in (
        ("/v1/requests/decision", 405),
        (f"/v1/requests/{run['id']}/decision", 404),
        (f"/v1/requests/{two['id']}/decision", 409),
    ):
        assert (await house.person.http.post(path, json=body)).status_code == status
    assert await house.asked(run["id"], 2) == [one, two]

    async def say(number: int) -> tuple[int, Json]:
        word = {**body, "decision": "approve" if number % 2 else "deny"}
        answer = await house.person.http.post(f"/v1/requests/{one['id']}/decision", json=word)
        return answer.status_code, answer.json()

    said = await asyncio.gather(*(say(number) for number in range(12)))
    taken = {body["request"]["decision"]["decision"] for status, body in said if status == 200}
    refused = [body for status, body in said if status == 409]
    assert len(taken) == 1 and len(refused) == 6, "the same person may repeat the same word"
    assert {(body["code"], body["request"]["decided_by"]) for body in refused} == {
        ("already_decided", "local")
    }
    await house.decide(two, "deny")
    assert (await house.ended(run["id"]))["attempt"] == 2
    assert len(tools_server.effects("n1", "n2")) == (taken == {"approve"})


class Changing:
    """A tool server that lists what the test wants, while it runs."""

    def __init__(self) -> None:
        self.server = MCPServer("changing")
        self.called: list[Any] = []
        self.takes_now: str | None = None
        self.takes("text")

    def takes(self, what: str | None) -> None:
        """From now on the tool `put` takes a text, or a number; None: it is gone."""
        if self.takes_now is not None:
            self.server.remove_tool("put")
        self.takes_now = what

        def put_text(what: str) -> str:
            self.called.append(what)
            return f"put {what}"

        def put_number(what: int) -> str:
            self.called.append(what)
            return f"put {what}"

        if what is not None:
            self.server.add_tool({"text": put_text, "number": put_number}[what], name="put")


@pytest.mark.slow(60)
@pytest.mark.case("P54")
async def test_what_changed_since_the_decision_is_asked_about_anew(enter: Enter) -> None:
    """The tool is gone, then takes other arguments; at last it is as it was. Then it is forbidden."""
    changing = Changing()
    ask, never = (f'[tools."c__put"]\npolicy = "{policy}"\n' for policy in ("ask", "deny"))
    async with LocalHTTP(changing.server.streamable_http_app(host="127.0.0.1")) as http:
        house = await enter(ask, c=f"{http.url}/mcp")

        async def decided(request: Json, why: str) -> Json:
            """What is asked in place of a request that was approved."""
            await house.decide(request, "approve")
            (fresh,) = await house.asked(request["run_id"], beside=(request["id"],))
            assert fresh["replaces"] == request["id"] and why in fresh["prompt"]
            assert (await house.request(request))["status"] == "void"
            assert fresh["arguments"] == {"what": "this"}
            return fresh

        run = await house.send('!call c__put {"what":"this"}\n!say done')
        (request,) = await house.asked(run["id"])
        for takes, why in ((None, "c__put is not there now."), ("number", "does not take these arguments")):
            changing.takes(takes)
            request = await decided(request, why)
            assert changing.called == []
        changing.takes("text")
        await house.decide(request, "approve")
        assert (await house.ended(run["id"]))["status"] == "completed"
        assert changing.called == ["this"]
        assert await house.results(run["conversation_id"]) == ["put this"]

        run = await house.send('!call c__put {"what":"this"}\n!say done')
        (request,) = await house.asked(run["id"])
        await house.restart(never)
        request = await decided(request, "The policy does not allow c__put any more.")
        assert request["decisions"] == ["deny"]
        await house.decide(request, "approve", 400)
        await house.decide(request, "deny")
        assert (await house.ended(run["id"]))["status"] == "completed"
        assert changing.called == ["this"]


@pytest.mark.slow(60)
@pytest.mark.case("P55")
async def test_leave_for_good_reaches_as_far_as_was_said_and_can_be_taken_back(
    enter: Enter, tools_server: Tools
) -> None:
    house = await enter()
    run = await house.send(counting("g1"))
    talk = run["conversation_id"]
    (first,) = await house.asked(run["id"])
    assert first["grants"] == ["call", "tool"]
    await house.decide(first, "approve", grant="call")
    await house.ended(run["id"])
    same = await house.send(counting("g1"), talk)
    assert (await house.ended(same["id"]))["status"] == "completed", "just this call needs nobody any more"

    other = await house.send(counting("g2"), talk)
    (second,) = await house.asked(other["id"])
    await house.decide(second, "approve", grant="tool")
    await house.ended(other["id"])
    third = await house.send(counting("g3"), talk)
    assert (await house.ended(third["id"]))["status"] == "completed"
    elsewhere = await house.send(counting("g3"))
    (asked,) = await house.asked(elsewhere["id"])
    await house.decide(asked, "deny")

    calls = await house.system.store.read(lambda tx: tx.find(Table.TOOL_CALLS, {"conversation_id": talk}))
    rests_on = {call["arguments"]["label"]: call["grant_id"] for call in calls if call["grant_id"]}
    whole, exact = (await house.person.ask("GET", f"/v1/grants?conversation_id={talk}"))["items"]
    assert (whole["arguments"], exact["arguments"]) == (None, {"label": "g1"})
    assert rests_on == {"g1": exact["id"], "g3": whole["id"]}, "a call that rests on leave names it"
    await house.person.ask("DELETE", f"/v1/grants/{whole['id']}", 204)
    fourth = await house.send(counting("g4"), talk)
    (asked,) = await house.asked(fourth["id"])
    await house.decide(asked, "deny")
    await house.ended(fourth["id"])
    assert [one["label"] for one in tools_server.effects("g1", "g2", "g3", "g4")] == ["g1", "g1", "g2", "g3"]


@pytest.mark.case("P46")
@pytest.mark.parametrize("policy", ["deny", "expire"])
async def test_an_approval_that_nobody_gave_in_time_is_settled_by_policy_alone(
    enter: Enter, tools_server: Tools, policy: str
) -> None:
    house = await enter(f'{ASK}[approvals]\nexpires_s = 3600\non_timeout = "{policy}"\n')
    run = await house.send(counting(f"late-{policy}"))
    (request,) = await house.asked(run["id"])
    assert request["expires_at"] is not None and request["on_timeout"] == policy
    over = {"expires_at": datetime.now(UTC) - timedelta(seconds=1)}
    await house.system.store.write(lambda tx: tx.change(Table.REQUESTS, {"id": request["id"]}, over))
    end = await house.ended(run["id"])
    after = await house.request(request)
    late = await house.decide(request, "approve", 409)
    if policy == "deny":
        assert (end["status"], after["decided_by"]) == ("completed", "policy")
        assert late["code"] == "already_decided"
        (result,) = await house.results(run["conversation_id"])
        assert "denied by the policy, because nobody answered in time" in result
    else:
        assert (end["status"], end["reason"], after["status"]) == ("expired", "input_deadline", "expired")
        assert late["code"] == "request_closed"
    assert tools_server.effects(f"late-{policy}") == []


@pytest.mark.case("P52")
@pytest.mark.case("P61")
@pytest.mark.case("P62")
async def test_live_and_fresh_views_agree_and_who_was_away_catches_up(
    enter: Enter, tools_server: Tools
) -> None:
    """One device is away while a question is decided, another while one is voided by a stop."""
    house = await enter()
    run = await house.send(counting("v1", then='!call t__count {"label":"v2"}\n!say done'))
    await house.asked(run["id"], 2)
    path = f"/v1/runs/{run['id']}/document"
    talk = run["conversation_id"]
    seen = await house.person.seen(lambda one: one["event"] == "request.opened", focus=talk)
    cut_at = int(seen["id"])

    async def agree() -> list[str]:
        """The questions in the document, which are those of the list and of the conversation."""
        document = (await house.person.ask("GET", path))["document"]
        view = await house.person.ask("GET", f"/v1/conversations/{talk}")
        live = (await house.person.seen(lambda one: one["event"] == "run.document", focus=talk))["data"]
        assert live["document"]["requests"] == document["requests"] == view["requests"]
        return sorted(one["id"] for one in view["requests"])

    one, two = await house.asked(run["id"], 2)
    assert await agree() == sorted((one["id"], two["id"]))
    await house.decide(one, "approve")
    assert await agree() == [two["id"]]
    await house.person.ask("POST", f"/v1/runs/{run['id']}/cancel", 202, json={})
    assert (await house.ended(run["id"]))["status"] == "cancelled"
    view = await house.person.ask("GET", f"/v1/conversations/{talk}")
    assert view["requests"] == [] and (await house.person.ask("GET", path))["document"]["requests"] == []
    late = await house.decide(two, "approve", 409)
    assert (late["code"], late["request"]["status"]) == ("request_closed", "void")

    missed: list[Json] = []
    async for event in house.person.events(after=cut_at):
        missed.append(event)
        if event["event"] == "run.status" and event["data"]["payload"]["run"]["status"] == "cancelled":
            break
    closed = [e["data"]["payload"]["request"] for e in missed if e["event"] == "request.closed"]
    assert {(request["id"], request["status"]) for request in closed} == {
        (one["id"], "decided"),
        (two["id"], "void"),
    }
    runs = (await house.person.ask("GET", f"/v1/runs?conversation_id={talk}"))["items"]
    assert [each["id"] for each in runs] == [run["id"]], "whoever was away finds the same run"
    assert tools_server.effects("v1", "v2") == []


@pytest.mark.slow(60)
@pytest.mark.case("P48")
async def test_a_run_that_waits_for_a_person_keeps_its_conversation_busy_on_every_server(
    postgres_url: str, enter: Enter, tools_server: Tools
) -> None:
    here = await enter(database=postgres_url)
    there = await enter(database=postgres_url)
    run = await here.send(counting("busy"))
    (asked,) = await here.asked(run["id"])
    talk = run["conversation_id"]
    both = await asyncio.gather(*(house.person.say(talk, "!say next", 202) for house in (here, there)))
    assert [one["followup"]["status"] for one in both] == ["waiting", "waiting"]
    assert await there.asked(run["id"]) == [asked]
    await there.decide(asked, "approve")
    assert (await here.ended(run["id"]))["status"] == "completed"

    async def answered() -> bool:
        texts = [str(one["content"]) for one in await here.person.history(talk)]
        return texts.count("next") == 2

    await eventually(answered, seconds=20, what="the answers to what waited")
    assert len(tools_server.effects("busy")) == 1


@pytest.mark.full
@pytest.mark.slow(120)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_of_calls_that_were_cut_by_a_kill_a_person_says_what_became(
    kind: str, tmp_path: Path, tools_server: Tools, request: pytest.FixtureRequest
) -> None:
    database = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    (tmp_path / "mcp.json").write_text(f'{{"mcpServers": {{"t": {{"url": "{tools_server.url}"}}}}}}')
    script = "\n".join(f'!call t__gate {{"name":"{kind}{n}"}}' for n in (1, 2, 3)) + "\n!say done"
    before = tools_server.begun("gate")
    async with ServeProcess(tmp_path / "data", database=database) as server, Person(server) as person:
        house = House(tmp_path, {})
        house.person = person
        run = await house.send(script)
        await eventually(
            lambda: tools_server.begun("gate") == before + 3, seconds=30, what="three calls under way"
        )
        server.kill()
        await server.restart()
        one, two, three = await house.asked(run["id"], 3, seconds=60)
        assert {each["kind"] for each in (one, two, three)} == {"tool_outcome_unknown"}
        assert one["decisions"] == ["retry", "mark_done", "skip"]
        await house.decide(two, "mark_done", answer="it was open")
        await house.decide(three, "skip")
        tools_server.open_gate(f"{kind}1")
        await house.decide(one, "retry")
        assert (await house.ended(run["id"]))["status"] == "completed"
        assert sorted(await house.results(run["conversation_id"])) == [
            "What became of this call is unknown. A person said not to repeat it.",
            "it was open",
            f"{kind}1 is open",
        ]
    assert tools_server.begun("gate") == before + 4
