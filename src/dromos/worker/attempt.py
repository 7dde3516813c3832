"""One attempt of one run, as a pipeline: agent → input → document → engine → end.

It owns the task in which the engine runs, so that a stop, a drain or a lost lease can reach it. It decides nothing
about statuses: every end is handed to the lifecycle, which compares before it writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import chain, repeat
from typing import Any, TypeVar

import structlog

from dromos.domain.document import carried_over
from dromos.domain.errors import LeaseLost, Refusal, Unavailable
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.retries import DEFAULT_POLICIES, RetryPolicy, next_try
from dromos.domain.stalls import Stall, StallLimits, stalled_text
from dromos.domain.statuses import RunStatus
from dromos.domain.text import clean_text
from dromos.lifecycle import Lifecycle
from dromos.lifecycle.contract import Claimed
from dromos.ports.agent import Agent, Agents, Attempt, Drained, Failed, Finished, Outcome, TryLater
from dromos.ports.clock import Clock
from dromos.ports.journal import CallGate, Desk
from dromos.ports.live import LiveDocuments, LiveRun
from dromos.ports.wakeup import Wakeup, run_topic
from dromos.worker.cutting import LET_GO_SECONDS, let_go, tell_of_calls
from dromos.worker.in_flight import CallsInFlight
from dromos.worker.stall import ActivePen, watch_for_stall

log = structlog.get_logger("dromos.worker")

T = TypeVar("T")

SAVE_SECONDS = 1.0
STORE_BACKOFF = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between tries to reach a store that is away; the last repeats."""


