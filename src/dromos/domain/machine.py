"""The life of a run, whole, as data and one function.

A run waits (`queued`), is owned by exactly one worker incarnation or adapter session (`running`), is parked on a
person's answer (`waiting_input`), or has an owner that was told to stop (`cancelling`). It ends once, in one of
five final statuses. `EDGES` is every move there is: 17 rows, 18 pairs of statuses beside the creation (the last
row has three ends). `decide` takes a run and a command and gives the run as it will be, or a refusal. Nothing
else in the product may set a status; the lifecycle compares `(status, version, epoch)` and swaps.

The epoch rises at every claim and whenever ownership ends, so a writer that held an older one can write nothing;
a stop that was accepted keeps it, because its owner still has to put things in order.

The diagram and the tables of the guide are generated from this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, assert_never

from dromos.domain.errors import AlreadyEnded, InvalidTransition
from dromos.domain.reasons import REASON_OF_CODE, ErrorCode, Reason
from dromos.domain.runs import Run, Stop, Wait
from dromos.domain.statuses import OwnerKind, Recovery, RunStatus

Q, R, W, X = RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING_INPUT, RunStatus.CANCELLING
COMPLETED, FAILED, CANCELLED = RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED
INTERRUPTED, EXPIRED = RunStatus.INTERRUPTED, RunStatus.EXPIRED

MAX_CRASHES = 3
"""After so many lost owners a run fails instead of being taken over again."""
RECLAIM_DELAYS = (0.0, 2.0)
"""Seconds before the first, second… new claim after a crash."""

_CANCELLED_BY = frozenset({Reason.CANCELLED_BY_USER, Reason.CANCELLED_BY_ADMIN, Reason.CANCELLED_BY_PARENT})


@dataclass(frozen=True, slots=True)
class Edge:
    """One row of the table: its name in the guide, who may take it, and the reasons it may carry."""

    name: str
    by: str
    reasons: frozenset[Reason]


def _edge(name: str, by: str, *reasons: Reason) -> Edge:
    return Edge(name, by, frozenset(reasons))


CREATION = _edge(
    "T1",
    "client, follow-up, parent run",
    Reason.CREATED,
    Reason.CREATED_FROM_FOLLOWUP,
    Reason.RETRY_OF,
    Reason.RESUME_OF,
    Reason.CHILD_OF,
)

EDGES: dict[tuple[RunStatus, RunStatus], Edge] = {
    (Q, R): _edge("T2", "worker, adapter", Reason.CLAIMED, Reason.RECLAIMED, Reason.INPUT_RECEIVED),
    (Q, CANCELLED): Edge("T3", "user, admin, parent", _CANCELLED_BY),
    (Q, INTERRUPTED): _edge("T4", "conversation policy, admin", Reason.SUPERSEDED, Reason.AGENT_REMOVED),
    (Q, EXPIRED): _edge("T5", "reaper", Reason.QUEUE_DEADLINE, Reason.RUN_DEADLINE),
    (Q, FAILED): _edge(
        "T6", "worker, reaper", Reason.ATTEMPTS_EXHAUSTED, Reason.AGENT_UNAVAILABLE, Reason.CONFIG_INVALID
    ),
    (R, Q): _edge(
        "T7",
        "reaper, worker",
        Reason.OWNER_LOST,
        Reason.DRAINED,
        Reason.RETRY_BACKOFF,
        Reason.RATE_LIMITED,
        Reason.STALLED,
    ),
    (R, W): _edge(
        "T8",
        "worker, adapter",
        Reason.APPROVAL_REQUIRED,
        Reason.QUESTION_ASKED,
        Reason.TOOL_OUTCOME_UNKNOWN,
    ),
    (R, X): _edge(
        "T9",
        "user, admin, parent, policy, reaper, budget guard",
        Reason.CANCEL_REQUESTED,
        Reason.SUPERSEDED,
        Reason.RUN_DEADLINE,
        Reason.BUDGET_EXCEEDED,
    ),
    (R, COMPLETED): _edge("T10", "worker, adapter", Reason.FINISHED),
    (R, FAILED): _edge(
        "T11",
        "worker, adapter, reaper",
        Reason.AGENT_ERROR,
        Reason.MODEL_ERROR,
        Reason.TOOL_ERROR,
        Reason.ADAPTER_ERROR,
        Reason.STALLED,
        Reason.ATTEMPTS_EXHAUSTED,
    ),
    (R, INTERRUPTED): _edge(
        "T12", "reaper, worker", Reason.OWNER_LOST, Reason.ADAPTER_DISCONNECTED, Reason.DRAINED
    ),
    (W, Q): _edge("T13", "person, policy", Reason.DECISION_RECORDED, Reason.DEFAULT_DECISION),
    (W, CANCELLED): Edge("T14", "user, admin, parent", _CANCELLED_BY),
    (W, EXPIRED): _edge("T15", "reaper", Reason.INPUT_DEADLINE, Reason.RUN_DEADLINE),
    (W, INTERRUPTED): _edge("T16", "conversation policy", Reason.SUPERSEDED),
    (X, CANCELLED): _edge("T17", "worker, adapter, reaper", Reason.CANCEL_REQUESTED),
    (X, INTERRUPTED): _edge("T17", "worker, adapter, reaper", Reason.SUPERSEDED, Reason.BUDGET_EXCEEDED),
    (X, EXPIRED): _edge("T17", "worker, adapter, reaper", Reason.RUN_DEADLINE),
}

END_OF_CAUSE: dict[Reason, RunStatus] = {
    Reason.CANCEL_REQUESTED: CANCELLED,
    Reason.SUPERSEDED: INTERRUPTED,
    Reason.BUDGET_EXCEEDED: INTERRUPTED,
    Reason.RUN_DEADLINE: EXPIRED,
}
"""The only end a `cancelling` run can reach, by the cause of its stop."""

SETTLED_EDGES = frozenset({"T3", "T4", "T5", "T14", "T15", "T16", "T17"})
"""Ends by these rows put the conversation in order in their own transaction; the other ends stay open for Continue."""


_OPEN_ENDS = frozenset(
    (target, reason)
    for (_, target), edge in EDGES.items()
    if target.is_final and target is not COMPLETED and edge.name not in SETTLED_EDGES
    for reason in edge.reasons
)


def ended_open(run: Run) -> bool:
    """True where the run ended by T6, T11 or T12: nothing was put in order, its pending step can be resumed."""
    return (run.status, run.reason) in _OPEN_ENDS


def allowed(source: RunStatus, target: RunStatus) -> bool:
    """True if the table has a row from `source` to `target`."""
    return (source, target) in EDGES


# --- commands -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """An owner takes a queued run whose time has come (T2)."""

    owner_id: str
    owner_kind: OwnerKind = OwnerKind.WORKER


@dataclass(frozen=True, slots=True)
class Cancel:
    """A person, an admin or the parent run wants it stopped (T3, T9, T14). `by` is user | admin | parent."""

    by: str = "user"
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Supersede:
    """A newer message takes the conversation (T4, T9, T16)."""


@dataclass(frozen=True, slots=True)
class WithdrawAgent:
    """The agent of a queued run was removed by an admin (T4)."""


@dataclass(frozen=True, slots=True)
class Expire:
    """A deadline passed (T5, T9, T15): queue_deadline, input_deadline or run_deadline."""

    deadline: Reason


@dataclass(frozen=True, slots=True)
class RefuseWork:
    """The run cannot be started at all (T6): agent_unavailable or config_invalid."""

    reason: Reason
    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class HandBack:
    """The owner gives the run back (T7), or ends it where recovery is `ask` and it drains (T12)."""

    reason: Reason  # drained | retry_backoff | rate_limited | stalled
    not_before: datetime | None = None
    wait: Wait | None = None
    tries: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class OwnerLost:
    """The owner is gone (T7, T11, T12, T17). Raises the count of crashes first."""

    reason: Reason = Reason.OWNER_LOST


@dataclass(frozen=True, slots=True)
class Park:
    """At least one request is open (T8)."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Resume:
    """The last open request was decided (T13)."""

    reason: Reason = Reason.DECISION_RECORDED


