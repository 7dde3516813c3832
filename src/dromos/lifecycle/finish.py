"""How an owner's attempt ends: done, failed, handed back, parked on a person, or stopped (T7, T8, T10–T12, T17, T6).

The document is saved in the same transaction. Where a stop was accepted meanwhile, the stop decides the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, assert_never

from dromos.domain.errors import Invalid
from dromos.domain.machine import Command, Complete, Fail, HandBack, Park, RefuseWork, Stopped
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Fence, Run, Wait
from dromos.domain.statuses import RunStatus
from dromos.domain.text import clean_text
from dromos.lifecycle import journal
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.documents import facts_of, save_document
from dromos.lifecycle.history import reads_of_end
from dromos.lifecycle.record import lock_owned
from dromos.lifecycle.requests import open_requests
from dromos.lifecycle.transition import transition
from dromos.ports.agent import Drained, Failed, Finished, Outcome, Parked, TryLater
from dromos.ports.live import DocumentSnapshot
from dromos.ports.wakeup import document_topic


def end_attempt(change: Change, fence: Fence, outcome: Outcome, document: DocumentSnapshot | None) -> Run:
    conversation, run = lock_owned(change, fence, then=reads_of_end)
    command = _command(change, run, outcome)
    if isinstance(outcome, Parked) and isinstance(command, Park):
        try:
            open_requests(change, run, outcome.requests)
        except Invalid as wrong:  # the owner must not be left with a run that nobody can park
            command = Fail(ErrorCode.AGENT_FAILURE, clean_text(wrong.detail))
    return _end(change, conversation, run, command, document)


def end_stopped(
    change: Change,
    fence: Fence,
    *,
    forced: bool,
    unknown_calls: Sequence[str],
    document: DocumentSnapshot | None,
) -> Run:
    conversation, run = lock_owned(change, fence)
    stopped = _stopped(change, run, "forced" if forced else "acknowledged", unknown_calls)
    return _end(change, conversation, run, stopped, document)


def refuse_work(change: Change, conversation: Conversation, run: Run, code: ErrorCode, message: str) -> Run:
    """T6: nobody can start this run."""
    reason = Reason.CONFIG_INVALID if code is ErrorCode.CONFIG_INVALID else Reason.AGENT_UNAVAILABLE
    return transition(change, conversation, run, RefuseWork(reason, code, clean_text(message)))


def _end(
    change: Change, conversation: Conversation, run: Run, command: Command, document: DocumentSnapshot | None
) -> Run:
    facts: dict[str, Any] = {}
    content: Mapping[str, Any] | None = None
    if document is not None:
        save_document(change.tx, run, document)
        change.wake_elsewhere(document_topic(run.conversation_id))
        facts, content = facts_of(document), document.content
    return transition(change, conversation, run, command, facts=facts, content=content)


def _stopped(change: Change, run: Run, outcome: str, told: Sequence[str] = ()) -> Stopped:
    """The calls of which nobody knows how they went: those that the owner names, and those of the journal."""
    recorded = journal.unknown_tools(change.tx, run.id)
    return Stopped(outcome, tuple(dict.fromkeys([*told, *recorded])))


def _command(change: Change, run: Run, outcome: Outcome) -> Command:
    if run.status is RunStatus.CANCELLING and not isinstance(outcome, Finished):
        return _stopped(change, run, "acknowledged")
    match outcome:
        case Finished(line=line, session_id=session_id):
            stopping = run.status is RunStatus.CANCELLING
            unknown = tuple(journal.unknown_tools(change.tx, run.id)) if stopping else ()
            return Complete(clean_text(line) if line else None, session_id, unknown)
        case Failed(code=code, message=message):
            return Fail(code, clean_text(message))
        case TryLater(reason=reason, delay=delay, tries=tries, then=then):
            until = change.now + timedelta(seconds=delay)
            wait = Wait("rate_limited" if reason is Reason.RATE_LIMITED else "backoff", until, then)
            return HandBack(reason, until, wait, tries)
        case Drained():
            return HandBack(Reason.DRAINED)
        case Parked(reason=reason):
            return Park(reason)
        case _:
            assert_never(outcome)
