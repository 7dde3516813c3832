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
from langgraph.constants import START
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel

from dromos.agents.engine_input import engine_input
from dromos.agents.langgraph.answers import history, with_history
from dromos.agents.langgraph.attempt_run import AttemptRun, Plan
from dromos.agents.langgraph.checkpointer import Checkpointer
from dromos.agents.langgraph.earlier_attempts import Earlier, earlier_attempts
from dromos.agents.langgraph.failures import classify
from dromos.agents.langgraph.message_rows import role_of
from dromos.agents.langgraph.model_facts import Expected, ModelFacts
from dromos.agents.langgraph.observer import Observer
from dromos.agents.langgraph.steering import Entrance
from dromos.domain.backend import refusal
from dromos.domain.cost import Spent, Tokens, money
from dromos.domain.errors import DromosError, Unavailable
from dromos.domain.pointers import pointer
from dromos.domain.reasons import ErrorCode
from dromos.domain.runs import Run
from dromos.ports.agent import AgentInfo, Attempt, CheckpointSummary, Failed, InputMessage, Outcome
from dromos.ports.clock import Clock
from dromos.ports.meter import Meter
from dromos.ports.probe import Point
from dromos.ports.store import Store, Table

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

    def __init__(
        self,
        source: GraphSource,
        store: Store,
        clock: Clock,
        meter: Meter | None = None,
        facts: ModelFacts | None = None,
    ) -> None:
        self._source, self._store, self._clock, self._meter = source, store, clock, meter
        self._facts = facts or ModelFacts()
        self._answering: set[str] = set()  # nodes seen to answer, over all attempts

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
        if plan.model_name and (refused := refusal(run.backend_policy, plan.model_name)) is not None:
            return Failed(ErrorCode.CONFIG_INVALID, refused)
        earlier = await self._take_up(attempt)
        observer = Observer(
            replace(run, usage=earlier.usage),
            attempt.live,
            self._clock,
            first_num=earlier.next_num,
            expected=Expected(plan.model_name, plan.context_limit),
            facts=self._facts,
            spent=earlier.spent,
            meter=self._meter,
        )
        saver = Checkpointer(
            attempt.recorder,
            step_rows=observer.step_rows,
            new_cost=observer.new_cost,
            on_commit=observer.stored,
            entrance=self._entrance(attempt, plan),
            entry_node=_has_entry_node(plan.graph),
            thread_is_new=attempt.begins,
        )
        if plan.model_name:
            attempt.live.set("/model", plan.model_name)
        return await AttemptRun(attempt, plan, self._clock, observer, saver).carry_out()

    def _entrance(self, attempt: Attempt, plan: Plan) -> Entrance | None:
        """Where messages come in while the run is at work; None for a graph that takes one thing at a time."""
        if attempt.steer is None or self._source.input_field is not None:
            return None
        self._answering |= plan.answering
        return Entrance(attempt.steer, plan.graph, self._answering)

    async def _take_up(self, attempt: Attempt) -> Earlier:
        """What earlier attempts left, their lost steps put on record, and the document made to show it."""
        run, live = attempt.run, attempt.live
        if run.attempt <= 1:
            return Earlier(usage=dict(run.usage))
        content = live.snapshot().content
        shown = content.get("steps") or []
        earlier = await attempt.recorder.read(lambda tx: earlier_attempts(tx, run, shown))
        if earlier.lost:
            earlier = replace(earlier, spent=self._price(earlier))
            rows = earlier.lost
            await attempt.recorder.write(
                lambda tx, _: tx.put_many(Table.RUN_STEPS, rows), point=Point.LOST_STEPS
            )
        for part, value in (("steps", earlier.steps), ("usage", earlier.usage), ("current", None)):
            live.set(f"/{part}", value)
        for name, helper in (content.get("subagents") or {}).items():
            if helper.get("status") == "running":
                live.set(pointer("subagents", name), {**helper, "status": "failed", "current": None})
        return earlier

    def _price(self, earlier: Earlier) -> Spent:
        """What the run has cost with its lost calls, as far as their tokens are known."""
        spent = earlier.spent
        for row in earlier.lost:
            if row["usage"] is None:
                continue
            tokens, priced = Tokens(**row["usage"]), self._facts.by_name(row["name"]).priced
            amount = (
                None if priced is None else self._facts.prices.cost(priced, tokens, row["started_at"], {})
            )
            row["cost"] = None if amount is None else money(amount)
            spent = spent.plus(amount)
        return spent

    async def warm(self) -> None:
        """Load now what the first run would have to wait for. Raises nothing: a fault is told by `fault`."""
        try:
            await self._source.warm()
            if self.info.model is not None:
                await self._facts.prepare(self.info.model.name)
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


def _has_entry_node(graph: Pregel[Any, Any, Any, Any]) -> bool:
    """True where a node of LangGraph's own takes an input in, and no function of the user's chooses what is next."""
    return isinstance(graph, CompiledStateGraph) and not graph.builder.branches.get(START)


@contextmanager
def _told_as_unavailable() -> Iterator[None]:
    """A graph that cannot be loaded, or a state that cannot be read, as an error that says the cure."""
    try:
        yield
    except DromosError:
        raise
    except Exception as error:
        raise Unavailable(classify(error).message) from error
