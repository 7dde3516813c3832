"""What one checkpoint changes in the store: prepared outside of the transaction, applied inside of it.

Preparing serialises the changed values and the new messages once; `apply` only writes rows, so it may be run again
after a serialisation failure. `ThreadMemory` is what the saver remembers of a (thread, namespace) between two
checkpoints; it changes only by `commit`, after the rows are on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import Checkpoint

from dromos.agents.langgraph import input_reference, steering
from dromos.agents.langgraph.checkpoint_rows import (
    FORMAT,
    INLINE_BYTES,
    Placement,
    blob_version,
    dump,
    pack,
)
from dromos.agents.langgraph.message_rows import clean, engine_columns, to_row
from dromos.agents.langgraph.state_serde import StateSerializer
from dromos.agents.langgraph.thread_log import Entry, Place, Ranges, ThreadLog, extend, is_message_list
from dromos.agents.message_numbers import Numbers
from dromos.domain.runs import Run
from dromos.ports.agent import InputMessage, Take
from dromos.ports.store import NOT_NULL, In, Row, Table, Tx

ROOT_CHANNEL = "messages"
"""The channel whose messages, in the root namespace, are the conversation that people see."""

_ROW_COLUMNS = ("num", "id", "position", "log_seq", "content", "hidden")

Placed = tuple[Any, tuple[str, bytes] | None]
"""A channel's version, and its value's type and bytes where they are inline (None: they are a blob)."""


@dataclass(slots=True)
class ThreadMemory:
    """What is stored of one (thread, namespace) at `checkpoint_id`, so far as it need not be read or dumped again."""

    checkpoint_id: str | None = None
    logs: dict[str, ThreadLog] = field(default_factory=dict)
    placed: dict[str, Placed] = field(default_factory=dict)
    begins: bool = False  # nothing was stored of it before this attempt, so what `logs` lacks is empty
    after_input: bool = True  # the next checkpoint may bring messages that others stored
    pending: dict[str, tuple[int, BaseMessage]] = field(
        default_factory=dict
    )  # id → row stored with a pending write


@dataclass(slots=True)
class ListChange:
    """New content of one channel that holds messages. `entries` is only the new tail where `appends`."""

    channel: str
    entries: list[Entry]
    appends: bool
    rows: dict[str, Row]  # id → row of each entry that has no place yet


@dataclass(slots=True)
class CheckpointPlan:
    """One `aput`. Make it with `plan`."""

    thread_id: str
    ns: str
    checkpoint: Checkpoint
    parent_id: str | None
    metadata: Mapping[str, Any]
    memory: ThreadMemory
    placed: dict[str, Placed] = field(default_factory=dict)
    blobs: list[Row] = field(default_factory=list)
    lists: list[ListChange] = field(default_factory=list)
    kept: dict[str, Ranges] = field(default_factory=dict)  # lists that did not change
    start: dict[str, Any] | None = None  # an input that may be stored by naming its messages
    writes: list[Row] = field(default_factory=list)
    steps: list[Row] = field(default_factory=list)
    cost: Mapping[str, Any] | None = None
    also: Callable[[Tx, Run], None] | None = None  # what else belongs to this transaction
    entered: bool = False  # a message that steers the run was added by `apply`
    before: CheckpointPlan | None = None  # of the input, where it is stored together with this one
    input_rows: dict[str, Row] = field(
        default_factory=dict
    )  # rows of the input's messages, by id, as `apply` saw them

    @property
    def holds_conversation(self) -> bool:
        """True where the conversation's list of messages is stored as rows, so that one more can be added."""
        changed = any(change.channel == ROOT_CHANNEL for change in self.lists)
        return self.ns == "" and (changed or ROOT_CHANNEL in self.kept)

    @property
    def has_new_messages(self) -> bool:
        """True where `apply` may number messages."""
        return any(change.rows for change in self.lists)

    def apply(self, tx: Tx, run: Run, take: Take | None = None) -> dict[str, list[Place]]:
        """Write everything; returns the places of each changed list's entries. With `take` the conversation's list
        also gets what waits to be read."""
        if self.before is not None:
            self.before.apply(tx, run)
        now = tx.now()
        numbers = Numbers(tx, self.thread_id)
        placement = Placement(messages=dict(self.kept))
        places: dict[str, list[Place]] = {}
        for change in self.lists:
            places[change.channel] = _store_list(tx, self, change, numbers, run, now)
            placement.messages[change.channel] = self._ranges(change, places[change.channel])
        blobs = self.blobs
        if self.start is not None and (reference := self._refer_to_input(tx, self.start)) is not None:
            blobs = [row for row in blobs if row["channel"] != input_reference.START_CHANNEL]
            placement.inline[input_reference.START_CHANNEL] = reference
        for channel, (_, typed) in self.placed.items():
            if channel in placement.inline:
                continue
            if typed is None:
                placement.blobs.append(channel)
            else:
                placement.inline[channel] = typed
        count = _length(placement.messages.get(ROOT_CHANNEL, [])) if self.ns == "" else 0
        numbers.save(message_count=count)
        if take is not None:
            count += self._let_in(tx, take(), placement)
        for row in blobs:
            tx.upsert(Table.CHECKPOINT_BLOBS, row)
        tx.upsert(Table.CHECKPOINTS, self._row(placement, count, now))
        for row in self.writes:
            tx.upsert(Table.WRITES, row)
        for row in self.steps:  # a node that was cut and done again has one record
            tx.upsert(Table.RUN_STEPS, row)
        news: Row = {} if self.cost is None else {"cost": self.cost}
        if run.tries:  # they count the failures of one step, and this one is done
            news["tries"] = {}
        if news:
            tx.set(Table.RUNS, {"id": run.id}, news)
        if self.also is not None:
            self.also(tx, run)
        return places

    @property
    def only_takes_in(self) -> bool:
        """True of the checkpoint of an input that brings nothing but values."""
        return self.metadata.get("source") == "input" and not (self.ns or self.lists or self.writes)

    def commit(self, places: Mapping[str, list[Place]]) -> None:
        """Remember what `apply` stored."""
        memory = self.memory
        memory.checkpoint_id = self.checkpoint["id"]
        memory.placed = {
            key: placed for key, placed in self.placed.items() if key != input_reference.START_CHANNEL
        }
        memory.after_input = self.metadata.get("source") != "loop"
        memory.pending.clear()
        for change in self.lists:
            log = memory.logs.setdefault(change.channel, ThreadLog())
            messages = [entry.message for entry in change.entries]
            if change.appends:
                log.append(messages, places[change.channel])
            else:
                log.replace(messages, places[change.channel])
        for channel, log in memory.logs.items():
            if channel not in self.kept and channel not in places:
                log.replace((), ())

    def _let_in(self, tx: Tx, messages: Sequence[InputMessage], placement: Placement) -> int:
        """Add rows of the history to the end of the conversation's list; returns how many."""
        self.entered = bool(messages)
        if messages:
            ranges = [list(part) for part in placement.messages[ROOT_CHANNEL]]
            for seq in steering.enter(
                tx, self.thread_id, messages, _next_seq(tx, self.thread_id, "", ROOT_CHANNEL)
            ):
                extend(ranges, seq)
            placement.messages[ROOT_CHANNEL] = ranges
            where = {"id": self.thread_id}
            tx.change(Table.CONVERSATIONS, where, {"message_count": _length(ranges)})
        return len(messages)

    def _refer_to_input(self, tx: Tx, start: dict[str, Any]) -> tuple[str, bytes] | None:
        ids = input_reference.message_ids(start)
        self.input_rows = input_reference.rows_by_id(tx, self.thread_id, ids, _ROW_COLUMNS)
        return input_reference.refer(start, self.input_rows)

    def _ranges(self, change: ListChange, places: Sequence[Place]) -> Ranges:
        log = self.memory.logs.get(change.channel)
        ranges = [list(part) for part in log.ranges] if log is not None and change.appends else []
        for place in places:
            extend(ranges, place.seq)
        return ranges

    def _row(self, placement: Placement, message_count: int, now: datetime) -> Row:
        return {
            "thread_id": self.thread_id,
            "checkpoint_ns": self.ns,
            "checkpoint_id": self.checkpoint["id"],
            "parent_checkpoint_id": self.parent_id,
            "run_id": self.metadata.get("run_id"),
            "source": self.metadata.get("source"),
            "step": self.metadata.get("step"),
            "message_count": message_count,
            "type": FORMAT,
            "checkpoint": pack(self.checkpoint, placement),
            "metadata": dict(self.metadata),
            "created_at": now,
        }


