"""What an adapter session may do with a run it owns: take it (T2), keep it alive, park it (T8), end it (T10, T11, T17).

Every function but `claim` is given the conversation and the run locked and checked against the run's token
(`dromos.lifecycle.tokens`). An adapter has no thread here: what its agent said stands in `messages`, and a run that
goes on with an ended one is told the agent's own session instead of an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from dromos.domain.errors import IdempotencyKeyReused, InvalidTransition
from dromos.domain.machine import Claim, Park
from dromos.domain.reasons import Reason, normalize_adapter_failure
from dromos.domain.requests import decision_json
from dromos.domain.runs import Fence, Run
from dromos.domain.statuses import OwnerKind, RequestKind, RequestStatus, RunStatus, Verdict
from dromos.domain.text import clean_text, first_line
from dromos.lifecycle import finish, owners, patching, reports, requests, tokens
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.documents import note_delivered
from dromos.lifecycle.followup_rows import is_steer
from dromos.lifecycle.followups import deliver_steers
from dromos.lifecycle.tokens import ClaimKey
from dromos.lifecycle.transition import transition
from dromos.ports.agent import Decided, Failed, Finished
from dromos.ports.live import Patched
from dromos.ports.store import NOT_NULL, Gt, In, Lt, ReadTx, Row, Table
from dromos.ports.wakeup import document_topic
from dromos.wire.shapes import run_json

HISTORY_LIMIT = 1000
"""Messages that a claim tells at most, the newest; all of them are at `GET /v1/conversations/{id}/messages`."""

_IN_HISTORY = {"kind": In(("text", "tool")), "ns": "", "hidden": False, "pending_of": None}


@dataclass(frozen=True, slots=True)
class ClaimAsk:
    """Who asks for a run, of which agents. `own_first`: those whose last owner was this session before others."""

    user_id: str
    agents: Sequence[str]
    session: str
    own_first: bool = False


@dataclass(frozen=True, slots=True)
class SessionClaim:
    """A run that now belongs to the session, and everything its adapter needs to begin.

    `history` and `progress` are rows of `messages`: what was said before this run's input, and what the run has stored
    under earlier owners. `input` is None where the run goes on with an ended one. `applied` are decisions that an
    earlier owner went on from.
    """

    run: Run
    input: Any
    history: list[Row]
    progress: list[Row]
    decisions: tuple[Decided, ...]
    applied: tuple[Decided, ...]
    session_id: str | None
    token: str
    lease_until: datetime
    lease_s: float


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """What an adapter says when it renews; see `wire.adapter.RenewRun`."""

    activity: bool = False
    document_version: int | None = None
    session_id: str | None = None
    steer: bool = True


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a sign of life brings back. `stop_in`: seconds until a stop is forced; None where none was accepted.

    `patched` is the change of the document that says that the agent moved, for its readers.
    """

    run: Run
    lease_until: datetime
    lease_s: float
    document_version: int
    stop_in: float | None = None
    steer: Sequence[Row] = ()
    patched: Patched | None = None


@dataclass(frozen=True, slots=True)
class End:
    """How the adapter says the run ended; see `wire.adapter.EndRun`."""

    to: str  # completed | failed | cancelled
    error_code: str | None = None
    error_message: str | None = None
    session_id: str | None = None
    line: str | None = None
    answer: Any = None


# --- claiming
def waiting(tx: ReadTx, ask: ClaimAsk) -> bool:
    """True where a claim would find a run now, unless somebody else is faster. Locks nothing."""
    return tx.any_claimable(list(ask.agents), ask.user_id)


def claim(change: Change, ask: ClaimAsk, key: ClaimKey | None) -> SessionClaim | None:
    """T2 for one run; None where none waits. The same key again: the same run and token, and no second claim."""
    if key is not None:
        row = change.tx.first(Table.RUN_TOKENS, {"claim_key": key.digest})
        if row is not None:
            return _claim_again(change, row, key)
    found = change.tx.claimable(
        list(ask.agents), 1, user_id=ask.user_id, own_first=ask.session if ask.own_first else None
    )
    if not found:
        return None
    command = Claim(ask.session, OwnerKind.ADAPTER)
    facts = {"renewed_at": change.now, "quiet_since": None}
    run = transition(change, None, found[0], command, facts=facts)
    return _told(change, run, tokens.issue(change, run, ask.session, key))


