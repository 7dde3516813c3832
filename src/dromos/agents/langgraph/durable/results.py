"""Results of a graph's tools as the journal keeps them, and back. Pure.

    a message with text           text, whether it is an error, its artifact where that is JSON
    any other message             the same, and its content blocks
    a Command                     its update, goto and resume, where all of that is JSON or messages
    a Command with anything else  not kept: a replay is told so, and the call is not made again

What is kept comes back equal, but for tuples (lists) and for artifacts that are not JSON (None).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolCall, ToolMessage, message_to_dict, messages_from_dict
from langgraph.types import Command, Send

from dromos.domain.text import clean_json, clean_text
from dromos.ports.tool import ToolOutcome

ToolResult = ToolMessage | Command[Any] | list[ToolMessage | Command[Any]]
_KEPT = "dromos_results"
_MESSAGE, _SEND = "$message", "$send"
LOST = (
    "[The call was made, and is not made again. What it changed in the state of the agent could not be kept "
    "({why}), so that change is missing here.]"
)


class _NotKept(Exception):
    """A value that JSON and messages cannot hold; the text says where."""


def outcome_of(result: ToolResult) -> ToolOutcome:
    """What is kept of a result."""
    parts = result if isinstance(result, list) else [result]
    messages = [message for part in parts for message in _messages(part)]
    text = clean_text("\n".join(message.text for message in messages))
    is_error = any(message.status == "error" for message in messages)
    if isinstance(result, ToolMessage) and isinstance(result.content, str) and not result.additional_kwargs:
        return ToolOutcome(clean_text(result.content), is_error, _artifact(result.artifact))
    try:
        kept = {"one": not isinstance(result, list), "text": text, "parts": [_part(part) for part in parts]}
    except _NotKept as why:
        told = LOST.format(why=why)
        return ToolOutcome(f"{text}\n\n{told}".strip(), is_error)
    return ToolOutcome(text, is_error, {_KEPT: clean_json(kept)[0]})


def result_of(outcome: ToolOutcome, call: ToolCall) -> ToolResult:
    """The result again, as the answer to this call."""
    kept = outcome.structured.get(_KEPT) if isinstance(outcome.structured, Mapping) else None
    if kept is None:
        return ToolMessage(
            content=outcome.text,
            name=call["name"],
            tool_call_id=call["id"] or "",
            status="error" if outcome.is_error else "success",
            artifact=outcome.structured,
        )
    parts = [_part_again(part) for part in kept["parts"]]
    note = outcome.text.removesuffix(kept["text"])
    if note:
        _tell(parts, note)
    return parts[0] if kept["one"] else parts


def _messages(part: ToolMessage | Command[Any]) -> list[ToolMessage]:
    if isinstance(part, ToolMessage):
        return [part]
    return [one for one in _leaves(part.update) if isinstance(one, ToolMessage)]


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for one in value.values() for leaf in _leaves(one)]
    if isinstance(value, list | tuple):
        return [leaf for one in value for leaf in _leaves(one)]
    return [value]


def _tell(parts: Sequence[ToolMessage | Command[Any]], note: str) -> None:
    """Put a note before what the model reads of the results."""
    for message in (message for part in parts for message in _messages(part)):
        if isinstance(message.content, str):
            message.content = f"{note}{message.content}"
        else:
            message.content = [{"type": "text", "text": note.strip()}, *message.content]
        return


def _artifact(value: Any) -> Any:
    try:
        return clean_json(_plain(value, "its artifact"))[0]
    except _NotKept:
        return None


def _part(part: ToolMessage | Command[Any]) -> dict[str, Any]:
    if isinstance(part, ToolMessage):
        return _message(part)
    fields = {"update": part.update, "goto": part.goto, "resume": part.resume}
    command = {name: _plain(value, f"its {name}") for name, value in fields.items()}
    return {"command": {**command, "graph": part.graph}}


def _part_again(part: Mapping[str, Any]) -> Any:
    if "command" not in part:
        return _again(part)
    return Command(**{name: _again(value) for name, value in part["command"].items()})


def _message(message: BaseMessage) -> dict[str, Any]:
    data = message_to_dict(message)
    fields = data["data"]
    if "artifact" in fields:
        fields["artifact"] = _artifact(fields["artifact"])
    return {_MESSAGE: {"type": data["type"], "data": _plain(fields, "a message")}}


def _plain(value: Any, where: str) -> Any:
    """The value as JSON, with messages and sends as marked objects."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if value != value or value in (float("inf"), float("-inf")):
                raise _NotKept(f"a number that is not finite in {where}")
            return value
        case BaseMessage():
            return _message(value)
        case Send():
            return {_SEND: {"node": value.node, "arg": _plain(value.arg, where)}}
        case Mapping():
            if not all(isinstance(key, str) for key in value) or {_MESSAGE, _SEND} & value.keys():
                raise _NotKept(f"a mapping whose keys JSON does not take in {where}")
            return {key: _plain(one, f"{where}, {key}") for key, one in value.items()}
        case list() | tuple():
            return [_plain(one, where) for one in value]
        case _:
            raise _NotKept(f"a {type(value).__name__} in {where}")


def _again(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.keys() == {_MESSAGE}:
            return messages_from_dict([dict(value[_MESSAGE])])[0]
        if value.keys() == {_SEND}:
            return Send(value[_SEND]["node"], _again(value[_SEND]["arg"]))
        return {key: _again(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_again(one) for one in value]
    return value
