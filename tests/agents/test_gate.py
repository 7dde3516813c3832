"""Calls of the built-in agent through the gate: asked about, remembered, never made twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dromos.domain.effects import NOT_SENT, ReplayClass, ToolPolicy
from dromos.domain.errors import LeaseLost, StoreUnavailable
from dromos.domain.reasons import Reason
from dromos.domain.requests import decision_json, opening
from dromos.domain.statuses import Verdict
from dromos.ports.agent import Finished, Parked
from dromos.ports.store import Table
from dromos.ports.tool import ToolOutcome
from dromos.tools.rules import Rule, ToolRules
from tests.agents.kit import FunctionToolbox, LiveNotes, assistant, desk, history, rows
from tests.agents.test_attempts import _again, attempt_of

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
PLAIN = ToolRules()
OWN = ToolRules(trusted=frozenset({"local"}))
ASK = ToolRules(rules={"pay": Rule(policy=ToolPolicy.ASK)})


async def begin(room: Any, toolbox: FunctionToolbox, script: str, rules: ToolRules = PLAIN) -> Any:
    await room.conversation()
    agent = assistant(room.store, toolbox)
    run, recorder = await room.run()
    attempt = attempt_of(run, recorder, agent, script)
    return agent, replace(attempt, desk=desk(recorder, rules))


async def again(room: Any, attempt: Any, number: int, rules: ToolRules = PLAIN) -> Any:
    run = await room.change(attempt.run, epoch=number, attempt=number)
    recorder = _again(attempt, number)
    return replace(attempt, run=run, recorder=recorder, live=LiveNotes(), desk=desk(recorder, rules))


async def test_a_gated_call_is_asked_about_and_its_free_siblings_run_once(room):
    toolbox = FunctionToolbox(pay=lambda a: "paid", look=lambda a: "seen")
    agent, attempt = await begin(
        room, toolbox, '!call pay {"x":1}\n!call look\n!call pay {"x":2}\n!say done', ASK
    )

    outcome = await agent.attempt(attempt)

    assert isinstance(outcome, Parked)
    assert outcome.reason is Reason.APPROVAL_REQUIRED
    assert sorted(one["arguments"]["x"] for one in outcome.requests) == [1, 2]
    assert len({one["call_key"] for one in outcome.requests}) == 2
    assert [name for name, _, _ in toolbox.calls] == ["look"]

    later = await again(room, attempt, 2, ASK)
    assert isinstance(await agent.attempt(later), Parked)
    assert [name for name, _, _ in toolbox.calls] == ["look"]


async def test_a_call_whose_outcome_is_recorded_is_not_made_again(room):
    toolbox = FunctionToolbox(pay=lambda a: "paid")
    agent, attempt = await begin(room, toolbox, '!call pay {"x":1}\n!say done')
    written = attempt.desk.journal.settle

    async def lost(key: str, outcome: Any) -> None:
        await written(key, outcome)
        raise LeaseLost("the worker was lost after the outcome was written")

    attempt.desk.journal.settle = lost
    with pytest.raises(LeaseLost):
        await agent.attempt(attempt)

    later = await again(room, attempt, 2)
    assert await agent.attempt(later) == Finished()
    assert len(toolbox.calls) == 1
    (result,) = [row for row in await history(room.store) if row["role"] == "tool"]
    assert result["content"] == "paid"


@pytest.mark.parametrize("replay", list(ReplayClass))
async def test_a_call_without_an_outcome_is_repeated_only_where_that_is_safe(room, replay):
    rules = ToolRules(rules={"pay": Rule(replay=replay)})
    toolbox = FunctionToolbox(pay=lambda a: "paid")
    agent, attempt = await begin(room, toolbox, '!call pay {"x":1}\n!say done', rules)

    def lost(arguments: Any) -> str:
        raise LeaseLost("the worker was lost in the call")

    toolbox.tools["pay"] = lost
    with pytest.raises(LeaseLost):
        await agent.attempt(attempt)
    toolbox.tools["pay"] = lambda arguments: "paid"

    outcome = await agent.attempt(await again(room, attempt, 2, rules))

    if replay is ReplayClass.UNSAFE:
        assert isinstance(outcome, Parked)
        assert outcome.reason is Reason.TOOL_OUTCOME_UNKNOWN
        (asked,) = outcome.requests
        assert asked["decisions"] == ["retry", "mark_done", "skip"]
        assert len(toolbox.calls) == 1
    else:
        assert outcome == Finished()
        first, second = (context.idempotency_key for _, _, context in toolbox.calls)
        assert first == second


async def test_an_unsafe_call_is_recorded_by_two_commits_and_one_that_reads_by_none(room):
    rules = ToolRules(rules={"look": Rule(replay=ReplayClass.READ)})
    toolbox = FunctionToolbox(pay=lambda a: "paid", look=lambda a: "seen")
    agent, attempt = await begin(room, toolbox, "!call pay\n!call look\n!say done", rules)

    assert await agent.attempt(attempt) == Finished()

    (row,) = await rows(room.store, Table.TOOL_CALLS)
    assert (row["tool"], row["status"], row["replay"], row["tries"]) == ("pay", "done", "unsafe", 1)
    assert row["outcome"] == {"text": "paid", "is_error": False, "structured": None}


async def test_a_stop_waits_for_an_unsafe_call_and_keeps_its_outcome(room):
    release, begun = asyncio.Event(), asyncio.Event()

    async def pay(arguments: Any) -> str:
        begun.set()
        await release.wait()
        return "paid"

    agent, attempt = await begin(room, FunctionToolbox(pay=pay), "!call pay\n!say done")
    task = asyncio.create_task(agent.attempt(attempt))
    await begun.wait()
    task.cancel()
    while not attempt.desk.in_flight.tools:
        raise AssertionError("the call is not waited for")
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    (row,) = await rows(room.store, Table.TOOL_CALLS)
    assert (row["status"], row["outcome"]["text"]) == ("done", "paid")
    assert attempt.unknown_calls == []


async def test_a_stop_comes_before_an_unsafe_call_that_still_waits_for_its_server(room):
    class Connecting(FunctionToolbox):
        async def call(self, name: str, arguments: Any, context: Any) -> Any:
            waits.set()
            await connected.wait()
            return await super().call(name, arguments, context)

    waits, connected = asyncio.Event(), asyncio.Event()
    toolbox = Connecting(pay=lambda a: "paid")
    agent, attempt = await begin(room, toolbox, "!call pay\n!say done")
    task = asyncio.create_task(agent.attempt(attempt))
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    connected.set()

    (row,) = await rows(room.store, Table.TOOL_CALLS)
    assert (row["status"], row["outcome"]["text"], toolbox.calls) == ("done", NOT_SENT, [])
    assert attempt.unknown_calls == []
    steps = {row["name"]: row["status"] for row in await rows(room.store, Table.RUN_STEPS, kind="tool")}
    assert steps == {"pay": "failed"}


async def decided(room: Any, attempt: Any, asked: dict[str, Any], **said: Any) -> str:
    """A request row as it stands after a person's decision on what was asked."""
    request_id = f"r-{len(await rows(room.store, Table.REQUESTS))}"
    opened = opening(asked, NOW)
    row = {
        **opened,
        "id": request_id,
        "user_id": attempt.run.user_id,
        "conversation_id": attempt.run.conversation_id,
        "run_id": attempt.run.id,
        "status": "decided",
        "version": 2,
        "opened_at": NOW,
        "decided_by": "ann",
        "decided_at": NOW,
        "decision": decision_json(said.pop("decision"), **said),
        "comment": said.get("comment"),
        "consumed_epoch": None,
    }
    await room.store.write(lambda tx: tx.put(Table.REQUESTS, row))
    return request_id


