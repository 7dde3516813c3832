"""State diagrams and a table of decisions for the guide, drawn from the rules themselves.

It reads `domain.machine` and asks `domain.effects`; it must not hold a move or a decision of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dromos.domain.effects import (
    Ask,
    Call,
    CallStatus,
    Make,
    Move,
    Recorded,
    Replay,
    ReplayClass,
    ToolPolicy,
    ToolRule,
    Word,
    arguments_digest,
    next_move,
    no_fault,
    outcome_json,
)
from dromos.domain.machine import EDGES
from dromos.domain.reasons import Reason
from dromos.domain.statuses import RunStatus

STOPS = frozenset(
    {
        Reason.CANCELLED_BY_USER,
        Reason.CANCELLED_BY_ADMIN,
        Reason.CANCELLED_BY_PARENT,
        Reason.CANCEL_REQUESTED,
        Reason.SUPERSEDED,
        Reason.RUN_DEADLINE,
        Reason.BUDGET_EXCEEDED,
    }
)
_ARGUMENTS = {"to": "a"}
_LEAVE = {"arguments_sha256": arguments_digest(_ARGUMENTS)}


def stops() -> str:
    """Every move of a run by which a stop is accepted or carried out, as text."""
    return _diagram(
        (source, edge.name, target, edge.reasons & STOPS)
        for (source, target), edge in EDGES.items()
        if edge.reasons & STOPS
    )


def asks() -> str:
    """Every move of a run into and out of waiting for a person, and the claim behind the answer."""
    return _diagram(
        (source, edge.name, target, edge.reasons & {Reason.INPUT_RECEIVED} or edge.reasons)
        for (source, target), edge in EDGES.items()
        if RunStatus.WAITING_INPUT in (source, target) or Reason.INPUT_RECEIVED in edge.reasons
    )


def _diagram(moves: Iterable[tuple[RunStatus, str, RunStatus, frozenset[Reason]]]) -> str:
    lines = [
        f"{source:<13} ──{name:─<3}──▶ {target:<13}  {' · '.join(sorted(reasons))}"
        for source, name, target, reasons in moves
    ]
    return "\n".join(["```text", *lines, "```"])


@dataclass(frozen=True, slots=True)
class _Case:
    """What is known of a call, in words and as the rules take it."""

    known: str
    replay: ReplayClass | None
    recorded: Recorded | None = None
    policy: ToolPolicy = ToolPolicy.AUTO
    words: Sequence[Word] = ()
    grant: str | None = None
    fault: Callable[[Any], str | None] = field(default=no_fault)


def _row(status: CallStatus, arguments: Any = None) -> Recorded:
    kept = arguments_digest(_ARGUMENTS if arguments is None else arguments)
    return Recorded(status, kept, 1, outcome_json("as it was", False) if status is CallStatus.DONE else None)


def _word(decision: str, kind: str = "approval", **more: Any) -> tuple[Word, ...]:
    return (Word("r", kind, decision, **{**_LEAVE, **more}),)


_ASK = ToolPolicy.ASK
_CASES = (
    _Case("nothing; policy `auto`", None),
    _Case("nothing; policy `deny`", None, policy=ToolPolicy.DENY),
    _Case("nothing; policy `ask`, nobody has spoken", None, policy=_ASK),
    _Case("nothing; policy `ask`, a grant covers it", None, policy=_ASK, grant="g"),
    _Case("a person said `approve`", None, policy=_ASK, words=_word("approve")),
    _Case("a person said `edit`", None, policy=_ASK, words=_word("edit", arguments={"to": "b"})),
    _Case("a person said `deny`", None, policy=_ASK, words=_word("deny", by="somebody")),
    _Case(
        "`approve`, but the tool or its schema has changed",
        None,
        policy=_ASK,
        words=_word("approve"),
        fault=lambda arguments: "changed",
    ),
    _Case("an intent without an outcome", ReplayClass.KEYED, _row(CallStatus.INTENT)),
    _Case("an intent without an outcome", ReplayClass.UNSAFE, _row(CallStatus.INTENT)),
    _Case(
        "the same, and a person said `retry`",
        ReplayClass.UNSAFE,
        _row(CallStatus.INTENT),
        words=_word("retry", "tool_outcome_unknown"),
    ),
    _Case("it parked itself with a question of its own", None, _row(CallStatus.PARKED)),
    _Case("an outcome", None, _row(CallStatus.DONE)),
    _Case("its key, with other arguments", None, _row(CallStatus.INTENT, {"to": "c"})),
)


def decisions() -> str:
    """What may be done with a call, as `next_move` decides it."""
    rows = []
    for case in _CASES:
        told = {
            _told(next_move(_call(case, replay), case.recorded, case.words, case.grant, case.fault))
            for replay in ([case.replay] if case.replay is not None else ReplayClass)
        }
        if len(told) != 1:
            raise ValueError(f"the class makes a difference: {case.known}")
        rows.append(f"| {case.known} | {f'`{case.replay}`' if case.replay else 'any'} | {told.pop()} |")
    return "\n".join(["| known of the call | class | what the gate does |", "|---|---|---|", *rows])


def _call(case: _Case, replay: ReplayClass) -> Call:
    return Call("k", "tool", "c", _ARGUMENTS, ToolRule(case.policy, replay))


def _told(move: Move) -> str:
    match move:
        case Replay(outcome=outcome) if outcome["is_error"]:
            return "does not call; the agent reads that the key was used with other arguments"
        case Replay():
            return "does not call; gives the outcome as it was"
        case Make():
            resting = " with the person's arguments" if move.edited else ""
            used = "; the word is used up in that transaction" if move.request_id else ""
            return f"writes the intent{used}, then calls{resting}"
        case Ask(kind=kind, replaces=replaces):
            anew = " anew, the word is void" if replaces else ""
            return f"asks a person{anew} (`{kind}`), the run waits"
        case _:
            return "does not call; writes the refusal as the outcome"
