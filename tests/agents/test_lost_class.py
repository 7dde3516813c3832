"""A run that waited while the class of a value in its state went away: it fails and says so, and goes on when it is
back."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from dromos.domain.reasons import ErrorCode
from dromos.ports.agent import Failed, Finished, Parked
from tests.agents.play import Play


class Basket:
    """A value of a class that will be gone."""

    def __init__(self, item: str) -> None:
        self.item = item

    def model_dump(self) -> dict[str, str]:
        return {"item": self.item}


class State(TypedDict, total=False):
    task: Any
    basket: Any
    said: Any


@pytest.mark.case("P72")
async def test_a_run_never_goes_on_with_a_value_whose_class_is_gone(sqlite_store, monkeypatch):
    bought: list[Any] = []

    def fill(state: State) -> State:
        return {"basket": Basket("bread" * 60)}

    def buy(state: State) -> State:
        answer = interrupt("Buy it?")
        bought.append((state["basket"], answer))
        return {"said": f"{answer}: {state['basket'].item[:5]}"}

    builder = StateGraph(State)
    builder.add_node("fill", fill)
    builder.add_node("buy", buy)
    builder.add_edge(START, "fill")
    builder.add_edge("fill", "buy")
    builder.add_edge("buy", END)
    play = Play(sqlite_store, builder.compile(), field="task", output="said")
    run_id = await play.begin()
    assert isinstance(await play.attempt(), Parked)

    kept = Basket
    monkeypatch.delitem(globals(), "Basket")
    await play.answer("yes")
    outcome = await play.attempt()
    assert isinstance(outcome, Failed)
    assert outcome.code is ErrorCode.STATE_UNREADABLE
    assert "basket" in outcome.message
    assert bought == []

    monkeypatch.setitem(globals(), "Basket", kept)
    ended = await play.world.run(run_id)
    again = await play.world.resume(ended.conversation_id)
    assert isinstance(await play.attempt(), Parked), "what was said to the ended run is void"
    await play.answer("yes, still")
    assert isinstance(await play.attempt(), Finished)
    assert len(bought) == 1
    assert (await play.said(again.id))[0].endswith("bread")
