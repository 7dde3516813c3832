"""The writes of tasks as rows of `writes`, and messages among them as rows of `messages`.

A finished task's messages in the conversation's own channel are stored as rows with `pending_of` while their step
goes on, so that its result can be read without the engine; the write names them by number. The next checkpoint gives
the same rows their place in the log. Other values are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP

from dromos.agents.langgraph.checkpoint_plan import ROOT_CHANNEL
from dromos.agents.langgraph.checkpoint_rows import dump
from dromos.agents.langgraph.message_rows import clean, is_storable, to_row
from dromos.agents.langgraph.pending_writes import TaskWrites
from dromos.agents.langgraph.state_serde import StateSerializer
from dromos.agents.langgraph.thread_reads import MESSAGE_WRITE
from dromos.agents.message_numbers import Numbers
from dromos.domain.runs import Run
from dromos.ports.store import In, ReadTx, Row, Table, Tx

Key = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class _MessageWrite:
    """A write whose value is messages: `one` of them or a list. Rows are whole but for number, run and time."""

    key: Key
    one: bool
    messages: list[BaseMessage]
    rows: list[Row]


class WritePlan:
    """Writes made ready outside of the transaction. `replaces(entry, id)`: the thread has such a message already."""

    def __init__(
        self,
        entries: Sequence[TaskWrites],
        serde: StateSerializer,
        run_id: str,
        replaces: Callable[[TaskWrites, str], bool],
    ) -> None:
        self.entries = entries
        self.also: Callable[[Tx, Run], None] | None = None  # what else belongs to this transaction
        self._rows: list[Row] = []
        self._messages: list[_MessageWrite] = []
        for entry in entries:
            for row, value in _numbered(entry, run_id):
                messages = _messages_in(entry, row["channel"], value)
                if messages is None:
                    row["type"], row["value"] = dump(serde, f"a write to {row['channel']}", value)
                else:
                    row["type"], row["value"] = MESSAGE_WRITE, b""
                    rows = [
                        {**to_row(message), **_place(entry, hidden=replaces(entry, message.id or ""))}
                        for message in messages
                    ]
                    self._messages.append(
                        _MessageWrite(_key(row), isinstance(value, BaseMessage), messages, rows)
                    )
                self._rows.append(row)

    @property
    def has_messages(self) -> bool:
        """True where `apply` may number messages."""
        return bool(self._messages)

    def apply(self, tx: Tx, run: Run) -> list[tuple[TaskWrites, BaseMessage, int]]:
        """Store what is not there yet; returns each message that became a row, with its number."""
        stored = _stored_keys(tx, self.entries)
        rows = {_key(row): dict(row) for row in self._rows if row["idx"] < 0 or _key(row) not in stored}
        numbers: dict[str, Numbers] = {}
        made: list[tuple[TaskWrites, BaseMessage, int]] = []
        by_task = {(entry.task_id, entry.checkpoint_id, entry.ns): entry for entry in self.entries}
        for write in self._messages:
            row = rows.get(write.key)
            if row is None:
                continue
            entry = by_task[write.key[:3]]
            counter = numbers.setdefault(entry.thread_id, Numbers(tx, entry.thread_id))
            nums = [counter.take() for _ in write.rows]
            common = {"run_id": run.id, "created_at": tx.now()}
            tx.put_many(
                Table.MESSAGES,
                [
                    {**message, **common, "num": num, "position": num}
                    for message, num in zip(write.rows, nums, strict=True)
                ],
            )
            row["value"] = ormsgpack.packb({"one": write.one, "nums": nums})
            made.extend((entry, message, num) for message, num in zip(write.messages, nums, strict=True))
        for counter in numbers.values():
            counter.save()
        for row in rows.values():
            if row["idx"] < 0:
                tx.upsert(Table.WRITES, row)
        tx.put_many(Table.WRITES, [row for row in rows.values() if row["idx"] >= 0])
        if self.also is not None:
            self.also(tx, run)
        return made


def rows_left_by(
    entries: Sequence[TaskWrites], serde: StateSerializer, run_id: str, delta_channels: Collection[str]
) -> list[Row]:
    """Rows that a finished step leaves behind: errors, interrupts, and deltas that no snapshot replaces."""
    left: list[Row] = []
    for entry in entries:
        for row, value in _numbered(entry, run_id):
            if row["idx"] < 0 or row["channel"] in delta_channels:
                row["type"], row["value"] = dump(serde, f"a write to {row['channel']}", value)
                left.append(row)
    return left


def _numbered(entry: TaskWrites, run_id: str) -> list[tuple[Row, Any]]:
    """Each write as a row without its value, and the value. Special channels have an index of their own."""
    return [
        (
            {
                "thread_id": entry.thread_id,
                "checkpoint_ns": entry.ns,
                "checkpoint_id": entry.checkpoint_id,
                "task_id": entry.task_id,
                "idx": WRITES_IDX_MAP.get(channel, position),
                "channel": channel,
                "task_path": entry.task_path,
                "run_id": run_id,
            },
            value,
        )
        for position, (channel, value) in enumerate(entry.writes)
    ]


def _messages_in(entry: TaskWrites, channel: str, value: Any) -> list[BaseMessage] | None:
    """The messages of a value that can be rows of the conversation; None where it is anything else."""
    if entry.ns or channel != ROOT_CHANNEL:
        return None
    messages = [value] if isinstance(value, BaseMessage) else value
    if type(messages) is not list or not messages or not all(map(is_storable, messages)):
        return None
    clean(messages)
    return list(messages)


def _place(entry: TaskWrites, *, hidden: bool) -> Row:
    return {
        "conversation_id": entry.thread_id,
        "interrupted": False,
        "hidden": hidden,
        "ns": entry.ns,
        "channel": ROOT_CHANNEL,
        "log_seq": None,
        "pending_of": entry.checkpoint_id,
    }


def _stored_keys(tx: ReadTx, entries: Sequence[TaskWrites]) -> set[Key]:
    stored: set[Key] = set()
    for thread_id in {entry.thread_id for entry in entries}:
        mine = [entry for entry in entries if entry.thread_id == thread_id]
        where = {
            "thread_id": thread_id,
            "checkpoint_id": In(sorted({entry.checkpoint_id for entry in mine})),
            "task_id": In(sorted({entry.task_id for entry in mine})),
        }
        columns = ("task_id", "checkpoint_id", "checkpoint_ns", "idx")
        stored.update(_key(row) for row in tx.find(Table.WRITES, where, columns=columns))
    return stored


def _key(row: Row) -> Key:
    return row["task_id"], row["checkpoint_id"], row["checkpoint_ns"], row["idx"]
