"""LangGraph's stream taken where it is made: each event as it happens, of inner graphs too, with no queue between.

Read from outside, LangGraph hands events over when a task has ended; asked to do so at once it keeps a waiting task
for it, at a tenth of a step's time. What is used here are inner names of LangGraph (an inner graph hands its events
to the outer one in this way); `tests/agents/test_engine_stream.py` holds them to what is said here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langgraph._internal._constants import CONFIG_KEY_RUNTIME, CONFIG_KEY_STREAM
from langgraph.config import get_config
from langgraph.pregel.protocol import StreamProtocol
from langgraph.runtime import Runtime


def tapped(
    on_task: Callable[[Mapping[str, Any]], None], on_custom: Callable[[Any, Mapping[str, Any]], None]
) -> dict[str, Any]:
    """Entries of `configurable` for one run of a graph.

    `on_task` gets the `tasks` events of the root graph, on the loop's thread; `on_custom` what any node or tool
    writes to its stream, with the configuration of the call that does, on whatever thread it does. Neither may raise.
    """

    def hear(event: tuple[tuple[str, ...], str, Any]) -> None:
        namespace, _, data = event
        if not namespace:
            on_task(data)

    def write(data: Any) -> None:
        on_custom(data, get_config())

    return {
        CONFIG_KEY_STREAM: StreamProtocol(hear, {"tasks"}),
        CONFIG_KEY_RUNTIME: Runtime(stream_writer=write),
    }