def _claim_again(change: Change, row: Row, key: ClaimKey) -> SessionClaim | None:
    """The answer to the first one was lost. Where its claim still stands, asking again is a sign of life."""
    if row["claim_body"] != key.body_sha256:
        raise IdempotencyKeyReused(
            "This Idempotency-Key was used for another claim; take a new key for each new claim."
        )
    run = change.tx.lock_run(row["run_id"])
    if run is None:
        return None
    if run.epoch == row["epoch"]:
        _sign_of_life(change, run)
    return _told(change, run, tokens.unveiled(row, key))


def _told(change: Change, run: Run, token: str) -> SessionClaim:
    trigger = _message(change.tx, run, run.trigger_message_id)
    anchor = _message(change.tx, run, run.anchor_message_id)
    goes_on = run.resume_of is not None
    begins = anchor if goes_on or trigger is None else trigger
    return SessionClaim(
        run=run,
        input=None if goes_on or trigger is None else trigger["content"],
        history=_history(change.tx, run, begins),
        progress=[] if anchor is None else _rows(change.tx, run, {"position": Gt(anchor["position"])}),
        decisions=requests.decided(change.tx, [run.id]).get(run.id, ()),
        applied=requests.decided(change.tx, [run.id], RequestStatus.CONSUMED).get(run.id, ()),
        session_id=run.session_id or _session_before(change.tx, run),
        token=token,
        lease_until=owners.session_lease(change.tx, change.policy, run),
        lease_s=change.policy.adapter_grace,
    )


def _message(tx: ReadTx, run: Run, message_id: str | None) -> Row | None:
    """`position` and `content`; None where there is no such message."""
    if message_id is None:
        return None
    where = {"conversation_id": run.conversation_id, "id": message_id}
    rows = tx.find(Table.MESSAGES, where, columns=("position", "content"), limit=1)
    return rows[0] if rows else None


def _rows(tx: ReadTx, run: Run, where: Mapping[str, Any]) -> list[Row]:
    here = {"conversation_id": run.conversation_id, **_IN_HISTORY, **where}
    return tx.find(Table.MESSAGES, here, order=("position", "num"))


def _history(tx: ReadTx, run: Run, begins: Row | None) -> list[Row]:
    """The newest messages before `begins`. One that was cut begins with a person's message, so that it stays valid."""
    if begins is None:
        return []
    where = {"conversation_id": run.conversation_id, **_IN_HISTORY, "position": Lt(begins["position"])}
    rows = tx.find(Table.MESSAGES, where, order=("-position", "-num"), limit=HISTORY_LIMIT)[::-1]
    if len(rows) == HISTORY_LIMIT:
        first = next((place for place, row in enumerate(rows) if row["role"] == "user"), len(rows))
        rows = rows[first:]
    return rows


def _session_before(tx: ReadTx, run: Run) -> str | None:
    """The agent's own session of the newest run of this agent here that told one."""
    where = {"conversation_id": run.conversation_id, "agent": run.agent, "session_id": NOT_NULL}
    earlier = tx.find_runs(where, order=("-created_at", "-id"), limit=1)
    return earlier[0].session_id if earlier else None


# --- keeping it alive
def _sign_of_life(change: Change, run: Run) -> datetime:
    """Until when the session has the run now."""
    change.tx.change(Table.RUNS, {"id": run.id}, {"renewed_at": change.now})
    return change.now + timedelta(seconds=change.policy.adapter_grace)


