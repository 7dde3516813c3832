"""The check of the invariants finds each one that is broken; what finds nothing proves nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dromos.domain.reasons import Reason
from dromos.domain.statuses import Verdict
from dromos.lifecycle.contract import Policy
from dromos.ports.agent import Finished, Parked
from dromos.ports.store import Le, Row, Table, Tx
from dromos.store.opening import open_store
from dromos.testing.invariants import violations
from tests.lifecycle.world import USER, World

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A run that ended, one that waits for a person with a message behind it, and a decision that was used."""
    store = await open_store(tmp_path / "dromos.db")
    world = await World(store).begin()
    first = await world.begin_run("first")
    await world.lifecycle.end_attempt(first.fence, Finished(), None)
    second = await world.begin_run("second")
    (question,) = await world.park(second)
    await world.decide(question, Verdict.ANSWER, "this one")
    again = await world.claim()
    asked = ({"kind": "question", "prompt": "and now?"},)
    await world.lifecycle.end_attempt(again.fence, Parked(Reason.QUESTION_ASKED, asked), None)
    await world.post("later", second.run.conversation_id)
    yield world
    await store.aclose()


def told(tx: Tx, which: str, **fields: Any) -> None:
    """The event that told of this status tells something else."""
    for event in tx.find(Table.EVENTS, {"type": "run.status"}):
        if event["payload"]["run"]["status"] == which:
            run = {**event["payload"]["run"], **fields}
            where = {"user_id": event["user_id"], "seq": event["seq"]}
            tx.change(Table.EVENTS, where, {"payload": {**event["payload"], "run": run}})
            return


def last_event(tx: Tx) -> Row:
    return tx.find(Table.EVENTS, {"user_id": USER}, order=("-seq",))[0]


def copy_last_status(tx: Tx) -> None:
    event = next(
        one for one in tx.find(Table.EVENTS, {"type": "run.status"}) if one["payload"]["run"]["finished_at"]
    )
    tx.put(Table.EVENTS, {**event, "seq": last_event(tx)["seq"] + 1})


def stop_the_completed(tx: Tx) -> None:
    known = {"cause": "cancel_requested", "by": "user", "accepted_at": "2026-01-01T12:00:00.000000Z"}
    empty = dict.fromkeys(("delivered_at", "forced_at", "outcome", "waiting_for"))
    tx.change(
        Table.RUNS,
        {"status": "completed"},
        {"stop": {**known, **empty, "comment": None, "unknown_calls": []}},
    )


def result_without_call(tx: Tx) -> None:
    message = tx.find(Table.MESSAGES, {"role": "user"})[0]
    tx.put(
        Table.MESSAGES,
        {**message, "id": "odd", "num": 99, "position": 99, "role": "tool", "tool_call_id": "c"},
    )


BROKEN: list[tuple[str, Callable[[Tx], Any]]] = [
    ("I1", lambda tx: told(tx, "running", status="expired")),
    ("I2", copy_last_status),
    ("I3", lambda tx: tx.change(Table.EVENTS, {"seq": last_event(tx)["seq"]}, {"seq": 999})),
    ("I3", lambda tx: tx.remove(Table.EVENTS, {"seq": 1})),
    ("I4", lambda tx: told(tx, "completed", version=0)),
    ("I5", stop_the_completed),
    ("I6", lambda tx: tx.change(Table.REQUESTS, {"status": "open"}, {"decision": {"decision": "answer"}})),
    ("I7", lambda tx: tx.change(Table.REQUESTS, {"status": "open"}, {"status": "void"})),
    ("I9", lambda tx: tx.change(Table.RUN_FOLLOWUPS, {"status": "waiting"}, {"status": "applied"})),
    ("I13", result_without_call),
]


async def test_nothing_is_found_where_nothing_is_broken(world: World) -> None:
    assert await violations(world.store, USER) == []
    (still,) = await violations(world.store, USER, settled=True)
    assert "still waiting_input" in still


@pytest.mark.parametrize(("number", "spoil"), BROKEN, ids=[number for number, _ in BROKEN])
async def test_what_is_broken_is_found(world: World, number: str, spoil: Callable[[Tx], Any]) -> None:
    await world.store.write(spoil)
    found = await violations(world.store, USER)
    assert any(one.startswith(f"{number}:") for one in found), found


@pytest.mark.parametrize("kept", [1, 3, 5])
async def test_events_that_outlived_their_time_are_no_fault(world: World, kept: int) -> None:
    world.lifecycle.policy = Policy(event_retention_days=1)

    def age(tx: Tx) -> None:
        outdated = {"seq": Le(last_event(tx)["seq"] - kept)}
        assert tx.change(Table.EVENTS, outdated, {"at": tx.now() - timedelta(days=3)}) > 0

    await world.store.write(age)
    await world.lifecycle.sweep()
    assert len(await world.store.read(lambda tx: tx.find(Table.EVENTS, {"user_id": USER}))) == kept
    assert await violations(world.store, USER) == []


async def test_an_effect_that_happened_twice_is_found_unless_a_person_said_again(world: World) -> None:
    twice = [{"key": "k", "label": "x"}] * 2
    (found,) = await violations(world.store, USER, twice)
    assert found.startswith("I10:")
    again = {"decision": {"decision": "retry"}, "call_key": "k"}
    await world.store.write(lambda tx: tx.change(Table.REQUESTS, {"status": "open"}, again))
    assert not [one for one in await violations(world.store, USER, twice) if one.startswith("I10:")]
