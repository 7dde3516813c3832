"""Reading a thread: rows of one snapshot, and the checkpoints and messages they make.

`rows_of` runs inside a read transaction and only collects rows; building values from them happens outside of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ormsgpack
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from dromos.agents.langgraph import input_reference
from dromos.agents.langgraph.checkpoint_rows import (
    Placement,
    StateUnreadable,
    blob_version,
    load,
    load_values,
    unpack,
)
from dromos.agents.langgraph.message_rows import from_row
from dromos.agents.langgraph.state_serde import StateSerializer, UnreadableValue
from dromos.agents.langgraph.thread_log import Place, ThreadLog, places_in
from dromos.ports.store import Ge, In, ReadTx, Row, Table

MESSAGE_WRITE = "messages"
"""Type of a write whose value is messages; the bytes are {"one", "nums"}."""
_MESSAGE_COLUMNS = (
    "num",
    "id",
    "position",
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "name",
    "status",
    "log_seq",
    "pending_of",
    "engine",
    "engine_type",
)

Key = tuple[str, str]


@dataclass(slots=True)
class ThreadRows:
    """Rows of some checkpoints of one (thread, namespace), and of everything they point to."""

    thread_id: str
    ns: str
    checkpoints: list[Row] = field(default_factory=list)
    unpacked: list[tuple[Any, Placement]] = field(default_factory=list)
    blobs: dict[Key, Row] = field(default_factory=dict)
    log: dict[str, dict[int, Row]] = field(default_factory=dict)  # channel → log_seq → row of messages
    writes: dict[str, list[Row]] = field(default_factory=dict)  # checkpoint id → rows
    written: dict[int, Row] = field(default_factory=dict)  # num → row of messages that a write refers to
    inputs: dict[str, Row] = field(default_factory=dict)  # id → row of messages that an input names
    built: dict[int, BaseMessage] = field(default_factory=dict)  # num → message, shared by all checkpoints


def rows_of(tx: ReadTx, checkpoints: Sequence[Row]) -> ThreadRows:
    """Everything that checkpoints of one (thread, namespace) need. Raises `StateUnreadable`."""
    first = checkpoints[0]
    rows = ThreadRows(first["thread_id"], first["checkpoint_ns"], list(checkpoints))
    rows.unpacked = [unpack(row["checkpoint_id"], row["type"], row["checkpoint"]) for row in checkpoints]
    _collect_blobs(tx, rows)
    _collect_log(tx, rows)
    _collect_writes(tx, rows)
    _collect_inputs(tx, rows)
    return rows


def _collect_inputs(tx: ReadTx, rows: ThreadRows) -> None:
    stored = [placement.inline.get(input_reference.START_CHANNEL) for _, placement in rows.unpacked]
    ids = {
        id_
        for typed in stored
        if typed is not None and typed[0] == input_reference.TYPE
        for id_ in input_reference.referred_ids(typed[1])
    }
    if ids:
        rows.inputs = input_reference.rows_by_id(tx, rows.thread_id, sorted(ids))


def _collect_blobs(tx: ReadTx, rows: ThreadRows) -> None:
    keys = {
        (channel, blob_version(checkpoint["channel_versions"].get(channel)))
        for checkpoint, placement in rows.unpacked
        for channel in placement.blobs
    }
    if not keys:
        return
    channels, versions = sorted({channel for channel, _ in keys}), sorted({version for _, version in keys})
    where = _of(rows, "thread_id", "checkpoint_ns") | {"channel": In(channels), "version": In(versions)}
    for row in tx.find(Table.CHECKPOINT_BLOBS, where):
        rows.blobs[row["channel"], row["version"]] = row


def _collect_log(tx: ReadTx, rows: ThreadRows) -> None:
    lowest: dict[str, int] = {}
    for _, placement in rows.unpacked:
        for channel, ranges in placement.messages.items():
            start = min(part[0] for part in ranges)
            lowest[channel] = min(start, lowest.get(channel, start))
    for channel, start in lowest.items():
        where = _of(rows, "conversation_id", "ns") | {"channel": channel, "log_seq": Ge(start)}
        found = tx.find(Table.MESSAGES, where, order=("log_seq",), columns=_MESSAGE_COLUMNS)
        rows.log[channel] = {row["log_seq"]: row for row in found}


def _collect_writes(tx: ReadTx, rows: ThreadRows) -> None:
    ids = [row["checkpoint_id"] for row in rows.checkpoints]
    nums: set[int] = set()
    where = _of(rows, "thread_id", "checkpoint_ns") | {"checkpoint_id": In(ids)}
    for row in tx.find(Table.WRITES, where, order=("checkpoint_id", "task_path", "task_id", "idx")):
        rows.writes.setdefault(row["checkpoint_id"], []).append(row)
        if row["type"] == MESSAGE_WRITE:
            nums.update(ormsgpack.unpackb(row["value"])["nums"])
    if nums:
        named = {"conversation_id": rows.thread_id, "num": In(sorted(nums))}
        for row in tx.find(Table.MESSAGES, named, columns=_MESSAGE_COLUMNS):
            rows.written[row["num"]] = row


def tuple_at(rows: ThreadRows, index: int, serde: StateSerializer) -> CheckpointTuple:
    """The engine's view of `rows.checkpoints[index]`. Raises `StateUnreadable` naming the field."""
    row = rows.checkpoints[index]
    checkpoint, placement = rows.unpacked[index]
    start = placement.inline.get(input_reference.START_CHANNEL)
    named = start is not None and start[0] == input_reference.TYPE
    without = {input_reference.START_CHANNEL} if named else frozenset[str]()
    values = load_values(placement, checkpoint["channel_versions"], rows.blobs, serde, without)
    if start is not None and named:
        try:
            values[input_reference.START_CHANNEL] = input_reference.restore(start[1], rows.inputs)
        except KeyError as error:
            raise StateUnreadable(
                "the run's input", f"its message {error} is missing in the store"
            ) from error
    for channel, ranges in placement.messages.items():
        values[channel] = [_message(rows, channel, rows.log[channel].get(seq)) for seq in places_in(ranges)]
    checkpoint["channel_values"] = values
    parent = row["parent_checkpoint_id"]
    return CheckpointTuple(
        config=config_of(rows.thread_id, rows.ns, row["checkpoint_id"]),
        checkpoint=checkpoint,
        metadata=row["metadata"],
        parent_config=config_of(rows.thread_id, rows.ns, parent) if parent else None,
        pending_writes=[
            (write["task_id"], write["channel"], _written(rows, write, serde))
            for write in rows.writes.get(row["checkpoint_id"], ())
        ],
    )


