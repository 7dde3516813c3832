"""A handler against the real server: what it shows, says and asks arrives; stops and ends are what they mean."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dromos.client import InvalidRequest
from dromos.client.adapter import (
    AdapterRun,
    AdapterSession,
    AgentError,
    Answer,
    Current,
    Question,
)
from dromos.testing.waiting import within
from tests.client.adapter.conftest import Person, serving

pytestmark = pytest.mark.slow(60)


async def test_everything_a_handler_shows_is_seen_and_its_answer_ends_the_run(
    url: str, person: Person
) -> None:
    go_on = asyncio.Event()

    async def work(run: AdapterRun) -> Answer:
        box = run.box
        assert (run.text, run.history, run.agent, run.attempt) == ("do it", [], "plain", 1)
        box.model, box.line = "openai:gpt-5", "on it"
        box.plan = ["look", "write"]
        box.plan_item("1", "done")
        box.usage(input=10, output=2, model_calls=1)
        box.context(500, 2000)
        box.subagent("critic", title="Critic")
        box.workflow("w", current="first")
        box.background("build")
        with box.step("search", summary='{"q": 1}') as step:
            step.summary = "3 hits"
            step.usage = {"input": 7, "output": 1}
        box.current = Current("model", "gpt-5", summary="thinking")
        box.progress(1, 4, "page")
        await run.say("Hel")
        await run.say("lo 🌊")
        await run.flush()
        await go_on.wait()
        return Answer("Hello 🌊!", session_id="s-1", line="Said hello.")

    async with serving(url, work) as session:
        await person.say("do it")
        view = await person.sees(lambda view: view.text == "Hello 🌊")
        shown = view.document
        assert (shown["model"], shown["line"], shown["status"]) == ("openai:gpt-5", "on it", "running")
        assert [one["status"] for one in shown["plan"]] == ["done", "pending"]
        assert shown["context"] == {"used": 500, "limit": 2000, "percent": 25.0}
        assert (shown["usage"]["input"], shown["usage"]["model_calls"]) == (10, 1)
        assert shown["current"]["progress"] == {"value": 1, "total": 4, "message": "page"}
        assert {*shown["subagents"], *shown["workflows"], *shown["background"]} == {"critic", "w", "build"}
        assert [(one["name"], one["status"], one["summary"]) for one in shown["steps"]] == [
            ("search", "done", "3 hits")
        ]
        assert shown["owner"]["kind"] == "adapter"
        go_on.set()
        run = await person.end()
        assert (run["status"], run["reason"], run["line"]) == ("completed", "finished", "Said hello.")
        assert (run["session_id"], run["usage"]["input"]) == ("s-1", 10)
        assert await person.said() == [("user", "do it"), ("assistant", "Hello 🌊!")]
        assert (await person.document())["current"] is None
        steps = [step async for step in person.client.steps(run["id"])]
        assert [(step["name"], step["status"]) for step in steps] == [("search", "done")]
        assert session.name


async def test_a_message_that_is_stored_was_shown_to_its_end(url: str, person: Person) -> None:
    go_on = asyncio.Event()

    async def work(run: AdapterRun) -> Answer:
        await run.say("one ")
        await run.flush()
        await run.say("two")  # its quarter of a second is not over when the message is stored
        await run.message()
        await go_on.wait()
        return Answer("three")

    async with serving(url, work):
        await person.say("do it")
        await person.sees(lambda view: view.text == "one two")
        go_on.set()
        await person.end()
        assert await person.said() == [("user", "do it"), ("assistant", "one two"), ("assistant", "three")]


async def test_messages_and_the_agents_own_session_come_back_with_the_next_run(
    url: str, person: Person
) -> None:
    seen: list[Any] = []

    async def work(run: AdapterRun) -> str | None:
        seen.append((run.session_id, [(one["role"], one["content"]) for one in run.history]))
        if len(seen) > 1:
            return "second answer"
        run.session_id = "mine"
        await run.say("Looking. ")
        stored = await run.message(tool_calls=[{"id": "c1", "name": "search", "args": {"q": "x"}}])
        assert stored["content"] == "Looking. "
        await run.message("3 hits", role="tool", tool_call_id="c1", name="search")
        await run.say("Three hits.")
        return None

    async with serving(url, work):
        await person.say("first")
        assert (await person.end())["status"] == "completed"
        await person.say("second")
        assert (await person.end())["status"] == "completed"
    first = [("user", "first"), ("assistant", "Looking. "), ("tool", "3 hits"), ("assistant", "Three hits.")]
    assert seen == [(None, []), ("mine", first)]
    assert await person.said() == [*first, ("user", "second"), ("assistant", "second answer")]


async def test_a_stop_cancels_the_handler_soon_and_its_last_words_are_kept(url: str, person: Person) -> None:
    stops: list[Any] = []

    async def work(run: AdapterRun) -> None:
        step = run.box.step("long work")
        await run.say("half of ")
        try:
            await asyncio.Event().wait()
        finally:
            stops.append(run.stop)
            step.end("cancelled", summary="left in order")
            await run.say("it")

    async with serving(url, work):
        await person.say("go")
        await person.sees(lambda view: view.text == "half of ")
        clock = asyncio.get_running_loop().time
        began = clock()
        await person.client.cancel(person.run_id)
        run = await person.end()
        took = clock() - began
    assert (run["status"], run["stop"]["outcome"]) == ("cancelled", "acknowledged")
    assert run["stop"]["delivered_at"] is not None
    assert took < 5, "the stream wakes the session, long before its next sign of life"
    assert stops[0].cause == "cancel_requested" and 0 < stops[0].deadline_s <= 15 and not stops[0].is_local
    assert await person.said() == [("user", "go"), ("assistant", "half of it")]
    assert (await person.document())["steps"][0]["summary"] == "left in order"


async def test_work_that_was_done_all_the_same_is_kept_under_the_stops_own_end(
    url: str, person: Person
) -> None:
    async def work(run: AdapterRun) -> str:
        await run.say("all")
        await run.flush()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return "all of it"

    async with serving(url, work):
        await person.say("go")
        await person.sees(lambda view: view.text == "all")
        await person.client.cancel(person.run_id)
        run = await person.end()
    assert (run["status"], run["stop"]["outcome"]) == ("cancelled", "after_work_done")
    assert ("assistant", "all of it") in await person.said()


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("no such page"), "ADAPTER_ERROR", "ValueError: no such page"),
        (AgentError("the key was refused", code="MODEL_AUTH"), "MODEL_AUTH", "the key was refused"),
        (AgentError("strange", code="MINE_42"), "ADAPTER_ERROR", "MINE_42: strange"),
    ],
)
async def test_an_error_of_the_handler_ends_its_run_and_nothing_else(
    url: str, person: Person, error: Exception, code: str, message: str
) -> None:
    async def work(run: AdapterRun) -> str:
        if run.text == "fail":
            raise error
        return "fine"

    async with serving(url, work):
        await person.say("fail")
        run = await person.end()
        assert (run["status"], run["error_code"], run["error_message"]) == ("failed", code, message)
        await person.say("now")
        assert (await person.end())["status"] == "completed"


async def test_a_person_steers_the_run_and_what_it_never_reads_starts_the_next_one(
    url: str, person: Person
) -> None:
    turn, read = asyncio.Event(), asyncio.Event()
    told: list[str] = []

    async def work(run: AdapterRun) -> str:
        if run.text != "go":
            return f"answer to {run.text}"
        run.box.line = "waiting"
        await run.flush()
        await turn.wait()
        async for steer in run.steering():
            told.append(steer.text)
        read.set()
        turn.clear()
        await turn.wait()
        return "done"

    async with serving(url, work):
        await person.say("go")
        first = person.run_id
        await person.sees(lambda view: view.document["line"] == "waiting")
        await person.say("this way", when_busy="steer")
        await person.say("and that", when_busy="steer")
        turn.set()
        await within(10, read.wait(), "what the person sent")
        await person.say("too late", when_busy="steer")
        turn.set()
        assert (await person.end(run_id=first))["status"] == "completed"
        (last,) = [run async for run in person.client.runs(conversation_id=person.conversation, limit=1)]
        assert (await person.end(run_id=last["id"]))["status"] == "completed"
    assert told == ["this way", "and that"]
    assert await person.said() == [
        ("user", "go"),
        ("user", "this way"),
        ("user", "and that"),
        ("assistant", "done"),
        ("user", "too late"),
        ("assistant", "answer to too late"),
    ]


async def test_a_question_parks_the_run_and_its_answer_brings_it_back(url: str, person: Person) -> None:
    attempts: list[int] = []
    used: list[Any] = []

    async def work(run: AdapterRun) -> str:
        attempts.append(run.attempt)
        run.box.plan_item(str(run.attempt), title=f"attempt {run.attempt}")
        colour = await run.ask("Which colour?", options=["red", "blue"])
        sure = await run.approve("paint", {"colour": colour.answer})
        used.append((colour.answer, colour.applied, sure.decision, sure.applied, sure.comment))
        return f"painted {colour.answer}"

    async with serving(url, work):
        await person.say("paint it")
        await person.sees(lambda view: view.run["status"] == "waiting_input")
        await person.decide(decision="answer", answer="red")
        await person.sees(lambda view: view.run["status"] == "waiting_input" and view.run["attempt"] == 2)
        await person.decide(decision="approve", comment="go on")
        run = await person.end()
    assert (run["status"], run["crashes"]) == ("completed", 0)
    assert attempts == [1, 2, 3]
    assert used == [("red", True, "approve", False, "go on")]
    assert (await person.said())[-1] == ("assistant", "painted red")
    assert [one["title"] for one in (await person.document())["plan"]] == [
        "attempt 1",
        "attempt 2",
        "attempt 3",
    ]


async def test_several_questions_at_once_and_a_denial(url: str, person: Person) -> None:
    async def work(run: AdapterRun) -> str:
        both = await run.ask_all(
            Question("Delete a?", kind="approval", tool="delete", arguments={"name": "a"}),
            Question("Delete b?", kind="approval", tool="delete", arguments={"name": "b"}),
        )
        return " ".join("yes" if one.approved else f"no ({one.comment})" for one in both)

    async with serving(url, work):
        await person.say("clean up")
        await person.sees(lambda view: view.run["status"] == "waiting_input")
        view = await person.client.conversation(person.conversation)
        for request, verdict in zip(
            view["requests"], ({"decision": "approve"}, {"decision": "deny"}), strict=True
        ):
            body = {
                "request_version": 1,
                "arguments_sha256": request["arguments_sha256"],
                "comment": "keep it",
            }
            path = f"/v1/requests/{request['id']}/decision"
            await person.client.connection.json("POST", path, body={**body, **verdict})
        assert (await person.end())["status"] == "completed"
    assert (await person.said())[-1] == ("assistant", "yes no (keep it)")


async def test_a_stop_while_it_waits_for_a_person_ends_the_run_without_the_handler(
    url: str, person: Person
) -> None:
    calls = 0

    async def work(run: AdapterRun) -> None:
        nonlocal calls
        calls += 1
        await run.ask("Well?")

    async with serving(url, work):
        await person.say("ask me")
        await person.sees(lambda view: view.run["status"] == "waiting_input")
        await person.client.cancel(person.run_id)
        assert (await person.end())["status"] == "cancelled"
    assert calls == 1


async def test_every_fault_of_a_patch_is_told_to_the_developer(url: str, person: Person) -> None:
    faults: list[set[str]] = []

    async def work(run: AdapterRun) -> str:
        run.box.set("/status", "completed")
        run.box.set("/usage/input", -1)
        run.box.line = "still here"
        try:
            await run.flush()
        except InvalidRequest as refused:
            faults.append({fault["path"] for fault in refused.errors})
        await run.flush()
        return "fine"

    async with serving(url, work):
        await person.say("go")
        assert (await person.end())["status"] == "completed"
    assert faults == [{"/status", "/usage/input"}]


async def test_a_competing_patch_is_healed_without_losing_either(url: str, person: Person) -> None:
    turn = asyncio.Event()
    tokens: list[str] = []

    async def work(run: AdapterRun) -> str:
        run.box.plan = ["a", "b", "c"]
        tokens.append(run.token)
        await run.flush()
        await turn.wait()
        run.box.plan_item("3", "done")
        run.box.line = "mine"
        await run.say("text")
        await run.flush()
        return "done"

    async with serving(url, work):
        await person.say("go")
        await person.sees(lambda view: len(view.document["plan"]) == 3)
        known = await person.client.document(person.run_id)
        body = {
            "base_version": known["version"],
            "patch": [
                {"op": "remove", "path": "/plan/0"},
                {"op": "add", "path": "/background/theirs", "value": {"title": "t", "status": "running"}},
            ],
        }
        path = f"/v1/runs/{person.run_id}/document"
        await person.client.connection.json("PATCH", path, body=body, token=tokens[0])
        turn.set()
        assert (await person.end())["status"] == "completed"
    document = await person.document()
    assert [(one["id"], one["status"]) for one in document["plan"]] == [("2", "pending"), ("3", "done")]
    assert "theirs" in document["background"]
    assert document["text"]["content"] == "text"


async def test_parallel_tools_with_text_in_between_lead_to_one_document(url: str, person: Person) -> None:
    names = ["a", "b", "c"]

    async def tool(run: AdapterRun, name: str) -> None:
        with run.box.step(name) as step:
            run.box.subagent(name, title=f"helper {name}")
            for number in range(10):
                run.box.set(f"/subagents/{name}/current", f"{number} of 10")
                await run.say(f"{name}{number} ")
                await run.flush() if number % 4 == 0 else await asyncio.sleep(0.01)
            run.box.subagent(name, status="completed")
            step.summary = "all 10"

    async def work(run: AdapterRun) -> None:
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(tool(run, name))
        await run.flush()

    async with serving(url, work):
        await person.say("all three")
        view = await person.sees(lambda view: view.ended)
    document = await person.document()
    shown = view.document
    assert (shown["steps"], shown["subagents"]) == (document["steps"], document["subagents"])
    assert sorted((one["name"], one["status"], one["summary"]) for one in document["steps"]) == [
        (name, "done", "all 10") for name in names
    ]
    assert {one["current"] for one in document["subagents"].values()} == {"9 of 10"}
    words = document["text"]["content"].split()
    assert sorted(words) == sorted(f"{name}{number}" for name in names for number in range(10))
    assert view.text == document["text"]["content"]


async def test_no_more_runs_than_slots_are_taken_and_each_goes_its_own_way(url: str) -> None:
    at_once, most = 0, 0
    both = asyncio.Event()

    async def work(run: AdapterRun) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == 2:
            both.set()
        await both.wait()
        await asyncio.sleep(0.05)
        at_once -= 1
        return run.text

    people = [Person(url) for _ in range(5)]
    async with serving(url, work, slots=2):
        for number, one in enumerate(people):
            await one.say(f"number {number}")
        for number, one in enumerate(people):
            assert (await one.end())["status"] == "completed"
            assert (await one.said())[-1] == ("assistant", f"number {number}")
            await one.client.aclose()
    assert most == 2


async def test_runs_can_be_taken_one_by_one_too(url: str, person: Person) -> None:
    async with AdapterSession(url, agents=["plain"], slots=1) as session:
        await person.say("one")
        async for run in session.runs():
            async with run:
                run.result = Answer(f"took {run.text}")
            break
        assert (await person.end())["status"] == "completed"
        await person.say("two")
        async for run in session.runs():
            async with run:
                raise AgentError("not today")
            break
        assert (await person.end())["status"] == "failed"


async def test_an_agent_that_the_server_does_not_know_is_told_at_once(url: str) -> None:
    async with AdapterSession(url, agents=["nobody"]) as session:
        with pytest.raises(InvalidRequest, match="nobody"):
            await within(10, session.serve(lambda run: asyncio.sleep(0)), "the refusal")


async def test_closing_waits_for_runs_under_way_and_takes_no_new_ones(url: str, person: Person) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(run: AdapterRun) -> str:
        begun.set()
        await go_on.wait()
        return "in time"

    async with AdapterSession(url, agents=["plain"]) as session:
        serving_task = asyncio.create_task(session.serve(work))
        await person.say("go")
        await within(10, begun.wait(), "the run")
        closing = asyncio.create_task(session.aclose())
        await within(5, serving_task, "the end of claiming")
        go_on.set()
        await within(10, closing, "the end of the session")
    assert (await person.end())["status"] == "completed"
