"""Graphs of a person's own as agents, and the live document that an attempt on them leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from dromos.agents.langgraph.adapter import LangGraphAgent
from dromos.agents.langgraph.attempt_run import Plan
from dromos.agents.langgraph.model_facts import ModelFacts
from dromos.domain.document import empty_content
from dromos.domain.runs import Run
from dromos.live import LiveHub
from dromos.ports.agent import AgentInfo, Attempt, InputMessage, Outcome
from dromos.ports.live import LiveRun
from tests.agents.kit import SystemClock, desk


class OwnGraph:
    """`GraphSource` of a compiled graph that is at hand."""

    info = AgentInfo("own", "", "langgraph")
    input_field: str | None = None

    def __init__(self, graph: Any, **plan: Any) -> None:
        self._graph, self._plan = graph, plan

    async def plan(self, run: Run) -> Plan:
        return Plan(**{"graph": self._graph, "policies": {}, **self._plan})

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
        self._moved = asyncio.Event()

    async def until(
        self, holds: Callable[[Watched], bool], work: asyncio.Task[Any], seconds: float = 10
    ) -> None:
        """Return once `holds(self)`; fails where the attempt `work` is over before, or in so many seconds."""
        async with asyncio.timeout(seconds):
            while not holds(self):
                assert not work.done(), work.result()
                self._moved.clear()
                await self._moved.wait()

    async def begin(self, text: str, content: Mapping[str, Any] | None = None, **changes: Any) -> Attempt:
        """The attempt, not yet carried out."""
        run, recorder = await self._room.run(**changes)
        given = self.agent.compose([InputMessage(f"{run.id}-m", "user", text)])
        return self.attempt(run, recorder, given, content)

    def attempt(
        self, run: Run, recorder: Any, given: Any, content: Mapping[str, Any] | None = None
    ) -> Attempt:
        pen = LiveHub().open(run.id, run.conversation_id, run.epoch, content or empty_content())
        self.pen: LiveRun = _Noting(pen, self._note)
        return Attempt(run, given, recorder, self.pen, asyncio.Event(), desk=desk(recorder))

    async def run(self, text: str, **changes: Any) -> Outcome:
        return await self.agent.attempt(await self.begin(text, **changes))

    def _note(self, path: str, value: Any) -> None:
        self.told.append((path, value))
        self._moved.set()

    @property
    def shown(self) -> Mapping[str, Any]:
        """The content part as it is now."""
        return self.pen.snapshot().content

    def values(self, path: str) -> list[Any]:
        """Everything that stood at a path, in its order."""
        return [value for told, value in self.told if told == path]


class _Noting:
    """A pen that passes on what it is told, once it is written."""

    def __init__(self, pen: LiveRun, note: Callable[[str, Any], None]) -> None:
        self._pen, self._note = pen, note

    def set(self, path: str, value: Any) -> None:
        self._pen.set(path, value)
        self._note(path, value)

    def step(self, step: Mapping[str, Any]) -> None:
        self._pen.step(step)
        self._note("step", step)

    def text(self, message_id: str, text: str) -> None:
        self._pen.text(message_id, text)
        self._note(f"text {message_id}", text)

    def server(self, fields: Mapping[str, Any]) -> None:
        self._pen.server(fields)
        self._note("server", dict(fields))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pen, name)
