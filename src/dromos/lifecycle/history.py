"""Reading a conversation's messages as the thread sees them: its head, its open tool calls, what it lacks.

Rows with `log_seq` stand in the thread. Rows without it are the product's own: persons' messages and repairs that
some run's input will carry in, and anchors. Rows with `pending_of` are writes the engine keeps beside a checkpoint.
Reads only; the messages a run brings are computed from committed rows, never from the engine's computed state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dromos.domain.runs import Run
from dromos.ports.agent import InputMessage
from dromos.ports.store import NOT_NULL, In, ReadTx, Row, Table

_ENGINE_COLUMNS = (
    "num",
    "id",
    "role",
    "tool_calls",
    "tool_call_id",
    "name",
    "log_seq",
    "pending_of",
    "run_id",
)
_THREAD = {"ns": "", "channel": "messages", "hidden": False}


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A tool call in the thread that has no result yet."""

    id: str
    name: str


@dataclass(slots=True)
class ThreadState:
    """What a repair must know: open calls in order, and the engine's pending rows of the head by kind."""

    open_calls: list[OpenCall] = field(default_factory=list)
    pending_results: dict[str, Row] = field(default_factory=dict)  # by tool call id
    pending_texts: list[Row] = field(default_factory=list)
    message_ids: set[str] = field(default_factory=set)
    call_ids: set[str] = field(default_factory=set)  # of every call, answered ones too


def head_checkpoint(tx: ReadTx, conversation_id: str) -> Row | None:
    """checkpoint_id, run_id and message_count of the thread's newest root checkpoint."""
    rows = tx.find(
        Table.CHECKPOINTS,
        {"thread_id": conversation_id, "checkpoint_ns": ""},
        order=("-checkpoint_id",),
        limit=1,
        columns=("checkpoint_id", "run_id", "message_count"),
    )
    return rows[0] if rows else None


def thread_state(tx: ReadTx, conversation_id: str, head: Row | None) -> ThreadState:
    """The thread's assistant and tool messages, read slim (no contents)."""
    rows = tx.find(
        Table.MESSAGES,
        {"conversation_id": conversation_id, "role": In(("assistant", "tool")), **_THREAD},
        columns=_ENGINE_COLUMNS,
    )
    state = ThreadState(message_ids={row["id"] for row in rows})
    logged = sorted((row for row in rows if row["log_seq"] is not None), key=lambda row: row["log_seq"])
    ours = sorted(
        (row for row in rows if row["log_seq"] is None and row["pending_of"] is None),
        key=lambda row: row["num"],
    )
    calls: dict[str, OpenCall] = {}
    for row in [*logged, *ours]:
        if row["role"] == "tool":
            calls.pop(row["tool_call_id"], None)
            continue
        for call in row["tool_calls"] or ():
            calls[call["id"]] = OpenCall(call["id"], call["name"])
            state.call_ids.add(call["id"])
    state.open_calls = list(calls.values())
    if head is not None:
        for row in rows:
            if row["log_seq"] is None and row["pending_of"] == head["checkpoint_id"]:
                if row["role"] == "tool":
                    state.pending_results[row["tool_call_id"]] = row
                else:
                    state.pending_texts.append(row)
    return state


def unlogged(tx: ReadTx, conversation_id: str) -> list[Row]:
    """Messages the thread does not hold yet, in the order a valid history needs: results of its open calls directly
    behind it, then the rest as it stands in the history."""
    rows = tx.find(
        Table.MESSAGES,
        {
            "conversation_id": conversation_id,
            "log_seq": None,
            "pending_of": None,
            "kind": In(("text", "tool")),
            **_THREAD,
        },
        order=("position", "num"),
    )
    return sorted(rows, key=lambda row: row["role"] != "tool")


def input_messages(rows: Iterable[Row]) -> list[InputMessage]:
    return [
        InputMessage(
            id=row["id"],
            role=row["role"],
            content=row["content"],
            tool_call_id=row["tool_call_id"],
            name=row["name"],
            status=row["status"] if row["role"] == "tool" else None,
        )
        for row in rows
    ]


def last_answer(tx: ReadTx, run: Run) -> Row | None:
    """The newest assistant message that the run brought: into the thread, or as the answer of a graph that keeps no
    messages."""
    in_thread = _answer_in_thread(tx, run.conversation_id, run.id)
    if in_thread is not None:
        return in_thread
    where = {**_answers_of(run.conversation_id, run.id), "log_seq": None, "pending_of": None}
    return tx.first(Table.MESSAGES, where, order=("-num",))


def _answer_in_thread(tx: ReadTx, conversation_id: str, run_id: str) -> Row | None:
    where = {**_answers_of(conversation_id, run_id), "log_seq": NOT_NULL}
    return tx.first(Table.MESSAGES, where, order=("-num",))


def _answers_of(conversation_id: str, run_id: str) -> dict[str, Any]:
    return {
        "conversation_id": conversation_id,
        "run_id": run_id,
        "role": "assistant",
        "interrupted": False,
        **_THREAD,
    }


def step_count(tx: ReadTx, run_id: str) -> int:
    return tx.count(Table.RUN_STEPS, {"run_id": run_id})


def reads_of_end(conversation_id: str, run_id: str) -> list[Callable[[ReadTx], object]]:
    """What the end of a run that was worked on looks at, for `Tx.ahead`."""
    return [
        partial(_answer_in_thread, conversation_id=conversation_id, run_id=run_id),
        partial(step_count, run_id=run_id),
        partial(head_checkpoint, conversation_id=conversation_id),
    ]


def resumed_chain(tx: ReadTx, run: Run) -> Iterable[Run]:
    """The run, the run it resumes, the run that one resumed…"""
    current: Run | None = run
    while current is not None:
        yield current
        current = tx.load_run(current.resume_of) if current.resume_of else None


def document_text(content: Any) -> tuple[str | None, str]:
    """Message id and text that stand in a document's content part."""
    part = content.get("text") if isinstance(content, dict) else None
    if not isinstance(part, dict) or not isinstance(part.get("content"), str):
        return None, ""
    message_id = part.get("message_id")
    return (message_id if isinstance(message_id, str) and message_id else None), part["content"]
