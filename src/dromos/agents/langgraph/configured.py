"""An agent whose graph a person named in their configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dromos.agents.langgraph.attempt_run import Plan
from dromos.agents.langgraph.graph_loading import (
    Graph,
    check_fields,
    load_attribute,
    make_graph,
    takes_config,
)
from dromos.domain.reasons import ErrorCode
from dromos.domain.retries import DEFAULT_POLICIES, RetryPolicy
from dromos.domain.runs import Run
from dromos.ports.agent import AgentInfo


class ConfiguredSource:
    """`GraphSource` of one configured graph. Loads it at the first use; a broken one says so at every use.

    `model`, or what the run asks for, reaches the graph and its factory as `configurable.model`.
    """

    def __init__(
        self,
        name: str,
        reference: str,
        root: Path,
        *,
        description: str = "",
        input_field: str | None = None,
        output_field: str | None = None,
        model: str | None = None,
        policies: Mapping[ErrorCode, RetryPolicy] = DEFAULT_POLICIES,
    ) -> None:
        self.info = AgentInfo(name, description or f"The graph {reference}.", "langgraph")
        self.input_field = input_field
        self._reference, self._root, self._output = reference, root, output_field
        self._model, self._policies = model, policies
        self._found: Any = None
        self._made_anew = False  # by a function, for each attempt
        self._graph: Graph | None = None
        self._lock = asyncio.Lock()

    async def plan(self, run: Run) -> Plan:
        graph = await self.shape()
        model = run.model or self._model
        extras = {"model": model} if model else {}
        if self._made_anew and self._found is not graph:
            config = {"configurable": {"thread_id": run.conversation_id, "run_id": run.id, **extras}}
            graph = await make_graph(self._found, self._reference, config)
        return Plan(
            graph=graph,
            model_name=model or "",
            output=self._output,
            extras=extras,
            policies=self._policies,
        )

    async def warm(self) -> None:
        await self.shape()

    async def shape(self) -> Graph:
        """The graph, loaded. Raises `ConfigurationInvalid`."""
        async with self._lock:
            if self._graph is None:
                self._found = await asyncio.to_thread(load_attribute, self._reference, self._root)
                self._made_anew = callable(self._found) and takes_config(self._found)
                graph = await make_graph(self._found, self._reference)
                check_fields(graph, self._reference, self.input_field, self._output)
                self._graph = graph
            return self._graph
