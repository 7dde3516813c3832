"""Where a message that steers a run enters its thread: between two steps, before a node that answers.

It is written into the checkpoint that ends a step, in that checkpoint's own transaction: a crash finds both or neither.
The pass under way then ends at the boundary and another one reads the state, message included, from the store; the
engine's state is never edited. The way in is open where no tool call waits for its result, and where the next step
holds a node that reads the conversation and is known to answer into it. It must not know follow-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.channels.base import BaseChannel
from langgraph.checkpoint.base import Checkpoint
from langgraph.pregel import Pregel

from dromos.agents.engine_input import chat_content
from dromos.agents.langgraph.message_rows import engine_columns, to_row
from dromos.ports.agent import InputMessage, Steering
from dromos.ports.store import Row, Table, Tx

CHANNEL = "messages"
_ASSISTANT = ("assistant", "ai")


class Entrance:
    """One attempt's. `answering` holds the names of nodes that answer; what the attempt sees is added to it."""

    def __init__(self, steering: Steering, graph: Pregel[Any, Any, Any, Any], answering: set[str]) -> None:
        self.steering = steering
        self.used = False  # something entered that the pass under way does not know
        self.closed: Callable[[], bool] = lambda: False  # whether the pass ends at the next boundary anyhow
        self._graph, self._answering = graph, answering

    def learn(self, event: Mapping[str, Any]) -> None:
        """A `tasks` event of the root graph: a node whose result is an assistant's message is one that answers."""
        result, name = event.get("result"), event["name"]
        if name in self._answering or not isinstance(result, dict) or not self._reads(name):
            return
        if _is_answer(result.get(CHANNEL)):
            self._answering.add(name)

    def is_open(self, checkpoint: Checkpoint) -> bool:
        """Whether a message may stand at the end of this checkpoint's list."""
        messages = checkpoint["channel_values"].get(CHANNEL)
        if self.used or self.closed() or not isinstance(messages, list) or has_open_call(messages):
            return False
        return bool(next_nodes(self._graph, checkpoint, self._answering))

    def _reads(self, name: str) -> bool:
        node = self._graph.nodes.get(name)
        return node is not None and CHANNEL in node.channels


def _is_answer(written: Any) -> bool:
    """Whether what a node wrote to the conversation holds an assistant's message, in any form LangGraph takes."""
    if isinstance(written, dict):
        several = written.get("$writes")  # so are several writes of one node told
        return written.get("role") in _ASSISTANT if several is None else _is_answer(several)
    if isinstance(written, tuple):
        return bool(written) and written[0] in _ASSISTANT
    if isinstance(written, list):
        return any(map(_is_answer, written))
    return isinstance(written, AIMessage)


def has_open_call(messages: Sequence[BaseMessage]) -> bool:
    """Whether a tool call waits for its result. Looks back to the newest answer: those before it were complete then."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return not answered.issuperset(call["id"] for call in message.tool_calls)
    return False


def next_nodes(
    graph: Pregel[Any, Any, Any, Any], checkpoint: Checkpoint, names: Collection[str]
) -> list[str]:
    """Those of `names` that the step after this checkpoint runs with the state as their input.

    A node that is sent its input (`Send`) does not read the state and is not among them.
    """
    versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
    found = []
    for name in names:
        node = graph.nodes.get(name)
        if node is None:
            continue
        seen = checkpoint["versions_seen"].get(name, {})
        for trigger in node.triggers:
            channel = graph.channels.get(trigger)
            if trigger not in values or not isinstance(channel, BaseChannel):
                continue
            is_new = trigger not in seen or versions[trigger] > seen[trigger]  # type: ignore[operator]
            if is_new and channel.from_checkpoint(values[trigger]).is_available():
                found.append(name)
                break
    return found


def enter(tx: Tx, thread_id: str, messages: Sequence[InputMessage], next_seq: int) -> list[int]:
    """Give messages that are rows of the history their places in the thread's log; returns these."""
    for place, message in enumerate(messages, next_seq):
        built = HumanMessage(content=chat_content(message.content), id=message.id)
        same = to_row(built)["content"] == message.content
        values: Row = {"log_seq": place, **engine_columns(built, whole=not same)}
        tx.change(Table.MESSAGES, {"conversation_id": thread_id, "id": message.id}, values)
    return list(range(next_seq, next_seq + len(messages)))
