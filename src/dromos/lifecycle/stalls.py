"""Stalls of runs that an adapter outside of this process has: who is silent, and what becomes of that run.

A worker watches its own runs. For an adapter the rows tell: `runs.quiet_since` is its last sign of work while something
is under way (`current` of its document), so that a sweep reads no document of a run that moves. A renewal is a sign of
life and moves nothing here. Only the database's clock is compared, and only silence that a server was there to hear.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from dromos.domain.effects import ReplayClass
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.retries import next_try
from dromos.domain.runs import Fence, Run
from dromos.domain.stalls import Stall, stall_of, stalled_text
from dromos.domain.statuses import OwnerKind, RunStatus
from dromos.domain.text import moment_text
from dromos.lifecycle import finish
from dromos.lifecycle.change import Change
from dromos.lifecycle.contract import Policy
from dromos.lifecycle.documents import keep_document, note_work, standing
from dromos.lifecycle.history import thread_state
from dromos.lifecycle.journal import unknown_tools
from dromos.lifecycle.owners import serving_since
from dromos.ports.agent import Failed, Outcome, TryLater
from dromos.ports.live import DocumentSnapshot
from dromos.ports.store import Le, ReadTx, Table
from dromos.ports.wakeup import document_topic

MOST_LOOKED_AT = 5_000
"""Silent runs that one sweep looks at, the most silent first; small rows."""
MOST_ACTED_ON = 200


def list_silent(tx: ReadTx, policy: Policy) -> list[str]:
    """Runs that may have stalled: silent for longer than their agent may be."""
    shortest, since = policy.stall.shortest, serving_since(tx)
    if shortest is None or since is None:
        return []
    now = tx.now()
    if since > now - timedelta(seconds=shortest):
        return []
    rows = tx.find(
        Table.RUNS,
        {
            "status": RunStatus.RUNNING.value,
            "owner_kind": OwnerKind.ADAPTER.value,
            "quiet_since": Le(now - timedelta(seconds=shortest)),
        },
        order=("quiet_since", "id"),
        limit=MOST_LOOKED_AT,
        columns=("id", "agent", "quiet_since"),
    )

    def is_over(agent: str, quiet_since: datetime) -> bool:
        limit = policy.stall.of(agent).shortest
        return limit is not None and now - max(quiet_since, since) >= timedelta(seconds=limit)

    return [row["id"] for row in rows if is_over(row["agent"], row["quiet_since"])][:MOST_ACTED_ON]


def act_on_silence(change: Change, run_id: str) -> bool:
    """Show one run's stall, end it or give it back, as its agent's policy says; False where it is not stalled."""
    seen = change.tx.load_run(run_id)
    conversation = change.lock_conversation(seen.conversation_id) if seen else None
    run = change.tx.lock_run(run_id)
    serving = serving_since(change.tx)
    if run is None or conversation is None or serving is None:
        return False
    if run.status is not RunStatus.RUNNING or run.owner_kind is not OwnerKind.ADAPTER:
        return False
    if run.quiet_since is None:
        return False
    version, content = standing(run, change.tx.first(Table.RUN_DOCUMENTS, {"run_id": run.id}))
    if not content["current"]:
        note_work(change.tx, run, content)
        return False
    since = max(run.quiet_since, serving)
    limits = change.policy.stall.of(run.agent)
    stall = stall_of(content["current"], (change.now - since).total_seconds(), limits)
    if stall is None:
        return False
    shown = {"since": moment_text(since), "kind": stall.kind}
    document = DocumentSnapshot(run.id, version + 1, {**content, "stall": shown})
    if limits.policy == "flag":
        keep_document(change.tx, run, document)
        change.tx.change(Table.RUNS, {"id": run.id}, {"quiet_since": None})
    else:
        outcome = _outcome(change, run, stall, retries=limits.policy == "retry")
        finish.end_attempt(change, Fence(run.id, run.epoch, run.conversation_id), outcome, document)
    change.wake(document_topic(run.conversation_id))  # nobody here relays it: readers take it from its row
    return True


def _outcome(change: Change, run: Run, stall: Stall, *, retries: bool) -> Outcome:
    """A call that was told and got no result may have happened: it is not made again by our doing."""
    calls = thread_state(change.tx, run.conversation_id, None).open_calls
    recorded = unknown_tools(change.tx, run.id, (ReplayClass.UNSAFE,))
    unknown = ", ".join(dict.fromkeys([*(call.name for call in calls), *recorded]))
    retry = next_try(ErrorCode.STALLED, run.tries, policies=change.policy.retries)
    if not retries or unknown or retry is None:
        return Failed(ErrorCode.STALLED, stalled_text(stall, unknown))
    then = f"try {retry.attempt} of {retry.of_attempts}"
    return TryLater(Reason.STALLED, retry.delay, retry.tries, then)
