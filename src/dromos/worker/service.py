"""The worker: one incarnation that claims runs while it has free slots, sweeps, and drains when told to.

Wake-ups make it quick, the sweep every three seconds makes it sure. It owns the tasks it starts and awaits them.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from dromos.domain.errors import LeaseLost, Unavailable
from dromos.domain.reasons import ErrorCode
from dromos.domain.retries import DEFAULT_POLICIES, RetryPolicy
from dromos.domain.runs import Fence
from dromos.domain.stalls import StallPolicy
from dromos.domain.statuses import RunStatus
from dromos.lifecycle import Lifecycle
from dromos.lifecycle.claim import Compose
from dromos.lifecycle.contract import Claimed
from dromos.ports.agent import REMOTE, Agents, Failed
from dromos.ports.clock import Clock, Ids
from dromos.ports.journal import CallGate
from dromos.ports.live import LiveDocuments
from dromos.ports.store import LeaseKeeper
from dromos.ports.wakeup import WORK, Wakeup
from dromos.worker.attempt import AttemptRunner
from dromos.worker.heartbeat import Heartbeat

log = structlog.get_logger("dromos.worker")

SWEEP_SECONDS = 3.0
CLAIM_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """`lease` None: the data folder's lock is the proof of life, nothing is renewed and nothing expires."""

    slots: int = 32
    lease: float | None = None
    stop_deadline: float = 15.0
    drain: float = 20.0
    stall: StallPolicy = field(default_factory=StallPolicy)
    retries: Mapping[ErrorCode, RetryPolicy] = field(default_factory=lambda: DEFAULT_POLICIES)


