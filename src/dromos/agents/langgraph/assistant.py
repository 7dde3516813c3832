"""The built-in agent: a model that may call every tool of the toolbox, one task per call.

Graphs are compiled once per model and set of tools. What concerns one attempt (its run, its observer) comes through
`configurable`. A tool's failure of any kind is a result that the model reads; it never cancels its siblings.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.pregel import Pregel
from langgraph.types import Command

from dromos.agents.langgraph.attempt_run import OBSERVER_KEY, RUN_KEY, Plan
from dromos.agents.langgraph.chat_models import ChatModels
from dromos.agents.langgraph.failures import ModelFault, safe_text
from dromos.agents.langgraph.gated import DESK_KEY, through_gate
from dromos.agents.langgraph.message_rows import clean
from dromos.agents.langgraph.missing_model import MissingModel
from dromos.agents.langgraph.model_choice import LOCAL, SCRIPTED, ModelSelector
from dromos.agents.langgraph.observer import Observer
from dromos.agents.langgraph.person import WithAskPerson
from dromos.domain.call_questions import misfit
from dromos.domain.effects import NOT_SENT, Call, Fault, Make, ReplayClass, ToolPolicy, ToolRule, call_key
from dromos.domain.reasons import ErrorCode
from dromos.domain.retries import DEFAULT_POLICIES, RetryPolicy
from dromos.domain.runs import Run
from dromos.domain.text import clean_json
from dromos.ports.agent import AgentInfo, ModelChoice
from dromos.ports.clock import Ids
from dromos.ports.journal import Desk, Sent, Suspended
from dromos.ports.tool import ToolAnnotations, Toolbox, ToolContext, ToolOutcome, ToolSpec

PROMPT = "You are a helpful assistant. Answer clearly and to the point. Use a tool where it helps."
SMALL_PROMPT = "You are a friendly assistant. Answer in one to three short, simple sentences."
SMALL_HISTORY_CHARS = 6000
"""What the small local model can read: the newest messages up to this many characters."""
MISSING = "none"
"""Name of the model where none could be chosen."""
_GRAPHS_KEPT = 16
_INVALID = "dromos_invalid_arguments"


class AssistantSource:
    """`GraphSource` of the built-in agent."""

    input_field: str | None = None

    def __init__(
        self,
        selector: ModelSelector,
        models: ChatModels,
        toolbox: Toolbox,
        ids: Ids,
        *,
        name: str = "assistant",
        policies: Mapping[ErrorCode, RetryPolicy] = DEFAULT_POLICIES,
        ask_person: bool = True,
    ) -> None:
        self._toolbox = WithAskPerson(toolbox) if ask_person else toolbox
        self._selector, self._models, self._ids = selector, models, ids
        self._name, self._policies = name, policies
        self._graphs: dict[str, Pregel[Any, Any, Any, Any]] = {}
        self._choice: ModelChoice | None = None

    @property
    def info(self) -> AgentInfo:
        return AgentInfo(
            self._name, "Answers, and uses the configured tools.", "langgraph", model=self._choice
        )

    async def choose(self) -> ModelChoice:
        """The model a run without a wish of its own would get now."""
        self._choice = await self._selector.choose()
        return self._choice

    async def plan(self, run: Run) -> Plan:
        name, model = await self._model(run)
        specs = () if name == LOCAL else tuple(await self._toolbox.specs())
        return Plan(
            graph=self._graph(name, model, specs),
            model_name=name,
            context_limit=await self._models.context_limit(name),
            answering=frozenset({"model"}),
            policies=self._policies,
        )

    async def _model(self, run: Run) -> tuple[str, BaseChatModel]:
        """The run's model by name; where it cannot be had, one that says why at its first call."""
        name = run.model or MISSING
        try:
            choice = await self._selector.choose(run.model)
            name = choice.name
            if run.model is None:
                self._choice = choice
            return name, await self._models.get(name)
        except ModelFault as fault:
            return name, MissingModel(code=fault.code, cure=str(fault))

    async def warm(self) -> None:
        """Run a turn that nobody sees: much of the engine is loaded only then. Then load the chosen model's client."""
        graph = await self.shape()
        await graph.ainvoke({"messages": [{"role": "user", "content": "!say warm"}]})
        choice = await self.choose()
        if choice.name != LOCAL:
            await self._models.get(choice.name)

    async def shape(self) -> Pregel[Any, Any, Any, Any]:
        return self._graph(SCRIPTED, await self._models.get(SCRIPTED), ())

    def _graph(
        self, name: str, model: BaseChatModel, specs: Sequence[ToolSpec]
    ) -> Pregel[Any, Any, Any, Any]:
        key = _digest(name, id(model), specs)
        graph = self._graphs.pop(key, None)
        if graph is None:
            graph = create_agent(
                model,
                tools=[_tool(spec) for spec in specs],
                system_prompt=SMALL_PROMPT if name == LOCAL else PROMPT,
                middleware=[_Turns(self._toolbox, self._ids, specs, small=name == LOCAL)],
            )
        self._graphs[key] = graph  # newest last
        while len(self._graphs) > _GRAPHS_KEPT:
            del self._graphs[next(iter(self._graphs))]
        return graph


