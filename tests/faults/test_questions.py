"""Questions of people's own graphs on the real server: through restarts and kills, raced for, overtaken by time."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dromos.domain.text import moment_text
from dromos.testing.processes import ServeProcess
from tests.agents.kit import until
from tests.faults.driver import Json, Person, gather

EXAMPLE = Path(__file__).parents[2] / "examples" / "04_questions"

GRAPHS = """
import asyncio
from pathlib import Path
from typing import TypedDict
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

HERE = Path(__file__).parent

class State(TypedDict, total=False):
    task: str
    answer: str
    said: str

def ask(state):
    return {"answer": interrupt({"question": f"{state['task']}?", "options": ["yes", "no"]})}

async def work(state):
    with (HERE / f"worked-{state['task']}").open("a") as file:
        file.write(state["answer"])
    while not (HERE / f"open-{state['task']}").exists():
        await asyncio.sleep(0.05)
    return {"said": f"{state['task']}: {state['answer']}"}

async def ask_and_work(state):
    answer = interrupt(f"{state['task']}?")
    return await work({**state, "answer": answer})

def made(**nodes):
    builder = StateGraph(State)
    names = list(nodes)
    for name in names:
        builder.add_node(name, nodes[name])
    for before, after in zip([START, *names], [*names, END]):
        builder.add_edge(before, after)
    return builder.compile()

apart = made(ask=ask, work=work)
together = made(both=ask_and_work)
only_work = made(work=lambda state: work({**state, "answer": "none"}))
"""

SETTINGS = """
default_agent = "apart"
[agents.apart]
graph = "graphs:apart"
input = "task"
output = "said"
[agents.together]
graph = "graphs:together"
input = "task"
output = "said"
[agents.busy]
graph = "graphs:only_work"
input = "task"
output = "said"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "graphs.py").write_text(GRAPHS)
    (tmp_path / "dromos.toml").write_text(SETTINGS)
    return tmp_path


def let_work(folder: Path, task: str) -> None:
    (folder / f"open-{task}").touch()


async def asked(person: Person, run_id: str) -> list[Json]:
    """The run's open questions, once it waits for them."""
    await person.status_event(run_id, "waiting_input")
    items = (await person.ask("GET", "/v1/requests?status=open"))["items"]
    return sorted((one for one in items if one["run_id"] == run_id), key=lambda one: str(one["prompt"]))


def saying(request: Json, decision: str, answer: Any = None, **more: Any) -> Json:
    seen = {"request_version": request["version"], "arguments_sha256": request["arguments_sha256"]}
    return {"decision": decision, **({} if answer is None else {"answer": answer}), **seen, **more}


async def decide(
    person: Person, request: Json, decision: str, answer: Any = None, expect: int = 200, **more: Any
) -> Json:
    headers = {"Idempotency-Key": key} if (key := more.pop("key", None)) else {}
    return await person.ask(
        "POST",
        f"/v1/requests/{request['id']}/decision",
        expect,
        json=saying(request, decision, answer, **more),
        headers=headers,
    )


async def talk(person: Person, text: str, agent: str | None = None) -> Json:
    made = await person.ask("POST", "/v1/conversations", 201, json={"agent": agent} if agent else {})
    return (await person.say(made["id"], text))["run"]


def move_time(folder: Path, **columns: timedelta) -> None:
    """In the stopped server's database, what the questions know of time moves by so much."""
    with sqlite3.connect(folder / "data" / "dromos.db") as database:
        for column, by in columns.items():
            at = moment_text(datetime.now(UTC) + by)
            database.execute(f"UPDATE requests SET {column} = ?", [at])
    database.close()