class Worker:
    """`start`, then `drain` (hand everything back) or `aclose`."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        live: LiveDocuments,
        wakeup: Wakeup,
        agents: Agents,
        gate: CallGate,
        clock: Clock,
        ids: Ids,
        options: WorkerOptions,
        keeper: LeaseKeeper | None = None,
    ) -> None:
        self._lifecycle, self._live, self._wakeup, self._agents = lifecycle, live, wakeup, agents
        self._gate, self._clock, self._ids = gate, clock, ids
        self._options, self._keeper = options, keeper
        self._loop = asyncio.get_running_loop()
        self._running: dict[asyncio.Task[None], AttemptRunner] = {}
        self._work = asyncio.Event()
        self._closing = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._heartbeat: Heartbeat | None = None
        self._stop_listening = wakeup.listen(WORK, self._work.set)
        self.owner_id = ""

    @property
    def running(self) -> int:
        """Attempts under way in this process."""
        return len(self._running)

    @property
    def slots(self) -> int:
        return self._options.slots

    async def start(self) -> None:
        """Take an incarnation, take over what dead ones left, then claim and sweep until told to stop."""
        await self._incarnate()
        await self._lifecycle.sweep()
        now = await self._lifecycle.note_presence(self.owner_id)
        self._work.set()
        self._loops = [
            asyncio.create_task(self._claim_loop(), name="worker:claim"),
            asyncio.create_task(self._sweep_loop(now), name="worker:sweep"),
        ]

    async def drain(self) -> None:
        """No new claims; runs get until `drain` seconds to reach a step boundary, then they are handed back."""
        self._closing.set()
        await self._end_loops()
        for runner in self._running.values():
            runner.drain()
        if self._running:
            await asyncio.wait(self._running, timeout=self._options.drain)
        for runner in self._running.values():
            runner.cut()
        if self._running:
            await asyncio.wait(self._running, timeout=2.0)
        await self.aclose()

    async def aclose(self) -> None:
        """Stop at once; what is still under way is left for the next owner."""
        self._closing.set()
        self._stop_listening()
        await self._end_loops()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=2.0)
        if self._heartbeat is not None:
            await asyncio.to_thread(self._heartbeat.stop)
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.close)
        try:
            await self._lifecycle.retire_owner(self.owner_id)
        except Unavailable as error:
            log.warning("worker.not_retired", detail=error.detail)

    async def _end_loops(self) -> None:
        """The claim loop ends by itself: a claim that is under way must not lose what it claimed."""
        self._work.set()
        for task in self._loops[1:]:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []

    async def _incarnate(self) -> None:
        """Take a new incarnation. Its id counts once its lease is stored: without one it could claim nothing."""
        owner_id, lease = self._ids.new(), self._options.lease
        await self._lifecycle.register_owner(owner_id, "worker", socket.gethostname(), os.getpid(), lease)
        self.owner_id = owner_id
        if lease is not None and self._keeper is not None:
            self._heartbeat = Heartbeat(self._keeper, owner_id, lease, self._clock, self._report_lease_lost)
            self._heartbeat.start()

    def _report_lease_lost(self) -> None:
        """From the heartbeat's thread."""
        self._loop.call_soon_threadsafe(self._lease_lost)

    def _lease_lost(self) -> None:
        """This incarnation is over: its attempts stop, and the worker goes on as a new one."""
        for runner in self._running.values():
            runner.abandon()
        self.owner_id = ""
        self._work.set()

    async def _claim_loop(self) -> None:
        while not self._closing.is_set():
            await self._work.wait()
            self._work.clear()
            if self._closing.is_set():
                return
            try:
                if not self.owner_id:
                    await self._incarnate()
                await self._claim()
            except Unavailable as error:
                log.warning("worker.store_away", detail=error.detail)
                self._look_again_in(SWEEP_SECONDS)
            except Exception:  # a fault of ours must not leave a worker that is up and never claims again
                log.exception("worker.claim_failed")
                self._look_again_in(SWEEP_SECONDS)

    async def _claim(self) -> None:
        while not self._closing.is_set() and (free := self._options.slots - len(self._running)) > 0:
            asked, owner_id = min(free, CLAIM_AT_ONCE), self.owner_id
            claimed = await self._lifecycle.claim(
                owner_id, None, asked, self._composers(), without=self._remote()
            )
            if self.owner_id != owner_id:
                return  # that incarnation ended meanwhile; the reaper takes what it claimed
            for one in claimed:
                self._begin(one)
            if len(claimed) < asked:
                return

    def _remote(self) -> list[str]:
        """Agents whose runs are carried out elsewhere. All others are claimed, also those nobody knows: their runs
        end with what is wrong instead of waiting for ever."""
        return [info.name for info in self._agents.infos() if info.kind == REMOTE]

    def _composers(self) -> dict[str, Compose]:
        """How each agent makes its input: the claim's own transaction does it, so that no second one is needed."""
        names = (info.name for info in self._agents.infos())
        return {name: agent.compose for name in names if (agent := self._agents.get(name)) is not None}

    def _begin(self, claimed: Claimed) -> None:
        runner = AttemptRunner(
            claimed,
            self._lifecycle,
            self._live,
            self._wakeup,
            self._agents,
            self._gate,
            clock=self._clock,
            stop_deadline=self._options.stop_deadline,
            stall=self._options.stall.of(claimed.run.agent),
            on_due=self._look_again_in,
            retries=self._options.retries,
        )
        task = asyncio.create_task(runner.run(), name=f"attempt:{claimed.run.id}")
        self._running[task] = runner
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        was_full = len(self._running) >= self._options.slots
        del self._running[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("attempt.crashed", task=task.get_name(), error=repr(error))
        if was_full:  # what waits for a slot; other runs were told of, or are found by the sweep
            self._work.set()

    async def _sweep_loop(self, looked_at: datetime) -> None:
        """Measures by the database's clock how late it looks: a process that was frozen, or a machine that slept, heard
        no adapter meanwhile. Without an incarnation of its own it judges nobody."""
        strays: set[Fence] = set()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                if self.owner_id:
                    due = looked_at + timedelta(seconds=SWEEP_SECONDS)
                    await self._lifecycle.note_presence(self.owner_id, due)
                    await self._lifecycle.sweep()
                    strays = await self._check_owned(strays)
                    looked_at = await self._lifecycle.note_presence(self.owner_id)
            except Unavailable as error:
                log.warning("worker.store_away", detail=error.detail)
            except Exception:
                log.exception("worker.sweep_failed")
            self._work.set()

    async def _check_owned(self, seen_before: set[Fence]) -> set[Fence]:
        """Runs that the rows call ours and nobody here carries out, twice in a row: a fault of ours gets an end.

        The rows also tell of stops whose wake-up was lost.
        """
        owned = await self._lifecycle.owned_by(self.owner_id)
        at_work = {runner.claimed.fence: runner for runner in self._running.values()}
        strays = owned.keys() - at_work.keys()
        for fence, runner in at_work.items():
            if owned.get(fence) is RunStatus.CANCELLING:
                runner.look()
        for fence in strays & seen_before:
            log.error("worker.stray_run", run_id=fence.run_id)
            message = "Its attempt was lost inside the worker; the log says more. Continue goes on from the last step."
            try:
                await self._lifecycle.end_attempt(fence, Failed(ErrorCode.INTERNAL, message), None)
            except LeaseLost:
                continue  # it ended meanwhile
        return strays

    def _look_again_in(self, seconds: float) -> None:
        self._loop.call_later(seconds, self._work.set)
