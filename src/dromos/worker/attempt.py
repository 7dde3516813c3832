"""One attempt of one run, as a pipeline: agent → input → document → engine → end.

It owns the task in which the engine runs, so that a stop, a drain or a lost lease can reach it. It decides nothing
about statuses: every end is handed to the lifecycle, which compares before it writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat

import structlog

from dromos.domain.document import carried_over
from dromos.domain.errors import LeaseLost, Refusal, Unavailable
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.retries import DEFAULT_POLICIES, RetryPolicy, next_try
from dromos.domain.statuses import RunStatus
from dromos.domain.text import clean_text
from dromos.lifecycle import Lifecycle
from dromos.lifecycle.contract import Claimed
from dromos.ports.agent import Agent, Agents, Attempt, Drained, Failed, Finished, Outcome, TryLater
from dromos.ports.clock import Clock
from dromos.ports.live import DocumentSnapshot, LiveDocuments, LiveRun
from dromos.ports.wakeup import Wakeup, run_topic
from dromos.worker.stall import ActivePen, Stall, StallLimits, watch_for_stall

log = structlog.get_logger("dromos.worker")

SAVE_SECONDS = 1.0
STORE_BACKOFF = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between tries to write an attempt's end while the store is away; the last repeats."""


class AttemptRunner:
    """Carries out one claimed run. `run()` returns when the attempt's end is on disk or belongs to somebody else."""

    def __init__(
        self,
        claimed: Claimed,
        lifecycle: Lifecycle,
        live: LiveDocuments,
        wakeup: Wakeup,
        agents: Agents,
        *,
        clock: Clock,
        stop_deadline: float,
        stall: StallLimits,
        on_due: Callable[[float], None],
        retries: Mapping[ErrorCode, RetryPolicy] = DEFAULT_POLICIES,
    ) -> None:
        self.claimed, self.lifecycle, self.live = claimed, lifecycle, live
        self.wakeup, self.agents, self.clock = wakeup, agents, clock
        self.stop_deadline, self.stall, self.on_due = stop_deadline, stall, on_due
        self.retries = retries
        self._drain = asyncio.Event()  # for the agent: stop at the next step boundary
        self._look = asyncio.Event()  # for the watch: something about the run changed
        self._cut = self._abandoned = False

    def look(self) -> None:
        """Something about the run may have changed; losing this costs latency only."""
        self._look.set()

    def drain(self) -> None:
        """Ask the agent to stop at the next step boundary."""
        self._drain.set()

    def cut(self) -> None:
        """The drain's time is over: cut the engine and hand the run back."""
        self._cut = True
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
                if await self._status() is not RunStatus.CANCELLING:
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
        )
        stop_listening = self.wakeup.listen(run_topic(run.id), self._look.set)
        try:
            outcome = await self._watch(agent, attempt, live)
            if outcome is not None:
                await self._end(outcome, live)
        finally:
            stop_listening()
            live.close()

    async def _watch(self, agent: Agent, attempt: Attempt, live: ActivePen) -> Outcome | None:
        """Run the engine beside the watches for a stop and for stalls; None where the end is written already."""
        engine = asyncio.create_task(self._engine(agent, attempt), name=f"engine:{attempt.run.id}")
        saver = asyncio.create_task(self._save_document(live), name=f"saver:{attempt.run.id}")
        silence = asyncio.create_task(
            watch_for_stall(live, self.stall, self.clock), name=f"silence:{attempt.run.id}"
        )
        try:
            while True:
                look = asyncio.create_task(self._look.wait(), name=f"look:{attempt.run.id}")
                await asyncio.wait({engine, look, saver, silence}, return_when=asyncio.FIRST_COMPLETED)
                look.cancel()
                if engine.done():
                    return await self._outcome(engine, attempt)
                if saver.done():
                    saver.result()  # raises: the document could not be saved because the run is not ours
                if silence.done():
                    return await self._end_stalled(engine, attempt, silence.result())
                self._look.clear()
                if self._abandoned:
                    raise LeaseLost
                if self._cut:
                    await self._cancel(engine)
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
            for task in (engine, saver, silence):
                task.cancel()
            ended, _ = await asyncio.wait({engine, saver, silence}, timeout=self.stop_deadline)
            for over in ended:
                if not over.cancelled():
                    over.exception()  # looked at: what it says about a run that is over or not ours is no news

    async def _outcome(self, engine: asyncio.Task[Outcome], attempt: Attempt) -> Outcome | None:
        """What the engine came to; a write that was refused because of a stop is the stop itself, come early."""
        try:
            return engine.result()
        except LeaseLost:
            if self._abandoned or await self._status() is not RunStatus.CANCELLING:
                raise
            await self._stop(engine, attempt)
            return None

    async def _end_stalled(
        self, engine: asyncio.Task[Outcome], attempt: Attempt, stall: Stall
    ) -> Outcome | None:
        """Cut a silent engine. Its step is tried again where the policy says so, nothing outside may have happened or
        may happen yet, and a try is left."""
        let_go = await self._cancel(engine)
        outcome = _result(engine)
        if outcome is not None:
            return outcome  # it came to an end at the last moment
        status = await self._status()
        if status is RunStatus.CANCELLING:
            await self._end_stopped(
                forced=not let_go, unknown_calls=attempt.unknown_calls, document=attempt.live.snapshot()
            )
            return None
        if status is not RunStatus.RUNNING:
            raise LeaseLost
        unknown = ", ".join(attempt.unknown_calls)
        tries = await self.lifecycle.tries_under(self.claimed.fence)
        retry = next_try(ErrorCode.STALLED, tries, policies=self.retries)
        if self.stall.policy != "retry" or unknown or not let_go or retry is None:
            return Failed(ErrorCode.STALLED, _stalled_text(stall, unknown))
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
        """Carry out an accepted stop: cut the engine, wait for what may not be cut, write the end."""
        stopped = await self._cancel(engine)
        outcome = _result(engine)
        if isinstance(outcome, Finished):
            await self._end(outcome, attempt.live)  # the work was done before the stop arrived
            return
        await self._end_stopped(
            forced=not stopped, unknown_calls=attempt.unknown_calls, document=attempt.live.snapshot()
        )

    async def _end_stopped(
        self,
        *,
        forced: bool,
        unknown_calls: Sequence[str] = (),
        document: DocumentSnapshot | None = None,
    ) -> None:
        fence = self.claimed.fence
        await self._persist(
            lambda: self.lifecycle.end_stopped(
                fence, forced=forced, unknown_calls=unknown_calls, document=document
            )
        )

    async def _cancel(self, engine: asyncio.Task[Outcome]) -> bool:
        """True once the engine has let go; False where it did not within the deadline."""
        engine.cancel()
        done, _ = await asyncio.wait({engine}, timeout=self.stop_deadline)
        return bool(done)

    async def _status(self) -> RunStatus | None:
        """The run's status if it is still ours, else None."""
        return await self.lifecycle.status_under(self.claimed.fence)

    async def _save_document(self, live: ActivePen) -> None:
        """Save the document at most once a second while it changes. A store that is away is left for later."""
        while True:
            await asyncio.sleep(SAVE_SECONDS)
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
        await self._persist(lambda: self.lifecycle.end_attempt(self.claimed.fence, outcome, snapshot))
        if isinstance(outcome, TryLater):
            self.on_due(outcome.delay)

    async def _persist(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write an end, however long the store is away: it is fenced, so a repeat after an unclear commit is safe."""
        for delay in chain(STORE_BACKOFF, repeat(STORE_BACKOFF[-1])):
            try:
                await write()
                return
            except Unavailable as error:
                log.error("attempt.end_not_written", run_id=self.claimed.run.id, detail=error.detail)
                await asyncio.sleep(delay)


def _result(engine: asyncio.Task[Outcome]) -> Outcome | None:
    """What the engine returned, or None where it was cut or still runs."""
    if not engine.done() or engine.cancelled() or isinstance(engine.exception(), LeaseLost):
        return None
    return engine.result()


def _stalled_text(stall: Stall, unknown: str) -> str:
    happened = f" What became of {unknown} is unknown: it may have happened." if unknown else ""
    return f"{stall}{happened} Its work is kept; Continue goes on from the last step."


def _unknown_agent(name: str, agents: Agents) -> str:
    known = ", ".join(info.name for info in agents.infos())
    return f"No agent is called {name!r}. Known: {known}. Name one of them, or add [agents.{name}] to dromos.toml."