@pytest.mark.full
@pytest.mark.slow(120)
@pytest.mark.case("P45")
@pytest.mark.case("P50")
async def test_the_example_asks_through_restarts_and_goes_on_with_the_last_answer(tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("dromos-data", "__pycache__"))
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        run = await talk(person, "I need a holiday")
        budget, where = await asked(person, run["id"])
        assert (
            where["options"] == ["the sea", "the mountains"] and budget["answer_schema"]["type"] == "integer"
        )

        server.term()
        await server.wait_exit()
        move_time(folder, opened_at=timedelta(days=-7))
        await server.start()
        server.kill()
        await server.restart()
        again = await asked(person, run["id"])
        assert [one["id"] for one in again] == [budget["id"], where["id"]]
        document = (await person.ask("GET", f"/v1/runs/{run['id']}/document"))["document"]
        view = await person.ask("GET", f"/v1/conversations/{run['conversation_id']}")
        for shown in (document["requests"], view["requests"]):
            assert sorted(shown, key=lambda one: str(one["prompt"])) == again

        wrong = await decide(person, budget, "answer", "plenty", expect=400)
        assert [error["path"] for error in wrong["errors"]] == ["/answer"]
        assert (await decide(person, budget, "answer", 900))["run"]["status"] == "waiting_input"
        server.kill()
        await server.restart()
        first = await decide(person, where, "answer", "the sea", key="k")
        assert first["run"]["status"] == "queued"
        server.kill()
        await server.restart()
        assert await decide(person, where, "answer", "the sea", key="k") == first, (
            "the same answer, byte for byte"
        )
        other = await decide(person, where, "deny", expect=409)
        assert other["code"] == "already_decided"
        assert (other["request"]["decided_by"], other["request"]["decision"]["answer"]) == (
            "local",
            "the sea",
        )

        leave = (await person.seen(lambda one: "Book it" in str(one.get("data"))))["data"]["payload"][
            "request"
        ]
        assert leave["prompt"] == "A trip to the sea for 900. Book it?"
        await decide(person, leave, "answer", "yes")
        assert (await person.end(run["id"]))["status"] == "completed"
        assert (await person.history(run["conversation_id"]))[-1][
            "content"
        ] == "A trip to the sea for 900 is booked."
        assert (await person.ask("GET", "/v1/requests"))["items"] == []
        for request in (budget, where, leave):
            assert (await person.ask("GET", f"/v1/requests/{request['id']}"))["status"] == "consumed"


@pytest.mark.full
@pytest.mark.slow(60)
async def test_a_decision_that_nobody_has_taken_up_survives_a_kill(folder: Path) -> None:
    async with (
        ServeProcess(folder / "data", env={"DROMOS_WORKER_CONCURRENCY": "1"}) as server,
        Person(server) as person,
    ):
        run = await talk(person, "mine")
        (question,) = await asked(person, run["id"])
        busy = await talk(person, "other", agent="busy")
        await person.status_event(busy["id"], "running")
        decided = await decide(person, question, "answer", "yes")
        assert decided["run"]["status"] == "queued"
        server.kill()
        let_work(folder, "mine")
        let_work(folder, "other")
        await server.restart()
        assert (await person.end(run["id"]))["status"] == "completed"
        assert (await person.history(run["conversation_id"]))[-1]["content"] == "mine: yes"
        request = await person.ask("GET", f"/v1/requests/{question['id']}")
        assert (request["status"], request["decision"]["answer"]) == ("consumed", "yes")


@pytest.mark.full
@pytest.mark.slow(90)
@pytest.mark.parametrize("agent", ["apart", "together"])
async def test_a_kill_in_the_resumed_attempt_applies_the_answer_once_and_asks_nobody_again(
    folder: Path, agent: str
) -> None:
    """`apart` is killed behind the step that took the answer, `together` within it."""
    async with ServeProcess(folder / "data") as server, Person(server) as person:
        run = await talk(person, "mine", agent=agent)
        (question,) = await asked(person, run["id"])
        await decide(person, question, "answer", "yes")
        worked = folder / "worked-mine"
        for times in (1, 2):  # a server that is back has often begun again before anybody can look

            def grown(times: int = times) -> bool:
                return worked.exists() and len(worked.read_text()) >= times * len("yes")

            async with asyncio.timeout(15):
                await until(grown)
            server.kill()
            await server.restart()
        let_work(folder, "mine")
        assert (await person.end(run["id"]))["status"] == "completed"
        assert (await person.history(run["conversation_id"]))[-1]["content"] == "mine: yes"
        opened = await person.ask("GET", f"/v1/runs/{run['id']}/events")
        assert [event["type"] for event in opened["items"]].count("request.opened") == 1
        assert (await person.ask("GET", f"/v1/requests/{question['id']}"))["status"] == "consumed"


