"""The adapters that settings choose: wake-ups, tools, agents, and the limits that come with them."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dromos.bootstrap.reality import SystemClock, TimeOrderedIds
from dromos.domain.effects import ReplayClass, ToolPolicy
from dromos.domain.errors import Unavailable
from dromos.domain.reasons import ErrorCode
from dromos.domain.retries import DEFAULT_POLICIES, RetryPolicy
from dromos.domain.stalls import StallLimits, StallPolicy
from dromos.domain.statuses import Recovery
from dromos.settings import Settings

if TYPE_CHECKING:
    from dromos.agents.process import CommandConfig
    from dromos.agents.registry import AgentRegistry
    from dromos.ports.journal import CallGate
    from dromos.ports.meter import Meter
    from dromos.ports.store import Store
    from dromos.ports.tool import Toolbox
    from dromos.settings.sections import AgentSettings


async def make_wakeup(settings: Settings, ids: TimeOrderedIds, stack: AsyncExitStack) -> Any:
    if settings.sqlite_path is not None:
        from dromos.live import MemoryWakeup

        return MemoryWakeup()
    from dromos.live.postgres import PostgresWakeup

    wakeup = PostgresWakeup(settings.database_url, ids.new())
    await wakeup.start()
    stack.push_async_callback(wakeup.aclose)
    return wakeup


def make_toolbox(settings: Settings, clock: SystemClock) -> Toolbox:
    from dromos.tools.gateway import ToolGateway
    from dromos.tools.local import LocalToolbox

    local = LocalToolbox(clock)
    if settings.mcp is None:
        return ToolGateway(local)
    from dromos.tools.mcp.configuration import read_servers
    from dromos.tools.mcp.toolbox import McpToolbox

    return ToolGateway(local, McpToolbox(read_servers(settings.mcp, os.environ)))


def make_gate(settings: Settings) -> CallGate:
    from dromos.tools.gate import Gate
    from dromos.tools.local import SOURCE
    from dromos.tools.rules import Rule, ToolRules

    common = settings.approvals
    rules = {
        pattern: Rule(
            ToolPolicy(rule.policy) if rule.policy is not None else None,
            ReplayClass(rule.replay) if rule.replay is not None else None,
        )
        for pattern, rule in settings.tools.items()
    }
    return Gate(
        ToolRules(
            ToolPolicy(common.policy),
            rules,
            frozenset((*common.trusted_servers, SOURCE)),
            common.expires_s,
            common.on_timeout,
        )
    )


def command_config(name: str, agent: AgentSettings, root: Path) -> CommandConfig:
    from dromos.agents.process import CommandConfig

    return CommandConfig(
        name,
        agent.command or (),
        agent.folder or root,
        agent.description,
        agent.model,
        agent.prompt,
        agent.model_arguments,
        agent.resume_arguments,
        agent.resume_prompt,
        agent.environment,
    )


def recovery_of(agent: AgentSettings) -> Recovery | None:
    """A command's own work is in no journal of ours: what it did before a crash is for a person to judge."""
    if agent.recovery is None:
        return Recovery.ASK if agent.command is not None else None
    return Recovery(agent.recovery)


def stall_policy(settings: Settings) -> StallPolicy:
    """An agent's `off` means never, for whatever all others have; what it leaves out is as for all."""
    common = settings.stall
    default = StallLimits(common.model_s, common.tool_s, common.policy)
    own = {}
    for name, agent in settings.agents.items():
        said, stall = agent.stall.model_fields_set, agent.stall
        own[name] = StallLimits(
            stall.model_s if "model_s" in said else default.model,
            stall.tool_s if "tool_s" in said else default.tool,
            stall.policy or default.policy,
        )
    return StallPolicy(default, own)


def retry_policies(settings: Settings) -> Mapping[ErrorCode, RetryPolicy]:
    policies = dict(DEFAULT_POLICIES)
    for code, retry in settings.retries.items():
        known = ErrorCode(code)
        honours = policies[known].honours_retry_after if known in policies else False
        policies[known] = RetryPolicy(retry.tries, tuple(retry.delays_s) or (0.0,), honours)
    return policies


def keep_cancellations(environ: MutableMapping[str, str]) -> None:
    """LangChain watches each chunk of an OpenAI stream with `asyncio.wait_for`. On Python 3.11 a stop that comes
    together with a chunk is lost there: a model call of people's own graphs would go on after a stop. That watch is off
    unless somebody set it; silence is watched by the worker."""
    environ.setdefault("LANGCHAIN_OPENAI_STREAM_CHUNK_TIMEOUT_S", "0")


def make_registry(
    settings: Settings,
    store: Store,
    toolbox: Toolbox,
    clock: SystemClock,
    ids: TimeOrderedIds,
    meter: Meter | None = None,
) -> AgentRegistry:
    from dromos.agents.langgraph.model_facts import ModelConfig
    from dromos.agents.registry import AgentConfig, AgentRegistry, AgentsConfig, merge

    keep_cancellations(os.environ)
    environ = dict(os.environ)
    configured = {
        name: AgentConfig(agent.graph, agent.description, agent.input, agent.output, agent.model)
        for name, agent in settings.agents.items()
        if agent.graph is not None
    }
    commands = {
        name: command_config(name, agent, settings.root)
        for name, agent in settings.agents.items()
        if agent.command is not None
    }
    if settings.langgraph_json is not None:
        from dromos.agents.langgraph_json import read_project

        try:
            project = read_project(settings.langgraph_json)
        except ValueError as error:
            raise Unavailable(str(error)) from error
        project.enter(os.environ)
        configured = merge(configured, project.graphs)
    config = AgentsConfig(
        root=settings.root,
        agents=configured,
        commands=commands,
        remote={name: agent.description for name, agent in settings.agents.items() if agent.remote},
        default=settings.default_agent,
        model=settings.model,
        ollama_host=settings.ollama_host,
        policies=retry_policies(settings),
        models={
            pattern: ModelConfig(model.context_limit, model.price_as)
            for pattern, model in settings.models.items()
        },
        environ=environ,
        ask_person=settings.approvals.ask_person,
    )
    return AgentRegistry(config, store=store, toolbox=toolbox, clock=clock, ids=ids, meter=meter)