class _Turns(AgentMiddleware[Any, Any, Any]):
    """Puts the model's answers in order before they are stored, and carries tool calls to the toolbox."""

    def __init__(self, toolbox: Toolbox, ids: Ids, specs: Sequence[ToolSpec], *, small: bool) -> None:
        super().__init__()
        self._toolbox, self._ids, self._small = toolbox, ids, small
        self._specs = {spec.name: spec for spec in specs}

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        messages = request.messages
        if self._small:
            request = request.override(messages=_newest(messages, SMALL_HISTORY_CHARS))
        response = await handler(request)
        for message in response.result:
            if isinstance(message, AIMessage):
                self._put_in_order(message, messages)
        return response

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        call = request.tool_call
        name, call_id = call["name"], call["id"] or ""
        configurable = request.runtime.config["configurable"]
        run: Run = configurable[RUN_KEY]
        observer: Observer = configurable[OBSERVER_KEY]
        message, position = _asked_by(request.state["messages"], call_id)
        key = call_key(run.conversation_id, message.id or "", position)
        wrong = message.additional_kwargs.get(_INVALID, {}).get(call_id)
        if wrong is not None:
            return _result(name, call_id, f"The arguments are not valid JSON: {wrong}", failed=True)
        desk: Desk = configurable[DESK_KEY]
        spec = self._specs.get(name)
        rule = _rule(desk, name, spec)
        if spec is None or rule.policy is ToolPolicy.ASK:  # it may be there by now, or be another than it was
            spec = await self._toolbox.find(name)
            rule = _rule(desk, name, spec or self._specs.get(name))
        said = spec.annotations if spec is not None else ToolAnnotations()
        wanted = Call(key, name, call_id, call["args"], rule, spec.input_schema if spec is not None else None)

        async def carry_out(leave: Make, sent: Sent) -> ToolOutcome:
            step_id = self._ids.new()
            ns = str(configurable.get("checkpoint_ns", ""))
            reads = rule.replay is ReplayClass.READ or bool(said.read_only)
            observer.tool_started(step_id, name, leave.arguments, ns=ns, read_only=reads)
            left = False

            def leaves() -> None:
                nonlocal left
                left = True
                sent()

            context = ToolContext(
                run_id=run.id,
                conversation_id=run.conversation_id,
                tool_call_id=call_id,
                idempotency_key=key,
                on_progress=lambda progress: observer.tool_progress(step_id, progress),
                state=leave.state,
                answers=leave.answers,
                repeatable=rule.replay is not ReplayClass.UNSAFE,
                sent=leaves,
                remains=lambda ending: desk.in_flight.add(ending, name),
            )
            try:
                outcome = await self._toolbox.call(name, leave.arguments, context)
            except Suspended:
                observer.tool_ended(step_id, "", failed=False)
                raise
            except asyncio.CancelledError:
                if not left:
                    observer.tool_ended(step_id, NOT_SENT, failed=True)
                raise
            except Exception as error:
                text = f"The tool failed: {type(error).__name__}: {safe_text(error)}"
                outcome = ToolOutcome(text, is_error=True)
            observer.tool_ended(step_id, outcome.text, failed=outcome.is_error)
            return outcome

        outcome = await through_gate(desk, wanted, carry_out, _fault(name, spec))
        return _result(name, call_id, outcome.text, failed=outcome.is_error, structured=outcome.structured)

    def _put_in_order(self, message: AIMessage, history: Sequence[BaseMessage]) -> None:
        """An id of its own, call ids that the thread does not have yet, broken calls as calls, clean text."""
        if message.id is None or any(message.id == earlier.id for earlier in history):
            message.id = f"msg_{self._ids.new()}"
        for broken in message.invalid_tool_calls:
            call_id = broken.get("id") or f"call_{self._ids.new()}"
            message.tool_calls.append(
                {"name": broken.get("name") or "unknown", "args": {}, "id": call_id, "type": "tool_call"}
            )
            message.additional_kwargs.setdefault(_INVALID, {})[call_id] = str(broken.get("args"))[:500]
        if message.invalid_tool_calls:
            message.invalid_tool_calls = []
        if message.tool_calls:
            self._own_call_ids(message, history)
        clean([message])

    def _own_call_ids(self, message: AIMessage, history: Sequence[BaseMessage]) -> None:
        taken = {
            call["id"] for earlier in history if isinstance(earlier, AIMessage) for call in earlier.tool_calls
        }
        invalid = message.additional_kwargs.get(_INVALID, {})
        for call in message.tool_calls:
            if not call["id"] or call["id"] in taken:
                fresh = f"call_{self._ids.new()}"
                if call["id"] in invalid:
                    invalid[fresh] = invalid[call["id"]]
                call["id"] = fresh
            taken.add(call["id"])


