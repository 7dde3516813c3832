"""LangGraph's checkpointer over the store: every write fenced by the run's epoch, each message stored once.

One instance serves one attempt (with a `Recorder`) or only reads (without). A checkpoint is one transaction: its row,
changed values, new messages, and the records of the steps it ends. The writes of tasks wait a moment for that
transaction (`pending_writes`). It must not know runs beyond their id, nor what a graph does.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeGuard

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)

from dromos.agents.langgraph import thread_upkeep
from dromos.agents.langgraph.blocking_saver import BlockingSaver
from dromos.agents.langgraph.checkpoint_plan import ROOT_CHANNEL, CheckpointPlan, ThreadMemory, plan
from dromos.agents.langgraph.pending_writes import PendingWrites, TaskWrites, settle
from dromos.agents.langgraph.state_serde import StateSerializer
from dromos.agents.langgraph.steering import Entrance
from dromos.agents.langgraph.thread_log import Place
from dromos.agents.langgraph.thread_reads import (
    ThreadRows,
    config_of,
    logs_at,
    rows_of,
    tuple_at,
)
from dromos.agents.langgraph.write_rows import WritePlan, rows_left_by
from dromos.domain.runs import Run
from dromos.ports.probe import Point
from dromos.ports.recorder import Recorder
from dromos.ports.store import In, Lt, ReadTx, Row, Store, Table, Tx

_VERSION_BITS = 20
_FILTER_COLUMNS = frozenset({"run_id", "source", "step"})


class Checkpointer(BlockingSaver):
    """Make it inside the event loop that will use it.

    `source` is the attempt's recorder, or a store to read only. `step_rows(checkpoint_id)` gives the rows of
    `run_steps` that are to be stored with a root checkpoint, `new_cost()` the run's cost where it changed; `on_commit`
    is called when they are. `entrance` is where messages that steer the run come in. `entry_node` says that the graph
    takes its input in by a node of LangGraph's own: no work is done between the checkpoint of the input and the next,
    so both are stored as one. `thread_is_new` says that there is nothing to be read yet. Raises `LeaseLost` where the
    run is no longer owned, `StateUnreadable` and `StateNotStorable` naming the field.
    """

    serde: StateSerializer

    def __init__(
        self,
        source: Recorder | Store,
        *,
        step_rows: Callable[[str], list[Row]] | None = None,
        new_cost: Callable[[], Mapping[str, Any] | None] | None = None,
        on_commit: Callable[[], None] | None = None,
        entrance: Entrance | None = None,
        entry_node: bool = False,
        thread_is_new: bool = False,
    ) -> None:
        super().__init__(serde=StateSerializer())
        self.serde = StateSerializer()
        self.loop = asyncio.get_running_loop()
        self.commits = 0
        self.steps = 0  # of the root graph, stored by this instance; the taking in of an input is none
        self._source = source
        self._recorder: Recorder | None = source if _can_write(source) else None
        self._step_rows, self._new_cost = step_rows, new_cost
        self._on_commit = on_commit
        self.entrance = entrance
        self._entry_node = entry_node
        self._new_thread = self._recorder.fence.conversation_id if thread_is_new and self._recorder else None
        self._is_empty = thread_is_new  # that thread, until something is stored here
        self._input: CheckpointPlan | None = (
            None  # the checkpoint of an input, until the next one takes it along
        )
        self.on_writes: Callable[[Tx, Run, Sequence[TaskWrites]], None] | None = None
        """Called in each transaction that stores what tasks wrote, or the checkpoint that makes it superfluous."""
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
        await self._store_input()
        thread_id, ns, checkpoint_id = _address(config)
        if self._is_empty and thread_id == self._new_thread and checkpoint_id is None:
            return None
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
        """Store a checkpoint; returns when it is on disk. That of an input may wait for the next one (`entry_node`)."""
        thread_id, ns, parent_id = _address(config)
        recorder = self._writer()
        self._is_empty = False
        held = await self._pending.take(thread_id, ns, parent_id)
        try:
            memory = await self._memory_at(thread_id, ns, parent_id)
            facts = get_serializable_checkpoint_metadata(config, metadata)
            facts.setdefault("run_id", recorder.fence.run_id)
            made = plan(thread_id, ns, checkpoint, parent_id, facts, memory, new_versions, self.serde)
            delta = facts.get("counters_since_delta_snapshot") or {}
            made.writes = rows_left_by(held, self.serde, recorder.fence.run_id, delta)
            made.also = self._noting(held)
            if self._step_rows is not None and ns == "":
                made.steps = self._step_rows(checkpoint["id"])
                made.cost = self._new_cost() if self._new_cost is not None else None
            if self._entry_node and self._input is None and made.only_takes_in and not made.steps:
                self._input = made
                made.commit({})
                return config_of(thread_id, ns, checkpoint["id"])
            made.before, self._input = self._input, None
            with self._pending:
                places = await self._store(recorder, made, checkpoint)
        except BaseException as error:
            settle(held, error)
            raise
        if ns == "" and metadata.get("source") == "loop" and not memory.after_input:
            self.steps += 1
        made.commit(places)
        if made.entered and self.entrance is not None:
            self.entrance.used = True
            self._memory.pop((thread_id, ns))  # what the engine holds in memory is not what is stored
        settle(held)
        self.commits += 1
        if self._on_commit is not None and ns == "":
            self._on_commit()
        return config_of(thread_id, ns, checkpoint["id"])

    async def _store(
        self, recorder: Recorder, made: CheckpointPlan, checkpoint: Checkpoint
    ) -> dict[str, list[Place]]:
        entrance = self.entrance
        if made.ns or entrance is None:
            return await recorder.write(made.apply, messages=made.has_new_messages, point=Point.CHECKPOINT)
        if entrance.used:
            raise RuntimeError("the engine went on from a state that a message had been added to")
        if made.metadata.get("source") == "loop" and made.holds_conversation and entrance.is_open(checkpoint):
            return await entrance.steering.write(made.apply, point=Point.CHECKPOINT)
        return await recorder.write(made.apply, messages=made.has_new_messages, point=Point.CHECKPOINT)

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
        await self._store_input()

    async def _store_input(self) -> None:
        made, self._input = self._input, None
        if made is not None:
            await self._writer().write(made.apply, point=Point.CHECKPOINT)
            self.commits += 1

    async def _store_writes(self, entries: list[TaskWrites]) -> None:
        """Store the writes of tasks whose step goes on."""
        recorder = self._writer()
        await self._store_input()
        prepared = WritePlan(entries, self.serde, recorder.fence.run_id, self._holds)
        prepared.also = self._noting(entries)
        stored = await recorder.write(prepared.apply, messages=prepared.has_messages, point=Point.TASK_WRITES)
        for entry, message, num in stored:
            memory = self._memory.get((entry.thread_id, entry.ns))
            if memory is not None and memory.checkpoint_id == entry.checkpoint_id:
                memory.pending[message.id or ""] = (num, message)

    def _noting(self, entries: Sequence[TaskWrites]) -> Callable[[Tx, Run], None] | None:
        on_writes = self.on_writes
        return None if on_writes is None else lambda tx, run: on_writes(tx, run, entries)

    def _holds(self, entry: TaskWrites, message_id: str) -> bool:
        memory = self._memory.get((entry.thread_id, entry.ns))
        log = memory.logs.get(ROOT_CHANNEL) if memory is not None else None
        return log is not None and message_id in log.ids

    # --- upkeep -----------------------------------------------------------------------------------------------

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove everything that the engine holds of a thread, its messages included."""
        await self._writer().write(
            lambda tx, _: thread_upkeep.delete_thread(tx, thread_id), point=Point.THREAD_UPKEEP
        )
        self._forget(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints and writes of runs; messages stay, others' checkpoints may name them."""
        await self._writer().write(
            lambda tx, _: thread_upkeep.delete_for_runs(tx, run_ids), point=Point.THREAD_UPKEEP
        )
        self._memory.clear()

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread. The target's conversation must exist if the source holds messages."""
        await self._writer().write(
            lambda tx, _: thread_upkeep.copy_thread(tx, source_thread_id, target_thread_id),
            messages=True,
            point=Point.THREAD_UPKEEP,
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

        await self._writer().write(prune, point=Point.THREAD_UPKEEP)
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
        begins = thread_id == self._new_thread and ns == "" and checkpoint_id is None
        memory = self._memory[thread_id, ns] = ThreadMemory(begins=begins)
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
