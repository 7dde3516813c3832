"""From MCP's results and tool descriptions to the port's: cleaned, capped, and nothing but text and JSON.

Pure. Text that no database or model takes is replaced here, at the border, once.
"""

from __future__ import annotations

import json
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    Tool,
)

from dromos.domain.text import clean_json, clean_text
from dromos.ports.tool import ToolAnnotations, ToolOutcome, ToolSpec

KEY_ARGUMENT = "idempotency_key"
"""A tool whose schema has this argument gets the call's key in it; the model is not asked for it."""

NOT_FINITE = "[A number that was not finite (NaN or infinity) is given as null.]"


def outcome_of(result: CallToolResult, cap: int) -> ToolOutcome:
    """A result with at most `cap` UTF-8 bytes of text; structured content beyond that is left out."""
    structured, not_finite = clean_json(result.structured_content)
    notices = [NOT_FINITE] if not_finite else []
    if structured is not None and len(json.dumps(structured).encode()) > cap:
        structured = None
        notices.append(f"[The structured form of this result is left out: it has more than {cap:,} bytes.]")
    text = cut("\n".join(_text(block) for block in result.content), cap)
    return ToolOutcome("\n\n".join(part for part in (text, *notices) if part), result.is_error, structured)


def cut(text: str, cap: int) -> str:
    """Clean text of at most `cap` UTF-8 bytes, with a notice of what is missing."""
    text = clean_text(text)
    data = text.encode()
    if len(data) <= cap:
        return text
    kept = data[:cap].decode(errors="ignore")
    missing = len(data) - len(kept.encode())
    return f"{kept}\n\n[Cut here: the result has {len(data):,} bytes, the last {missing:,} are left out.]"


def spec_of(tool: Tool, name: str, source: str) -> ToolSpec:
    """A tool as agents see it, under the name they call it by."""
    schema, _ = clean_json(tool.input_schema)
    hints = tool.annotations
    return ToolSpec(
        name,
        clean_text(tool.description or tool.title or ""),
        _without_key(schema),
        source,
        ToolAnnotations()
        if hints is None
        else ToolAnnotations(
            hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint
        ),
    )


def wants_key(tool: Tool) -> bool:
    """Whether the tool takes the idempotency key as an argument."""
    properties = tool.input_schema.get("properties")
    return isinstance(properties, dict) and KEY_ARGUMENT in properties


def _without_key(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or KEY_ARGUMENT not in properties:
        return schema
    rest = {name: value for name, value in properties.items() if name != KEY_ARGUMENT}
    required = [name for name in schema.get("required", ()) if name != KEY_ARGUMENT]
    return schema | {"properties": rest, "required": required}


def _text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return f"[{block.type}, {block.mime_type}, {_size(block.data)} bytes: not shown]"
        case ResourceLink():
            return f"[resource {block.name}: {block.uri}]"
        case EmbeddedResource():
            inner = block.resource
            if isinstance(inner, BlobResourceContents):
                kind = inner.mime_type or "binary"
                return f"[resource {inner.uri}, {kind}, {_size(inner.blob)} bytes: not shown]"
            return inner.text


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4:,}"