def plan(
    thread_id: str,
    ns: str,
    checkpoint: Checkpoint,
    parent_id: str | None,
    metadata: Mapping[str, Any],
    memory: ThreadMemory,
    new_versions: Mapping[str, Any],
    serde: StateSerializer,
) -> CheckpointPlan:
    """Prepare one checkpoint on top of `memory`. Raises `StateNotStorable` naming the field."""
    made = CheckpointPlan(thread_id, ns, checkpoint, parent_id, metadata, memory)
    versions = checkpoint["channel_versions"]
    for channel, value in checkpoint["channel_values"].items():
        if _plan_list(made, channel, value):
            continue
        version = versions.get(channel)
        known = memory.placed.get(channel)
        if known is not None and known[0] == version and channel not in new_versions:
            made.placed[channel] = known
            continue
        if channel == input_reference.START_CHANNEL and ns == "" and input_reference.message_ids(value):
            made.start = value
        typed = dump(serde, channel, value)
        if len(typed[1]) <= INLINE_BYTES:
            made.placed[channel] = (version, typed)
        else:
            made.placed[channel] = (version, None)
            made.blobs.append(
                {
                    "thread_id": thread_id,
                    "checkpoint_ns": ns,
                    "channel": channel,
                    "version": blob_version(version),
                    "type": typed[0],
                    "value": typed[1],
                }
            )
    return made


