"""Follow-ups at the end of a run: who starts the next run, who waits for it, who is held.

`dromos.domain.followups` decides; this writes it in the end's own transaction, so that an accepted message is either
taken by a run or starts the next one, exactly once and in order. A message enters the history when it is applied.
"""

from __future__ import annotations

from dromos.domain.followups import Plan, Waiting, after_end
from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import FollowupStatus
from dromos.lifecycle import announce
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.followup_rows import as_queued, is_waiting, rewrite
from dromos.lifecycle.starting import Begin, options_from, start_run
from dromos.ports.store import Row, Table


def plan_after(change: Change, conversation: Conversation, run: Run) -> Plan:
    """What the end of `run` means for what waits. A conversation that is being deleted starts nothing more."""
    if conversation.deleting:
        return Plan(None, (), ())
    waiting = [
        Waiting(row["id"], bool(row["during_stop"]))
        for row in change.followups(conversation)
        if is_waiting(row)
    ]
    return after_end(run, waiting)


def hold(change: Change, conversation: Conversation, run: Run, plan: Plan) -> None:
    """Before the end's event: what will not start by itself is held for its author."""
    for row in change.followups(conversation):
        if row["id"] in plan.hold:
            rewrite(change, row, status=FollowupStatus.HELD.value, **as_queued(row))
            announce.followup_changed(change, row, run)


def succeed(change: Change, conversation: Conversation, run: Run, plan: Plan) -> Run | None:
    """After the end's event: the first one becomes the successor run, for which the others then wait."""
    if plan.start is None:
        return None
    first = next(row for row in change.followups(conversation) if row["id"] == plan.start)
    successor, _ = apply(change, conversation, first, run.agent)
    return successor


def apply(change: Change, conversation: Conversation, row: Row, agent: str) -> tuple[Run, Row]:
    """The follow-up takes its place in the history and starts its run."""
    change.followups(conversation).remove(row)
    options = options_from(row["run_options"])
    run, message = start_run(
        change,
        conversation,
        Begin(Reason.CREATED_FROM_FOLLOWUP, options.agent or agent, options, content=row["content"]),
    )
    if message is None:
        raise AssertionError("a run that starts from a follow-up has a new message")
    taken = {"status": FollowupStatus.APPLIED.value, "run_id": run.id, "message_id": message["id"]}
    rewrite(change, row, **taken, **as_queued(row))
    announce.followup_changed(change, row, run)
    return run, message


def count_as_before_the_stop(change: Change, conversation: Conversation) -> None:
    """A person pressed Stop while a policy's stop was under way: what was accepted until now came before."""
    waiting = {"conversation_id": conversation.id, "status": FollowupStatus.WAITING.value}
    change.tx.change(Table.RUN_FOLLOWUPS, waiting, {"during_stop": False})
    for row in filter(is_waiting, change.followups(conversation)):
        row["during_stop"] = False