class AttemptRunner:
    """Carries out one claimed run. `run()` returns when the attempt's end is on disk or belongs to somebody else."""

    def __init__(
        self,
        claimed: Claimed,
        lifecycle: Lifecycle,
        live: LiveDocuments,
        wakeup: Wakeup,
        agents: Agents,
        gate: CallGate,
        *,
        clock: Clock,
        stop_deadline: float,
        stall: StallLimits,
        on_due: Callable[[float], None],
        retries: Mapping[ErrorCode, RetryPolicy] = DEFAULT_POLICIES,
    ) -> None:
        self.claimed, self.lifecycle, self.live = claimed, lifecycle, live
        self.wakeup, self.agents, self.gate, self.clock = wakeup, agents, gate, clock
        self.stop_deadline, self.stall, self.on_due = stop_deadline, stall, on_due
        self.retries = retries
        self._drain = asyncio.Event()  # for the agent: stop at the next step boundary
        self._look = asyncio.Event()  # for the watch: something about the run changed
        self._cut = asyncio.Event()  # nobody waits any longer
        self._abandoned = False
        self._in_flight = CallsInFlight()

    def look(self) -> None:
        """Something about the run may have changed; losing this costs latency only."""
        self._look.set()

    def drain(self) -> None:
        """Ask the agent to stop at the next step boundary."""
        self._drain.set()

    def cut(self) -> None:
        """The drain's time is over: cut the engine and hand the run back."""
        self._cut.set()
        self._drain.set()
        self._look.set()

    def abandon(self) -> None:
        """The lease is gone: cut the engine and write nothing more."""
        self._abandoned = True
        self._look.set()

    async def run(self) -> None:
        run = self.claimed.run
        bound = log.bind(run_id=run.id, attempt=run.attempt)
        try:
            agent = self.agents.get(run.agent)
            if agent is None:
                await self._end(
                    Failed(ErrorCode.CONFIG_INVALID, _unknown_agent(run.agent, self.agents)), None
                )
                return
            await self._carry_out(agent)
        except LeaseLost:
            bound.warning(
                "attempt.lease_lost", hint="another owner has the run; nothing more is written here"
            )
        except Refusal as refusal:
            bound.warning("attempt.refused", code=refusal.code, detail=refusal.detail)
        except Exception as error:  # our own fault: the run must not stay "running" with nobody at work
            bound.exception("attempt.broken")
            await self._end(Failed(ErrorCode.INTERNAL, clean_text(f"{type(error).__name__}: {error}")), None)

    async def _carry_out(self, agent: Agent) -> None:
        run, fence = self.claimed.run, self.claimed.fence
        engine_input = self.claimed.input
        if not self.claimed.composed:
            try:
                engine_input = await self.lifecycle.compose_input(fence, agent.compose)
            except LeaseLost:
                if await self._surely(self._status) is not RunStatus.CANCELLING:
                    raise
                await self._end_stopped(forced=False)
                return
        previous = self.claimed.previous_document
        content = carried_over(previous["content"] if previous else None)
        live = ActivePen(
            self.live.open(run.id, run.conversation_id, run.epoch, content), self.clock.monotonic
        )
        attempt = Attempt(
            run,
            engine_input,
            self.lifecycle.recorder(fence),
            live,
            self._drain,
            note_tries=partial(self.lifecycle.note_tries, fence),
            steer=self.lifecycle.steering(fence),
            decisions=self.claimed.decisions,
            desk=Desk(self.gate, self.lifecycle.journal(fence), self._in_flight),
            begins=self.claimed.begins,
        )
        stop_listening = self.wakeup.listen(run_topic(run.id), self._look.set)
        engine = asyncio.create_task(self._engine(agent, attempt), name=f"engine:{run.id}")
        try:
            outcome = await self._watch(engine, attempt, live)
            if outcome is not None:
                await self._end(outcome, live)
        finally:
            stop_listening()
            if not engine.done():  # its end is written, or belongs to somebody else
                engine.add_done_callback(self._note_late)
            await _over(engine, patience=LET_GO_SECONDS if self._cut.is_set() else self.stop_deadline)
            live.close()

    async def _watch(
        self, engine: asyncio.Task[Outcome], attempt: Attempt, live: ActivePen
    ) -> Outcome | None:
        """Follow the engine beside the watches for a stop and for stalls; None where the end is written already.

        A run that is over sooner is neither saved in between nor silent: it does without those tasks.
        """
        loop = asyncio.get_running_loop()
        saving_from = loop.time() + SAVE_SECONDS
        watching_from = min(saving_from, loop.time() + (self.stall.shortest or SAVE_SECONDS))
        watches: tuple[asyncio.Task[None], asyncio.Task[Stall]] | None = None
        try:
            while True:
                look = asyncio.create_task(self._look.wait(), name=f"look:{attempt.run.id}")
                left = max(0.0, watching_from - loop.time()) if watches is None else None
                await asyncio.wait(
                    {engine, look, *(watches or ())}, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                look.cancel()
                if engine.done():
                    return await self._outcome(engine, attempt)
                if watches is None:
                    if loop.time() >= watching_from:
                        watches = self._watches(live, saving_from)
                else:
                    saver, silence = watches
                    if saver.done():
                        saver.result()  # raises: the document could not be saved because the run is not ours
                    if silence.done():
                        return await self._end_stalled(engine, attempt, silence.result())
                if not self._look.is_set():
                    continue
                self._look.clear()
                if self._abandoned:
                    raise LeaseLost
                if self._cut.is_set():
                    await let_go(engine, LET_GO_SECONDS, asyncio.Event())
                    return _result(engine) or Drained()
                try:
                    status = await self._status()
                except Unavailable:  # nobody can tell; the engine may go on, its writes are fenced
                    asyncio.get_running_loop().call_later(SAVE_SECONDS, self._look.set)
                    continue
                if status is RunStatus.CANCELLING:
                    await self._stop(engine, attempt)
                    return None
                if status is not RunStatus.RUNNING:
                    raise LeaseLost
        finally:
            if watches is not None:
                await _over(*watches, patience=self.stop_deadline)

    def _watches(self, live: ActivePen, saving_from: float) -> tuple[asyncio.Task[None], asyncio.Task[Stall]]:
        """The tasks that save the document and look for silence."""
        run_id = self.claimed.run.id
        return (
            asyncio.create_task(self._save_document(live, saving_from), name=f"saver:{run_id}"),
            asyncio.create_task(watch_for_stall(live, self.stall, self.clock), name=f"silence:{run_id}"),
        )

    async def _outcome(self, engine: asyncio.Task[Outcome], attempt: Attempt) -> Outcome | None:
        """What the engine came to; a write that was refused because of a stop is the stop itself, come early."""
        try:
            return engine.result()
        except LeaseLost:
            if self._abandoned or await self._surely(self._status) is not RunStatus.CANCELLING:
                raise
            await self._stop(engine, attempt)
            return None

    async def _end_stalled(
        self, engine: asyncio.Task[Outcome], attempt: Attempt, stall: Stall
    ) -> Outcome | None:
        """Cut a silent engine. Its step is tried again where the policy says so, nothing outside may have happened or
        may happen yet, and a try is left."""
        over = await let_go(engine, self.stop_deadline, self._cut)
        outcome = _result(engine)
        if outcome is not None:
            return outcome  # it came to an end at the last moment
        status = await self._surely(self._status)
        if status is RunStatus.CANCELLING:
            await self._end_stopped(forced=not over, attempt=attempt)
            return None
        if status is not RunStatus.RUNNING:
            raise LeaseLost
        fence = self.claimed.fence
        recorded = await self._surely(lambda: self.lifecycle.unknown_calls_under(fence))
        unknown = ", ".join(dict.fromkeys([*attempt.unknown_calls, *recorded]))
        tries = await self._surely(lambda: self.lifecycle.tries_under(fence))
        retry = next_try(ErrorCode.STALLED, tries, policies=self.retries)
        if self.stall.policy != "retry" or unknown or not over or retry is None:
            return Failed(ErrorCode.STALLED, stalled_text(stall, unknown))
        then = f"try {retry.attempt} of {retry.of_attempts}"
        return TryLater(Reason.STALLED, retry.delay, retry.tries, then)

    async def _engine(self, agent: Agent, attempt: Attempt) -> Outcome:
        try:
            return await agent.attempt(attempt)
        except Unavailable as error:
            return Failed(ErrorCode.INTERNAL, error.detail)
        except Exception as error:  # an adapter's own fault must still give the run its end
            log.exception("attempt.adapter_failed", run_id=attempt.run.id)
            return Failed(ErrorCode.AGENT_FAILURE, clean_text(f"{type(error).__name__}: {error}"))

    async def _stop(self, engine: asyncio.Task[Outcome], attempt: Attempt) -> None:
        """Carry out an accepted stop: cut the engine, wait for what may not be cut and show it, write the end."""
        until = self.clock.monotonic() + self.stop_deadline
        note = partial(self.lifecycle.note_waiting_for, self.claimed.fence)
        telling = tell_of_calls(self._in_flight, until, self.clock, note, attempt.live)
        showing = asyncio.create_task(telling, name=f"stopping:{attempt.run.id}")
        try:
            over = await let_go(engine, self.stop_deadline, self._cut)
            over = over and await self._nothing_remains(until)
        finally:
            await _over(showing, patience=self.stop_deadline)
        outcome = _result(engine)
        if isinstance(outcome, Finished):
            await self._end(outcome, attempt.live)  # the work was done before the stop arrived
            return
        await self._end_stopped(forced=not over, attempt=attempt)

    async def _nothing_remains(self, until: float) -> bool:
        """Wait for what is still being ended behind calls that were cut; False where the time is over before."""
        over = asyncio.create_task(self._in_flight.over(), name=f"remains:{self.claimed.run.id}")
        hurried = asyncio.create_task(self._cut.wait(), name=f"hurry:{self.claimed.run.id}")
        left = max(0.0, until - self.clock.monotonic())
        await asyncio.wait({over, hurried}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        nothing = over.done()
        over.cancel()
        hurried.cancel()
        return nothing

    async def _end_stopped(self, *, forced: bool, attempt: Attempt | None = None) -> None:
        fence = self.claimed.fence
        unknown_calls = tuple(attempt.unknown_calls) if attempt is not None else ()
        document = attempt.live.snapshot() if attempt is not None else None
        await self._surely(
            lambda: self.lifecycle.end_stopped(
                fence, forced=forced, unknown_calls=unknown_calls, document=document
            )
        )

    async def _surely(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the store says or takes, however long it is away: what becomes of the run depends on it. Writes are
        fenced, so a repeat after an unclear commit is safe."""
        for delay in chain(STORE_BACKOFF, repeat(STORE_BACKOFF[-1])):
            try:
                return await ask()
            except Unavailable as error:
                log.error("attempt.store_away", run_id=self.claimed.run.id, detail=error.detail)
                await asyncio.sleep(delay)
        raise AssertionError("the delays never end")

    async def _status(self) -> RunStatus | None:
        """The run's status if it is still ours, else None."""
        return await self.lifecycle.status_under(self.claimed.fence)

    def _note_late(self, engine: asyncio.Task[Outcome]) -> None:
        """A success that an engine comes to behind the end is told and counted; nothing else is done with it."""
        cut = engine.cancelled() or engine.exception() is not None
        if not cut and isinstance(engine.result(), Finished):
            run, hint = self.claimed.run, "the run has its end, or another owner; nothing of this is kept"
            self.lifecycle.meter.late_write()
            log.warning("attempt.late_result", run_id=run.id, attempt=run.attempt, hint=hint)

    async def _save_document(self, live: ActivePen, due: float) -> None:
        """Save the document at most once a second while it changes, first when the loop's clock says `due`. A store
        that is away is left for later."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(due - loop.time())
            due = loop.time() + SAVE_SECONDS
            if not live.changed:
                continue
            live.note_activity(self.clock)
            live.changed = False
            try:
                await self.lifecycle.save_document(self.claimed.fence, live.snapshot())
            except Unavailable as error:
                live.changed = True
                log.warning("document.not_saved", run_id=self.claimed.run.id, detail=error.detail)

    async def _end(self, outcome: Outcome, live: LiveRun | None) -> None:
        snapshot = live.snapshot() if live is not None else None
        await self._surely(lambda: self.lifecycle.end_attempt(self.claimed.fence, outcome, snapshot))
        if isinstance(outcome, TryLater):
            self.on_due(outcome.delay)


async def _over(*tasks: asyncio.Task[Any], patience: float) -> None:
    """End what still goes on, and look at how it ended: of a run that is over or not ours that is no news.

    What takes longer than `patience` waits for something; that is cut then, and nobody waits for it any more.
    """
    for task in tasks:
        task.cancel()
    ended, late = await asyncio.wait(tasks, timeout=patience)
    for task in ended:
        _looked_at(task)
    for task in late:
        task.cancel()
        task.add_done_callback(_looked_at)


def _looked_at(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _result(engine: asyncio.Task[Outcome]) -> Outcome | None:
    """What the engine returned, or None where it was cut or still runs."""
    if not engine.done() or engine.cancelled() or isinstance(engine.exception(), LeaseLost):
        return None
    return engine.result()


def _unknown_agent(name: str, agents: Agents) -> str:
    known = ", ".join(info.name for info in agents.infos())
    return f"No agent is called {name!r}. Known: {known}. Name one of them, or add [agents.{name}] to dromos.toml."
