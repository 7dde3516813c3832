"""A person's word on a question, or the policy's where nobody spoke in time; with the last one the run goes on (T13).

The decision and the move are one transaction. Whoever waits for other answers stays parked, one version further. A
question whose time is over without a policy to answer it ends its run (T15).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from dromos.domain import requests as rules
from dromos.domain.effects import outcome_json
from dromos.domain.errors import Refusal
from dromos.domain.machine import Expire, Resume
from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import OnTimeout, RequestStatus, RunStatus, Verdict
from dromos.lifecycle import announce, grants, journal
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.requests import close
from dromos.lifecycle.transition import transition
from dromos.lifecycle.waiting import open_requests
from dromos.ports.store import Row, Table
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
    _apply_to_call(change, request, decision)
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


def _apply_to_call(change: Change, request: Row, decision: dict[str, Any]) -> None:
    """What a decision means for the journal at once: an outcome that a person tells, or leave for good."""
    verdict, key = Verdict(decision["decision"]), request["call_key"]
    if key is None:
        return
    if verdict in (Verdict.MARK_DONE, Verdict.SKIP):
        journal.settle_for_person(change.tx, key, _told_outcome(verdict, decision))
        where = {"id": request["id"], "status": RequestStatus.DECIDED.value}
        change.tx.change(Table.REQUESTS, where, rules.consumed(0))
    elif decision.get("grant") is not None:
        whole_tool = decision["grant"] == "tool"
        grants.give(change, request, whole_tool=whole_tool)


def _told_outcome(verdict: Verdict, decision: dict[str, Any]) -> dict[str, Any]:
    """What the agent reads of a call whose outcome a person told."""
    comment = f" {decision['comment']}" if decision["comment"] else ""
    if verdict is Verdict.SKIP:
        return outcome_json(
            f"What became of this call is unknown. A person said not to repeat it.{comment}", True
        )
    answer = decision["answer"]
    if answer is None:
        return outcome_json(f"A person says that this call was carried out.{comment}", False)
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return outcome_json(text, False, None if isinstance(answer, str) else answer)
