"""A tool that a person allowed, callable with the arguments that were shown and with no others.

What stands between the gate and the tool (another middleware) may change a call; what somebody said yes to then is not
what would happen. It must not know who was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from dromos.agents.langgraph.durable import schemas
from dromos.agents.langgraph.durable.places import KEY_NAME
from dromos.domain.effects import arguments_digest


class AsShown:
    """Answers with an error, and calls nothing, where the arguments are other ones. What LangGraph injects is none of
    them."""

    def __init__(self, tool: BaseTool, arguments: Mapping[str, Any]) -> None:
        self._tool, self._arguments = tool, dict(arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    def invoke(self, input: Any, config: Any = None, **options: Any) -> Any:
        return self._refusal(input) or self._tool.invoke(input, config, **options)

    async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:
        return self._refusal(input) or await self._tool.ainvoke(input, config, **options)

    def _refusal(self, call: Mapping[str, Any]) -> ToolMessage | None:
        schema = schemas.asked_for(self._tool)
        asked_for = (schema or {}).get("properties") or {}
        now = {
            name: value
            for name, value in call["args"].items()
            if name != KEY_NAME and (name in self._arguments or name in asked_for)
        }
        if arguments_digest(now) == arguments_digest(self._arguments):
            return None
        told = (
            "The call was not made: its arguments were changed after a person had allowed others. "
            "What is allowed is what was shown."
        )
        return ToolMessage(told, name=call["name"], tool_call_id=call["id"], status="error")
