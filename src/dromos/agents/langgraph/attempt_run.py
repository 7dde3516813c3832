"""One attempt of one run on one graph: from where its thread stands to an outcome.

LangGraph resumes by itself where the same input comes again under the same `run_id`; so every pass, of this attempt
or of a later one, hands it the same. Failures that may pass by are tried again here, after short waits; for long ones
the slot is given back. It must not know queues, leases or HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained, is_invalid_resume
from langgraph.pregel import Pregel
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot

from dromos.agents.langgraph.answers import store_answer
from dromos.agents.langgraph.asking import Asking
from dromos.agents.langgraph.box import BOX_KEY
from dromos.agents.langgraph.breakpoints import Breakpoints
from dromos.agents.langgraph.checkpointer import Checkpointer
from dromos.agents.langgraph.engine_stream import tapped
from dromos.agents.langgraph.failures import Failure, classify, safe_text
from dromos.agents.langgraph.gated import DESK_KEY
from dromos.agents.langgraph.observer import Observer
from dromos.agents.langgraph.pass_calls import CALLS_KEY, PassCalls
from dromos.agents.langgraph.quiet_callbacks import quiet
from dromos.agents.langgraph.threads import AtWork, noting, until_done
from dromos.domain.errors import LeaseLost, Unavailable
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.retries import DEFAULT_POLICIES, Retry, RetryPolicy, next_try
from dromos.domain.runs import Run
from dromos.ports.agent import (
    Attempt,
    Drained,
    Failed,
    Finished,
    Outcome,
    Parked,
    Signal,
    TryLater,
)
from dromos.ports.clock import Clock
from dromos.ports.probe import Point
from dromos.ports.store import ReadTx, Table, Tx

DEFAULT_STEP_LIMIT = 25
"""For a run that was stored without a limit of its own."""
_SPARE = 3
"""LangGraph's limit stands so much above ours that ours is always met first."""
OBSERVER_KEY = "__dromos_observer"
RUN_KEY = "__dromos_run"
"""Keys of `configurable` under which a graph of ours finds the attempt's observer and its run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph made ready for one attempt. `context_limit`: tokens the model can read, where its own server told.

    `extras` go into `configurable` for the graph itself. `answering`: nodes that are known to answer into `messages`.
    """

    graph: Pregel[Any, Any, Any, Any]
    model_name: str = ""
    context_limit: int | None = None
    output: str | None = None
    answering: frozenset[str] = frozenset()
    extras: Mapping[str, Any] = field(default_factory=dict)
    policies: Mapping[ErrorCode, RetryPolicy] = field(default_factory=lambda: DEFAULT_POLICIES)


class _Boundary(RunControl):
    """LangGraph looks here before each step that has work: a drain ends the attempt, and so does the step limit; a
    message that entered ends only the pass.

    LangGraph's own limit is no use for that: it counts differently after a resume, and raises at an exact finish.
    """

    __slots__ = ("_drain", "_left", "_saver")

    def __init__(self, drain: Signal, saver: Checkpointer, left: int) -> None:
        super().__init__()
        self._drain, self._saver = drain, saver
        self._left = saver.steps + left
        if saver.entrance is not None:
            saver.entrance.used = False
            saver.entrance.closed = self._ends_after_this_step

    @property
    def limit_reached(self) -> bool:
        return self._saver.steps >= self._left

    @property
    def message_entered(self) -> bool:
        """The state in the store has a message that this pass does not know."""
        return self._saver.entrance is not None and self._saver.entrance.used

    @property
    def drain_requested(self) -> bool:
        return self._drain.is_set() or self.limit_reached or self.message_entered

    def _ends_after_this_step(self) -> bool:
        return self._drain.is_set() or self._saver.steps + 1 >= self._left


