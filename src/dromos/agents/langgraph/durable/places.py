"""Where in a graph a call stands, and the key that this place gives it.

LangGraph's configuration of the step under way tells the pass, the thread and the task. Outside of a run there is no
such place. It must not know how a call is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from langgraph.config import get_config
from langgraph.runtime import get_runtime

from dromos.agents.langgraph.pass_calls import CALLS_KEY, PassCalls
from dromos.domain.effects import task_call_key

KEY_NAME = "idempotency_key"
"""The argument, and the key of `configurable`, in which a tool or function finds the key of its call."""

_KEY: ContextVar[str | None] = ContextVar("dromos_idempotency_key", default=None)


def idempotency_key() -> str | None:
    """The key of the durable call under way in which this is asked: hand it to whatever has the effect. None outside
    of a run, and in a call that is not durable."""
    return _KEY.get()


@contextmanager
def under_key(key: str) -> Iterator[None]:
    """Within it `idempotency_key()` is this one."""
    before = _KEY.set(key)
    try:
        yield
    finally:
        _KEY.reset(before)


@dataclass(frozen=True, slots=True)
class Place:
    """One task of one pass. `node_attempt` counts the tries of its node within the pass."""

    calls: PassCalls
    thread_id: str
    task_id: str
    node_attempt: int

    def key(self, name: str) -> str:
        """The key of the next call of this name here: the same whenever the task is repeated.

        What a durable call makes within it is counted there: where it is answered from its record, nothing is made.
        """
        within = idempotency_key()
        where = self.task_id if within is None else f"{self.task_id}:{within}"
        number = self.calls.number(where, self.node_attempt, name)
        return task_call_key(self.thread_id, f"{where}:{name}", number)


def place_of(config: Mapping[str, Any], execution: Any) -> Place | None:
    """`execution` is LangGraph's `execution_info`. None outside of a run."""
    configurable = config.get("configurable") or {}
    calls = configurable.get(CALLS_KEY)
    if calls is None or execution is None:
        return None
    return Place(calls, str(configurable["thread_id"]), execution.task_id, execution.node_attempt)


def place_now() -> Place | None:
    """The place of the node in which this is asked."""
    try:
        return place_of(get_config(), get_runtime().execution_info)
    except RuntimeError:  # no graph is running here
        return None
