"""Chains that nobody listens to, told to nobody.

LangGraph reports every node, branch and function to LangChain as a "chain": it begins, gets a manager for what is
inside of it, and ends behind a shielded task. That is a twentieth of a small step's time, also where each handler
ignores chains, as ours does. Inside of the nodes made here such a chain costs an id and a few copies. Whoever does
listen (a tracer that the environment turns on, a handler that a graph brings along) is told everything by LangChain's
own code.

What is used of LangGraph here are inner names; `tests/agents/test_quiet_callbacks.py` holds them to what is said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from itertools import count
from operator import is_
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.callbacks.manager import AsyncCallbackManager, AsyncCallbackManagerForChainRun
from langchain_core.runnables import RunnableConfig
from langchain_core.utils.uuid import uuid7
from langgraph._internal._runnable import RunnableSeq
from langgraph.pregel._read import PregelNode

_ids = count(uuid7().int)
"""Ids of chains that nobody is told of: only what is inside of one names it, as its parent."""


def quiet(nodes: Mapping[str, PregelNode]) -> dict[str, PregelNode]:
    """The same nodes, with the chains inside of them told only to whoever listens."""
    return {name: _quiet(node) for name, node in nodes.items()}


def _quiet(node: PregelNode) -> PregelNode:
    work = node.node
    if type(work) is not RunnableSeq:
        return node
    made = copy(node)
    made.node = _QuietSeq(
        *work.steps, name=work.name, trace_inputs=work.trace_inputs, trace_policy=work.trace_policy
    )
    return made


class _QuietSeq(RunnableSeq):
    """What LangGraph makes of a node and its writers."""

    async def _astart(self, input: Any, config: RunnableConfig) -> AsyncCallbackManagerForChainRun:
        given = config.get("callbacks")
        if type(given) is AsyncCallbackManager:
            config["callbacks"] = _QuietManager(**_parts(given))
        return await super()._astart(input, config)


class _QuietManager(AsyncCallbackManager):
    async def on_chain_start(
        self, serialized: dict[str, Any] | None, inputs: Any, run_id: UUID | None = None, **kwargs: Any
    ) -> AsyncCallbackManagerForChainRun:
        if not _nobody_hears(self.handlers):
            return await super().on_chain_start(serialized, inputs, run_id, **kwargs)
        return _QuietChain(run_id=run_id or UUID(int=next(_ids)), **_parts(self))

    def add_metadata(self, metadata: dict[str, Any], inherit: bool = True) -> None:
        """As LangChain's; what is there already, as on each level below a node, is not copied again."""
        if not (_has(self.metadata, metadata) and (not inherit or _has(self.inheritable_metadata, metadata))):
            super().add_metadata(metadata, inherit)


class _QuietChain(AsyncCallbackManagerForChainRun):
    def get_child(self, tag: str | None = None) -> AsyncCallbackManager:
        return _QuietManager(
            handlers=[*self.inheritable_handlers],
            inheritable_handlers=[*self.inheritable_handlers],
            parent_run_id=self.run_id,
            tags=[*self.inheritable_tags] if tag is None else [*self.inheritable_tags, tag],
            inheritable_tags=[*self.inheritable_tags],
            metadata={**self.inheritable_metadata},
            inheritable_metadata={**self.inheritable_metadata},
        )

    async def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
        if not _nobody_hears(self.handlers):
            await super().on_chain_end(outputs, **kwargs)

    async def on_chain_error(self, error: BaseException, **kwargs: Any) -> None:
        if not _nobody_hears(self.handlers):
            await super().on_chain_error(error, **kwargs)


def _parts(manager: AsyncCallbackManager) -> dict[str, Any]:
    """What a manager passes on to what it begins."""
    return {
        "handlers": manager.handlers,
        "inheritable_handlers": manager.inheritable_handlers,
        "parent_run_id": manager.parent_run_id,
        "tags": manager.tags,
        "inheritable_tags": manager.inheritable_tags,
        "metadata": manager.metadata,
        "inheritable_metadata": manager.inheritable_metadata,
    }


def _nobody_hears(handlers: Iterable[BaseCallbackHandler]) -> bool:
    return all(handler.ignore_chain for handler in handlers)


def _has(held: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether every value of `given` is there, the very same."""
    return given.keys() <= held.keys() and all(map(is_, given.values(), map(held.get, given)))