class AttemptRun:
    """Use once: `await AttemptRun(…).carry_out()`."""

    def __init__(
        self, attempt: Attempt, plan: Plan, clock: Clock, observer: Observer, saver: Checkpointer
    ) -> None:
        self.attempt, self.plan, self.clock = attempt, plan, clock
        self.observer, self.saver = observer, saver
        self.graph = plan.graph.copy(update={"checkpointer": saver, "nodes": quiet(plan.graph.nodes)})
        self.tries: dict[str, int] = dict(attempt.run.tries)
        self.threads = AtWork()
        self.stops = Breakpoints(self.graph, self.graph.aget_state)
        self.asking = Asking(attempt.recorder, attempt.run, attempt.decisions, saver.serde, self.stops)
        saver.on_writes = self.asking.note

    async def carry_out(self) -> Outcome:
        """Raises `LeaseLost` and cancellation; every other failure is an outcome."""
        try:
            with noting(self.threads):
                outcome = await self._passes()
            await self._work_over()
        except asyncio.CancelledError:
            await self._put_away(self._work_over())
            raise
        except LeaseLost:
            if await self._is_stopping():
                await _surviving_one_cut(self._put_away(self._work_over()))
            else:
                self.observer.close()
            raise
        self.observer.cut()
        await self._store_left_steps()
        return outcome

    async def _is_stopping(self) -> bool:
        """True where a write was refused because a stop was accepted; False where the run is somebody else's."""
        try:
            await self.attempt.recorder.write(
                lambda tx, run: None, while_cancelling=True, point=Point.LEFT_STEPS
            )
        except (LeaseLost, Unavailable):
            return False
        except asyncio.CancelledError:  # that is the stop
            return True
        return True

    async def _put_away(self, work_over: Awaitable[None]) -> None:
        """Of a stop: what goes on is waited for, what was cut is named, and what was done is put on record."""
        try:
            await work_over
        finally:
            self.attempt.unknown_calls.extend(self.observer.cut())
            await self._store_left_steps(stopping=True)

    async def _work_over(self) -> None:
        """LangGraph does not wait for a task that it cancels. A call that must not be cut in half goes on, and so does
        a function in a thread: nothing is tried again beside it."""
        for future in self.threads.take():
            waiting = asyncio.create_task(until_done(future), name=f"thread:{self.attempt.run.id}")
            if self.attempt.desk is None:
                await waiting
            else:
                self.attempt.desk.in_flight.add(waiting, self.observer.under_way or "a step")
        if self.attempt.desk is not None:
            await self.attempt.desk.in_flight.over()

    async def _passes(self) -> Outcome:
        repeated = self.attempt.run.attempt > 1 or self.attempt.run.resume_of is not None
        while True:
            commits = self.saver.commits
            await self._work_over()
            try:
                outcome = await self._pass(look_first=repeated)
                if outcome is not None:
                    return outcome
                repeated, self.tries = True, {}
                continue
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                failure = Failure(
                    ErrorCode.AGENT_FAILURE, f"A part of the agent cancelled itself: {safe_text(error)}"
                )
            except Exception as error:
                if is_invalid_resume(error):
                    outcome = await self.asking.refused(await self._state(), error)
                    if outcome is not None:
                        return outcome
                failure = self._understand(error)
            if self.saver.commits > commits:
                self.tries = {}
            retry = next_try(failure.code, self.tries, failure.retry_after, self.plan.policies)
            if retry is None or failure.is_final:
                return Failed(failure.code, failure.message)
            self.tries = dict(retry.tries)
            if (
                not retry.hand_back and failure.code is not ErrorCode.INTERNAL
            ):  # then the database is what is away
                await self.attempt.note_tries(self.tries)
            outcome = await self._wait(failure, retry)
            if outcome is not None:
                return outcome
            repeated = True

    async def _pass(self, *, look_first: bool) -> Outcome | None:
        """None: a message entered the thread, or an answer is known already; the next pass goes on from there."""
        run = self.attempt.run
        left = self._limit
        engine_input: Any = None if run.resume_of is not None else self.attempt.input
        if look_first:
            done = await self.attempt.recorder.read(lambda tx: _steps_done(tx, run))
            state = await self._state()
            if run.resume_of is not None or (state.metadata or {}).get("run_id") == run.id:
                if not state.next:
                    return await self._finish()
                handed_in = await self.asking.before(state)
                if isinstance(handed_in, Parked | Failed):
                    return handed_in
                if handed_in:
                    engine_input = Command(resume=dict(handed_in))
            left -= done
        asked = False

        def heard(event: Mapping[str, Any]) -> None:
            nonlocal asked
            self.observer.task(event)
            if self.saver.entrance is not None:
                self.saver.entrance.learn(event)
            asked = asked or bool(event.get("interrupts"))

        extras = {
            **self.plan.extras,
            RUN_KEY: run,
            OBSERVER_KEY: self.observer,
            DESK_KEY: self.attempt.desk,
            CALLS_KEY: PassCalls(self.attempt.desk) if self.attempt.desk is not None else None,
            BOX_KEY: self.observer.take,
            **tapped(heard, self.observer.custom),
        }
        config: RunnableConfig = {
            "configurable": {"thread_id": run.conversation_id, "run_id": run.id, **extras},
            "metadata": {"attempt": run.attempt},
            "recursion_limit": max(left, 1) + _SPARE,
            "callbacks": [self.observer],
        }
        boundary = _Boundary(self.attempt.drain, self.saver, left)
        try:
            async for _ in self.graph.astream(
                engine_input, config, stream_mode=[], durability="sync", version="v2", control=boundary
            ):
                pass
        except GraphDrained:
            if boundary.message_entered:
                return None
            if boundary.limit_reached:
                return Failed(ErrorCode.RECURSION_LIMIT, _limit_text(self._limit))
            return Drained()
        await self.saver.settled()
        if asked or self.stops:
            state = await self._state()
            if state.interrupts or (self.stops and state.next):
                return await self.asking.after(state)
        return await self._finish()

    async def _state(self) -> StateSnapshot:
        """The thread as it stands in the store."""
        return await self.graph.aget_state({"configurable": {"thread_id": self.attempt.run.conversation_id}})

    async def _finish(self) -> Outcome:
        if self.plan.output is not None:
            state = await self._state()
            answer = state.values.get(self.plan.output)
            await self.attempt.recorder.write(
                lambda tx, owned: store_answer(tx, owned, answer), messages=True, point=Point.STORE_ANSWER
            )
        return Finished(line=self.observer.line)

    @property
    def _limit(self) -> int:
        return self.attempt.run.step_limit or DEFAULT_STEP_LIMIT

    def _understand(self, error: Exception) -> Failure:
        from_model = any(link is error for link in self.observer.model_errors) or any(
            link is error.__cause__ for link in self.observer.model_errors if error.__cause__ is not None
        )
        self.observer.model_errors.clear()
        return classify(error, from_model=from_model, now=self.clock.now())

    async def _wait(self, failure: Failure, retry: Retry) -> Outcome | None:
        """Wait inside the step, or give the slot back; an outcome ends the attempt."""
        then = f"try {retry.attempt} of {retry.of_attempts}"
        next_at = self.clock.now() + timedelta(seconds=retry.delay)
        self.observer.retrying(failure.code.value, retry.attempt, retry.of_attempts, next_at)
        if retry.hand_back:
            limited = failure.code is ErrorCode.MODEL_RATE_LIMITED
            reason = Reason.RATE_LIMITED if limited else Reason.RETRY_BACKOFF
            return TryLater(reason, retry.delay, retry.tries, then)
        try:
            async with asyncio.timeout(retry.delay):
                await self.attempt.drain.wait()
        except TimeoutError:
            return None
        return Drained()

    async def _store_left_steps(self, *, stopping: bool = False) -> None:
        """Records of steps that no checkpoint took. They are history; without them the run ends all the same."""
        rows, cost = self.observer.records.left(), self.observer.new_cost()
        if not rows:
            return

        def store(tx: Tx, run: Run) -> None:
            for row in rows:
                tx.upsert(Table.RUN_STEPS, row)
            if cost is not None:
                tx.change(Table.RUNS, {"id": run.id}, {"cost": cost})

        try:
            await self.attempt.recorder.write(store, while_cancelling=stopping, point=Point.LEFT_STEPS)
        except Unavailable:
            return


async def _surviving_one_cut(putting_away: Coroutine[Any, Any, None]) -> None:
    """Whoever learned of the stop first is still to be told of it; only what comes after that means to cut."""
    going_on = asyncio.create_task(putting_away, name="putting away")
    try:
        await asyncio.shield(going_on)
    except asyncio.CancelledError:
        await going_on


def _steps_done(tx: ReadTx, run: Run) -> int:
    """Steps that this run has stored; the taking in of its input is none."""
    where = {"thread_id": run.conversation_id, "run_id": run.id, "checkpoint_ns": "", "source": "loop"}
    return max(tx.count(Table.CHECKPOINTS, where) - (1 if run.resume_of is None else 0), 0)


def _limit_text(limit: int) -> str:
    return f"The run took {limit} steps, its limit. Its work is kept; continue it with a fresh limit."
