"""What an outside owner reports of its run while it works: steps, and messages for the history.

The history stays valid for the next model call whatever is reported: a result belongs to a call that waits for one,
and before anything else is stored each call that got none is given one that says so. Conversation and run are locked
and checked; see `dromos.lifecycle.tokens`.

While a run stops only what came of its work is taken: steps that ended, results, and the text that was cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dromos.domain.effects import NO_RESULT, given_call_id
from dromos.domain.errors import Fault, Invalid, InvalidTransition, VersionConflict
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus
from dromos.domain.text import clean_json, text_of
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.history import document_text, last_answer, thread_state
from dromos.lifecycle.patching import note_report
from dromos.ports.store import In, ReadTx, Row, Table
from dromos.wire.shapes import run_json

MAX_STEPS = 10_000
"""Steps of one run."""


def _refuse_while_stopping(run: Run, why: str) -> None:
    if run.status is RunStatus.CANCELLING:
        told = f"A stop was accepted for this run: {why}. Nothing of this call was taken."
        raise InvalidTransition(told, current={"run": run_json(run)})


# --- steps
def report_steps(change: Change, run: Run, reported: Sequence[Mapping[str, Any]]) -> int:
    """Add or update steps by `id`, as `wire.adapter.StepReport` has them; returns how many the run has now."""
    latest: dict[str, Row] = {step["id"]: step for step in clean_json(list(reported))[0]}
    where = {"run_id": run.id, "id": In(list(latest))}
    found = change.tx.find(Table.RUN_STEPS, where, columns=("id", "status"))
    known = {row["id"] for row in found}
    at_work = {row["id"] for row in found if row["status"] == "running"}
    if any(step["status"] == "running" and step_id not in at_work for step_id, step in latest.items()):
        _refuse_while_stopping(run, "no step is begun any more; report how those under way ended")
    have = change.tx.count(Table.RUN_STEPS, {"run_id": run.id})
    if have + len(latest.keys() - known) > MAX_STEPS:
        most = f"a run keeps {MAX_STEPS} steps at most; report fewer, larger ones"
        raise Invalid(f"This run has {have} steps; {most}.", faults=[Fault("too_many_steps", "/steps", most)])
    newest = change.tx.first(Table.RUN_STEPS, {"run_id": run.id}, order=("-num",))
    num = newest["num"] if newest else 0
    for step_id, step in latest.items():
        told: Row = {name: step[name] for name in ("kind", "name", "status", "summary", "ms", "usage")}
        if step_id in known:
            told = {name: value for name, value in told.items() if value is not None}
            change.tx.change(Table.RUN_STEPS, {"run_id": run.id, "id": step_id}, told)
            continue
        num += 1
        row: Row = {
            "run_id": run.id,
            "id": step_id,
            "conversation_id": run.conversation_id,
            "num": num,
            "attempt": run.attempt,
            "started_at": step["started_at"] or change.now,
            **told,
        }
        change.tx.put(Table.RUN_STEPS, row)
    note_report(change, run)
    return have + len(latest.keys() - known)


# --- messages
class _Tail:
    """The end of a conversation's history, as far as the next message depends on it."""

    def __init__(self, tx: ReadTx, conversation_id: str) -> None:
        state = thread_state(tx, conversation_id, None)
        self.open = {call.id: call.name for call in state.open_calls}
        self.used = state.call_ids

    def call_of(self, given: str) -> str | None:
        """The stored id of the open call that the adapter calls `given`."""
        if given in self.open:
            return given
        return next((stored for stored in self.open if given_call_id(stored) == given), None)

    def new_call(self, given: str) -> str:
        """`given`, or with a number behind it where an earlier call of the conversation has that id."""
        stored, number = given, 2
        while stored in self.used:
            stored, number = f"{given}~{number}", number + 1
        self.used.add(stored)
        return stored