@dataclass(frozen=True, slots=True)
class ExceedBudget:
    """The budget guard stops the run (T9)."""


@dataclass(frozen=True, slots=True)
class Complete:
    """The agent is done (T10), or was done before it saw the stop (T17, `after_work_done`).

    `unknown_calls`: tools whose outcome nobody told, for the stop to name.
    """

    line: str | None = None
    session_id: str | None = None
    unknown_calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """The agent cannot go on (T11); while cancelling the stop decides the end (T17)."""

    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The owner, or the reaper for it, reports that a stop is carried out (T17)."""

    outcome: str = "acknowledged"  # acknowledged | forced | after_work_done
    unknown_calls: tuple[str, ...] = ()


Command = (
    Claim
    | Cancel
    | Supersede
    | WithdrawAgent
    | Expire
    | RefuseWork
    | HandBack
    | OwnerLost
    | Park
    | Resume
    | ExceedBudget
    | Complete
    | Fail
    | Stopped
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a command leads to. `edge` is None where the run stays as it is or only its stop changed."""

    run: Run
    edge: Edge | None
    changed: bool = True

    @property
    def settles(self) -> bool:
        """True where the end's transaction must put the conversation in order."""
        return self.edge is not None and self.run.is_final and self.edge.name in SETTLED_EDGES