async def results(room: Any) -> list[tuple[str, str]]:
    found = [row for row in await history(room.store) if row["role"] == "tool"]
    return [(row["content"], row["status"]) for row in found]


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({"decision": Verdict.ANSWER, "answer": "blue"}, "blue"),
        (
            {"decision": Verdict.DENY, "comment": "ask later"},
            "The person does not want to answer that: ask later",
        ),
    ],
)
async def test_the_assistant_asks_its_person_and_the_answer_is_the_tools_result(room, said, read):
    agent, attempt = await begin(
        room,
        FunctionToolbox(),
        '!call ask_person {"question":"Which?","options":["red","blue"]}\n!say done',
        OWN,
    )

    outcome = await agent.attempt(attempt)

    assert isinstance(outcome, Parked)
    assert outcome.reason is Reason.QUESTION_ASKED
    (asked,) = outcome.requests
    assert (asked["kind"], asked["prompt"], asked["options"]) == ("question", "Which?", ["red", "blue"])
    request_id = await decided(room, attempt, asked, **said)
    assert await agent.attempt(await again(room, attempt, 2, OWN)) == Finished()
    assert [text for text, _ in await results(room)] == [read]
    (kept,) = await rows(room.store, Table.REQUESTS)
    assert (kept["id"], kept["status"], kept["consumed_epoch"]) == (request_id, "consumed", 2)
    (call,) = await rows(room.store, Table.TOOL_CALLS)
    assert (call["tool"], call["status"], call["request_id"]) == ("ask_person", "done", request_id)