def renew(change: Change, conversation: Conversation, run: Run, sign: SignOfLife) -> Renewal:
    """The run is alive until `lease_until`; a stop is told, or what came to steer by."""
    lease_until = _sign_of_life(change, run)
    if sign.session_id is not None and sign.session_id != run.session_id:
        change.tx.change(Table.RUNS, {"id": run.id}, {"session_id": clean_text(sign.session_id)})
    patched: Patched | None = None
    if sign.activity:
        version, patched = patching.note_activity(change, run, sign.document_version)
    else:
        version = patching.version_of(change, run)
    told = Renewal(run, lease_until, change.policy.adapter_grace, version, patched=patched)
    if run.status is RunStatus.CANCELLING and run.stop is not None:
        passed = (change.now - run.stop.accepted_at).total_seconds()
        left = max(0.0, change.policy.stop_deadline - passed)
        heard = note_delivered(change.tx, run)
        if heard.version != run.version:
            change.wake(
                document_topic(run.conversation_id)
            )  # no event tells it: readers take it from the row
        return replace(told, run=heard, stop_in=left)
    waits = sign.steer and any(map(is_steer, change.followups(conversation)))
    if waits and not reports.has_open_calls(change.tx, run):
        return replace(told, steer=deliver_steers(change, conversation, run))
    return told


# --- parking and ending
def park(
    change: Change, conversation: Conversation, run: Run, asked: Sequence[Mapping[str, Any]]
) -> tuple[Run, list[Row]]:
    """T8: the questions are open, the session owns the run no more. Entries as `wire.adapter.NewRequest` has them.

    Raises `Invalid` where one cannot be asked; the session then still owns the run.
    """
    if run.status is RunStatus.CANCELLING:
        raise InvalidTransition(
            "A stop was accepted for this run; it asks nothing more. End it as `cancelled`.",
            current={"run": run_json(run)},
        )
    _consume_decisions(change, run)
    approval = any(one["kind"] == RequestKind.APPROVAL for one in asked)
    reason = Reason.APPROVAL_REQUIRED if approval else Reason.QUESTION_ASKED
    rows = requests.open_requests(change, run, [_as_asked(one) for one in asked])
    return transition(change, conversation, run, Park(reason)), rows


def _as_asked(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked in the words of `domain.requests`: the default is a whole decision there."""
    default = entry.get("default")
    if default is not None:
        verdict = default if entry["kind"] == RequestKind.APPROVAL else Verdict.ANSWER.value
        answer = None if entry["kind"] == RequestKind.APPROVAL else default
        default = {"decision": verdict, "answer": answer}
    return {**entry, "default": default}


def end(change: Change, conversation: Conversation, run: Run, end: End) -> Run:
    """T10 or T11; T17 where a stop was accepted: the stop's cause decides then.

    Raises `InvalidTransition` for `cancelled` without a stop.
    """
    if end.to == "cancelled" and run.status is not RunStatus.CANCELLING:
        raise InvalidTransition(
            "Nobody stopped this run. Report `cancelled` only after a renewal told of a stop; "
            "else `completed` or `failed`.",
            current={"run": run_json(run)},
        )
    _consume_decisions(change, run)
    line = first_line(clean_text(end.line or ""))
    told: Row = {"session_id": end.session_id and clean_text(end.session_id), "line": line}
    told = {name: value for name, value in told.items() if value}
    if told:
        change.tx.change(Table.RUNS, {"id": run.id}, told)
    match end.to:
        case "completed":
            reports.keep_answer(change, conversation, run, end.answer)
            outcome: Finished | Failed = Finished(line, end.session_id)
        case "failed":
            outcome = Failed(*normalize_adapter_failure(end.error_code, end.error_message))
        case _:
            return finish.end_stopped(change, _fence(run), forced=False, unknown_calls=(), document=None)
    return finish.end_attempt(change, _fence(run), outcome, None)


def _consume_decisions(change: Change, run: Run) -> None:
    """The owner went on: what was decided for it has been applied. A word on a call is used up by the call."""
    told = requests.decided(change.tx, [run.id]).get(run.id, ())
    applied = [one.request_id for one in told if one.call_key is None]
    if applied:
        requests.consume(change.tx, run, applied)


def _fence(run: Run) -> Fence:
    return Fence(run.id, run.epoch, run.conversation_id)


def decided_json(one: Decided) -> dict[str, Any]:
    """A decision as a claim tells it."""
    return {
        "request_id": one.request_id,
        "kind": one.kind,
        "tool": one.tool,
        "tool_call_id": one.tool_call_id,
        "prompt": one.prompt,
        "arguments": one.arguments,
        "decision": decision_json(one.decision, one.answer, one.comment),
    }
