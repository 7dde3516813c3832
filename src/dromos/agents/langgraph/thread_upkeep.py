"""Removing, copying and pruning what the engine holds of a thread: plain functions inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence

import ormsgpack

from dromos.agents.langgraph.checkpoint_rows import blob_version, unpack
from dromos.agents.langgraph.thread_log import places_in
from dromos.agents.langgraph.thread_reads import MESSAGE_WRITE
from dromos.agents.message_numbers import Numbers
from dromos.ports.store import NOT_NULL, In, Row, Table, Tx


def delete_thread(tx: Tx, thread_id: str) -> None:
    """Remove checkpoints, values, writes and the messages that are in the thread."""
    for table in (Table.WRITES, Table.CHECKPOINT_BLOBS, Table.CHECKPOINTS):
        tx.remove(table, {"thread_id": thread_id})
    for column in ("log_seq", "pending_of"):
        tx.remove(Table.MESSAGES, {"conversation_id": thread_id, column: NOT_NULL})


def delete_for_runs(tx: Tx, run_ids: Sequence[str]) -> None:
    """Remove the checkpoints of these runs and the writes on top of them."""
    where = {"run_id": In(list(run_ids))}
    for row in tx.find(Table.CHECKPOINTS, where, columns=("thread_id", "checkpoint_ns", "checkpoint_id")):
        tx.remove(Table.WRITES, row)
    tx.remove(Table.CHECKPOINTS, where)


def copy_thread(tx: Tx, source: str, target: str) -> None:
    """Copy checkpoints, values, writes and the messages of the thread's log under another thread id."""
    renumbered: dict[int, int] = {}
    numbers = Numbers(tx, target)
    messages: list[Row] = []
    for row in tx.find(Table.MESSAGES, {"conversation_id": source}, order=("num",)):
        if row["log_seq"] is None and row["pending_of"] is None:
            continue
        renumbered[row["num"]] = numbers.take()
        messages.append({**row, "conversation_id": target, "num": renumbered[row["num"]]})
    for row in messages:
        row["position"] = renumbered.get(row["position"], row["num"])
    numbers.save()
    tx.put_many(Table.MESSAGES, messages)
    for table in (Table.CHECKPOINTS, Table.CHECKPOINT_BLOBS):
        tx.put_many(table, [{**row, "thread_id": target} for row in tx.find(table, {"thread_id": source})])
    tx.put_many(
        Table.WRITES,
        [_moved(row, target, renumbered) for row in tx.find(Table.WRITES, {"thread_id": source})],
    )


def keep_latest(tx: Tx, thread_id: str) -> None:
    """Keep the newest checkpoint of each namespace, its values, writes and messages.

    The conversation's own messages all stay: they are its history. Raises `NotImplementedError` where a value is
    stored as changes along the checkpoints, which would lose its beginning.
    """
    kept: dict[str, Row] = {}
    for row in tx.find(Table.CHECKPOINTS, {"thread_id": thread_id}, order=("-checkpoint_id",)):
        kept.setdefault(row["checkpoint_ns"], row)
    for ns, row in kept.items():
        if row["metadata"].get("counters_since_delta_snapshot"):
            raise NotImplementedError(
                "This thread stores a channel as changes along its checkpoints (DeltaChannel); pruning would lose it."
            )
        _keep_only(tx, thread_id, ns, row)


def _keep_only(tx: Tx, thread_id: str, ns: str, kept: Row) -> None:
    where = {"thread_id": thread_id, "checkpoint_ns": ns}
    checkpoint, placement = unpack(kept["checkpoint_id"], kept["type"], kept["checkpoint"])
    used = {
        (channel, blob_version(checkpoint["channel_versions"].get(channel))) for channel in placement.blobs
    }
    for row in tx.find(Table.CHECKPOINT_BLOBS, where, columns=("channel", "version")):
        if (row["channel"], row["version"]) not in used:
            tx.remove(Table.CHECKPOINT_BLOBS, where | row)
    others = [
        row["checkpoint_id"]
        for row in tx.find(Table.CHECKPOINTS, where, columns=("checkpoint_id",))
        if row["checkpoint_id"] != kept["checkpoint_id"]
    ]
    for table in (Table.WRITES, Table.CHECKPOINTS):
        tx.remove(table, where | {"checkpoint_id": In(others)})
    inner = {"conversation_id": thread_id, "ns": ns, "hidden": True, "log_seq": NOT_NULL}
    held = {channel: set(places_in(ranges)) for channel, ranges in placement.messages.items()}
    gone = [
        row["num"]
        for row in tx.find(Table.MESSAGES, inner, columns=("num", "channel", "log_seq"))
        if row["log_seq"] not in held.get(row["channel"], ())
    ]
    tx.remove(Table.MESSAGES, {"conversation_id": thread_id, "num": In(gone)})


def _moved(row: Row, target: str, renumbered: dict[int, int]) -> Row:
    moved = {**row, "thread_id": target}
    if row["type"] == MESSAGE_WRITE:
        body = ormsgpack.unpackb(row["value"])
        moved["value"] = ormsgpack.packb({**body, "nums": [renumbered[num] for num in body["nums"]]})
    return moved
