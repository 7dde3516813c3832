"""`DurableTools`: a middleware with which every tool call of an agent passes the gate and the journal.

Whatever the tool is (a function, synchronous or not, a tool of an MCP server, a graph), a call is recorded before it is
made, and so is what came of it; a replay is given the record. What may be kept of a result is said in `results`.
Outside of a run calls pass through unchanged. It must not know how calls are recorded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeVar, cast

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from dromos.agents.langgraph.durable import schemas
from dromos.agents.langgraph.durable.as_shown import AsShown
from dromos.agents.langgraph.durable.functions import Policy, Replay
from dromos.agents.langgraph.durable.places import KEY_NAME, Place, place_now, place_of, under_key
from dromos.agents.langgraph.durable.results import ToolResult, outcome_of, result_of
from dromos.agents.langgraph.durable.turns import put_in_order
from dromos.agents.langgraph.gated import through_gate
from dromos.domain.call_questions import misfit
from dromos.domain.effects import Call, Make, ReplayClass, ToolPolicy, call_key
from dromos.domain.text import clean_json
from dromos.ports.journal import Sent
from dromos.ports.tool import ToolAnnotations, ToolOutcome

E = TypeVar("E", ToolPolicy, ReplayClass)
Handler = Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
Wrapped = ToolMessage | Command[Any]


class DurableTools(AgentMiddleware[Any, Any, Any]):
    """`policy` and `replay` by the tool's name, or by a pattern such as `mail_*`; the server's configuration of a tool
    (`[tools."name"]`) comes before both. A tool that nothing is said of is `unsafe`.

    Put it first, so that what other middlewares do to a call (a second try, another result) is inside of it.
    """

    def __init__(
        self, policy: Mapping[str, Policy] | None = None, replay: Mapping[str, Replay] | None = None
    ) -> None:
        super().__init__()
        self._policy = {name: ToolPolicy(one) for name, one in (policy or {}).items()}
        self._replay = {name: ReplayClass(one) for name, one in (replay or {}).items()}

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Wrapped:
        place = _place(request)
        if place is None:
            return await handler(request)
        call = self._through(request, place, handler)
        return cast(Wrapped, await place.calls.together(place.task_id, call))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Wrapped]
    ) -> Wrapped:
        place = _place(request)
        if place is None:
            return handler(request)

        def carried(here: Callable[[Callable[[], Wrapped]], Awaitable[Wrapped]]) -> Any:
            async def make(keyed: ToolCallRequest) -> Wrapped:
                return await here(lambda: handler(keyed))

            return place.calls.together(place.task_id, self._through(request, place, make))

        return cast(Wrapped, place.calls.wait(carried))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        if place_now() is None:
            return await handler(request)
        response = await handler(_without_key(request))
        _order(response, request.messages)
        return response

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        if place_now() is None:
            return handler(request)
        response = handler(_without_key(request))
        _order(response, request.messages)
        return response

    async def _through(self, request: ToolCallRequest, place: Place, handler: Handler) -> ToolResult:
        call, tool = request.tool_call, request.tool
        name = call["name"]
        key = _key(request, place)
        gate = place.calls.desk.gate
        said = _annotations(tool)
        rule = gate.rule(name, "", said, _named(self._policy, name), _named(self._replay, name))
        schema = schemas.asked_for(tool) if tool is not None else None
        given = {one: value for one, value in call["args"].items() if one != KEY_NAME}
        arguments: dict[str, Any] = clean_json(given)[0]
        wanted = Call(key, name, call["id"] or "", arguments, rule, schema)
        made: list[tuple[ToolOutcome, ToolResult]] = []

        async def carry_out(leave: Make, sent: Sent) -> ToolOutcome:
            keyed = _keyed(request, leave.arguments, key)
            asked = rule.policy is ToolPolicy.ASK or leave.request_id is not None
            if tool is not None and asked:
                shown = cast(BaseTool, AsShown(cast(BaseTool, keyed.tool), leave.arguments))
                keyed = replace(keyed, tool=shown)
            sent()
            with under_key(key):
                result = await handler(keyed)
            outcome = outcome_of(result)
            made.append((outcome, result))
            return outcome

        outcome = await through_gate(place.calls.desk, wanted, carry_out, partial(misfit, name, schema))
        for kept, result in made:
            if kept is outcome:
                return result  # as the tool gave it
        return result_of(outcome, call)


def _place(request: ToolCallRequest) -> Place | None:
    runtime: Any = request.runtime  # None where a tool node is called outside of a graph
    return None if runtime is None else place_of(runtime.config, runtime.execution_info)


def _key(request: ToolCallRequest, place: Place) -> str:
    """From the stored message that asks for the call, and the call's place in it."""
    call_id = request.tool_call["id"]
    for message in reversed(_history(request.state)):
        if isinstance(message, AIMessage) and message.id:
            for position, call in enumerate(message.tool_calls):
                if call["id"] == call_id:
                    return call_key(place.thread_id, message.id, position)
    return place.key(request.tool_call["name"])


