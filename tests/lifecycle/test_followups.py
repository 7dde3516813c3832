"""Messages sent while a run is live: applied exactly once, in order; held after a stop; edited or taken, never both."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dromos.domain.errors import LeaseLost, NotFound, TooManyWaiting, VersionConflict
from dromos.domain.reasons import ErrorCode
from dromos.domain.runs import Fence, Run
from dromos.domain.statuses import RunStatus, WhenBusy
from dromos.lifecycle.contract import AgentPolicy, Answer, Policy, Posted, RunOptions
from dromos.ports.agent import Drained, Failed, Finished, Outcome, Take
from dromos.ports.store import Row, Store, Table, Tx
from dromos.ports.wakeup import user_topic
from tests.lifecycle.world import USER, Engine, World, check_invariants


async def statuses(world: World, conversation_id: str) -> dict[str, str]:
    rows = await world.rows(Table.RUN_FOLLOWUPS, conversation_id=conversation_id)
    return {row["content"]: row["status"] for row in rows}


async def send(world: World, followup_id: str, version: int | None = None) -> Posted:
    out: list[Posted] = []

    def encode(posted: Posted) -> tuple[int, str]:
        out.append(posted)
        return 201, "{}"

    answer = await world.lifecycle.send_followup(USER, followup_id, "assistant", encode, None, version)
    assert isinstance(answer, Answer)
    return out[-1]


async def followup(world: World, content: str) -> Row:
    (row,) = await world.rows(Table.RUN_FOLLOWUPS, content=content)
    return row


async def test_what_waited_starts_the_next_run_in_the_ends_own_transaction(world: World) -> None:
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    await world.post("two", conversation_id)
    await world.post("three", conversation_id)
    assert [row["content"] for row in await world.history(conversation_id) if row["kind"] == "text"] == [
        "one"
    ]
    await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    _, second = await world.runs_of(conversation_id)
    assert (second.status, second.reason) == (RunStatus.QUEUED, "created_from_followup")
    assert await statuses(world, conversation_id) == {"two": "applied", "three": "waiting"}
    applied, waiting = await followup(world, "two"), await followup(world, "three")
    assert (applied["run_id"], applied["message_id"]) == (second.id, second.trigger_message_id)
    assert waiting["run_id"] == second.id
    await check_invariants(world)


@pytest.mark.parametrize(
    "outcome",
    [Failed(ErrorCode.MODEL_AUTH, "wrong key"), "cancel", "lost"],
    ids=["failed", "cancelled", "lost"],
)
async def test_after_an_end_that_was_no_success_what_waited_is_held(
    world: World, outcome: Outcome | str
) -> None:
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    await world.post("two", conversation_id)
    if isinstance(outcome, str):
        await world.cancel(claimed.run.id)
        if outcome == "lost":
            await world.lose()
        else:
            await world.lifecycle.end_stopped(claimed.fence, forced=False, unknown_calls=(), document=None)
    else:
        await world.lifecycle.end_attempt(claimed.fence, outcome, None)
    assert await statuses(world, conversation_id) == {"two": "held"}
    assert len(await world.runs_of(conversation_id)) == 1
    *_, held, end = await world.events()
    assert (held["type"], held["payload"]["followup"]["status"]) == ("followup.changed", "held")
    assert end["payload"]["followups"][0]["status"] == "held"
    await check_invariants(world)


async def test_a_message_accepted_while_the_run_stops_starts_the_next_one_and_the_older_is_held(
    world: World,
) -> None:
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    await world.post("before", conversation_id)
    await world.cancel(claimed.run.id)
    await world.post("during", conversation_id)
    await world.post("during too", conversation_id)
    await world.lifecycle.end_stopped(claimed.fence, forced=False, unknown_calls=(), document=None)
    assert await statuses(world, conversation_id) == {
        "before": "held",
        "during": "applied",
        "during too": "waiting",
    }
    await check_invariants(world)


@pytest.mark.parametrize("cause", ["a person's stop", "an earlier interruption"])
async def test_a_message_that_interrupts_a_run_which_stops_already_goes_before_what_waits(
    world: World, cause: str
) -> None:
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    if cause == "a person's stop":
        await world.cancel(claimed.run.id)
        await world.post("first", conversation_id)
    else:
        await world.post("first", conversation_id, when_busy=WhenBusy.INTERRUPT)
    await world.post("last", conversation_id)
    urgent = await world.post("urgent", conversation_id, when_busy=WhenBusy.INTERRUPT)
    assert urgent.followup is not None and urgent.followup["when_busy"] == "interrupt"
    await world.lifecycle.end_stopped(claimed.fence, forced=False, unknown_calls=(), document=None)
    assert await statuses(world, conversation_id) == {
        "urgent": "applied",
        "first": "waiting",
        "last": "waiting",
    }
    view = await world.lifecycle.conversation(USER, conversation_id)
    assert [row["content"] for row in view.followups] == ["first", "last"]
    await check_invariants(world)


async def test_a_held_message_is_sent_as_a_run_of_its_own(world: World) -> None:
    posted = await world.post("one")
    assert posted.run is not None
    conversation_id = posted.conversation["id"]
    await world.post("two", conversation_id)
    await world.cancel(posted.run.id)
    held = await followup(world, "two")
    sent = await send(world, held["id"])
    assert sent.run is not None
    assert sent.run.reason == "created_from_followup"
    assert await statuses(world, conversation_id) == {"two": "applied"}
    with pytest.raises(VersionConflict):
        await send(world, held["id"])
    await check_invariants(world)


async def test_a_held_message_sent_while_a_run_is_live_waits_behind_the_others(world: World) -> None:
    posted = await world.post("one")
    assert posted.run is not None
    conversation_id = posted.conversation["id"]
    await world.post("old", conversation_id)
    await world.cancel(posted.run.id)
    await world.post("new", conversation_id)
    await world.post("newer", conversation_id)
    old = await followup(world, "old")
    with pytest.raises(VersionConflict):
        await send(world, old["id"], old["version"] - 1)
    sent = await send(world, old["id"], old["version"])
    assert sent.run is None
    order = []
    for _ in range(3):
        claimed = await world.claim()
        order.append((await world.rows(Table.RUN_INPUTS, run_id=claimed.run.id))[0]["input"][-1]["content"])
        await Engine(world, claimed).enter()
        await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    assert order == ["new", "newer", "old"]


async def test_a_discarded_message_never_runs_and_a_repeat_finds_it_discarded(world: World) -> None:
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    await world.post("two", conversation_id)
    row = await followup(world, "two")
    with pytest.raises(VersionConflict):
        await world.lifecycle.discard_followup(USER, row["id"], row["version"] + 1)
    discarded = await world.lifecycle.discard_followup(USER, row["id"], row["version"])
    assert discarded["status"] == "discarded"
    assert (await world.lifecycle.discard_followup(USER, row["id"]))["status"] == "discarded"
    await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    assert len(await world.runs_of(conversation_id)) == 1
    await check_invariants(world)


async def test_an_edit_names_the_version_it_saw(world: World) -> None:
    claimed = await world.begin_run("one")
    await world.post("two", claimed.run.conversation_id)
    row = await followup(world, "two")
    edited = await world.lifecycle.change_followup(USER, row["id"], 1, content="two, better")
    assert (edited["content"], edited["version"]) == ("two, better", 2)
    with pytest.raises(VersionConflict) as refused:
        await world.lifecycle.change_followup(USER, row["id"], 1, content="lost")
    assert refused.value.current["followup"]["content"] == "two, better"
    await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    with pytest.raises(VersionConflict, match="applied already"):
        await world.lifecycle.change_followup(USER, row["id"], 3, content="too late")


async def test_a_change_that_changes_nothing_tells_nobody_of_one(world: World) -> None:
    claimed = await world.begin_run("one")
    await world.post("two", claimed.run.conversation_id)
    row = await followup(world, "two")
    moved = await world.lifecycle.change_followup(USER, row["id"], row["version"], position=0)
    told = len(await world.rows(Table.EVENTS))
    for position in (None, 0):
        same = await world.lifecycle.change_followup(USER, row["id"], moved["version"], position=position)
        assert same["version"] == moved["version"]
    assert len(await world.rows(Table.EVENTS)) == told


async def test_every_text_that_a_waiting_message_had_is_kept(world: World) -> None:
    claimed = await world.begin_run("one")
    posted = await world.post("two", claimed.run.conversation_id)
    assert posted.followup is not None
    followup_id = posted.followup["id"]
    await world.lifecycle.change_followup(USER, followup_id, 1, content="two, better")
    await world.lifecycle.change_followup(USER, followup_id, 2, position=0)
    with pytest.raises(VersionConflict):
        await world.lifecycle.change_followup(USER, followup_id, 1, content="lost")
    await world.lifecycle.change_followup(USER, followup_id, 3, content={"at": "last"})
    await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    row, revisions = await world.lifecycle.followup(USER, followup_id)
    assert row["status"] == "applied"
    assert [(one["num"], one["content"], one["author_id"]) for one in revisions] == [
        (1, "two", USER),
        (2, "two, better", USER),
        (3, {"at": "last"}, USER),
    ]
    # what was sent is as it was at that moment; no patch of a run's document ever is a revision of its anchor
    texts = [
        one["content"] for one in await world.history(claimed.run.conversation_id) if one["kind"] == "text"
    ]
    assert texts == ["one", {"at": "last"}]
    assert len(await world.rows(Table.MESSAGE_REVISIONS)) == 3


async def test_passing_waiting_messages_on_tells_of_them_once_and_leaves_them_editable(world: World) -> None:
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    for text in ("a", "b", "c"):
        await world.post(text, conversation_id)
    before = await followup(world, "c")
    count = len(await world.events())
    await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    told = (await world.events())[count:]
    assert [one["payload"]["followup"]["content"] for one in told if one["type"] == "followup.changed"] == [
        "a"
    ]
    (start,) = [
        one for one in told if one["type"] == "run.status" and one["payload"]["run"]["status"] == "queued"
    ]
    waiting = start["payload"]["followups"]
    assert [one["content"] for one in waiting] == ["b", "c"]
    assert {one["run_id"] for one in waiting} == {start["run_id"]}
    edited = await world.lifecycle.change_followup(USER, before["id"], before["version"], content="c, better")
    assert (edited["run_id"], edited["version"]) == (start["run_id"], before["version"] + 1)


async def test_as_many_messages_wait_as_the_limit_lets(store: Store) -> None:
    world = await World(store, Policy(waiting_limit=2)).begin()
    claimed = await world.begin_run("zero")
    conversation_id = claimed.run.conversation_id
    await world.post("one", conversation_id)
    await world.post("two", conversation_id)
    for mode in (WhenBusy.QUEUE, WhenBusy.INTERRUPT, WhenBusy.STEER):
        with pytest.raises(TooManyWaiting, match="discard some"):
            await world.post("three", conversation_id, when_busy=mode)
    assert (await world.run(claimed.run.id)).status is RunStatus.RUNNING
    await world.lifecycle.discard_followup(USER, (await followup(world, "one"))["id"])
    await world.post("three", conversation_id)
    await check_invariants(world)


async def test_long_messages_wait_alone_and_a_few_at_a_time(world: World) -> None:
    conversation_id = (await world.begin_run("zero")).run.conversation_id
    await world.post("x" * (5 << 20), conversation_id)
    with pytest.raises(TooManyWaiting, match="4 MiB together"):
        await world.post("one", conversation_id)
    (row,) = await world.rows(Table.RUN_FOLLOWUPS)
    await world.lifecycle.change_followup(USER, row["id"], 1, content="shorter")
    await world.post("y" * (3 << 20), conversation_id)
    with pytest.raises(TooManyWaiting, match="4 MiB together"):
        await world.lifecycle.change_followup(USER, row["id"], 2, content="x" * (2 << 20))


async def test_messages_that_wait_can_be_put_in_another_order(world: World) -> None:
    claimed = await world.begin_run("zero")
    conversation_id = claimed.run.conversation_id
    for text in ("a", "b", "c"):
        await world.post(text, conversation_id)
    row = await followup(world, "c")
    await world.lifecycle.change_followup(USER, row["id"], row["version"], position=0)
    view = await world.lifecycle.conversation(USER, conversation_id)
    assert [one["content"] for one in view.followups] == ["c", "a", "b"]
    await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    assert await statuses(world, conversation_id) == {"c": "applied", "a": "waiting", "b": "waiting"}


async def test_another_persons_follow_up_is_not_there(world: World) -> None:
    await world.lifecycle.ensure_user("bert", "Bert")
    claimed = await world.begin_run("one")
    await world.post("two", claimed.run.conversation_id)
    row = await followup(world, "two")
    with pytest.raises(NotFound):
        await world.lifecycle.discard_followup("bert", row["id"])
    with pytest.raises(NotFound):
        await world.lifecycle.change_followup("bert", row["id"], 1, content="x")


# --- interrupting


@pytest.mark.parametrize("parked", [False, True], ids=["queued", "waiting"])
async def test_interrupting_a_run_nobody_owns_ends_it_and_starts_the_message_at_once(
    world: World, parked: bool
) -> None:
    from tests.lifecycle.test_attempts import QUESTION

    if parked:
        claimed = await world.begin_run("one")
        first = await world.lifecycle.end_attempt(claimed.fence, QUESTION, None)
    else:
        posted = await world.post("one")
        assert posted.run is not None
        first = posted.run
    await world.post("older", first.conversation_id)
    urgent = await world.post("urgent", first.conversation_id, when_busy=WhenBusy.INTERRUPT)
    assert urgent.run is not None
    ended = await world.run(first.id)
    assert (ended.status, ended.reason) == (RunStatus.INTERRUPTED, "superseded")
    assert (await followup(world, "older"))["run_id"] == urgent.run.id
    await check_invariants(world)


@pytest.mark.parametrize("by", ["owner", "reaper"])
async def test_interrupting_a_running_run_puts_the_message_first_whoever_writes_the_end(
    world: World, by: str
) -> None:
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    await world.post("older", conversation_id)
    urgent = await world.post("urgent", conversation_id, when_busy=WhenBusy.INTERRUPT)
    assert urgent.run is None
    assert (await world.run(claimed.run.id)).status is RunStatus.CANCELLING
    if by == "owner":
        await world.lifecycle.end_stopped(claimed.fence, forced=False, unknown_calls=(), document=None)
    else:
        await world.lose()
    assert (await world.run(claimed.run.id)).status is RunStatus.INTERRUPTED
    assert await statuses(world, conversation_id) == {"urgent": "applied", "older": "waiting"}
    await check_invariants(world)


async def test_a_stop_pressed_meanwhile_holds_the_superseding_message_too(world: World) -> None:
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    await world.post("urgent", conversation_id, when_busy=WhenBusy.INTERRUPT)
    await world.post("also", conversation_id)
    stopped = await world.cancel(claimed.run.id)
    assert stopped.stop is not None and stopped.stop.cause == "cancel_requested"
    await world.post("after", conversation_id)
    await world.lifecycle.end_stopped(claimed.fence, forced=False, unknown_calls=(), document=None)
    assert await statuses(world, conversation_id) == {"urgent": "held", "also": "held", "after": "applied"}
    await check_invariants(world)


# --- steering


async def taken(world: World, fence: Fence) -> list[str]:
    return [one.content for one in await world.lifecycle.steering(fence).write(lambda tx, run, take: take())]


async def test_a_message_that_steers_is_read_by_the_live_run_once_and_stands_in_its_history(
    world: World,
) -> None:
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    engine = Engine(world, claimed)
    await engine.enter()
    await world.post("later", conversation_id)
    for text in ("left", "right"):
        posted = await world.post(text, conversation_id, when_busy=WhenBusy.STEER)
        assert posted.followup is not None and posted.followup["when_busy"] == "steer"
    world.wakeups.topics.clear()
    assert await taken(world, claimed.fence) == ["left", "right"]
    assert await taken(world, claimed.fence) == []
    assert world.wakeups.topics == [user_topic(USER)]
    assert await statuses(world, conversation_id) == {
        "left": "applied",
        "right": "applied",
        "later": "waiting",
    }
    row = await followup(world, "left")
    (message,) = await world.rows(Table.MESSAGES, id=row["message_id"])
    assert (message["role"], message["run_id"], row["run_id"]) == ("user", claimed.run.id, claimed.run.id)
    told = [one["type"] for one in (await world.events())[-4:]]
    assert told == ["message.created", "followup.changed"] * 2
    await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    texts = [one["content"] for one in await world.history(conversation_id) if one["kind"] == "text"]
    assert texts == ["one", "left", "right", "later"]
    await check_invariants(world)


async def test_what_an_agent_stores_and_what_it_took_are_one_change(world: World) -> None:
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    await world.post("left", conversation_id, when_busy=WhenBusy.STEER)
    steering = world.lifecycle.steering(claimed.fence)

    def fails(tx: Tx, run: Run, take: Take) -> None:
        assert [one.content for one in take()] == ["left"]
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        await steering.write(fails)
    assert await statuses(world, conversation_id) == {"left": "waiting"}
    assert await taken(world, claimed.fence) == ["left"]
    await check_invariants(world)


async def test_whoever_no_longer_owns_the_run_takes_nothing(world: World) -> None:
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    await world.post("left", conversation_id, when_busy=WhenBusy.STEER)
    await world.lose()
    with pytest.raises(LeaseLost):
        await taken(world, claimed.fence)
    again = await world.claim()
    assert (await followup(world, "left"))["run_id"] == again.run.id, "it waits for the run, not for an owner"
    await world.cancel(again.run.id)
    with pytest.raises(LeaseLost):
        await taken(world, again.fence)
    assert await statuses(world, conversation_id) == {"left": "waiting"}
    await world.lifecycle.end_stopped(again.fence, forced=False, unknown_calls=(), document=None)
    held = await followup(world, "left")
    assert (held["status"], held["when_busy"], held["asked"]) == ("held", "queue", "steer")


async def test_a_message_that_came_too_late_to_steer_acts_as_queued_and_the_event_says_so(
    world: World,
) -> None:
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    await world.post("left", conversation_id, when_busy=WhenBusy.STEER)
    await world.post("right", conversation_id, when_busy=WhenBusy.STEER)
    await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    for text, status in (("left", "applied"), ("right", "waiting")):
        row = await followup(world, text)
        assert (row["status"], row["when_busy"], row["asked"]) == (status, "queue", "steer")
        told = [
            one
            for one in await world.events(type="followup.changed")
            if one["payload"]["followup"]["id"] == row["id"]
        ]
        last = told[-1]["payload"]["followup"]
        assert (last["status"], last["when_busy"], last["asked"], last["run_id"]) == (
            status,
            "queue",
            "steer",
            row["run_id"],
        )
    successor = await world.claim()
    assert await taken(world, successor.fence) == [], "it waits its turn"
    await check_invariants(world)


async def test_a_message_that_names_what_the_run_is_anyhow_steers_it(world: World) -> None:
    options = RunOptions(agent="assistant", model="scripted")
    started = await world.post("one", options=options)
    claimed = await world.claim()
    assert started.run is not None
    posted = await world.post("left", claimed.run.conversation_id, when_busy=WhenBusy.STEER, options=options)
    assert posted.followup is not None and posted.followup["when_busy"] == "steer"


@pytest.mark.parametrize("why", ["stops", "cannot read", "wants its own run"])
async def test_a_message_that_cannot_steer_is_queued_at_once_and_the_answer_says_so(
    store: Store, why: str
) -> None:
    deaf = {"assistant": AgentPolicy(steers=why != "cannot read")}
    world = await World(store, Policy(agents=deaf)).begin()
    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    if why == "stops":
        await world.cancel(claimed.run.id)
    options = RunOptions(model="another") if why == "wants its own run" else None
    posted = await world.post("left", conversation_id, when_busy=WhenBusy.STEER, options=options)
    assert posted.followup is not None
    assert (posted.followup["when_busy"], posted.followup["asked"]) == ("queue", "steer")
    event = (await world.events(type="followup.changed"))[-1]["payload"]["followup"]
    assert (event["when_busy"], event["asked"]) == ("queue", "steer")
    if why == "stops":
        await world.lifecycle.end_stopped(claimed.fence, forced=False, unknown_calls=(), document=None)
    else:
        assert await taken(world, claimed.fence) == []
        await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    _, successor = await world.runs_of(conversation_id)
    assert successor.model == ("another" if options else None)
    await check_invariants(world)


async def test_a_message_that_steers_waits_through_a_question_and_a_hand_back(world: World) -> None:
    from tests.lifecycle.test_attempts import QUESTION

    claimed = await world.begin_run("one")
    conversation_id = claimed.run.conversation_id
    await world.lifecycle.end_attempt(claimed.fence, Drained(), None)
    await world.post("left", conversation_id, when_busy=WhenBusy.STEER)
    claimed = await world.claim()
    await world.lifecycle.end_attempt(claimed.fence, QUESTION, None)
    await world.post("right", conversation_id, when_busy=WhenBusy.STEER)
    await world.answer_all(claimed.run.id)
    claimed = await world.claim()
    assert await taken(world, claimed.fence) == ["left", "right"]
    await check_invariants(world)


# --- exactly once, whenever it comes


@dataclass
class Sent:
    """A message and what its author and the run's owner tried with it, at any moment around a run's end."""

    text: str
    when_busy: WhenBusy
    then: str  # "", "edit", "move" or "remove"
    refused: bool = False


@pytest.mark.slow(90)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    modes=st.lists(
        st.tuples(
            st.sampled_from([WhenBusy.QUEUE, WhenBusy.STEER, WhenBusy.STEER]),
            st.sampled_from(["", "", "edit", "move", "remove"]),
            st.integers(0, 6),
        ),
        min_size=1,
        max_size=8,
    ),
    yields=st.integers(0, 6),
    fails=st.booleans(),
)
async def test_around_a_runs_end_each_accepted_message_is_consumed_once(
    world: World, modes: list[tuple[WhenBusy, str, int]], yields: int, fails: bool
) -> None:
    claimed = await world.begin_run("first")
    await Engine(world, claimed).enter()
    conversation_id = claimed.run.conversation_id
    sent = [Sent(f"message {number}", mode, then) for number, (mode, then, _) in enumerate(modes)]

    async def person(one: Sent, pause: int) -> None:
        for _ in range(pause):
            await asyncio.sleep(0)
        posted = await world.post(one.text, conversation_id, when_busy=one.when_busy)
        if posted.followup is None or not one.then:
            return
        followup_id = posted.followup["id"]
        try:
            if one.then == "remove":
                await world.lifecycle.discard_followup(USER, followup_id, 1)
            elif one.then == "edit":
                await world.lifecycle.change_followup(USER, followup_id, 1, content=f"{one.text}, better")
            else:
                await world.lifecycle.change_followup(USER, followup_id, 1, position=0)
        except VersionConflict:
            one.refused = True

    async def owner() -> None:
        steering = world.lifecycle.steering(claimed.fence)
        for _ in range(yields):
            await steering.write(lambda tx, run, take: take())
        outcome: Outcome = Failed(ErrorCode.AGENT_FAILURE, "x") if fails else Finished()
        await world.lifecycle.end_attempt(claimed.fence, outcome, None)

    persons = [person(one, pause) for one, (_, _, pause) in zip(sent, modes, strict=True)]
    await asyncio.gather(*persons[::2], owner(), *persons[1::2])
    while runs := await world.lifecycle.claim("incarnation-1", None, 1):
        (next_one,) = runs
        await world.lifecycle.compose_input(next_one.fence, _whole)
        await Engine(world, next_one).enter()
        await world.lifecycle.end_attempt(next_one.fence, Finished(), None)
    await check_invariants(world)
    rows = await world.history(conversation_id)
    said = [row["content"] for row in rows if row["role"] == "user"]
    followups = await world.rows(Table.RUN_FOLLOWUPS, conversation_id=conversation_id)
    open_ones = [row["content"] for row in followups if row["status"] in ("held", "waiting")]
    gone = [row["content"] for row in followups if row["status"] == "discarded"]
    assert all(row["status"] == "held" for row in followups if row["content"] in open_ones)
    for one in sent:
        better = f"{one.text}, better"
        places = [
            said.count(one.text) + said.count(better),
            open_ones.count(one.text) + open_ones.count(better),
        ]
        assert sum(places) + gone.count(one.text) == 1, "consumed once"
        if one.then == "remove":
            assert (one.text in said or one.text in open_ones) or not one.refused
        if one.then == "edit" and one.refused:
            assert better not in [*said, *open_ones]
    if not fails:
        assert open_ones == []
    places = [row["log_seq"] for row in rows if row["role"] == "user" and row["log_seq"] is not None]
    assert places == sorted(places), "the thread took them in the order of the history"


@pytest.mark.slow(60)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=st.integers(0, 3), beside=st.integers(1, 5), yields=st.integers(0, 4), fails=st.booleans())
async def test_around_a_runs_end_each_accepted_message_runs_once_and_in_order(
    world: World, before: int, beside: int, yields: int, fails: bool
) -> None:
    claimed = await world.begin_run("first")
    await Engine(world, claimed).enter()
    conversation_id = claimed.run.conversation_id
    for number in range(before):
        await world.post(f"before {number}", conversation_id)

    async def end() -> None:
        for _ in range(yields):
            await asyncio.sleep(0)
        outcome: Outcome = Failed(ErrorCode.AGENT_FAILURE, "x") if fails else Finished()
        await world.lifecycle.end_attempt(claimed.fence, outcome, None)

    posts = [world.post(f"beside {number}", conversation_id) for number in range(beside)]
    await asyncio.gather(*posts[: beside // 2], end(), *posts[beside // 2 :])
    while runs := await world.lifecycle.claim("incarnation-1", None, 1):
        (next_one,) = runs
        await world.lifecycle.compose_input(next_one.fence, _whole)
        await Engine(world, next_one).enter()
        await world.lifecycle.end_attempt(next_one.fence, Finished(), None)
    await check_invariants(world)
    rows = await world.history(conversation_id)
    ran = [row["content"] for row in rows if row["role"] == "user"]
    held = [
        row["content"]
        for row in await world.rows(Table.RUN_FOLLOWUPS, conversation_id=conversation_id)
        if row["status"] == "held"
    ]
    assert sorted([*ran, *held]) == sorted(
        ["first", *(f"before {n}" for n in range(before)), *(f"beside {n}" for n in range(beside))]
    )
    if not fails:
        assert held == []
        assert [text for text in ran if text.startswith("before")] == [f"before {n}" for n in range(before)]
    # the thread took them in the order of the history
    places = [row["log_seq"] for row in rows if row["role"] == "user"]
    assert places == sorted(places)


def _whole(messages: list) -> list[dict[str, str]]:  # type: ignore[type-arg]
    return [{"id": one.id, "content": one.content} for one in messages]
