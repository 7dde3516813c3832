"""Two nodes side by side, each with an effect and a question: whatever one does, the effect of either happens once."""

from __future__ import annotations

import asyncio
import json

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.pregel import Pregel
from langgraph.types import interrupt

from dromos.agents.langgraph.durable import durable
from dromos.domain.statuses import RunStatus, Verdict
from dromos.ports.agent import Finished
from dromos.ports.store import Store, Table
from tests.agents.play import Play
from tests.agents.test_questions import State, told
from tests.lifecycle.world import check_invariants

MOST_WRITES = 40


class Pair:
    """The graph, and what its effects did. `moment`: the other node asks `before` an effect is done, or `after` it."""

    def __init__(self, moment: str) -> None:
        self.moment = moment
        self.made: list[str] = []
        self._begun, self._asks, self._paid = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def _pay(self, whom: str) -> str:
        self._begun.set()
        if whom == "ann" and self.moment == "before":
            await self._asks.wait()
            await asyncio.sleep(0)  # the question is raised in the step that told of it
        self.made.append(whom)
        return f"paid {whom}"

    def graph(self) -> Pregel:
        pay = durable(self._pay)

        async def ann(state: State) -> State:
            paid = await pay("ann")
            self._paid.set()
            return {"notes": [[paid, interrupt("ann?")]]}

        async def bob(state: State) -> State:
            paid = await pay("bob")
            await (self._begun if self.moment == "before" else self._paid).wait()
            self._asks.set()
            return {"notes": [[paid, interrupt("bob?")]]}

        builder = StateGraph(State)
        builder.add_node("ann", ann)
        builder.add_node("bob", bob)
        builder.add_node("tell", lambda state: {"said": json.dumps(sorted(state["notes"]))})
        for node in ("ann", "bob"):
            builder.add_edge(START, node)
        builder.add_edge(["ann", "bob"], "tell")
        builder.add_edge("tell", END)
        return builder.compile()


async def decided_one_by_one(stage: Play, pair: Pair, run_id: str) -> None:
    first, second = sorted(await stage.asked(), key=lambda row: str(row["prompt"]))
    assert (first["prompt"], second["prompt"], sorted(pair.made)) == ("ann?", "bob?", ["ann", "bob"])
    await stage.world.decide(first, Verdict.ANSWER, "yes, ann")
    assert (await stage.world.run(run_id)).status is RunStatus.WAITING_INPUT
    assert [row["id"] for row in await stage.asked()] == [second["id"]]
    await stage.world.decide(second, Verdict.ANSWER, "yes, bob")


async def once_each(stage: Play, pair: Pair, run_id: str) -> None:
    assert await told(stage, run_id) == [["paid ann", "yes, ann"], ["paid bob", "yes, bob"]]
    assert sorted(pair.made) == ["ann", "bob"]
    assert [row["status"] for row in await stage.asked(run_id=run_id)] == ["consumed", "consumed"]
    calls = await stage.world.rows(Table.TOOL_CALLS, run_id=run_id)
    assert [row["status"] for row in calls] == ["done", "done"]
    await check_invariants(stage.world)


@pytest.mark.case("P40")
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_the_effect_of_a_node_happens_once_though_the_one_beside_it_asks(
    store: Store, moment: str
) -> None:
    pair = Pair(moment)
    stage = Play(store, pair.graph(), field="task", output="said")
    run_id = await stage.begin()
    await stage.attempt()
    await decided_one_by_one(stage, pair, run_id)
    assert isinstance(await stage.attempt(), Finished)
    await once_each(stage, pair, run_id)


@pytest.mark.slow(60)
@pytest.mark.case("P40")
@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=pytest.mark.full)])
async def test_so_it_does_wherever_the_owner_of_the_continued_attempt_is_lost(
    sqlite_store: Store, moment: str
) -> None:
    for fatal in range(1, MOST_WRITES):
        pair = Pair(moment)
        stage = Play(sqlite_store, pair.graph(), field="task", output="said")
        run_id = await stage.begin()
        await stage.attempt()
        await decided_one_by_one(stage, pair, run_id)
        lost = await stage.attempt(fatal=fatal) is None
        if lost:
            assert isinstance(await stage.attempt(), Finished)
        await once_each(stage, pair, run_id)
        if not lost:
            assert fatal > 1
            return
    pytest.fail(f"more than {MOST_WRITES} writes")