def decide(run: Run, command: Command, now: datetime) -> Decision:
    """The run after `command` at `now` (the database's time).

    Raises `AlreadyEnded` or `InvalidTransition`, each with the current status; the caller adds the run itself.
    """
    match command:
        case Claim():
            return _claim(run, command, now)
        case Cancel():
            return _cancel(run, command, now)
        case Supersede():
            return _stop(run, Reason.SUPERSEDED, "policy", now)
        case WithdrawAgent():
            return _move(run, INTERRUPTED, Reason.AGENT_REMOVED, now)
        case Expire(deadline=deadline):
            if run.status is R:
                return _stop(run, deadline, "reaper", now)
            return _move(run, EXPIRED, deadline, now)
        case ExceedBudget():
            return _stop(run, Reason.BUDGET_EXCEEDED, "budget guard", now)
        case RefuseWork(reason=reason, code=code, message=message):
            return _move(run, FAILED, reason, now, error_code=code, error_message=message)
        case HandBack():
            return _hand_back(run, command, now)
        case OwnerLost(reason=reason):
            return _owner_lost(run, reason, now)
        case Park(reason=reason):
            return _move(run, W, reason, now, wait=Wait("input"))
        case Resume(reason=reason):
            return _move(run, Q, reason, now, wait=None, not_before=None)
        case Complete(line=line, session_id=session_id, unknown_calls=unknown_calls):
            if run.status is X:
                return _stopped(run, Stopped("after_work_done", unknown_calls), now, line=line)
            return _move(
                run, COMPLETED, Reason.FINISHED, now, line=line, session_id=session_id or run.session_id
            )
        case Fail(code=code, message=message):
            if run.status is X:
                return _stopped(run, Stopped(), now)
            return _move(run, FAILED, REASON_OF_CODE[code], now, error_code=code, error_message=message)
        case Stopped():
            return _stopped(run, command, now)
        case _:
            assert_never(command)


def _move(run: Run, target: RunStatus, reason: Reason, now: datetime, **changes: Any) -> Decision:
    """Take the edge to `target`, or refuse. All bookkeeping that every edge shares is here."""
    edge = EDGES.get((run.status, target))
    if edge is None or reason not in edge.reasons:
        if run.is_final:
            raise AlreadyEnded(f"The run ended as {run.status}; start a new one or continue it.")
        raise InvalidTransition(f"A run that is {run.status} cannot become {target} ({reason}).")
    values: dict[str, Any] = {"status": target, "reason": reason, "version": run.version + 1} | changes
    if target.is_final:
        values |= {"finished_at": now, "wait": None, "not_before": None}
    if run.status.is_owned and not target.is_owned:
        values |= {"owner_id": None, "owner_kind": None, "epoch": run.epoch + 1}
    return Decision(replace(run, **values), edge)


def _claim(run: Run, command: Claim, now: datetime) -> Decision:
    if run.status is Q and run.not_before is not None and run.not_before > now:
        raise InvalidTransition("The run waits for its time.")
    if run.reason in (Reason.DECISION_RECORDED, Reason.DEFAULT_DECISION):
        reason = Reason.INPUT_RECEIVED
    else:
        reason = Reason.RECLAIMED if run.attempt else Reason.CLAIMED
    return _move(
        run,
        R,
        reason,
        now,
        owner_id=command.owner_id,
        owner_kind=command.owner_kind,
        epoch=run.epoch + 1,
        attempt=run.attempt + 1,
        started_at=run.started_at or now,
        wait=None,
        not_before=None,
    )


