"""A message opens a run; where one is live it waits its turn."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from dromos.domain.errors import ConversationBusy, Duplicate, IdempotencyKeyReused, NotFound
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus, WhenBusy
from dromos.lifecycle.contract import IdempotencyKey, PostMessage, RunOptions
from dromos.ports.agent import Finished
from dromos.ports.store import Store, Table
from dromos.ports.wakeup import WORK, user_topic
from tests.lifecycle.world import USER, Engine, World, check_invariants


@pytest.mark.promise("L9")
@pytest.mark.promise("S2")
async def test_a_message_opens_a_run_that_is_on_disk_before_any_agent(world: World) -> None:
    posted = await world.post("please look at this\nand that")
    assert posted.run is not None and posted.message is not None
    stored = await world.run(posted.run.id)
    assert stored == posted.run
    assert (stored.status, stored.reason, stored.attempt) == (RunStatus.QUEUED, "created", 0)
    message, anchor = await world.history(stored.conversation_id)
    assert (message["role"], message["status"], message["run_id"]) == ("user", "pending", stored.id)
    assert (anchor["role"], anchor["kind"], anchor["id"]) == (None, "run", stored.anchor_message_id)
    assert posted.conversation["title"] == "please look at this"
    assert set(world.wakeups.topics) >= {WORK, user_topic(USER)}


async def test_the_events_of_a_message_tell_the_message_the_anchor_and_the_run(world: World) -> None:
    posted = await world.post("hi")
    assert posted.run is not None
    events = await world.events(run_id=posted.run.id)
    assert [event["type"] for event in events] == ["message.created", "message.created", "run.status"]
    assert events[0]["payload"]["message"]["content"] == "hi"
    assert events[-1]["payload"]["run"]["status"] == "queued"
    await check_invariants(world)


@pytest.mark.promise("S6")
async def test_the_database_itself_refuses_a_second_live_run(world: World) -> None:
    posted = await world.post("one")
    assert posted.run is not None
    second = Run(
        id=world.lifecycle.ids.new(),
        user_id=USER,
        conversation_id=posted.run.conversation_id,
        agent="assistant",
        created_at=posted.run.created_at,
    )
    with pytest.raises(Duplicate) as refused:
        await world.store.write(lambda tx: tx.insert_run(second))
    assert refused.value.constraint == "uq_runs_live_conversation"


@pytest.mark.case("P73")
@pytest.mark.promise("L9")
async def test_of_twenty_messages_at_once_one_starts_and_the_others_follow_in_the_order_of_acceptance(
    world: World,
) -> None:
    first = await world.post("zero")
    conversation_id = first.conversation["id"]
    claimed = await world.claim()
    await world.lifecycle.end_attempt(claimed.fence, Finished(), None)

    posted = await asyncio.gather(*(world.post(str(n), conversation_id) for n in range(20)))
    assert sum(one.run is not None for one in posted) == 1
    waiting = await world.rows(Table.RUN_FOLLOWUPS, conversation_id=conversation_id)
    accepted = [row["content"] for row in sorted(waiting, key=lambda row: row["position"])]
    executed = []
    for _ in posted:
        claimed = await world.claim()
        await Engine(world, claimed).enter()
        (stored,) = await world.rows(Table.RUN_INPUTS, run_id=claimed.run.id)
        executed.append(stored["input"][-1]["content"])
        await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
        await check_invariants(world)
    assert executed[1:] == accepted
    history = [row["content"] for row in await world.history(conversation_id) if row["role"] == "user"]
    assert history == ["zero", *executed]


async def test_a_message_that_rejects_waiting_is_told_what_runs(world: World) -> None:
    posted = await world.post("one")
    with pytest.raises(ConversationBusy) as refused:
        await world.post("two", posted.conversation["id"], when_busy=WhenBusy.REJECT)
    assert posted.run is not None
    assert refused.value.current["run"]["id"] == posted.run.id


async def test_what_a_message_asks_of_its_run_is_kept_also_while_it_waits(world: World) -> None:
    options = RunOptions(agent="other", model="ollama:qwen3", deadline_s=60, budget={"amount": "1"})
    posted = await world.post("one", options=options)
    assert posted.run is not None
    assert (posted.run.agent, posted.run.model, posted.run.budget) == (
        "other",
        "ollama:qwen3",
        {"amount": "1"},
    )
    assert posted.run.deadline_at is not None
    later = await world.post("two", posted.conversation["id"], options=options)
    assert later.followup is not None
    claimed = await world.claim()
    await world.lifecycle.end_attempt(claimed.fence, Finished(), None)
    _, successor = await world.runs_of(posted.conversation["id"])
    assert (successor.agent, successor.model, successor.reason) == (
        "other",
        "ollama:qwen3",
        "created_from_followup",
    )


@pytest.mark.case("P130")
@pytest.mark.case("P131")
async def test_what_no_database_takes_is_replaced_and_the_answer_shows_it(world: World) -> None:
    posted = await world.post("a\x00b \ud83d c \u202e")
    assert posted.message is not None
    assert posted.message["content"] == "a\ufffdb \ufffd c \u202e"
    (stored, _) = await world.history(posted.conversation["id"])
    assert stored["content"] == posted.message["content"]


async def test_a_large_message_comes_back_as_it_was(world: World) -> None:
    text = "wörd " * 400_000
    posted = await world.post(text)
    (stored, _) = await world.history(posted.conversation["id"])
    assert stored["content"] == text


# --- idempotency


@pytest.mark.case("P70")
@pytest.mark.parametrize("in_conversation", [True, False])
async def test_twenty_repeats_at_once_have_one_effect_and_one_answer(
    world: World, in_conversation: bool
) -> None:
    conversation_id = None
    if in_conversation:
        answer = await world.lifecycle.create_conversation(
            USER, "talk", "assistant", lambda row: (201, row["id"]), None
        )
        conversation_id = answer.body
    key = IdempotencyKey("POST /messages", "k1", "hash-1")
    answers = []

    async def send() -> None:
        answers.append(
            await world.lifecycle.post_message(
                USER,
                PostMessage("once", conversation_id),
                "assistant",
                lambda posted: (201, posted.run.id if posted.run else "follow-up"),
                key,
            )
        )

    await asyncio.gather(*(send() for _ in range(20)))
    assert len({answer.body for answer in answers}) == 1
    assert sum(not answer.replayed for answer in answers) == 1
    runs = await world.store.read(lambda tx: tx.find_runs({"user_id": USER}))
    assert [run.id for run in runs] == [answers[0].body]
    await check_invariants(world)


@pytest.mark.case("P70")
async def test_a_key_belongs_to_its_body_its_user_and_its_conversation(world: World) -> None:
    await world.lifecycle.ensure_user("bert", "Bert")
    key = IdempotencyKey("POST /messages", "k1", "hash-1")
    first = await world.post("one", key=key)
    with pytest.raises(IdempotencyKeyReused):
        await world.post("changed", key=IdempotencyKey("POST /messages", "k1", "hash-2"))
    other_user = await world.post("one", user="bert", key=key)
    assert other_user.run is not None and first.run is not None
    assert other_user.run.id != first.run.id
    conversation_id = first.conversation["id"]
    in_conversation = await world.post("two", conversation_id, key=key)
    assert in_conversation.followup is not None


@pytest.mark.case("P70")
async def test_a_key_is_still_known_to_a_new_process_and_forgotten_after_its_days(store: Store) -> None:
    world = await World(store).begin()
    key = IdempotencyKey("POST /messages", "k1", "hash-1")
    await world.post("one", key=key)
    restarted = World(store)
    with pytest.raises(
        IndexError
    ):  # the stored answer was sent: the effect, which fills the list, did not happen
        await restarted.post("one", key=key)
    for age, left in ((timedelta(days=6, hours=23), 1), (timedelta(days=7, seconds=1), 0)):
        await _date_back(store, age)
        await restarted.lifecycle.sweep()
        assert len(await restarted.rows(Table.IDEMPOTENCY)) == left


async def _date_back(store: Store, age: timedelta) -> None:
    await store.write(lambda tx: tx.change(Table.IDEMPOTENCY, {}, {"created_at": tx.now() - age}))


async def test_a_refusal_is_not_stored_under_its_key(world: World) -> None:
    posted = await world.post("one")
    key = IdempotencyKey("POST /messages", "k1", "hash-1")
    for _ in range(2):
        with pytest.raises(ConversationBusy):
            await world.post("two", posted.conversation["id"], when_busy=WhenBusy.REJECT, key=key)
    assert await world.rows(Table.IDEMPOTENCY) == []


# --- conversations


async def test_a_conversation_of_another_person_is_like_one_that_never_was(world: World) -> None:
    await world.lifecycle.ensure_user("bert", "Bert")
    posted = await world.post("mine")
    assert posted.run is not None
    answers = []
    for conversation_id in (posted.conversation["id"], world.lifecycle.ids.new()):
        with pytest.raises(NotFound) as refused:
            await world.post("yours", conversation_id, user="bert")
        answers.append(str(refused.value))
        with pytest.raises(NotFound) as refused:
            await world.lifecycle.conversation("bert", conversation_id)
        answers.append(str(refused.value))
    assert len(set(answers)) == 1
    for run_id in (posted.run.id, world.lifecycle.ids.new()):
        with pytest.raises(NotFound):
            await world.lifecycle.run("bert", run_id)
        with pytest.raises(NotFound):
            await world.lifecycle.request_cancel("bert", run_id)


async def test_a_rename_is_told_and_a_look_at_what_calls_nobody_is_only_kept(world: World) -> None:
    posted = await world.post("one")
    before = await world.events()
    row, last = await world.lifecycle.change_conversation(
        USER, posted.conversation["id"], title=" New\x00 name ", seen_seq=before[-1]["seq"]
    )
    assert row["title"] == "New\ufffd name"
    assert row["seen_seq"] == before[-1]["seq"]
    assert last is not None
    changed = (await world.events())[len(before) :]
    assert [event["type"] for event in changed] == ["conversation.changed"]
    await world.lifecycle.change_conversation(USER, posted.conversation["id"], seen_seq=changed[-1]["seq"])
    assert len(await world.events()) == len(before) + 1
