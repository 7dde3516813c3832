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
            rewrite(change, row, status=FollowupStatus.HELD.value)
            announce.followup_changed(change, row, run)


def succeed(change: Change, conversation: Conversation, run: Run, plan: Plan) -> Run | None:
    """After the end's event: the first one becomes the successor run, the others wait for that."""
    if plan.start is None:
        return None
    first = next(row for row in change.followups(conversation) if row["id"] == plan.start)
    successor, _ = apply(change, conversation, first, run.agent)
    pass_on(change, conversation, successor)
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
    rewrite(change, row, status=FollowupStatus.APPLIED.value, run_id=run.id, message_id=message["id"])
    announce.followup_changed(change, row, run)
    return run, message


def pass_on(change: Change, conversation: Conversation, successor: Run) -> None:
    """Every message that still waits now waits for `successor`."""
    for row in change.followups(conversation):
        if is_waiting(row):
            rewrite(change, row, run_id=successor.id, during_stop=False)
            announce.followup_changed(change, row, successor)


def count_as_before_the_stop(change: Change, conversation: Conversation) -> None:
    """A person pressed Stop while a policy's stop was under way: what was accepted until now came before."""
    for row in change.followups(conversation):
        if is_waiting(row) and row["during_stop"]:
            rewrite(change, row, during_stop=False)


def is_waiting(row: Row) -> bool:
    return bool(row["status"] == FollowupStatus.WAITING)


def rewrite(change: Change, row: Row, **values: object) -> None:
    """Change a follow-up's row, here and in the store; its version rises."""
    row.update(values, version=row["version"] + 1, updated_at=change.now)
    kept = {"version": row["version"], "updated_at": change.now, **values}
    change.tx.change(Table.RUN_FOLLOWUPS, {"id": row["id"]}, kept)
