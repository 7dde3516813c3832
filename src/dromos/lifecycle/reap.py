"""The reaper, level-triggered: each sweep finds every run that should have a live owner and has none, every stop that
takes too long, every deadline that passed, every adapter that is silent at its work, every erasure left half done,
however they got there.

Listing and acting are apart: what was listed is looked at again with its rows locked, one run per transaction, so
that of two sweeps at once one does nothing. Only the database's clock is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dromos.domain.machine import Command, Expire, OwnerLost, Stopped
from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import OwnerKind, RunStatus
from dromos.lifecycle import documents
from dromos.lifecycle.change import Change
from dromos.lifecycle.contract import Policy
from dromos.lifecycle.decide import time_out
from dromos.lifecycle.delete import erase
from dromos.lifecycle.history import head_checkpoint, thread_state
from dromos.lifecycle.journal import calls_by_id, is_recorded, unknown_tools
from dromos.lifecycle.owners import has_live_owner, sessions_until
from dromos.lifecycle.stalls import list_silent
from dromos.lifecycle.transition import transition
from dromos.ports.store import In, Le, ReadTx, Table, Tx

BATCH = 200
STOP_GRACE = 5.0
"""Seconds beyond the stop's deadline after which a stop is forced, whether its owner lives or not."""
_PARKED = (RunStatus.QUEUED.value, RunStatus.RUNNING.value, RunStatus.WAITING_INPUT.value)


@dataclass(slots=True)
class Due:
    """Ids that one sweep has to look at."""

    runs: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    conversations: list[str] = field(default_factory=list)


def list_orphans(tx: Tx, policy: Policy) -> list[str]:
    return [run.id for run in tx.orphans(BATCH, sessions_until(tx, policy))]


def list_due(tx: ReadTx, policy: Policy) -> Due:
    """Runs that stop for too long, are past a deadline or silent at their work, and conversations to erase."""
    now = tx.now()
    stuck = [
        run.id
        for run in tx.find_runs({"status": RunStatus.CANCELLING.value}, limit=BATCH)
        if _is_stuck(run, policy, now)
    ]
    past = tx.find_runs({"status": In(_PARKED), "deadline_at": Le(now)}, limit=BATCH)
    late = tx.find_runs(
        {"status": RunStatus.QUEUED.value, "attempt": 0, "queue_deadline_at": Le(now)}, limit=BATCH
    )
    unanswered = tx.find(
        Table.REQUESTS,
        {"status": "open", "expires_at": Le(now)},
        columns=("run_id",),
        limit=BATCH,
    )
    runs = [*stuck, *(run.id for run in [*past, *late]), *(row["run_id"] for row in unanswered)]
    doomed = tx.find(Table.CONVERSATIONS, {"state": "deleting"}, columns=("id",), limit=BATCH)
    return Due(list(dict.fromkeys(runs)), list_silent(tx, policy), [row["id"] for row in doomed])


def reap_run(change: Change, run_id: str) -> bool:
    """Do to one run what its rows demand now; False where nothing was left to do."""
    seen = change.tx.load_run(run_id)
    conversation = change.lock_conversation(seen.conversation_id) if seen else None
    run = change.tx.lock_run(run_id)
    if run is None or conversation is None:
        return False
    command = _due(change, run)
    if command is None:
        return time_out(change, conversation, run)
    after = transition(change, conversation, run, command)
    if run.status.is_owned:
        documents.leave_as_saved(change.tx, after)
    return True


def erase_doomed(change: Change, conversation_id: str) -> bool:
    conversation = change.lock_conversation(conversation_id)
    return conversation is not None and conversation.deleting and erase(change, conversation)


def _due(change: Change, run: Run) -> Command | None:
    if run.status is RunStatus.CANCELLING:
        if has_live_owner(change.tx, change.policy, run) and not _is_stuck(run, change.policy, change.now):
            return None
        return Stopped("forced", _calls_without_result(change, run))
    if run.status.is_owned and not has_live_owner(change.tx, change.policy, run):
        lost = Reason.ADAPTER_DISCONNECTED if run.owner_kind is OwnerKind.ADAPTER else Reason.OWNER_LOST
        return OwnerLost(lost)
    if run.is_final:
        return None
    if run.deadline_at is not None and run.deadline_at <= change.now:
        return Expire(Reason.RUN_DEADLINE)
    never_claimed = run.status is RunStatus.QUEUED and not run.attempt
    if never_claimed and run.queue_deadline_at is not None and run.queue_deadline_at <= change.now:
        return Expire(Reason.QUEUE_DEADLINE)
    return None


def _calls_without_result(change: Change, run: Run) -> tuple[str, ...]:
    """Nobody is there to tell how the open calls went, nor that one which is still waited for."""
    head = head_checkpoint(change.tx, run.conversation_id)
    state = thread_state(change.tx, run.conversation_id, head)
    recorded = calls_by_id(change.tx, run, [call.id for call in state.open_calls])
    names = [
        call.name
        for call in state.open_calls
        if call.id not in state.pending_results and call.id not in recorded
    ]
    waited_for = run.stop.waiting_for if run.stop is not None else None
    if waited_for is not None and not is_recorded(change.tx, run, str(waited_for["tool"])):
        names.append(str(waited_for["tool"]))
    return tuple(dict.fromkeys([*names, *unknown_tools(change.tx, run.id)]))


def _is_stuck(run: Run, policy: Policy, now: datetime) -> bool:
    if run.stop is None:
        return True
    limit = timedelta(seconds=policy.stop_deadline + STOP_GRACE)
    return run.stop.accepted_at + limit <= now
