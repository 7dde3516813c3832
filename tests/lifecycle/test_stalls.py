"""Adapters that are silent at their work: a sweep sees it by activity, not by renewals, and shows or ends it."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from dromos.domain.errors import OwnershipLost, RunNotActive, VersionConflict
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.stalls import Policy as WhatFollows
from dromos.domain.stalls import StallLimits, StallPolicy
from dromos.domain.statuses import RunStatus
from dromos.lifecycle import stalls
from dromos.lifecycle.adapters import SessionClaim
from dromos.lifecycle.contract import Policy
from dromos.lifecycle.documents import standing
from dromos.lifecycle.patching import PatchAsk
from dromos.ports.live import DocumentSnapshot, Patched, TextAppended
from dromos.ports.store import Store, Table, Tx
from dromos.ports.wakeup import document_topic
from tests.lifecycle.session import Session, result, said
from tests.lifecycle.world import USER, World, check_invariants

MODEL = {"kind": "model", "name": "gpt-5"}
TOOL = {"kind": "tool", "name": "search"}
Json = dict[str, Any]


async def world_of(store: Store, policy: WhatFollows = "flag", **own: StallLimits) -> World:
    """60 s for a model, 120 s for a tool; `own`: the limits of agents that have their own."""
    stall = StallPolicy(StallLimits(60, 120, policy), own)
    return await World(store, Policy(stall=stall)).begin()


async def patch(world: World, claim: SessionClaim, *changes: Json, text: str | None = None) -> Patched:
    """What the adapter shows, on top of the document as it is."""
    version = (await document(world, claim))[0]
    appended = None if text is None else TextAppended("m", 0, text)
    ask = PatchAsk(version, list(changes), appended)
    return await world.lifecycle.outside.patch_document(claim.run.id, claim.token, ask)


def put(path: str, value: Any) -> Json:
    return {"op": "replace", "path": path, "value": value}


async def at_work(world: World, current: Json | None = MODEL, session: str = "session-1") -> SessionClaim:
    """A claimed run whose adapter shows what it does."""
    claim = await Session(world, session).begin()
    await patch(world, claim, put("/current", current))
    return claim


async def silence(world: World, claim: SessionClaim, seconds: float, *, served: float = 3600) -> None:
    """The adapter showed its last sign of work so long ago, and there was a server for that long."""

    def move(tx: Tx) -> None:
        now = tx.now()
        (row,) = tx.find(Table.RUNS, {"id": claim.run.id}, columns=("quiet_since",))
        if row["quiet_since"] is not None:
            then = now - timedelta(seconds=seconds)
            tx.change(Table.RUNS, {"id": claim.run.id}, {"quiet_since": then})
        tx.change(Table.LEASES, {}, {"started_at": now - timedelta(seconds=served)})

    await world.store.write(move)


async def document(world: World, claim: SessionClaim) -> tuple[int, Json]:
    """Version and content part as devices are told them."""
    run, _, saved = await world.lifecycle.document(USER, claim.run.id)
    return standing(run, saved)


async def stall(world: World, claim: SessionClaim) -> Json | None:
    shown: Json | None = (await document(world, claim))[1]["stall"]
    return shown


# --- flag
@pytest.mark.case("P15")
@pytest.mark.parametrize(("current", "limit", "kind"), [(MODEL, 60, "model"), (TOOL, 120, "tool")])
async def test_a_silent_adapter_is_shown_as_stalled_although_it_renews(
    store: Store, current: Json, limit: int, kind: str
) -> None:
    world = await world_of(store)
    claim = await at_work(world, current)
    await silence(world, claim, limit - 1)
    assert await world.lifecycle.sweep() == 0
    assert await stall(world, claim) is None
    await silence(world, claim, limit + 1)
    await Session(world).renew(claim)
    quiet_since = (await world.run(claim.run.id)).quiet_since
    before, _ = await document(world, claim)
    world.wakeups.topics.clear()
    assert await world.lifecycle.sweep() == 1
    version, content = await document(world, claim)
    assert quiet_since is not None
    since = quiet_since.isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert (version, content["stall"]) == (before + 1, {"since": since, "kind": kind})
    assert content["current"]["name"] == current["name"]
    assert document_topic(claim.run.conversation_id) in world.wakeups.topics, "readers here hear of it too"
    run = await world.run(claim.run.id)
    assert (run.status, run.version, run.document_version) == (RunStatus.RUNNING, claim.run.version, version)
    assert await world.lifecycle.sweep() == 0, "shown once"
    await check_invariants(world)


async def test_an_adapter_that_moves_or_has_nothing_under_way_is_never_stalled(store: Store) -> None:
    world = await world_of(store)
    claim = await at_work(world)
    for sign in ("patch", "text", "activity", "steps", "messages"):
        await silence(world, claim, 59)
        match sign:
            case "patch":
                await patch(world, claim, put("/line", "still at it"))
            case "text":
                await patch(world, claim, text="word")
            case "activity":
                await Session(world).renew(claim, activity=True)
            case "steps":
                step = {"id": "s", "kind": "step", "name": "s", "status": "running"}
                await Session(world).steps(claim, step)
            case "messages":
                await Session(world).messages(claim, said("a note"))
        moved = (await world.run(claim.run.id)).quiet_since
        now = await world.store.read(lambda tx: tx.now())
        assert moved is not None and now - moved < timedelta(seconds=50), sign
        assert await world.lifecycle.sweep() == 0
    await patch(world, claim, put("/current", None))
    assert (await world.run(claim.run.id)).quiet_since is None
    await silence(world, claim, 3600)
    assert await world.lifecycle.sweep() == 0
    assert await stall(world, claim) is None


async def test_asking_whether_a_value_stands_there_is_no_sign_of_work(store: Store) -> None:
    world = await world_of(store)
    claim = await at_work(world)
    await silence(world, claim, 61)
    await patch(world, claim, {"op": "test", "path": "/line", "value": None})
    assert await world.lifecycle.sweep() == 1
    version, _ = await document(world, claim)
    again = await patch(world, claim, {"op": "test", "path": "/line", "value": None})
    assert (again.version, await stall(world, claim) is not None) == (version, True)


@pytest.mark.parametrize(
    "sign", ["patch", "text", "activity", "old activity", "steps", "messages", "no work"]
)
async def test_the_next_sign_of_work_takes_the_stall_back_and_tells_readers(store: Store, sign: str) -> None:
    world = await world_of(store)
    claim = await at_work(world)
    known, _ = await document(world, claim)
    await silence(world, claim, 61)
    await world.lifecycle.sweep()
    assert await stall(world, claim) is not None
    taken_back = put("/stall", None)
    world.wakeups.topics.clear()
    match sign:
        case "patch":
            told = await patch(world, claim, put("/line", "moving"))
            assert list(told.operations) == [put("/line", "moving"), taken_back]
        case "text":
            told = await patch(world, claim, text="moving")
            assert (list(told.operations), told.version) == ([taken_back], told.base_version + 1)
        case "activity":
            await Session(world).renew(claim, activity=True)
        case "old activity":  # it cannot know the version that the stall made
            await Session(world).renew(claim, activity=True, document_version=known)
        case "steps":
            await Session(world).steps(claim, {"id": "s", "kind": "tool", "name": "s", "status": "done"})
        case "messages":
            await Session(world).messages(claim, said("a note"))
        case "no work":
            await patch(world, claim, put("/current", None))
    assert await stall(world, claim) is None
    assert document_topic(claim.run.conversation_id) in world.wakeups.topics
    version, content = await document(world, claim)
    assert version == known + 2, "one step to show it, one to take it back"
    quiet_since = (await world.run(claim.run.id)).quiet_since
    assert (quiet_since is None) == (content["current"] is None)
    if quiet_since is not None:
        await silence(world, claim, 61)
        assert await world.lifecycle.sweep() == 1, "and it is watched again"


async def test_a_stall_that_the_adapter_shows_itself_is_its_own_to_take_back(store: Store) -> None:
    world = await world_of(store)
    claim = await at_work(world)
    own = {"since": "2026-11-29T13:46:30Z", "kind": "tool"}
    await patch(world, claim, put("/stall", own))
    await patch(world, claim, put("/line", "waiting for the disk"))
    assert await stall(world, claim) == own
    await silence(world, claim, 61)
    await world.lifecycle.sweep()
    shown = await stall(world, claim)
    assert shown is not None and shown["kind"] == "model"
    told = await patch(world, claim, put("/stall", own))
    assert list(told.operations) == [put("/stall", own)]
    assert await stall(world, claim) == own


async def test_an_adapter_that_did_not_see_the_stall_is_told_the_document_and_patches_anew(
    store: Store,
) -> None:
    world = await world_of(store)
    claim = await at_work(world)
    known, _ = await document(world, claim)
    await silence(world, claim, 61)
    await world.lifecycle.sweep()
    ask = PatchAsk(known, [put("/line", "moving")])
    with pytest.raises(VersionConflict) as refused:
        await world.lifecycle.outside.patch_document(claim.run.id, claim.token, ask)
    assert refused.value.current["version"] == known + 1
    assert refused.value.current["document"]["stall"]["kind"] == "model"


# --- whose silence counts, and from when
async def test_silence_while_no_server_was_there_to_hear_counts_for_nothing(store: Store) -> None:
    world = await world_of(store, "fail")
    claim = await at_work(world)
    await silence(world, claim, 3600, served=59)
    assert await world.lifecycle.sweep() == 0
    await silence(world, claim, 3600, served=61)
    assert await world.lifecycle.sweep() == 1
    run = await world.run(claim.run.id)
    assert "for 61 s" in (run.error_message or "")


async def test_each_agent_has_its_own_limits_and_off_means_never(store: Store) -> None:
    hasty, calm = StallLimits(5, None), StallLimits(None, None)
    world = await world_of(store, assistant=calm, other=hasty)
    claim = await at_work(world)
    await silence(world, claim, 1e6)
    assert await world.lifecycle.sweep() == 0
    quick = await world_of(store, assistant=hasty)
    await silence(quick, claim, 1e6)
    assert await quick.lifecycle.sweep() == 1, "the limits of now count, whatever they were"
    never = await World(store, Policy(stall=StallPolicy(calm))).begin()
    await patch(world, claim, put("/line", "x"))
    await silence(world, claim, 1e6)
    assert await never.lifecycle.sweep() == 0


async def test_a_run_that_waits_stops_ended_or_has_a_worker_is_not_looked_at(store: Store) -> None:
    world = await world_of(store, "fail")
    session = Session(world)
    stopping = await at_work(world)
    await world.cancel(stopping.run.id)
    parked = await at_work(world)
    await session.park(parked)
    ended = await at_work(world)
    await session.end(ended)
    for claim in (stopping, parked, ended):
        await silence(world, claim, 1e6)
    own = await world.begin_run("by a worker")
    content = {"current": MODEL}
    await world.lifecycle.save_document(own.fence, DocumentSnapshot(own.run.id, 1 << 40, content))
    assert (await world.run(own.run.id)).quiet_since is None
    assert await world.lifecycle.sweep() == 0


async def test_a_sweep_that_finds_nobody_silent_reads_no_document(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await world_of(store)
    claims = [await at_work(world) for _ in range(3)]
    flagged = await at_work(world)
    await silence(world, flagged, 61)
    assert await world.lifecycle.sweep() == 1
    looked: list[str] = []
    monkeypatch.setattr(stalls, "standing", lambda run, saved: looked.append(run.id))
    assert await world.lifecycle.sweep() == 0
    assert looked == []
    assert len(claims) == 3


async def test_of_many_silent_runs_a_sweep_takes_the_most_silent_and_the_next_one_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "MOST_ACTED_ON", 2)
    world = await world_of(store)
    claims = [await at_work(world) for _ in range(3)]
    for place, claim in enumerate(claims):
        await silence(world, claim, 100 + place)
    assert await world.lifecycle.sweep() == 2
    assert [await stall(world, claim) is not None for claim in claims] == [False, True, True]
    assert await world.lifecycle.sweep() == 1


async def test_a_run_that_moved_between_the_look_and_the_act_is_left_alone(store: Store) -> None:
    world = await world_of(store, "fail")
    claim = await at_work(world)
    await silence(world, claim, 61)
    silent = await world.store.read(lambda tx: stalls.list_silent(tx, world.lifecycle.policy))
    assert silent == [claim.run.id]
    await patch(world, claim, put("/line", "moving"))
    act = partial(stalls.act_on_silence, run_id=claim.run.id)
    assert not await world.lifecycle._reap(act)
    assert (await world.run(claim.run.id)).status is RunStatus.RUNNING


# --- fail, retry
@pytest.mark.case("P15")
async def test_the_policy_fail_ends_the_run_and_its_adapter_is_shut_out(store: Store) -> None:
    world = await world_of(store, "fail")
    claim = await at_work(world)
    await patch(world, claim, text="as far as it came")
    await silence(world, claim, 61)
    await world.lifecycle.sweep()
    run = await world.run(claim.run.id)
    assert (run.status, run.reason, run.error_code) == (RunStatus.FAILED, Reason.STALLED, ErrorCode.STALLED)
    assert "gpt-5 showed no sign of work for 61 s" in (run.error_message or "")
    with pytest.raises(RunNotActive):
        await Session(world).renew(claim)
    _, content = await document(world, claim)
    assert (content["stall"]["kind"], content["text"]["content"]) == ("model", "as far as it came")
    again = await world.resume(claim.run.conversation_id)
    assert (await Session(world).take()).run.id == again.id
    await check_invariants(world)


@pytest.mark.case("P16")
async def test_the_policy_retry_gives_the_run_back_once_and_then_ends_it(store: Store) -> None:
    world = await world_of(store, "retry")
    first = await at_work(world)
    await silence(world, first, 61)
    await world.lifecycle.sweep()
    run = await world.run(first.run.id)
    assert (run.status, run.reason, run.tries) == (RunStatus.QUEUED, Reason.STALLED, {"STALLED": 1})
    assert (run.crashes, run.wait.then if run.wait else None) == (0, "try 2 of 2")
    with pytest.raises(OwnershipLost):
        await Session(world).renew(first)
    with pytest.raises(OwnershipLost):
        await patch(world, first, put("/line", "late"))
    second = await Session(world, "session-2").take()
    assert (second.run.id, second.run.attempt) == (first.run.id, 2)
    assert (await world.run(first.run.id)).quiet_since is None, "nothing is under way yet"
    _, content = await document(world, second)
    assert (content["stall"], content["current"]) == (None, None)
    await patch(world, second, put("/current", TOOL))
    await silence(world, second, 121)
    await world.lifecycle.sweep()
    run = await world.run(first.run.id)
    assert (run.status, run.reason, run.error_code) == (RunStatus.FAILED, Reason.STALLED, ErrorCode.STALLED)
    attempts = await world.lifecycle.run_attempts(USER, run.id)
    assert [row["reason"] for row in attempts] == ["stalled", "stalled"]
    await check_invariants(world)


async def test_a_call_that_may_have_happened_is_not_made_again_by_a_retry(store: Store) -> None:
    world = await world_of(store, "retry")
    claim = await at_work(world, TOOL)
    await Session(world).messages(claim, said("paying", "c1", "c2"), result("c1"))
    await silence(world, claim, 121)
    await world.lifecycle.sweep()
    run = await world.run(claim.run.id)
    assert (run.status, run.reason) == (RunStatus.FAILED, Reason.STALLED)
    assert "What became of tool_c2 is unknown" in (run.error_message or "")
    await check_invariants(world)


@pytest.mark.parametrize(("replay", "status"), [("unsafe", RunStatus.FAILED), ("keyed", RunStatus.QUEUED)])
async def test_a_recorded_call_without_an_outcome_is_tried_again_only_under_a_key(
    store: Store, replay: str, status: RunStatus
) -> None:
    world = await world_of(store, "retry")
    claim = await at_work(world, TOOL)
    await Session(world).effect(claim, "intent", "c1", replay=replay)
    await silence(world, claim, 121)
    await world.lifecycle.sweep()
    run = await world.run(claim.run.id)
    assert (run.status, run.reason) == (status, Reason.STALLED)
    assert ("What became of send_mail is unknown" in (run.error_message or "")) == (replay == "unsafe")
    await check_invariants(world)
