"""What must hold of a store at any moment, whatever was killed: the invariants of the lifecycle, as one function.

    I1 only allowed moves · I2 one end, the run's last event · I3 events contiguous · I4 versions and epochs only grow
    I5 an accepted stop never completes · I6 a decision is used once or void · I7 waiting exactly while asked
    I8 one live run a conversation · I9 every accepted message is somewhere, once · I10 one effect a call
    I11 snapshot and patches make the document · I12 one key, one answer · I13 each call has exactly one result

I11 and I12 are seen by clients only, and not here. It must not know how the store came to be what it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dromos.domain.machine import EDGES
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus
from dromos.ports.store import In, ReadTx, Row, Store, Table

Effect = Mapping[str, Any]


async def violations(
    store: Store,
    user_id: str,
    effects: Iterable[Effect] = (),
    *,
    settled: bool = False,
) -> list[str]:
    """What does not hold, each as a sentence that begins with the invariant's number.

    `effects` are the lines that the counting tools of `tools_server` wrote. `settled`: no run should be live any more.
    """
    return await store.read(lambda tx: _violations(tx, user_id, list(effects), settled))


def _violations(tx: ReadTx, user_id: str, effects: Sequence[Effect], settled: bool) -> list[str]:
    runs = tx.find_runs({"user_id": user_id}, order=("created_at", "id"))
    events = tx.find(Table.EVENTS, {"user_id": user_id}, order=("seq",))
    asked = tx.find(Table.REQUESTS, {"user_id": user_id}, order=("opened_at", "id"))
    user = tx.first(Table.USERS, {"id": user_id})
    first_seq = user["first_seq"] if user is not None else 1
    found = list(_numbers(events, first_seq))
    of_run: dict[str, list[Row]] = defaultdict(list)
    for event in events:
        if event["run_id"] is not None:
            of_run[event["run_id"]].append(event)
    for run in runs:
        mine = [one for one in asked if one["run_id"] == run.id]
        found += _life(run, of_run[run.id], some_are_gone=first_seq > 1)
        found += _stop(run)
        found += _questions(run, mine)
        if settled and not run.is_final:
            found.append(f"the run {run.id} is still {run.status}")
    found += _one_live(runs)
    found += _calls(tx, runs, asked)
    found += _effects(asked, effects)
    for conversation in tx.find(Table.CONVERSATIONS, {"user_id": user_id}):
        found += _followups(tx, conversation["id"])
        found += _history(tx, conversation["id"])
    return found


def _numbers(events: Sequence[Row], first_seq: int) -> Iterable[str]:
    numbers = [event["seq"] for event in events]
    if numbers and numbers[0] != first_seq:
        yield f"I3: events are kept from {first_seq}, the oldest is {numbers[0]}"
    if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        yield f"I3: event numbers are not contiguous: {numbers}"


def _life(run: Run, events: Sequence[Row], *, some_are_gone: bool) -> Iterable[str]:
    """Events that outlived their time are gone oldest first: of a run the first ones, or all."""
    if some_are_gone and not events:
        return
    told = [event["payload"]["run"] for event in events if event["type"] == "run.status"]
    before: Mapping[str, Any] | None = None
    for after in told:
        if before is not None:
            yield from _move(run, before, after)
        elif after["status"] != RunStatus.QUEUED and not some_are_gone:
            yield f"I1: the run {run.id} began as {after['status']}"
        before = after
    if before is not None and (before["status"], before["epoch"]) != (run.status, run.epoch):
        yield f"I2: the run {run.id} is {run.status}, its last event says {before['status']}"
    ends = [event for event in events if _is_end(event)]
    if len(ends) != (1 if run.is_final else 0):
        yield f"I2: the run {run.id} is {run.status} and has {len(ends)} end events"
    elif ends and events[-1] is not ends[0]:
        yield f"I2: the run {run.id} goes on after its end: {events[-1]['type']}"


def _move(run: Run, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[str]:
    """A row that stays in its status tells of it anew: what a stop waits for, a cause that changed."""
    pair = RunStatus(before["status"]), RunStatus(after["status"])
    if pair[0] != pair[1] and (pair not in EDGES or after["reason"] not in EDGES[pair].reasons):
        yield f"I1: the run {run.id} went {pair[0]} → {pair[1]} ({after['reason']})"
    if after["epoch"] < before["epoch"] or after["version"] <= before["version"]:
        yield f"I4: the run {run.id} went back from version {before['version']} to {after['version']}"


def _stop(run: Run) -> Iterable[str]:
    if run.stop is not None and run.status is RunStatus.COMPLETED:
        yield f"I5: the run {run.id} completed after a stop was accepted"


def _questions(run: Run, asked: Sequence[Row]) -> Iterable[str]:
    is_open = [one["id"] for one in asked if one["status"] == "open"]
    if bool(is_open) != (run.status is RunStatus.WAITING_INPUT):
        yield f"I7: the run {run.id} is {run.status} with {len(is_open)} open questions"
    for one in asked:
        decided = one["decision"] is not None
        if one["status"] == "consumed" and (not decided or one["consumed_epoch"] is None):
            yield f"I6: the question {one['id']} was used and never decided"
        if one["status"] == "decided" and (not decided or run.is_final):
            yield f"I6: the decision of {one['id']} is neither used nor void, its run is {run.status}"
        if one["status"] == "open" and decided:
            yield f"I6: the question {one['id']} is open and decided"


def _one_live(runs: Sequence[Run]) -> Iterable[str]:
    live = Counter(run.conversation_id for run in runs if not run.is_final)
    for conversation_id, count in live.items():
        if count > 1:
            yield f"I8: the conversation {conversation_id} has {count} live runs"


def _calls(tx: ReadTx, runs: Sequence[Run], asked: Sequence[Row]) -> Iterable[str]:
    """I4 and I6 in the journal: no intent of an epoch that never was, and each rests on one decision at most."""
    rests: Counter[str] = Counter()
    for run in runs:
        for call in tx.find(Table.TOOL_CALLS, {"run_id": run.id}):
            if call["epoch"] > run.epoch:
                yield f"I4: the call {call['key']} was begun at epoch {call['epoch']} of {run.epoch}"
            if call["request_id"] is not None:
                rests[call["request_id"]] += 1
    known = {one["id"]: one for one in asked}
    for request_id, count in rests.items():
        status = known[request_id]["status"] if request_id in known else "gone"
        if count > 1 or status != "consumed":
            yield f"I6: {count} calls rest on the question {request_id}, which is {status}"


def _effects(asked: Sequence[Row], effects: Sequence[Effect]) -> Iterable[str]:
    again = Counter(one["call_key"] for one in asked if (one["decision"] or {}).get("decision") == "retry")
    for key, count in Counter(effect["key"] for effect in effects if effect["key"] is not None).items():
        if count > 1 + again[key]:
            yield f"I10: the call {key} had {count} effects, and a person said {again[key]} times: again"


def _followups(tx: ReadTx, conversation_id: str) -> Iterable[str]:
    conversation = tx.first(Table.CONVERSATIONS, {"id": conversation_id})
    still = {"conversation_id": conversation_id, "status": In(("waiting", "held"))}
    if conversation is not None and conversation["open_followups"] != (
        count := tx.count(Table.RUN_FOLLOWUPS, still)
    ):
        yield f"I9: {count} messages wait, and the conversation says {conversation['open_followups']}"
    where = {"conversation_id": conversation_id, "hidden": False, "pending_of": None, "role": "user"}
    written = Counter(row["id"] for row in tx.find(Table.MESSAGES, where))
    for row in tx.find(Table.RUN_FOLLOWUPS, {"conversation_id": conversation_id}):
        applied = row["status"] == "applied"
        if row["status"] not in ("waiting", "held", "applied", "discarded"):
            yield f"I9: the message {row['id']} is {row['status']}"
        elif (row["message_id"] is not None) != applied or written[row["message_id"]] != applied:
            yield f"I9: the message {row['id']} is {row['status']} and {written[row['message_id']]} times said"
        if tx.first(Table.MESSAGE_REVISIONS, {"followup_id": row["id"], "num": 1}) is None:
            yield f"I9: the first text of the message {row['id']} is gone"


def _history(tx: ReadTx, conversation_id: str) -> Iterable[str]:
    """With what the next run's input would bring, each call has exactly one result, behind it.

    Where the last end was left open the next message writes the missing results, so only excess is wrong.
    """
    where = {"conversation_id": conversation_id, "hidden": False, "pending_of": None}
    rows = tx.find(Table.MESSAGES, where, order=("position", "num"))
    logged = sorted((row for row in rows if row["log_seq"] is not None), key=lambda row: int(row["log_seq"]))
    bring = [row for row in rows if row["log_seq"] is None and row["kind"] != "run"]
    if logged:  # without a thread the history itself is what the next model call gets
        bring.sort(key=lambda row: bool(row["role"] != "tool"))
    open_calls: set[str] = set()
    for row in [*logged, *bring]:
        if row["role"] == "tool":
            if row["tool_call_id"] not in open_calls:
                yield f"I13: in {conversation_id} a result without an open call: {row['tool_call_id']}"
            open_calls.discard(row["tool_call_id"])
            continue
        if row["role"] == "user" and open_calls:
            yield f"I13: in {conversation_id} a message of the person between a call and its result: {row['id']}"
        open_calls |= {call["id"] for call in row["tool_calls"] or ()}


def _is_end(event: Row) -> bool:
    return bool(event["type"] == "run.status" and event["payload"]["run"]["finished_at"] is not None)