def _history(state: Any) -> Sequence[BaseMessage]:
    if isinstance(state, list):
        return state
    found = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
    return found if isinstance(found, list) else []


def _named(rules: Mapping[str, E], tool: str) -> E | None:
    """The exact name first, then the pattern with the most letters."""
    if tool in rules:
        return rules[tool]
    fitting = [pattern for pattern in rules if fnmatchcase(tool, pattern)]
    return rules[max(fitting, key=len)] if fitting else None


def _annotations(tool: BaseTool | None) -> ToolAnnotations:
    """What the tool's server says of it, as adapters of MCP put it into the metadata."""
    said = (tool.metadata if tool is not None else None) or {}
    hints = [
        said.get(name) for name in ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    ]
    return ToolAnnotations(*(one if isinstance(one, bool) else None for one in hints))


def _keyed(request: ToolCallRequest, arguments: Mapping[str, Any], key: str) -> ToolCallRequest:
    """The call with its key: in the runtime's `configurable`, and as an argument where the tool has one for it."""
    runtime = request.runtime
    configurable = {**(runtime.config.get("configurable") or {}), KEY_NAME: key}
    keyed = replace(
        request,
        tool_call={**request.tool_call, "args": dict(arguments)},
        runtime=replace(runtime, config={**runtime.config, "configurable": configurable}),
    )
    tool = request.tool
    if tool is not None and schemas.takes_key(tool):
        keyed = replace(keyed, tool=cast(BaseTool, _WithKey(tool, key)))
    return keyed


class _WithKey:
    """A tool with the key among its arguments, put there last: LangGraph strips what it takes for a forgery."""

    def __init__(self, tool: BaseTool, key: str) -> None:
        self._tool, self._key = tool, key

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    def invoke(self, input: Any, config: Any = None, **options: Any) -> Any:
        return self._tool.invoke(self._with_key(input), config, **options)

    async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:
        return await self._tool.ainvoke(self._with_key(input), config, **options)

    def _with_key(self, call: Any) -> Any:
        return {**call, "args": {**call["args"], KEY_NAME: self._key}}


def _without_key(request: ModelRequest[Any]) -> ModelRequest[Any]:
    """The model is not asked for the key."""
    tools = [schemas.without_key(tool) if isinstance(tool, BaseTool) else tool for tool in request.tools]
    same = all(one is other for one, other in zip(tools, request.tools, strict=True))
    return request if same else request.override(tools=tools)


def _order(response: Any, history: Sequence[BaseMessage]) -> None:
    """Ids that are the message's and the call's own: a key is made of them."""
    answer = getattr(response, "model_response", response)
    for message in getattr(answer, "result", [answer]):
        if isinstance(message, AIMessage):
            put_in_order(message, history)
