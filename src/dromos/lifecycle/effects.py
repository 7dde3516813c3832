"""Calls of an agent outside of this process, in the journal: intent before, outcome after, each under the run's token.

The adapter makes the call; what is known of it decides whether it may. A call of which nobody knows what became is
asked about, which gives the run back, or left to the adapter. It must not know HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dromos.domain.call_questions import question_of, unless_too_large
from dromos.domain.effects import (
    Ask,
    Call,
    CallStatus,
    Make,
    ReplayClass,
    arguments_digest,
    outcome_json,
)
from dromos.domain.errors import IdempotencyKeyReused, InvalidTransition
from dromos.domain.machine import Park
from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import RequestKind, RunStatus
from dromos.domain.text import clean_json, clean_text
from dromos.lifecycle import journal, requests
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.transition import transition
from dromos.ports.store import Row, Table
from dromos.wire.shapes import run_json


@dataclass(frozen=True, slots=True)
class Effect:
    """What the adapter says of one call; see `wire.adapter.ReportEffect`."""

    state: str  # intent | outcome
    call_id: str
    tool: str | None = None
    arguments: Mapping[str, Any] | None = None
    replay: str = ReplayClass.UNSAFE.value
    ask: bool = False
    text: str = ""
    result: Any = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """What the adapter is told. `state`: `make` (the intent is on disk, call now), `done` (this came of it, do not
    call), `unknown` (an earlier try may have happened), `ask` (a person has to allow it), `parked` (a person is asked
    about either; the token is spent)."""

    key: str
    state: str
    run: Run
    outcome: Mapping[str, Any] | None = None
    asked: tuple[Row, ...] = ()


def report(change: Change, conversation: Conversation, run: Run, effect: Effect) -> Told:
    """See `Effect`. Raises `InvalidTransition` for an intent while the run is being stopped and for an outcome
    without an intent of this attempt, `IdempotencyKeyReused` for a call id that came with another call."""
    key = journal.key_of_adapter(run, effect.call_id)
    row = change.tx.first(Table.TOOL_CALLS, {"key": key})
    if effect.state == "outcome":
        return _settle(change, run, key, row, effect)
    return _begin(change, conversation, run, key, row, effect)


def _begin(
    change: Change, conversation: Conversation, run: Run, key: str, row: Row | None, effect: Effect
) -> Told:
    if run.status is RunStatus.CANCELLING:
        raise InvalidTransition(
            "A stop was accepted for this run; no call is begun any more. End it as `cancelled`.",
            current={"run": run_json(run)},
        )
    tool = effect.tool or ""
    arguments = clean_json(dict(effect.arguments or {}))[0]
    known = (tool, arguments_digest(arguments))
    if row is not None and (row["tool"], row["arguments_sha256"]) != known:
        raise IdempotencyKeyReused(
            f"The call id `{effect.call_id}` was used in this turn for another call. Take a new id for each call."
        )
    rule = change.policy.tool_rule(tool, ReplayClass(effect.replay))
    call = Call(key, tool, effect.call_id, arguments, rule)
    move = journal.begin(change.tx, run, call, unless_too_large())
    match move:
        case Make():
            return Told(key, "make", run)
        case Ask():
            unknown = move.kind == RequestKind.TOOL_OUTCOME_UNKNOWN
            if not effect.ask:
                return Told(key, "unknown" if unknown else "ask", run)
            policy = change.policy
            asked = question_of(call, move, "adapter", policy.approval_expires, policy.approval_on_timeout)
            rows = requests.open_requests(change, run, [asked])
            reason = Reason.TOOL_OUTCOME_UNKNOWN if unknown else Reason.APPROVAL_REQUIRED
            run = transition(change, conversation, run, Park(reason))
            return Told(key, "parked", run, None, tuple(rows))
        case _:
            return Told(key, "done", run, move.outcome)


def _settle(change: Change, run: Run, key: str, row: Row | None, effect: Effect) -> Told:
    result, _ = clean_json(effect.result)
    outcome = outcome_json(clean_text(effect.text), effect.is_error, result)
    if row is not None and row["status"] == CallStatus.DONE and row["outcome"] == outcome:
        return Told(key, "done", run, outcome)
    mine = (run.id, run.epoch, CallStatus.INTENT.value)
    if row is None or (row["run_id"], row["epoch"], row["status"]) != mine:
        raise InvalidTransition(
            f"The call `{effect.call_id}` has no intent of this attempt. Report its intent first, and its outcome "
            "once.",
            current={"run": run_json(run)},
        )
    journal.settle(change.tx, run, key, outcome)
    return Told(key, "done", run, outcome)
