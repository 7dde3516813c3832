"""Any LangGraph graph as an `Agent`: composes its input, carries out attempts, tells what its thread holds.

The graph comes from a `GraphSource`: a configured one, or the built-in assistant. It must not know queues, leases or
HTTP; it reads through the store and writes through the attempt's recorder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

import structlog
from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel

from dromos.agents.engine_input import engine_input
from dromos.agents.langgraph.answers import history, with_history
from dromos.agents.langgraph.attempt_run import AttemptRun, Plan
from dromos.agents.langgraph.checkpointer import Checkpointer
from dromos.agents.langgraph.earlier_attempts import Earlier, earlier_attempts
from dromos.agents.langgraph.failures import classify
from dromos.agents.langgraph.message_rows import role_of
from dromos.agents.langgraph.observer import Observer
from dromos.domain.errors import DromosError, Unavailable
from dromos.domain.runs import Run
from dromos.ports.agent import AgentInfo, Attempt, CheckpointSummary, Failed, InputMessage, Outcome
from dromos.ports.clock import Clock
from dromos.ports.meter import Meter
from dromos.ports.store import Store

log = structlog.get_logger("dromos.agents")

_NEVER = "1970-01-01T00:00:00+00:00"


class GraphSource(Protocol):
    """Where an agent's graph comes from."""

    @property
    def info(self) -> AgentInfo: ...

    @property
    def input_field(self) -> str | None:
        """Field of the state that takes the person's content; None: the `messages` channel does."""
        ...

    async def plan(self, run: Run) -> Plan:
        """The graph for one attempt. Its middleware finds the observer in `configurable` under `OBSERVER_KEY`."""
        ...

    async def warm(self) -> None:
        """Load what the first attempt needs."""
        ...

    async def shape(self) -> Pregel[Any, Any, Any, Any]:
        """A graph with the same nodes and channels, to read a thread by."""
        ...


class LangGraphAgent:
    """`ports.agent.Agent` over a `GraphSource`."""

    def __init__(self, source: GraphSource, store: Store, clock: Clock, meter: Meter | None = None) -> None:
        self._source, self._store, self._clock, self._meter = source, store, clock, meter

    @property
    def info(self) -> AgentInfo:
        return self._source.info

    def compose(self, messages: list[InputMessage]) -> Any:
        return engine_input(self._source.input_field, messages)

    async def attempt(self, attempt: Attempt) -> Outcome:
        run = attempt.run
        try:
            plan = await self._source.plan(run)
        except Exception as error:
            failure = classify(error, now=self._clock.now())
            return Failed(failure.code, failure.message)
        earlier = Earlier(usage=dict(run.usage))
        if run.attempt > 1:
            earlier = await attempt.recorder.read(lambda tx: earlier_attempts(tx, run))
            for part, value in (("steps", earlier.steps), ("usage", earlier.usage), ("current", None)):
                attempt.live.set(f"/{part}", value)
        observer = Observer(
            replace(run, usage=earlier.usage),
            attempt.live,
            self._clock,
            first_num=earlier.next_num,
            model_name=plan.model_name,
            meter=self._meter,
        )
        saver = Checkpointer(
            attempt.recorder, step_rows=observer.step_rows, on_commit=observer.records.stored
        )
        if plan.model_name:
            attempt.live.set("/model", plan.model_name)
        return await AttemptRun(attempt, plan, self._clock, observer, saver).carry_out()

    async def warm(self) -> None:
        """Load now what the first run would have to wait for. Raises nothing: a fault is told by `fault`."""
        try:
            await self._source.warm()
        except Exception as error:
            log.debug("agent.not_warm", agent=self.info.name, problem=classify(error).message)

    async def fault(self) -> str | None:
        """Why no run of this agent can work; None where its graph is fine."""
        try:
            await self._source.shape()
        except Exception as error:
            return classify(error, now=self._clock.now()).message
        return None

    async def pending(self, conversation_id: str) -> tuple[str, ...]:
        with _told_as_unavailable():
            graph = await self._reading()
            state = await graph.aget_state({"configurable": {"thread_id": conversation_id}})
            return tuple(state.next)

    async def checkpoints(self, conversation_id: str) -> list[CheckpointSummary]:
        with _told_as_unavailable():
            graph = await self._reading()
            config: RunnableConfig = {"configurable": {"thread_id": conversation_id}}
            states = [state async for state in graph.aget_state_history(config)]
        found: list[CheckpointSummary] = []
        for state in reversed(states):
            metadata: dict[str, Any] = dict(state.metadata or {})
            values = state.values if isinstance(state.values, dict) else {}
            messages = values.get("messages")
            messages = messages if isinstance(messages, list) else []
            last = messages[-1] if messages else None
            found.append(
                CheckpointSummary(
                    checkpoint_id=state.config["configurable"]["checkpoint_id"],
                    step=metadata.get("step", 0),
                    source=metadata.get("source", ""),
                    next=tuple(state.next),
                    run_id=metadata.get("run_id"),
                    created_at=datetime.fromisoformat(state.created_at or _NEVER),
                    message_count=len(messages),
                    last_message=None
                    if last is None
                    else {"id": last.id, "role": role_of(last), "content": last.content},
                )
            )
        if "messages" in graph.channels:
            return found
        return with_history(found, await self._store.read(lambda tx: history(tx, conversation_id)))

    async def _reading(self) -> Pregel[Any, Any, Any, Any]:
        graph = await self._source.shape()
        return graph.copy(update={"checkpointer": Checkpointer(self._store)})


@contextmanager
def _told_as_unavailable() -> Iterator[None]:
    """A graph that cannot be loaded, or a state that cannot be read, as an error that says the cure."""
    try:
        yield
    except DromosError:
        raise
    except Exception as error:
        raise Unavailable(classify(error).message) from error