def _rule(desk: Desk, name: str, spec: ToolSpec | None) -> ToolRule:
    """What is in force for the tool."""
    source, said = ("", ToolAnnotations()) if spec is None else (spec.source, spec.annotations)
    return desk.gate.rule(name, source, said)


def _fault(name: str, spec: ToolSpec | None) -> Fault:
    """Why a call that was allowed cannot be made any more as it was."""

    def fault(arguments: Mapping[str, Any]) -> str | None:
        if spec is None:
            return f"{name} is not there now."
        return misfit(name, spec.input_schema, arguments)

    return fault


def _asked_by(messages: Sequence[BaseMessage], call_id: str) -> tuple[AIMessage, int]:
    """The stored assistant message that made the call, and the call's position in it."""
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            for position, call in enumerate(message.tool_calls):
                if call["id"] == call_id:
                    return message, position
    raise LookupError(f"no message of the thread asks for the call {call_id}")


def _result(name: str, call_id: str, text: str, *, failed: bool, structured: Any = None) -> ToolMessage:
    return ToolMessage(
        content=text,
        name=name,
        tool_call_id=call_id,
        status="error" if failed else "success",
        artifact=None if structured is None else clean_json(structured)[0],
    )


def _tool(spec: ToolSpec) -> StructuredTool:
    async def through_the_toolbox(**arguments: Any) -> str:
        raise RuntimeError(f"{spec.name} is called through the toolbox only")

    return StructuredTool(
        name=spec.name,
        description=spec.description or spec.name,
        args_schema=dict(spec.input_schema),
        coroutine=through_the_toolbox,
    )


def _newest(messages: Sequence[Any], limit: int) -> list[Any]:
    """The newest messages that fit into `limit` characters, at least one, beginning with a person's."""
    kept: list[Any] = []
    length = 0
    for message in reversed(messages):
        length += len(str(message.text))
        if kept and length > limit:
            break
        kept.append(message)
    kept.reverse()
    while len(kept) > 1 and kept[0].type != "human":
        kept.pop(0)
    return kept


def _digest(name: str, model: int, specs: Sequence[ToolSpec]) -> str:
    told = [[spec.name, spec.description, spec.input_schema, spec.annotations.read_only] for spec in specs]
    body = orjson.dumps([name, model, told], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(body).hexdigest()
