"""What a tool asks for, as JSON Schema, with and without the key of the call. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

from dromos.agents.langgraph.durable.places import KEY_NAME


def takes_key(tool: BaseTool) -> bool:
    """Whether the tool has an argument for the key, shown to the model or not."""
    schema = tool.args_schema
    if isinstance(schema, dict):
        return KEY_NAME in (schema.get("properties") or {})
    return KEY_NAME in getattr(tool.get_input_schema(), "model_fields", {})


def asked_for(tool: BaseTool) -> dict[str, Any] | None:
    """The arguments that a model gives, without the key. None where they have no JSON Schema."""
    schema = shown(tool)
    return None if schema is None else _without(schema)


def without_key(tool: BaseTool) -> BaseTool:
    """The tool as a model is shown it; the tool itself where it shows no key."""
    schema = shown(tool)
    if schema is None or KEY_NAME not in (schema.get("properties") or {}):
        return tool
    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=_without(schema),
        func=_never,
        tags=tool.tags,
    )


def shown(tool: BaseTool) -> dict[str, Any] | None:
    """The schema of what is not injected."""
    schema = tool.tool_call_schema
    if isinstance(schema, dict):
        return schema
    if not issubclass(schema, BaseModel):
        return None
    try:
        return schema.model_json_schema()
    except PydanticInvalidForJsonSchema:
        return None


def _without(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = {name: one for name, one in (schema.get("properties") or {}).items() if name != KEY_NAME}
    rest = {**schema, "properties": properties}
    if "required" in schema:
        rest["required"] = [name for name in schema["required"] if name != KEY_NAME]
    return rest


def _never(**arguments: Any) -> str:
    raise RuntimeError("this tool is shown to a model only")