async def test_a_question_that_was_answered_is_not_asked_again_after_a_crash_behind_the_answer(room):
    agent, attempt = await begin(
        room, FunctionToolbox(), '!call ask_person {"question":"Which?"}\n!say done', OWN
    )
    outcome = await agent.attempt(attempt)
    await decided(room, attempt, outcome.requests[0], decision=Verdict.ANSWER, answer="blue")
    lost = await again(room, attempt, 2, OWN)

    async def never(key: str, kept: Any) -> None:
        raise LeaseLost("the worker was lost before the outcome was written")

    lost.desk.journal.settle = never
    with pytest.raises(LeaseLost):
        await agent.attempt(lost)

    assert await agent.attempt(await again(room, attempt, 3, OWN)) == Finished()
    assert [text for text, _ in await results(room)] == ["blue"]


async def test_a_store_that_is_away_behind_an_intent_is_waited_for(room, monkeypatch):
    monkeypatch.setattr("dromos.tools.gate.STORE_BACKOFF", (0.001,))
    agent, attempt = await begin(
        room, FunctionToolbox(), '!call ask_person {"question":"Which?"}\n!say done', OWN
    )
    _away_at_first(attempt.desk.journal, "park", "answers")
    outcome = await agent.attempt(attempt)
    assert isinstance(outcome, Parked) and outcome.reason is Reason.QUESTION_ASKED
    await decided(room, attempt, outcome.requests[0], decision=Verdict.ANSWER, answer="blue")
    later = await again(room, attempt, 2, OWN)
    _away_at_first(later.desk.journal, "answers", "settle")

    assert await agent.attempt(later) == Finished()

    assert [text for text, _ in await results(room)] == ["blue"]


def _away_at_first(journal: Any, *names: str) -> None:
    """The store is away when one of these is asked for the first time."""

    def flaky(ask: Any) -> Any:
        away = [StoreUnavailable("the store is away")]

        async def tried(*arguments: Any) -> Any:
            if away:
                raise away.pop()
            return await ask(*arguments)

        return tried

    for name in names:
        setattr(journal, name, flaky(getattr(journal, name)))


async def test_of_a_result_that_json_does_not_take_the_text_is_kept_and_the_call_known(room):
    toolbox = FunctionToolbox(pay=lambda a: ToolOutcome("paid", structured={"receipt": 2**70}))
    agent, attempt = await begin(room, toolbox, "!call pay\n!say done")

    assert await agent.attempt(attempt) == Finished()

    (call,) = await rows(room.store, Table.TOOL_CALLS)
    assert (call["status"], call["outcome"]["structured"]) == ("done", None)
    ((told, status),) = await results(room)
    assert told.startswith("paid\n\n[The structured form of this result is left out") and status is None


async def test_a_question_with_wrong_arguments_reaches_nobody(room):
    agent, attempt = await begin(room, FunctionToolbox(), '!call ask_person {"options":[]}\n!say done')
    assert await agent.attempt(attempt) == Finished()
    ((text, status),) = await results(room)
    assert text.startswith("Nobody was asked.") and status == "error"


async def test_where_asking_is_switched_off_there_is_no_such_tool(room):
    await room.conversation()
    agent = assistant(room.store, FunctionToolbox(), ask_person=False)
    run, recorder = await room.run()
    attempt = attempt_of(run, recorder, agent, '!call ask_person {"question":"Which?"}\n!say done')
    assert await agent.attempt(replace(attempt, desk=desk(recorder))) == Finished()
    ((text, _),) = await results(room)
    assert "ask_person" in text


async def test_what_was_answered_in_a_run_that_failed_is_not_asked_again_when_it_is_continued(room):
    agent, attempt = await begin(
        room, FunctionToolbox(), '!call ask_person {"question":"Which?"}\n!say done', OWN
    )
    outcome = await agent.attempt(attempt)
    await decided(room, attempt, outcome.requests[0], decision=Verdict.ANSWER, answer="blue")
    lost = await again(room, attempt, 2, OWN)

    async def never(key: str, kept: Any) -> None:
        raise LeaseLost("the worker was lost before the outcome was written")

    lost.desk.journal.settle = never
    with pytest.raises(LeaseLost):
        await agent.attempt(lost)

    run, recorder = await room.run(resume_of=attempt.run.id)
    going_on = replace(
        attempt, run=run, input=None, recorder=recorder, live=LiveNotes(), desk=desk(recorder, OWN)
    )
    assert await agent.attempt(going_on) == Finished()
    assert [text for text, _ in await results(room)] == ["blue"]


@pytest.mark.parametrize(("model", "offered"), [("scripted", True), ("local", False)])
async def test_the_small_model_is_not_offered_to_ask_anybody(sqlite_room, model, offered):
    await sqlite_room.conversation()
    run, _ = await sqlite_room.run(model=model)
    agent = assistant(sqlite_room.store, FunctionToolbox(), model=model)
    plan = await agent._source.plan(run)
    assert ("ask_person" in plan.graph.nodes["tools"].bound.tools_by_name) is offered
