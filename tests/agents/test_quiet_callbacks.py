"""Chains that nobody listens to: who listens hears all, and what is inside of them is told as ever."""

from __future__ import annotations

import gc
from typing import Any
from uuid import UUID
from weakref import ref

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_core.tracers.base import BaseTracer
from langgraph._internal._runnable import RunnableSeq
from langgraph.graph import END, START, MessagesState, StateGraph

from dromos.agents.langgraph.quiet_callbacks import quiet


class Told(BaseCallbackHandler):
    """What a handler is told, ids replaced by the order in which they came up."""

    run_inline = True

    def __init__(self, *, ignores_chains: bool) -> None:
        self._ignores, self.events, self._names = ignores_chains, [], {}  # type: ignore[var-annotated]

    @property
    def ignore_chain(self) -> bool:
        return self._ignores

    def _tell(self, what: str, run_id: UUID, parent_run_id: UUID | None, kwargs: dict[str, Any]) -> None:
        assert run_id != parent_run_id
        ids = [
            self._names.setdefault(one, len(self._names)) if one else None for one in (run_id, parent_run_id)
        ]
        metadata = {
            key: value.split(":")[0] if isinstance(value, str) else value
            for key, value in (kwargs.get("metadata") or {}).items()
        }
        self.events.append((what, kwargs.get("name"), *ids, kwargs.get("tags"), metadata))

    def on_chain_start(self, serialized, inputs, *, run_id, parent_run_id=None, **kwargs):  # type: ignore[no-untyped-def]
        self._tell("chain", run_id, parent_run_id, kwargs)

    def on_chain_end(self, outputs, *, run_id, parent_run_id=None, **kwargs):  # type: ignore[no-untyped-def]
        self._tell("chain ended", run_id, parent_run_id, kwargs)

    def on_chain_error(self, error, *, run_id, parent_run_id=None, **kwargs):  # type: ignore[no-untyped-def]
        self._tell(f"chain failed: {error}", run_id, parent_run_id, kwargs)

    def on_chat_model_start(self, serialized, messages, *, run_id, parent_run_id=None, **kwargs):  # type: ignore[no-untyped-def]
        self._tell("model", run_id, parent_run_id, kwargs)

    def on_tool_start(self, serialized, input_str, *, run_id, parent_run_id=None, **kwargs):  # type: ignore[no-untyped-def]
        self._tell("tool", run_id, parent_run_id, kwargs)


class Traced(BaseTracer):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[str, str, int]] = []

    def _persist_run(self, run: Any) -> None:
        def walk(one: Any, depth: int) -> None:
            self.kept.append((one.name, one.run_type, depth))
            for child in one.child_runs:
                walk(child, depth + 1)

        walk(run, 0)


MODEL = FakeListChatModel(responses=["hello"])


@tool
async def ask(question: str) -> str:
    """Ask."""
    return str((await MODEL.ainvoke(question)).content)


async def speak(state: MessagesState) -> dict[str, Any]:
    return {
        "messages": [
            await MODEL.ainvoke(state["messages"]),
            AIMessage(await ask.ainvoke({"question": "why"})),
        ]
    }


def speak_at_once(state: MessagesState) -> dict[str, Any]:
    return {"messages": [MODEL.invoke(state["messages"])]}


async def fail(state: MessagesState) -> dict[str, Any]:
    raise LookupError("no such page")


def graph_of(**nodes: Any) -> Any:
    builder = StateGraph(MessagesState)
    for name, node in nodes.items():
        builder.add_node(name, node, metadata={"of": name})
        builder.add_conditional_edges(name, lambda state: END, [END])
        builder.add_edge(START, name)
    return builder.compile()


def quieted(graph: Any) -> Any:
    return graph.copy(update={"nodes": quiet(graph.nodes)})


async def run(graph: Any, *handlers: Any, error: type[Exception] | None = None) -> None:
    config = {"callbacks": list(handlers), "tags": ["mine"], "metadata": {"attempt": 1}}
    if error is None:
        await graph.ainvoke({"messages": [("user", "go")]}, config)
    else:
        with pytest.raises(error):
            await graph.ainvoke({"messages": [("user", "go")]}, config)


