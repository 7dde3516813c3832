"""Small real parts for the agents' tests: a clock, ids, a live document that remembers, a toolbox of functions."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dromos.agents.langgraph.adapter import LangGraphAgent
from dromos.agents.langgraph.assistant import AssistantSource
from dromos.agents.langgraph.chat_models import ChatModels
from dromos.agents.langgraph.local_model import LocalModel
from dromos.agents.langgraph.model_choice import ModelSelector
from dromos.lifecycle.journal import RunJournal
from dromos.ports.journal import Desk
from dromos.ports.live import DocumentSnapshot
from dromos.ports.recorder import Recorder
from dromos.ports.store import Row, Store, Table
from dromos.ports.tool import ToolAnnotations, ToolContext, ToolOutcome, ToolSourceHealth, ToolSpec
from dromos.tools.gate import Gate
from dromos.tools.rules import ToolRules
from dromos.worker.in_flight import CallsInFlight


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class Counted:
    """Ids that sort: id-1, id-2, …"""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self) -> str:
        return f"id-{next(self._numbers)}"


class LiveNotes:
    """`ports.live.LiveRun` that keeps what it is told."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.told: list[tuple[str, Any]] = []
        self.steps: dict[str, Mapping[str, Any]] = {}
        self.fields: dict[str, Any] = {}
        self.content: dict[str, Any] = {}
        self.spoke = asyncio.Event()
        self.changed = False

    def text(self, message_id: str, text: str) -> None:
        text.encode()  # raises where half of a pair got through
        self.texts[message_id] = self.texts.get(message_id, "") + text
        self.spoke.set()

    def set(self, path: str, value: Any) -> None:
        self.values[path] = value
        self.told.append((path, value))

    def remove(self, path: str) -> None:
        self.values.pop(path, None)
        self.told.append((path, None))

    def touch(self) -> None:
        return None

    def step(self, step: Mapping[str, Any]) -> None:
        self.steps[step["id"]] = step

    def server(self, fields: Mapping[str, Any]) -> None:
        self.fields.update(fields)

    def snapshot(self) -> DocumentSnapshot:
        return DocumentSnapshot("run", 0, self.content)

    def close(self) -> None:
        return None


class FunctionToolbox:
    """`ports.tool.Toolbox` over plain or async functions of (arguments)."""

    def __init__(self, read_only: Sequence[str] = (), **tools: Callable[..., Any]) -> None:
        self.tools = tools
        self.read_only = frozenset(read_only)
        self.calls: list[tuple[str, Mapping[str, Any], ToolContext]] = []

    async def specs(self) -> Sequence[ToolSpec]:
        schema = {"type": "object", "properties": {}}
        return [
            ToolSpec(name, name, schema, "local", ToolAnnotations(read_only=name in self.read_only or None))
            for name in self.tools
        ]

    async def find(self, name: str) -> ToolSpec | None:
        return next((spec for spec in await self.specs() if spec.name == name), None)

    async def call(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        self.calls.append((name, arguments, context))
        if name not in self.tools:
            return ToolOutcome(f"There is no tool named '{name}'.", is_error=True)
        context.sent()
        result = self.tools[name](arguments)
        if inspect.isawaitable(result):
            result = await result
        return result if isinstance(result, ToolOutcome) else ToolOutcome(str(result))

    async def health(self) -> Sequence[ToolSourceHealth]:
        return ()

    async def aclose(self) -> None:
        return None


def desk(recorder: Recorder, rules: ToolRules | None = None) -> Desk:
    """Where an attempt's calls are recorded."""
    return Desk(Gate(rules or ToolRules(trusted=frozenset({"*"}))), RunJournal(recorder), CallsInFlight())


opened: list[ChatModels] = []
"""Closed after each test."""


def assistant(
    store: Store,
    toolbox: FunctionToolbox | None = None,
    *,
    model: str = "scripted",
    environ: Mapping[str, str] | None = None,
    ollama_host: str | None = None,
    local: LocalModel | None = None,
    meter: Any = None,
    facts: Any = None,
    **options: Any,
) -> LangGraphAgent:
    """The built-in agent with this model."""
    clock = SystemClock()
    selector = ModelSelector(clock, model=model, ollama_host=ollama_host)
    models = ChatModels(selector, local or LocalModel(), environ or {})
    opened.append(models)
    source = AssistantSource(selector, models, toolbox or FunctionToolbox(), Counted(), **options)
    return LangGraphAgent(source, store, clock, meter, facts)


async def history(store: Store, conversation_id: str = "c1", **where: Any) -> list[Row]:
    """Rows of `messages` in the order people see them."""
    return await store.read(
        lambda tx: tx.find(
            Table.MESSAGES, {"conversation_id": conversation_id, **where}, order=("position", "num")
        )
    )


async def rows(store: Store, table: Table, order: Sequence[str] = (), **where: Any) -> list[Row]:
    return await store.read(lambda tx: tx.find(table, where, order=order))


async def until_stored(store: Store, **where: Any) -> None:
    """Return once a message like this is in the store; the caller bounds the time."""
    poll = asyncio.Event()
    while not await history(store, **where):
        asyncio.get_running_loop().call_later(0.005, poll.set)
        await poll.wait()
        poll.clear()


async def until(holds: Callable[[], bool]) -> None:
    """Return once it holds; the caller bounds the time."""
    poll = asyncio.Event()
    while not holds():
        asyncio.get_running_loop().call_later(0.005, poll.set)
        await poll.wait()
        poll.clear()
