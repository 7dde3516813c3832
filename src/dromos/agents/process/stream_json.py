"""What a command-line agent prints, line by line: newline-delimited JSON as coding agents write it.

    {"type": "system", "subtype": "init", "session_id", "model"}
    {"type": "stream_event", "event": {"type": "content_block_delta", "delta": {"type": "text_delta", "text"}}}
    {"type": "assistant", "message": {"id", "content": [{"type": "text" | "tool_use", …}], "usage"}}
    {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id", "content", "is_error"}]}}
    {"type": "result", "subtype": "success" | "error_…", "is_error", "result", "session_id", "usage", "total_cost_usd"}

`parent_tool_use_id` on a line says that it belongs to a helper that this tool call started. One message may come in
several lines of the same id. A line of another kind is skipped. Pure: bytes in, values out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from dromos.domain.text import clean_json, clean_text

TODO_TOOLS = frozenset({"TodoWrite", "todo_write", "write_todos", "update_plan"})
HELPER_TOOLS = frozenset({"Task", "Agent", "task"})
_PLAN_STATUS = {"pending": "pending", "in_progress": "active", "completed": "done", "cancelled": "skipped"}


@dataclass(frozen=True, slots=True)
class Session:
    """The agent's own session, and the model it says it uses."""

    id: str
    model: str | None


@dataclass(frozen=True, slots=True)
class Began:
    """A message begins; its text comes in pieces."""

    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of text as it is written; a `Said` with all of it follows."""

    text: str
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the agent, or a further part of one: `message_id` repeats."""

    message_id: str
    text: str
    calls: tuple[Call, ...]
    usage: Mapping[str, int] | None
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Returned:
    """What a tool call came to."""

    call_id: str
    text: str
    is_error: bool
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The agent ended. `cost` is in US dollars, as decimal text; None: it did not say."""

    ok: bool
    kind: str
    text: str
    session_id: str | None
    usage: Mapping[str, int] | None
    cost: str | None


@dataclass(frozen=True, slots=True)
class Other:
    """A line that says nothing of the run, or is no JSON; `shown` is its beginning."""

    shown: str = field(default="")


Event = Session | Began | Delta | Said | Returned | Result | Other


def read_line(line: bytes) -> list[Event]:
    """The events of one line, in order; broken text is replaced, never raised about."""
    if not line.strip():
        return []
    text = line.decode("utf-8", "replace")
    try:
        value: Any = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return [Other(clean_text(text[:200]))]
    value, _ = clean_json(value)
    return list(_events(value)) if isinstance(value, dict) else [Other()]


def plan_of(call: Call) -> list[dict[str, Any]] | None:
    """The plan that a todo tool was given, as `/plan` of the document shows it; None: no such tool."""
    items = call.arguments.get("todos", call.arguments.get("plan"))
    if call.name not in TODO_TOOLS or not isinstance(items, list):
        return None
    return [
        {
            "id": str(item.get("id", number)),
            "title": str(item.get("content") or item.get("step") or ""),
            "status": _PLAN_STATUS.get(str(item.get("status")), "pending"),
        }
        for number, item in enumerate(items, 1)
        if isinstance(item, dict)
    ]


def _events(value: Mapping[str, Any]) -> Iterator[Event]:
    parent = value.get("parent_tool_use_id")
    parent = parent if isinstance(parent, str) else None
    match value:
        case {"type": "system", "session_id": str(session)}:
            model = value.get("model")
            yield Session(session, model if isinstance(model, str) else None)
        case {"type": "stream_event", "event": {"type": "message_start"}}:
            yield Began(parent)
        case {"type": "stream_event", "event": {"delta": {"text": str(text)}}}:
            yield Delta(text, parent)
        case {"type": "assistant", "message": dict(message)}:
            yield _said(message, parent)
        case {"type": "user", "message": {"content": list(parts)}}:
            for part in parts:
                if isinstance(part, dict) and part.get("type") == "tool_result":
                    yield Returned(
                        str(part.get("tool_use_id", "")),
                        _text(part.get("content")),
                        bool(part.get("is_error")),
                        parent,
                    )
        case {"type": "result"}:
            yield _result(value)
        case _:
            yield Other()


def _said(message: Mapping[str, Any], parent: str | None) -> Said:
    content = message.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    calls = tuple(
        Call(
            str(part.get("id", "")),
            str(part.get("name", "tool")),
            part["input"] if isinstance(part.get("input"), dict) else {},
        )
        for part in parts
        if part.get("type") == "tool_use"
    )
    return Said(str(message.get("id") or ""), _text(content), calls, _usage(message.get("usage")), parent)


def _result(value: Mapping[str, Any]) -> Result:
    kind = str(value.get("subtype") or ("error" if value.get("is_error") else "success"))
    ok = not value.get("is_error") and kind == "success"
    cost, session = value.get("total_cost_usd"), value.get("session_id")
    return Result(
        ok,
        kind,
        str(value.get("result") or value.get("error") or ""),
        session if isinstance(session, str) else None,
        _usage(value.get("usage")),
        format(Decimal(str(cost)), "f")
        if isinstance(cost, (int, float)) and not isinstance(cost, bool)
        else None,
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text")
    return "".join(text for text in texts if isinstance(text, str))


def _usage(usage: Any) -> dict[str, int] | None:
    """Tokens with cached ones counted into the input, as everywhere in a run's document."""
    if not isinstance(usage, dict):
        return None

    def count(name: str) -> int:
        value = usage.get(name)
        return value if isinstance(value, int) and value > 0 else 0

    cached = count("cache_read_input_tokens")
    written = count("cache_creation_input_tokens")
    return {
        "input": count("input_tokens") + cached + written,
        "output": count("output_tokens"),
        "cached": cached,
    }
