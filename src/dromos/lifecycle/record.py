"""The fence: what may still be written on behalf of a run, and by whom.

Every write for a run passes here with the run's row locked: the epoch must be the writer's, and the status must
take the write. Anything else is `LeaseLost`, and the writer stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from dromos.domain.errors import LeaseLost
from dromos.domain.runs import Fence, Run
from dromos.domain.statuses import RunStatus
from dromos.lifecycle.change import Change, Conversation
from dromos.ports.meter import Meter
from dromos.ports.probe import Moment, Point, Probe
from dromos.ports.store import ReadTx, Store, Tx

T = TypeVar("T")


def fenced(run: Run | None, fence: Fence, *, while_cancelling: bool) -> Run:
    """The run, if a writer with `fence` may write now. Raises `LeaseLost`."""
    if run is None:
        raise LeaseLost(f"run {fence.run_id} is gone")
    if run.epoch != fence.epoch:
        raise LeaseLost(f"run {run.id} is at epoch {run.epoch}, this writer at {fence.epoch}")
    if run.status is RunStatus.RUNNING or (while_cancelling and run.status is RunStatus.CANCELLING):
        return run
    raise LeaseLost(f"run {run.id} is {run.status} and takes no such write")


def lock_owned(
    change: Change,
    fence: Fence,
    then: Callable[[str, str], Sequence[Callable[[ReadTx], object]]] | None = None,
) -> tuple[Conversation, Run]:
    """The run of `fence` and its conversation, locked in the lock order, running or cancelling.

    `then`: what is read next of that conversation and that run.
    """
    conversation_id = _conversation_of(change.tx, fence)
    reads = then(conversation_id, fence.run_id) if then is not None else ()
    locked = change.tx.lock_run(fence.run_id, within=conversation_id, then=reads)
    conversation = change.lock_conversation(conversation_id)
    run = fenced(locked, fence, while_cancelling=True)
    if conversation is None:
        raise LeaseLost(f"the conversation of run {run.id} is gone")
    return conversation, run


def _conversation_of(tx: Tx, fence: Fence) -> str:
    if fence.conversation_id is not None:
        return fence.conversation_id
    return fenced(tx.load_run(fence.run_id), fence, while_cancelling=True).conversation_id


class FencedRecorder:
    """`ports.recorder.Recorder` over the store."""

    def __init__(self, store: Store, fence: Fence, meter: Meter, probe: Probe) -> None:
        self._store, self.fence, self._meter, self._probe = store, fence, meter, probe

    async def write(
        self,
        fn: Callable[[Tx, Run], T],
        *,
        while_cancelling: bool = False,
        messages: bool = False,
        point: Point = Point.RECORD,
    ) -> T:
        fence = self.fence

        def operation(tx: Tx) -> T:
            within = _conversation_of(tx, fence) if messages else None
            run = fenced(tx.lock_run(fence.run_id, within=within), fence, while_cancelling=while_cancelling)
            value = fn(tx, run)
            self._probe.reach(point.at(Moment.WRITTEN))
            return value

        try:
            value = await self._store.write(operation)
        except LeaseLost:
            self._meter.late_write()
            raise
        self._probe.reach(point.at(Moment.COMMITTED))
        return value

    async def read(self, fn: Callable[[ReadTx], T]) -> T:
        return await self._store.read(fn)
