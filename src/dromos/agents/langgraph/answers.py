"""What goes into a graph and what comes out, where the graph is no chat: fields instead of messages."""

from __future__ import annotations

import json
from typing import Any

import orjson

from dromos.agents.langgraph.checkpoint_plan import Numbers
from dromos.domain.runs import Run
from dromos.domain.text import clean_json
from dromos.ports.agent import InputMessage
from dromos.ports.store import Table, Tx


def chat_input(messages: list[InputMessage]) -> dict[str, Any]:
    """Engine input of a graph with a `messages` channel, as JSON."""
    return {"messages": [_message(message) for message in messages]}


def field_input(field: str, messages: list[InputMessage]) -> dict[str, Any]:
    """Engine input of a graph that takes the person's content, or its JSON object, in one field."""
    contents = [message.content for message in messages if message.role == "user"]
    if len(contents) == 1:
        return {field: _object_in(contents[0])}
    if all(isinstance(content, str) for content in contents):
        return {field: "\n\n".join(contents)}
    return {field: _object_in(contents[-1])}


def store_answer(tx: Tx, run: Run, answer: Any) -> None:
    """Store the output field as the run's answer, once however often it is called."""
    message_id = f"answer-{run.id}"
    where = {"conversation_id": run.conversation_id, "id": message_id}
    if answer is None or tx.first(Table.MESSAGES, where) is not None:
        return
    numbers = Numbers(tx, run.conversation_id)
    num = numbers.take()
    content = answer if isinstance(answer, str) else _json(answer)
    tx.put(
        Table.MESSAGES,
        {
            "conversation_id": run.conversation_id,
            "num": num,
            "position": num,
            "id": message_id,
            "role": "assistant",
            "kind": "text",
            "content": clean_json(content)[0],
            "run_id": run.id,
            "created_at": tx.now(),
        },
    )
    numbers.save()


def _message(message: InputMessage) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content, "id": message.id}
    for name in ("tool_call_id", "name", "status"):
        value = getattr(message, name)
        if value is not None:
            made[name] = value
    return made


def _object_in(content: Any) -> Any:
    if isinstance(content, str) and content.lstrip().startswith("{"):
        try:
            found = orjson.loads(content)
        except ValueError:
            return content
        return found if isinstance(found, dict) else content
    return content


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
