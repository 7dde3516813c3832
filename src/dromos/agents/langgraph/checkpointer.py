"""LangGraph's checkpointer over the store: every write fenced by the run's epoch, each message stored once.

One instance serves one attempt (with a `Recorder`) or only reads (without). A checkpoint is one transaction: its row,
changed values, new messages, and the records of the steps it ends. The writes of tasks wait a moment for that
transaction (`pending_writes`). It must not know runs beyond their id, nor what a graph does.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeGuard

import ormsgpack
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)

from dromos.agents.langgraph import thread_upkeep
from dromos.agents.langgraph.blocking_saver import BlockingSaver
from dromos.agents.langgraph.checkpoint_plan import ROOT_CHANNEL, Numbers, ThreadMemory, plan
from dromos.agents.langgraph.checkpoint_rows import dump
from dromos.agents.langgraph.message_rows import clean, is_storable, to_row
from dromos.agents.langgraph.pending_writes import PendingWrites, TaskWrites, settle
from dromos.agents.langgraph.state_serde import StateSerializer
from dromos.agents.langgraph.thread_reads import (
    MESSAGE_WRITE,
    ThreadRows,
    config_of,
    logs_at,
    rows_of,
    tuple_at,
)
from dromos.domain.runs import Run
from dromos.ports.recorder import Recorder
from dromos.ports.store import In, Lt, ReadTx, Row, Store, Table, Tx

_VERSION_BITS = 20
_FILTER_COLUMNS = frozenset({"run_id", "source", "step"})


class Checkpointer(BlockingSaver, BaseCheckpointSaver[int]):
    """Make it inside the event loop that will use it.

    `source` is the attempt's recorder, or a store to read only. `step_rows(checkpoint_id)` gives the rows of
    `run_steps` that are to be stored with a root checkpoint, `on_commit` is called when they are. Raises `LeaseLost`
    where the run is no longer owned, `StateUnreadable` and `StateNotStorable` naming the field.
    """

    serde: StateSerializer

    def __init__(
        self,
        source: Recorder | Store,
        *,
        step_rows: Callable[[str], list[Row]] | None = None,
        on_commit: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(serde=StateSerializer())
        self.serde = StateSerializer()
        self.loop = asyncio.get_running_loop()
        self.commits = 0
        self.steps = 0  # of the root graph, stored by this instance; the taking in of an input is none
        self._source = source
        self._recorder: Recorder | None = source if _can_write(source) else None
        self._step_rows = step_rows
        self._on_commit = on_commit
        self._memory: dict[tuple[str, str], ThreadMemory] = {}
        self._pending = PendingWrites(self._store_writes)
        self._nonce = 0
        if self._recorder is not None:
            fence = self._recorder.fence
            self._nonce = zlib.crc32(f"{fence.run_id}/{fence.epoch}".encode()) % (1 << _VERSION_BITS)

    # --- versions ---------------------------------------------------------------------------------------------

    def get_next_version(self, current: int | None, channel: None) -> int:
        """Counted in the upper bits; the lower ones differ per attempt, so that two branches never share a version."""
        count = 0 if current is None else int(current) >> _VERSION_BITS
        return ((count + 1) << _VERSION_BITS) | self._nonce

    # --- reading ----------------------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the newest of its namespace."""
        thread_id, ns, checkpoint_id = _address(config)
        where: Row = {"thread_id": thread_id, "checkpoint_ns": ns}
        if checkpoint_id is not None:
            where["checkpoint_id"] = checkpoint_id

        def load(tx: ReadTx) -> ThreadRows | None:
            row = tx.first(Table.CHECKPOINTS, where, order=("-checkpoint_id",))
            return rows_of(tx, [row]) if row is not None else None

        rows = await self._source.read(load)
        if rows is None:
            return None
        found = tuple_at(rows, 0, self.serde)
        self._remember(rows, found)
        return found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first. One snapshot: what is written meanwhile does not appear."""
        where = _listing(config, before)
        columns = {key: value for key, value in (filter or {}).items() if key in _FILTER_COLUMNS}
        others = {key: value for key, value in (filter or {}).items() if key not in _FILTER_COLUMNS}

        def load(tx: ReadTx) -> list[tuple[ThreadRows, int]]:
            found = tx.find(
                Table.CHECKPOINTS,
                where | columns,
                order=("-checkpoint_id",),
                limit=None if others else limit,
            )
            found = [row for row in found if others.items() <= row["metadata"].items()][:limit]
            groups: dict[tuple[str, str], list[Row]] = {}
            for row in found:
                groups.setdefault((row["thread_id"], row["checkpoint_ns"]), []).append(row)
            loaded = {key: rows_of(tx, rows) for key, rows in groups.items()}
            taken = dict.fromkeys(groups, 0)
            listed: list[tuple[ThreadRows, int]] = []
            for row in found:
                key = (row["thread_id"], row["checkpoint_ns"])
                listed.append((loaded[key], taken[key]))
                taken[key] += 1
            return listed

        for rows, index in await self._source.read(load):
            yield tuple_at(rows, index, self.serde)

    # --- writing ----------------------------------------------------------------------------------------------

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; returns when it is on disk."""
        thread_id, ns, parent_id = _address(config)
        recorder = self._writer()
        held = await self._pending.take(thread_id, ns, parent_id)
        try:
            memory = await self._memory_at(thread_id, ns, parent_id)
            facts = get_serializable_checkpoint_metadata(config, metadata)
            facts.setdefault("run_id", recorder.fence.run_id)
            made = plan(thread_id, ns, checkpoint, parent_id, facts, memory, new_versions, self.serde)
            delta = facts.get("counters_since_delta_snapshot") or {}
            made.writes = [row for entry in held for row in self._still_needed(entry, delta)]
            if self._step_rows is not None and ns == "":
                made.steps = self._step_rows(checkpoint["id"])
            with self._pending.during_save():
                places = await recorder.write(made.apply)
        except BaseException as error:
            settle(held, error)
            raise
        if ns == "" and metadata.get("source") == "loop" and not memory.after_input:
            self.steps += 1
        made.commit(places)
        settle(held)
        self.commits += 1
        if self._on_commit is not None and ns == "":
            self._on_commit()
        return config_of(thread_id, ns, checkpoint["id"])

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote; returns when that, or the checkpoint that makes it superfluous, is on disk."""
        thread_id, ns, checkpoint_id = _address(config)
        self._writer()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._pending.add(
            TaskWrites(thread_id, ns, checkpoint_id or "", task_id, task_path, list(writes), done)
        )

    async def settled(self) -> None:
        """Wait until no write is under way. Failures were told to whoever made the write."""
        await self._pending.settled()

    async def _store_writes(self, entries: list[TaskWrites]) -> None:
        """Store the writes of tasks whose step goes on. Messages among them become rows that anybody can read."""
        recorder = self._writer()
        prepared = [(entry, self._message_values(entry)) for entry in entries]
        rows = [row for entry in entries for row in self._write_rows(entry)]

        def store(tx: Tx, run: Run) -> dict[int, list[int]]:
            rows_by_task = _without_stored(tx, entries, rows)
            numbers: dict[str, Numbers] = {}
            nums: dict[int, list[int]] = {}
            for entry, values in prepared:
                for idx, (one, messages) in values.items():
                    row = rows_by_task.get((entry.task_id, entry.checkpoint_id, entry.ns, idx))
                    if row is None:
                        continue
                    counter = numbers.setdefault(entry.thread_id, Numbers(tx, entry.thread_id))
                    taken = [counter.take() for _ in messages]
                    tx.put_many(
                        Table.MESSAGES,
                        [
                            _pending_row(entry, message, num, run, tx)
                            for message, num in zip(messages, taken, strict=True)
                        ],
                    )
                    row["value"] = ormsgpack.packb({"one": one, "nums": taken})
                    nums[id(messages)] = taken
            for counter in numbers.values():
                counter.save()
            special = [row for row in rows_by_task.values() if row["idx"] < 0]
            for row in special:
                tx.upsert(Table.WRITES, row)
            tx.put_many(Table.WRITES, [row for row in rows_by_task.values() if row["idx"] >= 0])
            return nums

        nums = await recorder.write(store)
        for entry, values in prepared:
            memory = self._memory.get((entry.thread_id, entry.ns))
            if memory is None or memory.checkpoint_id != entry.checkpoint_id:
                continue
            for _, messages in values.values():
                for message, num in zip(messages, nums.get(id(messages), ()), strict=False):
                    memory.pending[message.id or ""] = (num, message)

    def _message_values(self, entry: TaskWrites) -> dict[int, tuple[bool, list[BaseMessage]]]:
        """Writes to the conversation's own channel whose value is messages: by index, (single?, messages)."""
        if entry.ns:
            return {}
        values: dict[int, tuple[bool, list[BaseMessage]]] = {}
        for idx, (channel, value) in enumerate(entry.writes):
            one = is_storable(value)
            if channel == ROOT_CHANNEL and (
                one or (type(value) is list and value and all(map(is_storable, value)))
            ):
                messages = [value] if one else list(value)
                clean(messages)
                values[idx] = (one, messages)
        return values

    def _write_rows(self, entry: TaskWrites, only: frozenset[str] | None = None) -> list[Row]:
        messages = self._message_values(entry) if only is None else {}
        rows: list[Row] = []
        for position, (channel, value) in enumerate(entry.writes):
            idx = WRITES_IDX_MAP.get(channel, position)
            if only is not None and idx >= 0 and channel not in only:
                continue
            typed = (
                (MESSAGE_WRITE, b"")
                if position in messages
                else dump(self.serde, f"a write to {channel}", value)
            )
            rows.append(
                {
                    "thread_id": entry.thread_id,
                    "checkpoint_ns": entry.ns,
                    "checkpoint_id": entry.checkpoint_id,
                    "task_id": entry.task_id,
                    "idx": idx,
                    "channel": channel,
                    "type": typed[0],
                    "value": typed[1],
                    "task_path": entry.task_path,
                    "run_id": self._recorder.fence.run_id if self._recorder is not None else None,
                }
            )
        return rows

    def _still_needed(self, entry: TaskWrites, delta_channels: Any) -> list[Row]:
        """Rows that a finished step leaves behind: errors, interrupts, and deltas that nothing replaces."""
        return self._write_rows(entry, only=frozenset(delta_channels))

    # --- upkeep -----------------------------------------------------------------------------------------------

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove everything that the engine holds of a thread, its messages included."""
        await self._writer().write(lambda tx, _: thread_upkeep.delete_thread(tx, thread_id))
        self._forget(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints and writes of runs; messages stay, others' checkpoints may name them."""
        await self._writer().write(lambda tx, _: thread_upkeep.delete_for_runs(tx, run_ids))
        self._memory.clear()

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread. The target's conversation must exist if the source holds messages."""
        await self._writer().write(
            lambda tx, _: thread_upkeep.copy_thread(tx, source_thread_id, target_thread_id)
        )
        self._forget(target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`keep_latest`: only the newest checkpoint of each namespace stays; `delete`: nothing does."""
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"unknown strategy {strategy!r}; use keep_latest or delete")
        upkeep = thread_upkeep.keep_latest if strategy == "keep_latest" else thread_upkeep.delete_thread

        def prune(tx: Tx, _: Run) -> None:
            for thread_id in thread_ids:
                upkeep(tx, thread_id)

        await self._writer().write(prune)
        for thread_id in thread_ids:
            self._forget(thread_id)

    # --- memory -----------------------------------------------------------------------------------------------

    async def _memory_at(self, thread_id: str, ns: str, checkpoint_id: str | None) -> ThreadMemory:
        memory = self._memory.get((thread_id, ns))
        if memory is not None and memory.checkpoint_id == checkpoint_id:
            return memory
        if checkpoint_id is not None:
            await self.aget_tuple(config_of(thread_id, ns, checkpoint_id))
            memory = self._memory.get((thread_id, ns))
            if memory is not None and memory.checkpoint_id == checkpoint_id:
                return memory
        memory = self._memory[thread_id, ns] = ThreadMemory()
        return memory

    def _remember(self, rows: ThreadRows, found: CheckpointTuple) -> None:
        if self._recorder is None:
            return
        checkpoint, placement = rows.unpacked[0]
        versions = checkpoint["channel_versions"]
        memory = ThreadMemory(checkpoint["id"], logs_at(rows, 0, found.checkpoint["channel_values"]))
        memory.after_input = rows.checkpoints[0]["source"] != "loop"
        for channel, typed in placement.inline.items():
            memory.placed[channel] = (versions.get(channel), typed)
        for channel in placement.blobs:
            memory.placed[channel] = (versions.get(channel), None)
        for row in rows.written.values():
            if row["log_seq"] is None and row["num"] in rows.built:
                memory.pending[row["id"]] = (row["num"], rows.built[row["num"]])
        self._memory[rows.thread_id, rows.ns] = memory

    def _forget(self, thread_id: str) -> None:
        for key in [key for key in self._memory if key[0] == thread_id]:
            del self._memory[key]

    def _writer(self) -> Recorder:
        if self._recorder is None:
            raise PermissionError("this checkpointer only reads; a run's recorder is needed to write")
        return self._recorder


def _can_write(source: Recorder | Store) -> TypeGuard[Recorder]:
    return hasattr(source, "fence")


def _address(config: RunnableConfig) -> tuple[str, str, str | None]:
    configurable = config["configurable"]
    return (
        str(configurable["thread_id"]),
        configurable.get("checkpoint_ns") or "",
        configurable.get("checkpoint_id") or None,
    )


def _listing(config: RunnableConfig | None, before: RunnableConfig | None) -> Row:
    where: Row = {}
    if config is not None:
        configurable = config["configurable"]
        where["thread_id"] = str(configurable["thread_id"])
        for key in ("checkpoint_ns", "checkpoint_id"):
            if configurable.get(key) is not None:
                where[key] = configurable[key]
    if before is not None:
        limit = before["configurable"].get("checkpoint_id")
        if limit and where.get("checkpoint_id", "") < limit:
            where.setdefault("checkpoint_id", Lt(limit))
        elif limit and "checkpoint_id" in where:
            where["checkpoint_id"] = In(())
    return where


def _without_stored(
    tx: ReadTx, entries: Sequence[TaskWrites], rows: Sequence[Row]
) -> dict[tuple[str, str, str, int], Row]:
    """Copies of the rows that are not in the store yet; special writes always, they replace."""
    stored: set[tuple[str, str, str, int]] = set()
    for thread_id in {entry.thread_id for entry in entries}:
        mine = [entry for entry in entries if entry.thread_id == thread_id]
        where = {
            "thread_id": thread_id,
            "checkpoint_id": In(sorted({entry.checkpoint_id for entry in mine})),
            "task_id": In(sorted({entry.task_id for entry in mine})),
        }
        columns = ("task_id", "checkpoint_id", "checkpoint_ns", "idx")
        for row in tx.find(Table.WRITES, where, columns=columns):
            stored.add(_write_key(row))
    return {_write_key(row): dict(row) for row in rows if row["idx"] < 0 or _write_key(row) not in stored}


def _write_key(row: Row) -> tuple[str, str, str, int]:
    return row["task_id"], row["checkpoint_id"], row["checkpoint_ns"], row["idx"]


def _pending_row(entry: TaskWrites, message: BaseMessage, num: int, run: Run, tx: Tx) -> Row:
    return {
        **to_row(message),
        "conversation_id": entry.thread_id,
        "num": num,
        "position": num,
        "run_id": run.id,
        "interrupted": False,
        "hidden": False,
        "ns": entry.ns,
        "channel": ROOT_CHANNEL,
        "log_seq": None,
        "pending_of": entry.checkpoint_id,
        "created_at": tx.now(),
    }
