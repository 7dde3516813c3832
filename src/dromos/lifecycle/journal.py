"""The journal of tool calls: intent before the call, outcome behind it, each under the run's fence.

`begin` reads what is known of a call, lets `domain.effects` decide, and writes what follows from that in the same
transaction: an intent names the decision it rests on and uses it up. A decision stays with its request until then.
Whoever makes the call, and how, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from dromos.domain import requests as rules
from dromos.domain.effects import (
    Call,
    CallStatus,
    Fault,
    Make,
    Move,
    Recorded,
    ReplayClass,
    Settle,
    Word,
    adapter_call_key,
    arguments_digest,
    given_call_id,
    next_move,
    no_fault,
)
from dromos.domain.errors import LeaseLost
from dromos.domain.runs import Run
from dromos.domain.statuses import RequestKind, RequestStatus
from dromos.ports.probe import Point
from dromos.ports.recorder import Recorder
from dromos.ports.store import In, ReadTx, Row, Table, Tx

KEPT = timedelta(days=7)
"""How long a call stays known behind its beginning, and behind the end of a run of which nothing is pending."""


class RunJournal:
    """`ports.journal.Journal` of one attempt. The point `intent` is every look that may lead to one."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def begin(self, call: Call, fault: Fault = no_fault) -> Move:
        return await self._recorder.write(lambda tx, run: begin(tx, run, call, fault), point=Point.INTENT)

    async def settle(self, key: str, outcome: Mapping[str, Any]) -> None:
        await self._recorder.write(
            lambda tx, run: settle(tx, run, key, outcome), while_cancelling=True, point=Point.OUTCOME
        )

    async def park(self, key: str, state: Any = None) -> None:
        def operation(tx: Tx, run: Run) -> None:
            tx.change(Table.TOOL_CALLS, _mine(run, key), {"status": CallStatus.PARKED.value, "state": state})

        await self._recorder.write(operation, while_cancelling=True, point=Point.PARKED)

    async def known(self, key: str) -> bool:
        fence = self._recorder.fence

        def look(tx: ReadTx) -> bool:
            if tx.first(Table.TOOL_CALLS, {"key": key}) is not None:
                return True
            said = {"call_key": key, "run_id": fence.run_id, "status": RequestStatus.DECIDED.value}
            return fence.epoch > 1 and tx.first(Table.REQUESTS, said) is not None

        return await self._recorder.read(look)

    async def answers(self, key: str) -> list[Word]:
        run_id = self._recorder.fence.run_id
        known = In((RequestStatus.DECIDED.value, RequestStatus.CONSUMED.value))
        where = {"call_key": key, "kind": RequestKind.QUESTION.value, "status": known}

        def look(tx: ReadTx) -> list[Word]:
            """Those that an earlier run of the thread used are answers to the same call."""
            found = tx.find(Table.REQUESTS, where, order=("opened_at", "id"))
            return [
                _word(row)
                for row in found
                if row["run_id"] == run_id or row["status"] != RequestStatus.DECIDED
            ]

        return await self._recorder.read(look)


def begin(tx: Tx, run: Run, call: Call, fault: Fault = no_fault) -> Move:
    """See `Journal.begin`; in a transaction that holds the run's row."""
    row = tx.first(Table.TOOL_CALLS, {"key": call.key})
    words = _words(tx, run, call.key) if run.attempt > 1 else []  # nobody was asked before it parked once
    grant_id = None if row is not None or words else _grant(tx, run, call)
    move = next_move(call, _recorded(row), words, grant_id, fault)
    match move:
        case Make():
            _write_intent(tx, run, call, row, move)
            _consume(tx, run, move.request_id)
        case Settle():
            _write_intent(tx, run, call, row, Make(call.arguments, move.request_id))
            settle(tx, run, call.key, move.outcome)
            _consume(tx, run, move.request_id)
        case _:
            pass
    return move


def settle(tx: Tx, run: Run, key: str, outcome: Mapping[str, Any]) -> None:
    """The outcome of a call whose intent is of this epoch; told once more it changes nothing, for who was not told that
    it is on disk. Raises `LeaseLost` where somebody else has the call by now."""
    kept = dict(outcome)
    values: Row = {"status": CallStatus.DONE.value, "outcome": kept, "ended_at": tx.now()}
    if tx.change(Table.TOOL_CALLS, _mine(run, key), values):
        return
    row = tx.first(Table.TOOL_CALLS, {**_mine(run, key), "status": CallStatus.DONE.value})
    if row is None or row["outcome"] != kept:
        raise LeaseLost(f"the call {key} is not this owner's any more")


def settle_for_person(tx: Tx, key: str, outcome: Mapping[str, Any]) -> None:
    """A person said what became of a call whose outcome nobody knew."""
    values: Row = {"status": CallStatus.DONE.value, "outcome": dict(outcome), "ended_at": tx.now()}
    tx.change(Table.TOOL_CALLS, {"key": key, "status": CallStatus.INTENT.value}, values)


