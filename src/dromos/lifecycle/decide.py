"""A person's word on a question, or the policy's where nobody spoke in time; with the last one the run goes on (T13).

The decision and the move are one transaction. Whoever waits for other answers stays parked, one version further. A
question whose time is over without a policy to answer it ends its run (T15).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dromos.domain import requests as rules
from dromos.domain.errors import Refusal
from dromos.domain.machine import Expire, Resume
from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import OnTimeout, RequestStatus, RunStatus
from dromos.lifecycle import announce
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.requests import close
from dromos.lifecycle.transition import transition
from dromos.lifecycle.waiting import open_requests
from dromos.ports.store import Row
from dromos.wire.shapes import request_json, run_json


def decide(
    change: Change,
    conversation: Conversation,
    run: Run,
    request: Row,
    decision: rules.Decision,
    person: str,
) -> Run:
    """The run after `person` decided `request` (which is changed too); refusals carry both as they are.

    Conversation and run are locked. The same person saying the same once more changes nothing.
    """
    try:
        fresh = rules.judge(request, decision, person, change.now)
    except Refusal as refusal:
        refusal.current.update(request=request_json(request), run=run_json(run))
        raise
    if not fresh:
        return run
    return _record(change, conversation, run, request, decision.as_json(), person)


def time_out(change: Change, conversation: Conversation, run: Run) -> bool:
    """Close what nobody answered in time, each by its policy; False where nothing was due."""
    if run.status is not RunStatus.WAITING_INPUT:
        return False
    late = [row for row in open_requests(change.tx, run.id) if rules.is_late(row, change.now)]
    ending = [row for row in late if rules.on_timeout(row) is OnTimeout.EXPIRE]
    if ending:
        for row in ending:
            close(change, run, row, RequestStatus.EXPIRED)
        transition(change, conversation, run, Expire(Reason.INPUT_DEADLINE))
        return True
    for row in late:
        run = _record(change, conversation, run, row, rules.timeout_decision(row), rules.POLICY)
    return bool(late)


def _record(
    change: Change, conversation: Conversation, run: Run, request: Row, decision: dict[str, Any], by: str
) -> Run:
    close(
        change,
        run,
        request,
        RequestStatus.DECIDED,
        decided_by=by,
        decided_at=change.now,
        decision=decision,
        comment=decision["comment"],
    )
    if open_requests(change.tx, run.id):
        return _waits_on(change, conversation, run)
    reason = Reason.DEFAULT_DECISION if by == rules.POLICY else Reason.DECISION_RECORDED
    return transition(change, conversation, run, Resume(reason))


def _waits_on(change: Change, conversation: Conversation, run: Run) -> Run:
    """What devices show of the run has changed, so its version rises with it."""
    after = replace(run, version=run.version + 1)
    change.tx.swap_run(run, after)
    announce.run_status(change, conversation, after)
    return after
