"""One message of a thread as a row of `messages`, and back.

A person, a client and the engine read the same row: role, content, tool calls and name stand in columns; what only
the engine needs (usage, artifacts, provider metadata, foreign classes) is in `engine`, in one of three forms:

    NULL, "fields"    a standard LangChain message; the bytes hold its remaining fields
    "message"         another class; the bytes hold the object with empty content
    "whole"           the columns cannot give the content back exactly; the bytes hold the whole object

Cleans what no database takes (`domain.text`) in the message itself, so that memory and store never differ. Knows no
transaction and no checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from dromos.agents.langgraph.state_serde import StateSerializer
from dromos.domain.text import clean_json, clean_text
from dromos.ports.store import Row

_STANDARD: dict[type[BaseMessage], str] = {
    HumanMessage: "user",
    AIMessage: "assistant",
    ToolMessage: "tool",
    SystemMessage: "system",
}
_CLASS_OF_ROLE: dict[str, type[BaseMessage]] = {role: kind for kind, role in _STANDARD.items()}
_ROLE_OF_TYPE = {
    "human": "user",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant",
    "ToolMessageChunk": "tool",
    "SystemMessageChunk": "system",
}
_IN_COLUMNS = frozenset({"content", "id", "name", "type", "tool_call_id"})
_CALL_KEYS = {"id", "name", "args", "type"}
_serde = StateSerializer()


def is_storable(value: Any) -> bool:
    """True for a message that can be a row of its own: it has an id and is no instruction to remove one."""
    return isinstance(value, BaseMessage) and bool(value.id) and type(value) is not RemoveMessage


def role_of(message: BaseMessage) -> str:
    """user | assistant | tool | system."""
    role = getattr(message, "role", None) or _ROLE_OF_TYPE.get(message.type, "assistant")
    return role if role in _CLASS_OF_ROLE else "assistant"


def clean(messages: Iterable[BaseMessage]) -> None:
    """Replace NUL, lone surrogates and NaN in the texts of new messages, in place."""
    for message in messages:
        content = message.content
        if isinstance(content, str):
            cleaned = clean_text(content)
            if cleaned is not content:
                message.content = cleaned
        elif not _is_json(content):
            message.content = clean_json(content)[0]
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                if not _is_json(call["args"]):
                    call["args"] = clean_json(call["args"])[0]


def to_row(message: BaseMessage) -> Row:
    """The columns that come from the message alone. The caller adds place, thread, run and times."""
    role = role_of(message)
    content = message.content
    plain = isinstance(content, str) or _is_json(content)
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    row: Row = {
        "id": message.id,
        "role": role,
        "kind": "tool" if role == "tool" else "text",
        "content": content if plain else str(content),
        "tool_calls": [{"id": c["id"], "name": c["name"], "args": c["args"]} for c in calls] or None,
        "tool_call_id": getattr(message, "tool_call_id", None),
        "name": message.name,
        "status": "error" if getattr(message, "status", None) == "error" else None,
    }
    if row["tool_calls"] is not None and not _is_json(row["tool_calls"]):
        row["tool_calls"] = clean_json(row["tool_calls"])[0]
        plain = False
    return row | engine_columns(message, whole=not plain)


def engine_columns(message: BaseMessage, *, whole: bool = False) -> Row:
    """`engine_type` and `engine`; `whole` where the content column will not hold exactly this content."""
    if whole:
        return {"engine_type": "whole", "engine": _dump(message)}
    if type(message) in _STANDARD:
        fields = _remaining_fields(message)
        return {"engine_type": "fields" if fields else None, "engine": _dump(fields) if fields else None}
    return {"engine_type": "message", "engine": _dump(message.model_copy(update={"content": ""}))}


def from_row(row: Row) -> BaseMessage:
    """The message of a row that is in a thread. Raises `UnreadableValue`."""
    form = row["engine_type"]
    if form == "whole":
        whole: BaseMessage = _load(row)
        return whole
    if form == "message":
        message: BaseMessage = _load(row)
        message.content = row["content"]
        return message
    fields: dict[str, Any] = _load(row) if form == "fields" else {}
    fields["content"] = row["content"] if row["content"] is not None else ""
    fields["id"] = row["id"]
    if row["name"] is not None:
        fields["name"] = row["name"]
    role = row["role"]
    if role == "tool":
        fields["tool_call_id"] = row["tool_call_id"]
        if row["status"] == "error":
            fields["status"] = "error"
    if row["tool_calls"] and "tool_calls" not in fields:
        fields["tool_calls"] = [{**call, "type": "tool_call"} for call in row["tool_calls"]]
    return _CLASS_OF_ROLE[role](**fields)


@cache
def _defaults(kind: type[BaseMessage]) -> dict[str, Any]:
    """What the fields of a class are where nobody gave them; to compare with only."""
    return {name: field.get_default(call_default_factory=True) for name, field in kind.model_fields.items()}


def _remaining_fields(message: BaseMessage) -> dict[str, Any]:
    """Fields of a standard message that no column holds and that differ from the class's default."""
    defaults = _defaults(type(message))
    values: dict[str, Any] = {}
    for name, value in message.__dict__.items():
        if name in _IN_COLUMNS:
            continue
        if name == "tool_calls" and all(call.keys() == _CALL_KEYS for call in value):
            continue
        if name == "status" and value == "error":
            continue
        if value != defaults[name]:
            values[name] = value
    return values | (message.model_extra or {})


def _dump(value: Any) -> bytes:
    _, data = _serde.dumps_typed(value)
    return data


def _load(row: Row) -> Any:
    return _serde.loads_typed(("msgpack", row["engine"]))


def _is_json(value: Any) -> bool:
    """True where JSON gives the value back equal and every text in it is clean."""
    if value is None or isinstance(value, bool):
        return True
    if type(value) is str:
        return clean_text(value) is value
    if type(value) is int:
        return -(2**53) < value < 2**53
    if type(value) is float:
        return value == value and value not in (float("inf"), float("-inf"))
    if type(value) is list:
        return all(map(_is_json, value))
    if type(value) is dict:
        return all(type(key) is str and clean_text(key) is key for key in value) and all(
            map(_is_json, value.values())
        )
    return False