def _cancel(run: Run, command: Cancel, now: datetime) -> Decision:
    by_reason = {
        "user": Reason.CANCELLED_BY_USER,
        "admin": Reason.CANCELLED_BY_ADMIN,
        "parent": Reason.CANCELLED_BY_PARENT,
    }[command.by]
    accepted = run.stop is not None and run.stop.cause is Reason.CANCEL_REQUESTED
    if run.is_final and accepted:
        return Decision(run, None, changed=False)
    stop = Stop(Reason.CANCEL_REQUESTED, command.by, now, command.comment)
    if run.status is R:
        return _move(run, X, Reason.CANCEL_REQUESTED, now, stop=stop)
    if run.status is X:
        if accepted or run.stop is None:
            return Decision(run, None, changed=False)
        # A person's stop outranks a policy's: the cause changes once, the time of acceptance stays.
        stop = replace(run.stop, cause=Reason.CANCEL_REQUESTED, by=command.by, comment=command.comment)
        return Decision(replace(run, stop=stop, version=run.version + 1), None)
    return _move(run, CANCELLED, by_reason, now, stop=replace(stop, outcome="acknowledged"))


def _stop(run: Run, cause: Reason, by: str, now: datetime) -> Decision:
    """A stop that no person asked for: superseded, deadline, budget."""
    stop = Stop(cause, by, now)
    if run.status is R:
        return _move(run, X, cause, now, stop=stop)
    if run.status is X:
        return Decision(run, None, changed=False)
    return _move(run, END_OF_CAUSE[cause], cause, now, stop=replace(stop, outcome="acknowledged"))


def _stopped(run: Run, command: Stopped, now: datetime, **changes: Any) -> Decision:
    if run.status is not X or run.stop is None:
        if run.is_final:
            raise AlreadyEnded(f"The run ended as {run.status}.")
        raise InvalidTransition(f"No stop was accepted for this run; it is {run.status}.")
    cause = run.stop.cause
    forced_at = now if command.outcome == "forced" else run.stop.forced_at
    stop = replace(
        run.stop,
        outcome=command.outcome,
        unknown_calls=command.unknown_calls,
        forced_at=forced_at,
        delivered_at=run.stop.delivered_at or (None if command.outcome == "forced" else now),
        waiting_for=None,
    )
    return _move(run, END_OF_CAUSE[cause], cause, now, stop=stop, **changes)


def _hand_back(run: Run, command: HandBack, now: datetime) -> Decision:
    if run.status is X:
        return _stopped(run, Stopped(), now)
    if command.reason is Reason.DRAINED and run.recovery is Recovery.ASK:
        return _move(run, INTERRUPTED, Reason.DRAINED, now)
    tries = run.tries if command.tries is None else command.tries
    return _move(
        run, Q, command.reason, now, not_before=command.not_before, wait=command.wait, tries=dict(tries)
    )


def _owner_lost(run: Run, reason: Reason, now: datetime) -> Decision:
    if run.status is X:
        return _stopped(run, Stopped("forced"), now)
    crashed = replace(run, crashes=run.crashes + 1)
    if crashed.crashes >= MAX_CRASHES:
        return _move(
            crashed,
            FAILED,
            Reason.ATTEMPTS_EXHAUSTED,
            now,
            error_code=ErrorCode.ATTEMPTS_EXHAUSTED,
            error_message=f"Its worker was lost {crashed.crashes} times while this run was under way.",
        )
    if run.recovery is Recovery.ASK:
        return _move(crashed, INTERRUPTED, reason, now)
    delay = RECLAIM_DELAYS[min(crashed.crashes, len(RECLAIM_DELAYS)) - 1]
    not_before = now + timedelta(seconds=delay) if delay else None
    wait = Wait("backoff", not_before, "taken over after a lost worker") if not_before else None
    return _move(crashed, Q, Reason.OWNER_LOST, now, not_before=not_before, wait=wait)
