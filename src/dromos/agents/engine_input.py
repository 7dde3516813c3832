"""What goes into an engine: the messages of a run as its one input. Plain JSON; knows no framework."""

from __future__ import annotations

from typing import Any

import orjson

from dromos.ports.agent import InputMessage


def engine_input(field: str | None, messages: list[InputMessage]) -> dict[str, Any]:
    """The one input of a run: for the `messages` channel, or where `field` names another one, for that."""
    return chat_input(messages) if field is None else field_input(field, messages)


def chat_input(messages: list[InputMessage]) -> dict[str, Any]:
    """Engine input of a graph with a `messages` channel, as JSON. A chat takes text or a list of content blocks; any
    other content is handed on as the JSON text it was sent as."""
    return {"messages": [_message(message) for message in messages]}


def field_input(field: str, messages: list[InputMessage]) -> dict[str, Any]:
    """Engine input of a graph that takes one thing at a time: the content of the message that started the run, or
    the JSON object written in it. Earlier messages had runs of their own; such a graph has no place for them."""
    contents = [message.content for message in messages if message.role == "user"]
    return {field: _object_in(contents[-1]) if contents else None}


def _message(message: InputMessage) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": chat_content(message.content), "id": message.id}
    for name in ("tool_call_id", "name", "status"):
        value = getattr(message, name)
        if value is not None:
            made[name] = value
    return made


def chat_content(content: Any) -> Any:
    """A person's content as a chat takes it: text or content blocks as they are, anything else as its JSON text."""
    if isinstance(content, str) or (isinstance(content, list) and all(map(_is_block, content))):
        return content
    return orjson.dumps(content).decode()


def _is_block(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, dict) and isinstance(part.get("type"), str))


def _object_in(content: Any) -> Any:
    if isinstance(content, str) and content.lstrip().startswith("{"):
        try:
            found = orjson.loads(content)
        except ValueError:
            return content
        return found if isinstance(found, dict) else content
    return content
