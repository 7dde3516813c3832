"""The agents of this server by name. LangGraph and LangChain are loaded at the first use, not at start.

Kinds of entry: the built-in assistant, graphs, commands and remote agents of `dromos.toml`, and the graphs of an
existing `langgraph.json`.
A broken one is listed with what is wrong with it, and its runs end with CONFIG_INVALID; the others work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dromos.agents.engine_input import engine_input
from dromos.agents.langgraph_json import GraphEntry
from dromos.agents.process import CommandConfig, ProcessAgent
from dromos.agents.remote import RemoteAgent
from dromos.domain.errors import Unavailable
from dromos.domain.reasons import ErrorCode
from dromos.domain.retries import DEFAULT_POLICIES, RetryPolicy
from dromos.ports.agent import (
    Agent,
    AgentInfo,
    Attempt,
    CheckpointSummary,
    Failed,
    InputMessage,
    ModelChoice,
    Outcome,
)
from dromos.ports.clock import Clock, Ids
from dromos.ports.meter import Meter
from dromos.ports.store import Store
from dromos.ports.tool import Toolbox

if TYPE_CHECKING:
    from dromos.agents.langgraph.adapter import LangGraphAgent
    from dromos.agents.langgraph.chat_models import ChatModels
    from dromos.agents.langgraph.model_choice import ModelSelector
    from dromos.agents.langgraph.model_facts import ModelConfig, ModelFacts

ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """`[agents.NAME]`: `graph` is `module:attribute`, or a file as `langgraph.json` names it."""

    graph: str
    description: str = ""
    input: str | None = None
    output: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class AgentsConfig:
    """Everything the registry needs to be told. `environ` holds the model providers' own variables."""

    root: Path
    agents: Mapping[str, AgentConfig] = field(default_factory=dict)
    commands: Mapping[str, CommandConfig] = field(default_factory=dict)
    remote: Mapping[str, str] = field(default_factory=dict)  # name → description
    default: str | None = None
    model: str | None = None
    ollama_host: str | None = None
    policies: Mapping[ErrorCode, RetryPolicy] = field(default_factory=lambda: DEFAULT_POLICIES)
    models: Mapping[str, ModelConfig] = field(default_factory=dict)  # by pattern
    environ: Mapping[str, str] = field(default_factory=dict)
    ask_person: bool = True


class AgentRegistry:
    """`ports.agent.Agents`. `aclose` ends what the agents started."""

    def __init__(
        self,
        config: AgentsConfig,
        *,
        store: Store,
        toolbox: Toolbox,
        clock: Clock,
        ids: Ids,
        meter: Meter | None = None,
    ) -> None:
        self._config, self._store, self._toolbox = config, store, toolbox
        self._clock, self._ids, self._meter = clock, ids, meter
        self._selector: ModelSelector | None = None
        self._models: ChatModels | None = None
        self._facts: ModelFacts | None = None
        self._agents: dict[str, _LateAgent] = {}
        self._commands: dict[str, ProcessAgent] = {
            name: ProcessAgent(entry, clock, config.environ) for name, entry in config.commands.items()
        }
        self._remote = {name: RemoteAgent.named(name, told) for name, told in config.remote.items()}
        if ASSISTANT not in {*config.agents, *config.commands, *config.remote}:
            info = AgentInfo(ASSISTANT, "Answers, and uses the configured tools.", "langgraph")
            self._agents[ASSISTANT] = _LateAgent(info, None, self._assistant)
        for name, entry in config.agents.items():
            info = AgentInfo(name, entry.description or f"The graph {entry.graph}.", "langgraph")
            self._agents[name] = _LateAgent(info, entry.input, self._configured(name, entry))

    @property
    def default(self) -> str:
        return self._config.default or ASSISTANT

    def get(self, name: str) -> Agent | None:
        return self._agents.get(name) or self._commands.get(name) or self._remote.get(name)

    def infos(self) -> list[AgentInfo]:
        agents: list[Agent] = [*self._agents.values(), *self._commands.values(), *self._remote.values()]
        return [agent.info for agent in agents]

    async def choose_model(self) -> ModelChoice:
        """What answers a run that names no model, as things stand now. Raises `Unavailable` with the cure."""
        from dromos.agents.langgraph.failures import ModelFault

        try:
            choice = await self._model_selector().choose()
        except ModelFault as fault:
            raise Unavailable(str(fault)) from fault
        if ASSISTANT in self._agents:
            assistant = self._agents[ASSISTANT]
            assistant.info = replace(assistant.info, model=choice)
        return choice

    async def model_fault(self, choice: ModelChoice) -> str | None:
        """Why a run would fail on this model, as far as can be told without asking it anything; None: nothing known."""
        from dromos.agents.langgraph.failures import ModelFault

        await asyncio.to_thread(_import_engine)
        try:
            await self._model_selector().check(choice.name)
            await self._chat_models().check(choice.name)
        except ModelFault as fault:
            return str(fault)
        return None

    async def warm_up(self) -> None:
        """Load what the first run needs, so that it does not wait for imports; faults show in `infos`."""
        try:
            await self.choose_model()
        except Unavailable:
            pass  # told again, with the cure, by whoever asks
        for agent in self._agents.values():
            await agent.load()

    async def faults(self) -> dict[str, str]:
        """Agents that cannot be used, each with what is wrong and the cure."""
        found: dict[str, str] = {}
        for name, agent in self._agents.items():
            fault = await agent.fault()
            if fault is not None:
                found[name] = fault
        return found

    async def aclose(self) -> None:
        if self._models is not None:
            await self._models.aclose()

    def _model_selector(self) -> ModelSelector:
        from dromos.agents.langgraph.model_choice import ModelSelector

        if self._selector is None:
            self._selector = ModelSelector(
                self._clock, model=self._config.model, ollama_host=self._config.ollama_host
            )
        return self._selector

    def _chat_models(self) -> ChatModels:
        from dromos.agents.langgraph.chat_models import ChatModels
        from dromos.agents.langgraph.local_model import LocalModel

        if self._models is None:
            self._models = ChatModels(self._model_selector(), LocalModel(), self._config.environ)
        return self._models

    def _model_facts(self) -> ModelFacts:
        from dromos.agents.langgraph.model_facts import ModelFacts

        if self._facts is None:
            self._facts = ModelFacts(self._config.models, self._config.environ)
        return self._facts

    def _assistant(self) -> LangGraphAgent:
        from dromos.agents.langgraph.adapter import LangGraphAgent
        from dromos.agents.langgraph.assistant import AssistantSource

        source = AssistantSource(
            self._model_selector(),
            self._chat_models(),
            self._toolbox,
            self._ids,
            policies=self._config.policies,
            ask_person=self._config.ask_person,
        )
        return LangGraphAgent(source, self._store, self._clock, self._meter, self._model_facts())

    def _configured(self, name: str, entry: AgentConfig) -> Callable[[], LangGraphAgent]:
        def make() -> LangGraphAgent:
            from dromos.agents.langgraph.adapter import LangGraphAgent
            from dromos.agents.langgraph.configured import ConfiguredSource

            source = ConfiguredSource(
                name,
                entry.graph,
                self._config.root,
                description=entry.description,
                input_field=entry.input,
                output_field=entry.output,
                model=entry.model,
                policies=self._config.policies,
            )
            return LangGraphAgent(source, self._store, self._clock, self._meter, self._model_facts())

        return make