def logs_at(rows: ThreadRows, index: int, values: Mapping[str, Any]) -> dict[str, ThreadLog]:
    """What the saver must remember of a checkpoint's lists. `values` are the ones `tuple_at` built."""
    logs: dict[str, ThreadLog] = {}
    for channel, ranges in rows.unpacked[index][1].messages.items():
        found = rows.log[channel]
        places = [Place(found[seq]["num"], seq, found[seq]["position"]) for seq in places_in(ranges)]
        log = ThreadLog(next_seq=max(found) + 1)
        log.append(values[channel], places)
        logs[channel] = log
    return logs


def config_of(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def _message(rows: ThreadRows, channel: str, row: Row | None) -> BaseMessage:
    if row is None:
        raise StateUnreadable(channel, "one of its messages is missing in the store")
    message = rows.built.get(row["num"])
    if message is None:
        try:
            message = rows.built[row["num"]] = from_row(row)
        except UnreadableValue as error:
            raise StateUnreadable(f"{channel}, message {row['id']}", str(error)) from error
    return message


def _written(rows: ThreadRows, write: Row, serde: StateSerializer) -> Any:
    if write["type"] != MESSAGE_WRITE:
        return load(serde, f"a pending write to {write['channel']}", (write["type"], write["value"] or b""))
    body = ormsgpack.unpackb(write["value"])
    messages = [_message(rows, write["channel"], rows.written.get(num)) for num in body["nums"]]
    return messages[0] if body["one"] else messages


def _of(rows: ThreadRows, thread: str, ns: str) -> dict[str, Any]:
    return {thread: rows.thread_id, ns: rows.ns}
