"""A run's life without server and worker: the real lifecycle, the real engine, one attempt at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from langgraph.pregel import Pregel

from dromos.agents.langgraph.adapter import LangGraphAgent
from dromos.agents.langgraph.attempt_run import Plan
from dromos.domain.errors import LeaseLost
from dromos.domain.runs import Run
from dromos.domain.statuses import Verdict
from dromos.lifecycle.contract import Claimed
from dromos.ports.agent import AgentInfo, Attempt, Outcome
from dromos.ports.probe import Point
from dromos.ports.recorder import Recorder
from dromos.ports.store import ReadTx, Row, Store, Table, Tx
from dromos.tools.rules import ToolRules
from tests.agents.kit import LiveNotes, SystemClock, desk
from tests.lifecycle.world import World

T = TypeVar("T")


class Compiled:
    """`GraphSource` over a graph that is there already."""

    def __init__(self, graph: Pregel, input_field: str | None, output: str | None) -> None:
        self.graph, self.input_field, self.output = graph, input_field, output
        self.info = AgentInfo("assistant", "a graph of the test", "langgraph")

    async def plan(self, run: Run) -> Plan:
        return Plan(graph=self.graph, output=self.output)

    async def warm(self) -> None:
        return None

    async def shape(self) -> Pregel:
        return self.graph


class Failing:
    """A recorder that loses its lease at its `fatal`-th write: before it is stored, or just after."""

    def __init__(self, recorder: Recorder, fatal: int | None, *, after: bool) -> None:
        self._recorder, self._fatal, self._after = recorder, fatal, after
        self.fence = recorder.fence
        self.writes = 0

    async def write(
        self,
        fn: Callable[[Tx, Run], T],
        *,
        while_cancelling: bool = False,
        messages: bool = False,
        point: Point = Point.RECORD,
    ) -> T:
        self.writes += 1
        over = self._fatal is not None and self.writes >= self._fatal
        if over and not (self._after and self.writes == self._fatal):
            raise LeaseLost
        value = await self._recorder.write(
            fn, while_cancelling=while_cancelling, messages=messages, point=point
        )
        if over:
            raise LeaseLost
        return value

    async def read(self, fn: Callable[[ReadTx], T]) -> T:
        return await self._recorder.read(fn)


class Play:
    """`begin` once; then `post`, `attempt`, `decide` as the test wants."""

    def __init__(
        self,
        store: Store,
        graph: Pregel,
        *,
        field: str | None = None,
        output: str | None = None,
        rules: ToolRules | None = None,
    ) -> None:
        self.world, self.rules = World(store), rules
        self.agent = LangGraphAgent(Compiled(graph, field, output), store, SystemClock())

    async def begin(self, content: Any = "go", **options: Any) -> str:
        """A run is queued; → its id."""
        if not await self.world.rows(Table.USERS):
            await self.world.begin()
        posted = await self.world.post(content, **options)
        assert posted.run is not None
        return posted.run.id

    async def claim(self) -> Claimed:
        (claimed,) = await self.world.lifecycle.claim(
            "incarnation-1", None, 1, {"assistant": self.agent.compose}
        )
        return claimed

    async def attempt(
        self, *, fatal: int | None = None, after: bool = False, parks: bool = True
    ) -> Outcome | None:
        """One attempt from claim to end. With `fatal` its owner is lost at that write, if it gets so far; without
        `parks` just before its end is written."""
        claimed = await self.claim()
        recorder = Failing(self.world.lifecycle.recorder(claimed.fence), fatal, after=after)
        attempt = Attempt(
            claimed.run,
            claimed.input,
            recorder,
            LiveNotes(),
            asyncio.Event(),
            decisions=claimed.decisions,
            desk=desk(recorder, self.rules),
        )
        try:
            outcome = await self.agent.attempt(attempt)
        except LeaseLost:
            await self.world.lose()
            await self.world.store.write(
                lambda tx: tx.change(Table.RUNS, {}, {"not_before": None, "crashes": 0})
            )
            return None
        if parks:
            await self.world.lifecycle.end_attempt(claimed.fence, outcome, None)
        else:
            await self.world.lose()
        return outcome

    async def asked(self, **where: Any) -> list[Row]:
        """Requests, the oldest first; the open ones where nothing is said."""
        return await self.world.rows(Table.REQUESTS, **(where or {"status": "open"}))

    async def answer(self, answer: Any, **where: Any) -> None:
        """The one question that is open (or that `where` names) is answered."""
        (question,) = await self.asked(**({"status": "open"} | where))
        await self.world.decide(question, Verdict.ANSWER, answer)

    async def said(self, run_id: str) -> list[Any]:
        """What the run answered, from its rows of `messages`."""
        rows = await self.world.rows(Table.MESSAGES, run_id=run_id, role="assistant", hidden=False)
        return [row["content"] for row in rows]
