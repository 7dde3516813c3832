"""Effects of a handler through the real server: made once, told again, asked about; lost answers change nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dromos.client.adapter import AdapterRun, Answer, EffectFailed, OutcomeUnknown
from dromos.client.adapter.effects import Effect, EffectCall, once
from dromos.testing.waiting import within
from tests.client.adapter.conftest import Person, serving

pytestmark = pytest.mark.slow(60)
Json = dict[str, Any]


async def test_an_effect_is_made_once_though_the_handler_starts_from_its_beginning(
    url: str, person: Person
) -> None:
    made: list[tuple[str, str]] = []

    async def send(key: str) -> Json:
        made.append(("mail", key))
        return {"id": 7, "to": "ada"}

    async def work(run: AdapterRun) -> Answer:
        async with run.effect("note", {"text": "n"}, call_id="note", replay="keyed") as effect:
            if not effect.done:
                made.append(("note", effect.key))
                effect.result = "noted"
        sent = await run.once("send_mail", {"to": "ada"}, send, call_id="welcome")
        sure = await run.ask("Go on?", options=["yes"])
        assert (effect.result, effect.text) == ("noted", "noted")
        return Answer(f"{sent['id']} {sure.answer}")

    async with serving(url, work):
        await person.say("go")
        await person.sees(lambda view: view.run["status"] == "waiting_input")
        await person.decide(decision="answer", answer="yes")
        assert (await person.end())["status"] == "completed"
    assert (await person.said())[-1] == ("assistant", "7 yes")
    assert [what for what, _ in made] == ["note", "mail"]
    assert len({key for _, key in made}) == 2


async def test_an_effect_of_which_nobody_knows_is_asked_about_and_the_handler_goes_on_with_the_word(
    url: str, person: Person
) -> None:
    """A failed handler leaves an intent without an outcome, as a crash does; Continue begins the turn again."""
    tries: list[str] = []

    async def send(key: str) -> None:
        tries.append(key)
        raise ConnectionError("the line broke after the mail was sent")

    async def work(run: AdapterRun) -> Answer:
        return Answer(str(await run.once("send_mail", {"to": "ada"}, send, call_id="welcome")))

    async with serving(url, work):
        await person.say("go")
        assert (await person.end())["status"] == "failed"
        person.run_id = (await person.client.continue_run(person.conversation))["run"]["id"]
        view = await person.sees(lambda view: view.run["status"] == "waiting_input")
        assert view.run["reason"] == "tool_outcome_unknown"
        await person.decide(decision="mark_done", answer="it went out")
        assert (await person.end())["status"] == "completed"
    assert (await person.said())[-1] == ("assistant", "it went out")
    assert len(tries) == 1


async def test_an_effect_that_the_server_wants_leave_for_parks_the_run_until_a_person_gives_it(
    url: str, person: Person
) -> None:
    made: list[str] = []

    async def pay(key: str) -> str:
        made.append(key)
        return "paid"

    async def work(run: AdapterRun) -> Answer:
        return Answer(await run.once("guarded_pay", {"euros": 7}, pay, call_id="pay"))

    async with serving(url, work):
        await person.say("go")
        view = await person.sees(lambda view: view.run["status"] == "waiting_input")
        assert (view.run["reason"], made) == ("approval_required", [])
        await person.decide(decision="approve")
        assert (await person.end())["status"] == "completed"
    assert (await person.said())[-1] == ("assistant", "paid")
    assert len(made) == 1


async def test_a_stop_in_an_effect_is_known_as_unknown_and_one_after_it_keeps_what_came_of_it(
    url: str, person: Person
) -> None:
    begun = asyncio.Event()
    kept: list[Any] = []

    async def work(run: AdapterRun) -> None:
        async with run.effect("slow", {}, call_id="s") as effect:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                effect.result = "just in time"
                await effect.settle()
                kept.append(effect.done)
                raise

    async with serving(url, work):
        await person.say("go")
        await within(15, begun.wait(), "the effect")
        await person.client.cancel(person.run_id)
        assert (await person.end())["status"] == "cancelled"
    assert kept == [True]


class Server:
    """Answers like the server, from a script."""

    def __init__(self, *states: str, outcome: Json | None = None) -> None:
        self.states, self.outcome = list(states), outcome
        self.bodies: list[Json] = []

    async def report(self, body: Json, on_unknown: str) -> Json:
        self.bodies.append({**body, "on_unknown": on_unknown})
        state = self.states.pop(0)
        return {"key": "k", "state": state, "outcome": self.outcome if state == "done" else None}


def call(**options: Any) -> EffectCall:
    return EffectCall("send_mail", {"to": "ada"}, "c1", **options)


async def test_a_failure_that_is_known_is_raised_again_on_each_repeat() -> None:
    server = Server("done", outcome={"text": "no such person", "is_error": True, "structured": None})

    async def never(key: str) -> None:
        raise AssertionError("it was made before")

    with pytest.raises(EffectFailed, match="no such person"):
        await once(Effect(call(), server.report), never)
    assert [body["state"] for body in server.bodies] == ["intent"]


async def test_a_block_that_raises_tells_nothing_and_one_that_says_it_failed_does() -> None:
    server = Server("make", "make", "stored")
    with pytest.raises(ValueError):
        async with Effect(call(replay="keyed"), server.report):
            raise ValueError("half-way")
    async with Effect(call(), server.report) as effect:
        effect.failed, effect.text = True, "they were not at home"
    assert [body["state"] for body in server.bodies] == ["intent", "intent", "outcome"]
    assert (server.bodies[-1]["is_error"], server.bodies[-1]["text"]) == (True, "they were not at home")


async def test_who_wants_to_decide_alone_is_told_that_nobody_knows() -> None:
    server = Server("unknown")
    with pytest.raises(OutcomeUnknown):
        async with Effect(call(on_unknown="raise"), server.report):
            raise AssertionError("nothing may be called")
    assert server.bodies[0]["on_unknown"] == "raise"


async def test_a_result_that_is_no_json_is_kept_as_a_call_that_happened() -> None:
    server = Server("make", "stored")
    with pytest.raises(TypeError, match="not JSON"):
        async with Effect(call(), server.report) as effect:
            effect.result = object()
    assert (server.bodies[-1]["is_error"], server.bodies[-1]["result"]) == (True, None)


async def test_an_outcome_that_is_known_is_told_though_the_handler_is_cancelled_meanwhile() -> None:
    telling, go_on = asyncio.Event(), asyncio.Event()
    told: list[Json] = []

    async def report(body: Json, on_unknown: str) -> Json:
        if body["state"] == "outcome":
            telling.set()
            await go_on.wait()
            told.append(body)
        return {"key": "k", "state": "make", "outcome": None}

    async def handler() -> None:
        async with Effect(call(), report) as effect:
            effect.result = 1

    task = asyncio.create_task(handler())
    await within(5, telling.wait(), "the report")
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [body["result"] for body in told] == [1]