def _plan_list(made: CheckpointPlan, channel: str, value: Any) -> bool:
    """Plan a value that is a list of messages; False where it is something else."""
    if type(value) is not list or not value:
        return False
    log = made.memory.logs.get(channel) or ThreadLog()
    added = log.added(value)
    if added == []:
        made.kept[channel] = [list(part) for part in log.ranges]
        return True
    if added is not None and log.takes(added):
        entries = [Entry(message) for message in added]
    elif added is None and is_message_list(value):
        entries = log.diff(value)
    else:
        return False
    new = [entry.message for entry in entries if entry.place is None]
    clean(new)
    rows = {message.id or "": to_row(message) for message in new}
    made.lists.append(ListChange(channel, entries, added is not None, rows))
    return True


def _store_list(
    tx: Tx, made: CheckpointPlan, change: ListChange, numbers: Numbers, run: Run, now: datetime
) -> list[Place]:
    log = made.memory.logs.get(change.channel)
    seq = log.next_seq if log is not None else None
    if seq is None:
        seq = 0 if made.memory.begins else _next_seq(tx, made.thread_id, made.ns, change.channel)
    visible = made.ns == "" and change.channel == ROOT_CHANNEL
    present = _rows_of_ids(tx, made, change) if visible else {}
    common = {
        "conversation_id": made.thread_id,
        "ns": made.ns,
        "channel": change.channel,
        "pending_of": None,
        "run_id": run.id,
        "interrupted": False,
        "hidden": not visible,
        "created_at": now,
    }
    new: list[Row] = []
    hide: list[int] = []
    places: list[Place] = []
    for entry in change.entries:
        if entry.place is not None:
            places.append(entry.place)
            continue
        row = change.rows[entry.message.id or ""]
        there = present.get(row["id"])
        if there is not None and there["log_seq"] is None:
            position = entry.replaces.position if entry.replaces else there["position"]
            place = Place(there["num"], seq, position)
            _adopt(tx, made, entry.message, row, there, place)
            if entry.replaces is not None:
                hide.append(entry.replaces.num)
        else:
            num = numbers.take()
            old = entry.replaces or (Place(there["num"], 0, there["position"]) if there else None)
            place = Place(num, seq, old.position if old else num)
            if old is not None:
                hide.append(old.num)
            new.append({**row, **common, "num": num, "position": place.position, "log_seq": seq})
        places.append(place)
        seq += 1
    if hide:
        tx.change(Table.MESSAGES, {"conversation_id": made.thread_id, "num": In(hide)}, {"hidden": True})
    if new:
        tx.put_many(Table.MESSAGES, new)
    return places


def _rows_of_ids(tx: Tx, made: CheckpointPlan, change: ListChange) -> dict[str, Row]:
    """Rows that exist under the ids of new messages: a person's message, a result, a finished task's write.

    Only an input brings messages that others may have stored; a step's own are known here.
    """
    pending = made.memory.pending
    known = {
        id_: {"num": pending[id_][0], "position": pending[id_][0], "log_seq": None, "content": None}
        for id_ in change.rows
        if id_ in pending
    }
    if not made.memory.after_input and made.metadata.get("source") == "loop":
        return known
    wanted = [id_ for id_ in change.rows if id_ not in known]
    if not wanted:
        return known
    brought = made.before.input_rows if made.before is not None else {}
    if all(id_ in brought and not brought[id_]["hidden"] for id_ in wanted):  # looked up in this transaction
        return known | {id_: brought[id_] for id_ in wanted}
    where = {"conversation_id": made.thread_id, "id": In(wanted), "hidden": False}
    found = tx.find(Table.MESSAGES, where, order=("num",), columns=_ROW_COLUMNS)
    return known | {row["id"]: row for row in found}


def _adopt(tx: Tx, made: CheckpointPlan, message: BaseMessage, row: Row, there: Row, place: Place) -> None:
    """A row that was there before the engine knew its message gets its place in the log."""
    values: Row = {
        "log_seq": place.seq,
        "position": place.position,
        "pending_of": None,
        "hidden": False,
        "ns": made.ns,
        "channel": ROOT_CHANNEL,
    }
    stored = made.memory.pending.get(row["id"])
    if stored is None:
        keep = ("role", "tool_calls", "tool_call_id", "name")
        values |= {name: row[name] for name in keep}
        same = row["engine_type"] != "whole" and there["content"] == row["content"]
        values |= engine_columns(message, whole=not same)
    elif stored[1] is not message:
        values |= {name: value for name, value in row.items() if name != "id"}
    tx.set(Table.MESSAGES, {"conversation_id": made.thread_id, "num": there["num"]}, values)


def _next_seq(tx: Tx, thread_id: str, ns: str, channel: str) -> int:
    where = {"conversation_id": thread_id, "ns": ns, "channel": channel, "log_seq": NOT_NULL}
    newest = tx.first(Table.MESSAGES, where, order=("-log_seq",))
    return newest["log_seq"] + 1 if newest else 0


def _length(ranges: Iterable[Sequence[int]]) -> int:
    return sum(stop - start for start, stop in ranges)