@pytest.mark.slow(60)
@pytest.mark.case("P43")
async def test_of_twenty_who_decide_at_once_one_is_taken(folder: Path) -> None:
    async with ServeProcess(folder / "data") as server, Person(server) as person:
        run = await talk(person, "mine")
        (question,) = await asked(person, run["id"])

        async def say(number: int) -> tuple[int, Json]:
            body = saying(question, "answer", "yes") if number % 2 else saying(question, "deny")
            answer = await person.http.post(f"/v1/requests/{question['id']}/decision", json=body)
            return answer.status_code, answer.json()

        let_work(folder, "mine")
        said = await gather(*(say(number) for number in range(20)))
        taken = {body["request"]["decision"]["decision"] for status, body in said if status == 200}
        refused = [body for status, body in said if status != 200]
        assert len(taken) == 1 and len(refused) == 10
        assert {body["code"] for body in refused} == {"already_decided"}
        assert {body["request"]["decision"]["decision"] for body in refused} == taken
        assert (await person.end(run["id"]))["attempt"] == 2
        events = await person.ask("GET", f"/v1/runs/{run['id']}/events")
        assert [event["type"] for event in events["items"]].count("request.closed") == 1


@pytest.mark.full
@pytest.mark.slow(60)
async def test_time_runs_out_while_the_server_is_down_and_the_graphs_default_counts(tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("dromos-data", "__pycache__"))
    async with ServeProcess(folder / "data", cwd=folder) as server, Person(server) as person:
        run = await talk(person, "I need a holiday")
        budget, where = await asked(person, run["id"])
        await decide(person, budget, "answer", 900)
        await decide(person, where, "deny")
        leave = (await person.seen(lambda one: "Book it" in str(one.get("data"))))["data"]["payload"][
            "request"
        ]
        server.term()
        await server.wait_exit()
        move_time(folder, expires_at=timedelta(seconds=-1))
        await server.start()
        late = await decide(person, leave, "answer", "yes", expect=409)
        assert late["code"] in ("request_closed", "already_decided")
        assert (await person.end(run["id"]))["status"] == "completed"
        assert (await person.history(run["conversation_id"]))[-1]["content"] == "Nothing is booked."
        closed = await person.ask("GET", f"/v1/requests/{leave['id']}")
        assert (closed["decided_by"], closed["decision"]["answer"]) == ("policy", "no")


@pytest.mark.slow(60)
@pytest.mark.case("P34")
@pytest.mark.case("P47")
async def test_what_a_stop_or_a_deletion_leaves_is_no_question_any_more(folder: Path) -> None:
    async with ServeProcess(folder / "data") as server, Person(server) as person:
        run = await talk(person, "mine")
        (question,) = await asked(person, run["id"])
        waits = await person.say(run["conversation_id"], "meanwhile", expect=202)
        assert waits["followup"]["status"] == "waiting"
        assert (await person.ask("GET", f"/v1/requests/{question['id']}"))["status"] == "open"
        await person.ask("POST", f"/v1/runs/{run['id']}/cancel", 202, json={})
        late = await decide(person, question, "answer", "yes", expect=409)
        assert (late["code"], late["request"]["status"], late["run"]["status"]) == (
            "request_closed",
            "void",
            "cancelled",
        )
        assert (await person.ask("GET", "/v1/requests"))["items"] == []
        again = await person.ask("POST", f"/v1/conversations/{run['conversation_id']}/continue", 201, json={})
        (asked_again,) = await asked(person, again["run"]["id"])
        await person.ask("DELETE", f"/v1/conversations/{run['conversation_id']}", 204)
        await person.ask("GET", f"/v1/requests/{asked_again['id']}", 404)
        await decide(person, asked_again, "answer", "yes", expect=404)

        following = await talk(person, "other")
        (question,) = await asked(person, following["id"])
        let_work(folder, "other")
        await decide(person, question, "answer", "no")
        assert (await person.end(following["id"]))["status"] == "completed"