class _LateAgent:
    """An agent that imports its framework when it is first used, in a thread: imports take a second."""

    def __init__(self, info: AgentInfo, input_field: str | None, make: Callable[[], LangGraphAgent]) -> None:
        self.info = info
        self._input_field, self._make = input_field, make
        self._agent: LangGraphAgent | None = None
        self._lock = asyncio.Lock()

    def compose(self, messages: list[InputMessage]) -> Any:
        return engine_input(self._input_field, messages)

    async def fault(self) -> str | None:
        """Import and build; what is wrong, with the cure, or None."""
        try:
            return await (await self._loaded()).fault()
        except ImportError as error:
            return f"The agent's framework is not installed: {error}."

    async def load(self) -> None:
        """Import and build, so that the first run need not; a fault becomes the description."""
        fault = await self.fault()
        if fault is not None:
            self.info = replace(self.info, description=f"Cannot be used: {fault}")
        elif self._agent is not None:
            await self._agent.warm()

    async def attempt(self, attempt: Attempt) -> Outcome:
        try:
            agent = await self._loaded()
        except ImportError as error:
            return Failed(ErrorCode.CONFIG_INVALID, f"The agent's framework is not installed: {error}.")
        outcome = await agent.attempt(attempt)
        if agent.info.model is not None:
            self.info = replace(self.info, model=agent.info.model)
        return outcome

    async def pending(self, conversation_id: str) -> tuple[str, ...]:
        return await (await self._loaded()).pending(conversation_id)

    async def checkpoints(self, conversation_id: str) -> list[CheckpointSummary]:
        return await (await self._loaded()).checkpoints(conversation_id)

    async def _loaded(self) -> LangGraphAgent:
        async with self._lock:
            if self._agent is None:
                await asyncio.to_thread(_import_engine)
                self._agent = self._make()
            return self._agent


def _import_engine() -> None:
    import dromos.agents.langgraph.adapter
    import dromos.agents.langgraph.assistant  # noqa: F401


def merge(configured: Mapping[str, AgentConfig], project: Mapping[str, GraphEntry]) -> dict[str, AgentConfig]:
    """Agents of `dromos.toml` and graphs of `langgraph.json`; a name in both is the former's."""
    found = {name: AgentConfig(entry.graph, entry.description) for name, entry in project.items()}
    return {**found, **configured}
