"""Graphs of a person's own as agents, and the live document that an attempt on them leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from dromos.agents.langgraph.adapter import LangGraphAgent
from dromos.agents.langgraph.attempt_run import Plan
from dromos.agents.langgraph.model_facts import ModelFacts
from dromos.domain.document import empty_content
from dromos.domain.runs import Run
from dromos.live import LiveHub
from dromos.ports.agent import AgentInfo, Attempt, InputMessage, Outcome
from dromos.ports.live import LiveRun
from tests.agents.kit import SystemClock


class OwnGraph:
    """`GraphSource` of a compiled graph that is at hand."""

    info = AgentInfo("own", "", "langgraph")
    input_field: str | None = None

    def __init__(self, graph: Any, **plan: Any) -> None:
        self._graph, self._plan = graph, plan

    async def plan(self, run: Run) -> Plan:
        return Plan(graph=self._graph, policies={}, **self._plan)

    async def warm(self) -> None:
        return None

    async def shape(self) -> Any:
        return self._graph


class Watched:
    """An attempt on a graph with a real document. `pen` writes it; `told` keeps every change in its order."""

    def __init__(
        self, room: Any, graph: Any, facts: ModelFacts | None = None, meter: Any = None, **plan: Any
    ) -> None:
        self._room = room
        self.agent = LangGraphAgent(OwnGraph(graph, **plan), room.store, SystemClock(), meter, facts)
        self.told: list[tuple[str, Any]] = []

    async def begin(self, text: str, content: Mapping[str, Any] | None = None, **changes: Any) -> Attempt:
        """The attempt, not yet carried out."""
        run, recorder = await self._room.run(**changes)
        given = self.agent.compose([InputMessage(f"{run.id}-m", "user", text)])
        return self.attempt(run, recorder, given, content)

    def attempt(
        self, run: Run, recorder: Any, given: Any, content: Mapping[str, Any] | None = None
    ) -> Attempt:
        pen = LiveHub().open(run.id, run.conversation_id, run.epoch, content or empty_content())
        self.pen: LiveRun = _Noting(pen, self.told)
        return Attempt(run, given, recorder, self.pen, asyncio.Event())

    async def run(self, text: str, **changes: Any) -> Outcome:
        return await self.agent.attempt(await self.begin(text, **changes))

    @property
    def shown(self) -> Mapping[str, Any]:
        """The content part as it is now."""
        return self.pen.snapshot().content

    def values(self, path: str) -> list[Any]:
        """Everything that stood at a path, in its order."""
        return [value for told, value in self.told if told == path]


class _Noting:
    """A pen that also notes what it is told."""

    def __init__(self, pen: LiveRun, told: list[tuple[str, Any]]) -> None:
        self._pen, self._told = pen, told

    def set(self, path: str, value: Any) -> None:
        self._told.append((path, value))
        self._pen.set(path, value)

    def text(self, message_id: str, text: str) -> None:
        self._told.append((f"text {message_id}", text))
        self._pen.text(message_id, text)

    def server(self, fields: Mapping[str, Any]) -> None:
        self._told.append(("server", dict(fields)))
        self._pen.server(fields)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pen, name)