def unknown_tools(tx: ReadTx, run_id: str, replay: Sequence[str] = ("keyed", "unsafe")) -> list[str]:
    """Tools that this run called and of which nobody knows how it went, in the order of their calls.

    A call that only reads leaves nothing to be known.
    """
    where = {"run_id": run_id, "status": CallStatus.INTENT.value, "replay": In(tuple(replay))}
    rows = tx.find(Table.TOOL_CALLS, where, order=("begun_at", "key"))
    return list(dict.fromkeys(row["tool"] for row in rows))


def is_recorded(tx: ReadTx, run: Run, tool: str) -> bool:
    """True where the journal knows how calls of this tool went in this run."""
    return bool(tx.count(Table.TOOL_CALLS, {"run_id": run.id, "tool": tool}))


def calls_by_id(tx: ReadTx, run: Run, tool_call_ids: Sequence[str]) -> dict[str, Row]:
    """What the journal has of these calls of the run's thread, by the ids that the thread has for them.

    An adapter counts its calls anew in each turn, so there they are found by the turn that the run is of.
    """
    if run.renewed_at is None:
        where: Row = {"conversation_id": run.conversation_id, "tool_call_id": In(list(tool_call_ids))}
        return {row["tool_call_id"]: row for row in tx.find(Table.TOOL_CALLS, where, order=("begun_at",))}
    keys = {name: key_of_adapter(run, name) for one in tool_call_ids for name in (one, given_call_id(one))}
    rows = {row["key"]: row for row in tx.find(Table.TOOL_CALLS, {"key": In(list(keys.values()))})}
    found = {one: rows.get(keys[one]) or rows.get(keys[given_call_id(one)]) for one in tool_call_ids}
    return {one: row for one, row in found.items() if row is not None}


def key_of_adapter(run: Run, call_id: str) -> str:
    """The key of a call that an adapter names itself."""
    return adapter_call_key(run.conversation_id, run.trigger_message_id or run.id, call_id)


def _mine(run: Run, key: str) -> Row:
    """The intent of this very ownership: epochs are counted run by run."""
    return {"key": key, "run_id": run.id, "epoch": run.epoch, "status": CallStatus.INTENT.value}


def _recorded(row: Row | None) -> Recorded | None:
    if row is None:
        return None
    return Recorded(
        CallStatus(row["status"]),
        row["arguments_sha256"],
        row["tries"],
        row["outcome"],
        row["edited"],
        row["state"],
        ReplayClass(row["replay"]),
    )


def _words(tx: ReadTx, run: Run, key: str) -> list[Word]:
    where = {"call_key": key, "run_id": run.id, "status": RequestStatus.DECIDED.value}
    return [_word(row) for row in tx.find(Table.REQUESTS, where, order=("opened_at", "id"))]


def _word(row: Row) -> Word:
    kept = row["decision"] or {}
    return Word(
        row["id"],
        row["kind"],
        kept["decision"],
        arguments=kept.get("arguments"),
        arguments_sha256=row["arguments_sha256"],
        answer=kept.get("answer"),
        comment=kept.get("comment"),
        by=row["decided_by"],
        prompt=row["prompt"],
    )


def _grant(tx: ReadTx, run: Run, call: Call) -> str | None:
    """Leave that a person gave for good, for exactly these arguments or for the tool."""
    if call.rule.policy != "ask":
        return None
    where = {
        "user_id": run.user_id,
        "conversation_id": run.conversation_id,
        "tool": call.tool,
        "revoked_at": None,
    }
    digest = arguments_digest(call.arguments)
    for row in tx.find(Table.TOOL_GRANTS, where, order=("created_at", "id")):
        if row["arguments_sha256"] in (None, digest):
            return str(row["id"])
    return None


def _write_intent(tx: Tx, run: Run, call: Call, row: Row | None, move: Make) -> None:
    values: Row = {
        "run_id": run.id,
        "epoch": run.epoch,
        "status": CallStatus.INTENT.value,
        "replay": call.rule.replay.value,
        "request_id": move.request_id,
        "grant_id": move.grant_id,
        "begun_at": tx.now(),
        "keep_until": tx.now() + KEPT,
    }
    if move.edited:
        values["edited"] = dict(move.arguments)
    if row is not None:
        if move.request_id is None:
            del values["request_id"]
        tx.change(Table.TOOL_CALLS, {"key": call.key}, {**values, "tries": row["tries"] + 1})
        return
    tx.put(
        Table.TOOL_CALLS,
        {
            "key": call.key,
            "conversation_id": run.conversation_id,
            "tool": call.tool,
            "tool_call_id": call.tool_call_id,
            "arguments": dict(call.arguments),
            "arguments_sha256": arguments_digest(call.arguments),
            "tries": 1,
            **values,
        },
    )


def _consume(tx: Tx, run: Run, request_id: str | None) -> None:
    if request_id is not None:
        where = {"id": request_id, "run_id": run.id, "status": RequestStatus.DECIDED.value}
        tx.change(Table.REQUESTS, where, rules.consumed(run.epoch))