def append_messages(
    change: Change, conversation: Conversation, run: Run, messages: Sequence[Mapping[str, Any]]
) -> list[Row]:
    """Rows of the messages as they stand in the history, as `wire.adapter.NewHistoryMessage` has them.

    One whose `id` is stored already for this run is not stored again; with other words it raises `VersionConflict`.
    Raises `Invalid` for a result without a call that waits for it, `InvalidTransition` for whole messages while the run
    stops.
    """
    tail = _Tail(change.tx, conversation.id)
    rows: list[Row] = []
    for place, message in enumerate(messages):
        told = clean_json(dict(message))[0]
        row = _stored_before(change, run, told) if told["id"] is not None else None
        if row is None and told["role"] == "assistant" and not told["interrupted"]:
            _refuse_while_stopping(
                run, "send what was said so far with `interrupted`, and results of open calls"
            )
        rows.append(row or _append(change, conversation, run, told, tail, f"/messages/{place}"))
        change.write_messages()
    note_report(change, run)
    return rows


def _stored_before(change: Change, run: Run, message: Mapping[str, Any]) -> Row | None:
    where = {"conversation_id": run.conversation_id, "id": message["id"]}
    row = change.tx.first(Table.MESSAGES, where)
    if row is None:
        return None
    same = row["run_id"] == run.id and row["role"] == message["role"] and row["content"] == message["content"]
    if not same:
        raise VersionConflict(
            f"Another message has the id {message['id']!r} already. Take a new id for new words.",
            code="message_conflict",
        )
    return row


def _append(
    change: Change,
    conversation: Conversation,
    run: Run,
    message: Mapping[str, Any],
    tail: _Tail,
    place: str,
) -> Row:
    content = message["content"]
    if message["role"] == "tool":
        call = tail.call_of(message["tool_call_id"])
        if call is None:
            told = f"no call {message['tool_call_id']!r} waits for a result; send the call first, and one result for it"
            raise Invalid(
                f"The result fits nowhere: {told}.",
                faults=[Fault("no_such_call", f"{place}/tool_call_id", told)],
            )
        name = message["name"] or tail.open[call]
        del tail.open[call]
        return change.add_message(
            conversation,
            id=message["id"],
            role="tool",
            kind="tool",
            content=content,
            tool_call_id=call,
            name=name,
            run_id=run.id,
        )
    _close_calls(change, conversation, run, tail)
    calls = [
        {"id": tail.new_call(call["id"]), "name": call["name"], "args": call["args"]}
        for call in message["tool_calls"] or ()
    ]
    tail.open = {call["id"]: call["name"] for call in calls}
    return change.add_message(
        conversation,
        id=message["id"],
        role="assistant",
        content=content,
        tool_calls=calls or None,
        interrupted=message["interrupted"],
        run_id=run.id,
    )


def _close_calls(change: Change, conversation: Conversation, run: Run, tail: _Tail) -> None:
    """The agent went on: calls that still wait for a result get one that says that nobody told it."""
    for call, name in tail.open.items():
        change.add_message(
            conversation,
            role="tool",
            kind="tool",
            content=NO_RESULT,
            tool_call_id=call,
            name=name,
            status="error",
            run_id=run.id,
        )
    tail.open = {}


def has_open_calls(tx: ReadTx, run: Run) -> bool:
    """True while a call of the history waits for its result: nothing may come between the two."""
    return bool(thread_state(tx, run.conversation_id, None).open_calls)


def keep_answer(change: Change, conversation: Conversation, run: Run, answer: Any) -> None:
    """The run's last words, as the last message of its history, unless they stand there.

    Without `answer` they are what the live document shows, if the adapter stored no message of it.
    """
    saved = change.tx.first(Table.RUN_DOCUMENTS, {"run_id": run.id})
    message_id, text = document_text(saved["content"] if saved else None)
    stored = last_answer(change.tx, run)
    if answer is None:
        answer = text if stored is None else None
    if not answer or (stored is not None and _same_words(stored["content"], answer)):
        return
    where = {"conversation_id": conversation.id, "id": message_id}
    if message_id is not None and change.tx.count(Table.MESSAGES, where):
        message_id = None
    message = {
        "id": message_id,
        "role": "assistant",
        "content": clean_json(answer)[0],
        "tool_calls": None,
        "interrupted": False,
    }
    _append(change, conversation, run, message, _Tail(change.tx, conversation.id), "")
    change.write_messages()


def _same_words(stored: Any, answer: Any) -> bool:
    words = text_of(answer).strip()
    return bool(stored == answer or (words and text_of(stored).strip() == words))