GRAPHS = {
    "async": lambda: graph_of(node=speak),
    "sync": lambda: graph_of(node=speak_at_once),
    "inner": lambda: graph_of(node=graph_of(inner=speak)),
    "quiet inner": lambda: graph_of(node=quieted(graph_of(inner=speak))),
}


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("ignores_chains", [True, False])
async def test_a_handler_is_told_what_langgraph_tells(kind: str, ignores_chains: bool) -> None:
    graph = GRAPHS[kind]()
    plain, told = (Told(ignores_chains=ignores_chains) for _ in range(2))
    await run(graph, plain)
    await run(quieted(graph), told)
    assert told.events == plain.events
    assert {event[0] for event in told.events} >= {"model"} | (
        set() if ignores_chains else {"chain", "chain ended"}
    )


async def test_what_happens_in_a_node_has_its_chain_as_parent() -> None:
    told = Told(ignores_chains=True)
    await run(quieted(graph_of(node=speak, other=speak)), told)
    parents: dict[str, set[Any]] = {}
    for what, _, _, parent, _, metadata in told.events:
        if what == "tool" or not parents.get(metadata["langgraph_node"]):
            parents.setdefault(metadata["langgraph_node"], set()).add(parent)
    assert [len(parents[name]) for name in ("node", "other")] == [1, 1], "the model's and the tool's are one"
    assert not parents["node"] & parents["other"]


async def test_who_listens_beside_one_that_does_not_hears_all_chains() -> None:
    graph, plain, told, traced, kept = (
        graph_of(node=speak),
        Told(ignores_chains=False),
        Told(ignores_chains=False),
        Traced(),
        Traced(),
    )
    await run(graph, Told(ignores_chains=True), plain, traced)
    await run(quieted(graph), Told(ignores_chains=True), told, kept)
    assert told.events == plain.events
    assert kept.kept == traced.kept and len(kept.kept) > 3


async def test_a_handler_that_a_node_brings_along_hears_its_chains() -> None:
    def graph(told: Told) -> Any:
        inner = graph_of(inner=speak).with_config(callbacks=[told])
        return graph_of(node=inner)

    plain, told = (Told(ignores_chains=False) for _ in range(2))
    await run(graph(plain), Told(ignores_chains=True))
    await run(quieted(graph(told)), Told(ignores_chains=True))
    assert told.events == plain.events and told.events


async def test_a_failure_comes_out_and_is_told() -> None:
    graph, plain, told = graph_of(node=fail), Told(ignores_chains=False), Told(ignores_chains=False)
    await run(graph, plain, error=LookupError)
    await run(quieted(graph), told, error=LookupError)
    await run(quieted(graph), Told(ignores_chains=True), error=LookupError)
    assert told.events == plain.events and any("no such page" in event[0] for event in told.events)


async def test_the_events_of_a_quiet_graph_are_those_of_a_plain_one() -> None:
    async def events(graph: Any) -> list[tuple[str, str]]:
        stream = graph.astream_events({"messages": [("user", "go")]}, version="v2")
        return [(event["event"], event["name"]) async for event in stream]

    graph = graph_of(node=speak)
    assert await events(quieted(graph)) == await events(graph)


def test_nodes_with_writers_are_quiet() -> None:
    """Else LangGraph changed, and each step costs a twentieth more."""
    graph = graph_of(node=speak)
    assert type(graph.nodes["node"].node) is RunnableSeq
    made = quiet(graph.nodes)
    assert isinstance(made["node"].node, RunnableSeq) and type(made["node"].node) is not RunnableSeq
    assert made[START] is graph.nodes[START]


def test_nothing_is_kept_of_a_graph_that_is_gone() -> None:
    class Agent:
        def __init__(self) -> None:
            self.graph = graph_of(node=self.work)

        async def work(self, state: MessagesState) -> dict[str, Any]:
            return {}

    agent = Agent()
    gone = ref(agent.graph)
    assert quiet(agent.graph.nodes)
    del agent
    gc.collect()
    assert gone() is None


async def test_a_chain_that_nobody_hears_costs_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    from langchain_core.callbacks import manager

    graph = quieted(graph_of(node=speak))
    tell = manager.ahandle_event

    async def watched(handlers: Any, event: str, *args: Any, **kwargs: Any) -> None:
        told.append((event, kwargs.get("name")))
        await tell(handlers, event, *args, **kwargs)

    told: list[tuple[str, Any]] = []
    monkeypatch.setattr(manager, "ahandle_event", watched)
    await run(graph, Told(ignores_chains=True))
    chains = [name for event, name in told if event == "on_chain_start"]
    assert chains == ["LangGraph"]
