"""What an attempt shows while it works: text as it is written, the current step, usage, and the records of steps.

It listens to LangChain's callbacks (model and tool calls, wherever in the graph they happen) and to LangGraph's task
events. Everything here is a report: nothing it does can fail or delay the run, but for one check that a stream was
complete. Records of steps are handed to the checkpointer, which stores them with the checkpoint that ends the step.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, LLMResult

from dromos.agents.langgraph.failures import UnfinishedAnswer, safe_text
from dromos.agents.langgraph.live_text import LiveText
from dromos.agents.langgraph.steps import SUMMARY_LIMIT, Step, StepRecords
from dromos.domain.runs import Run
from dromos.domain.text import clean_text
from dromos.ports.clock import Clock
from dromos.ports.live import LiveRun
from dromos.ports.meter import Meter, NoMeter
from dromos.ports.store import Row
from dromos.ports.tool import ToolProgress
from dromos.wire.shapes import moment

_FINISH_KEYS = ("finish_reason", "stop_reason", "done_reason")
_TELL_THEIR_END = frozenset({"openai", "azure", "anthropic", "ollama"})
"""Providers whose complete answers always carry a stop marker."""


@dataclass(slots=True)
class _Call:
    step: Step
    shown: bool
    provider: str
    message_id: str | None = None


class Observer(BaseCallbackHandler):
    """One attempt's. `first_num` numbers the steps on from earlier attempts."""

    run_inline = True
    raise_error = True
    ignore_chain = True
    ignore_retriever = True
    ignore_agent = True

    def __init__(
        self,
        run: Run,
        live: LiveRun,
        clock: Clock,
        *,
        first_num: int = 1,
        model_name: str = "",
        meter: Meter | None = None,
    ) -> None:
        super().__init__()
        self.model_errors: list[BaseException] = []
        self.usage: dict[str, int] = {
            name: run.usage.get(name, 0)
            for name in ("input", "output", "cached", "reasoning", "model_calls", "tool_calls")
        }
        self._live, self._clock, self._meter = live, clock, meter or NoMeter()
        self._model_name = model_name
        self.records = StepRecords(run, first_num)
        self._text = LiveText(live)
        self._calls: dict[UUID, _Call] = {}
        self._tools: dict[str, Step] = {}
        self._tasks: dict[str, Step] = {}
        self._told: set[str] = set()  # tasks whose work is told by a model or tool step
        self._retries = 0

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """What makes a chat model stream: LangChain looks for a handler that has these two methods.

        Deriving from its protocol class as well would make LangGraph stream every node, at a third more of a step's
        time.
        """
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        return output

    # --- model calls --------------------------------------------------------------------------------------------

    def on_chat_model_start(
        self,
        serialized: Any,
        messages: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        facts = metadata or {}
        ns = str(facts.get("langgraph_checkpoint_ns", ""))
        name = self._model_name or str(facts.get("ls_model_name") or "model")
        step = self._begin(str(run_id), "model", name, ns)
        in_tool = parent_run_id is not None and str(parent_run_id) in self._tools
        self._calls[run_id] = _Call(
            step, shown="|" not in ns and not in_tool, provider=str(facts.get("ls_provider", ""))
        )

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **kwargs: Any) -> None:
        call = self._calls.get(run_id)
        if call is None or not call.shown or not isinstance(chunk, ChatGenerationChunk):
            return
        message = chunk.message
        if call.message_id is None:
            call.message_id = _own_id(message, run_id)
        text = message.content if isinstance(message.content, str) else str(message.text)
        if text:
            self._text.add(call.message_id, text)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        call = self._calls.pop(run_id, None)
        if call is None:
            return
        self._text.flush()
        message = _message_of(response)
        if message is not None and call.provider in _TELL_THEIR_END and not _is_complete(message):
            error = UnfinishedAnswer()
            self.model_errors.append(error)
            self._end(call.step, "failed", safe_text(error))
            raise error
        if message is not None:
            message.id = call.message_id or _own_id(message, run_id)
        self._count(message)
        self._end(call.step, "done", _summary_of(message))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        call = self._calls.pop(run_id, None)
        if call is None:
            return
        self._text.flush()
        if isinstance(error, Exception):
            self.model_errors.append(error)
            self._end(call.step, "failed", safe_text(error)[:SUMMARY_LIMIT])
        else:
            self._end(call.step, "cancelled", call.step.summary)

    # --- tool calls ---------------------------------------------------------------------------------------------

    def on_tool_start(
        self,
        serialized: Mapping[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        metadata: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        name = str(kwargs.get("name") or (serialized or {}).get("name") or "tool")
        ns = str((metadata or {}).get("langgraph_checkpoint_ns", ""))
        self.tool_started(str(run_id), name, inputs if inputs is not None else input_str, ns=ns)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        failed = getattr(output, "status", None) == "error"
        text = output.content if isinstance(output, BaseMessage) else output
        self.tool_ended(str(run_id), str(text), failed=failed)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self.tool_ended(str(run_id), safe_text(error), failed=True)

    def tool_started(
        self, step_id: str, name: str, arguments: Any, *, ns: str = "", read_only: bool = False
    ) -> None:
        """A call begins. One that never ends leaves an unknown outcome, unless it only reads."""
        step = self._begin(step_id, "tool", name, ns, _brief(arguments))
        step.read_only = read_only
        self._tools[step_id] = step
        self.usage["tool_calls"] += 1
        self._live.set("/usage", dict(self.usage))

    def tool_progress(self, step_id: str, progress: ToolProgress) -> None:
        step = self._tools.get(step_id)
        if step is not None:
            self._show(
                step,
                {
                    "value": progress.value,
                    "total": progress.total,
                    "message": None
                    if progress.message is None
                    else clean_text(progress.message)[:SUMMARY_LIMIT],
                },
            )

    def tool_ended(self, step_id: str, text: str, *, failed: bool) -> None:
        step = self._tools.pop(step_id, None)
        if step is not None:
            self._end(
                step, "failed" if failed else "done", step.summary if not failed else text[:SUMMARY_LIMIT]
            )

    # --- nodes --------------------------------------------------------------------------------------------------

    def on_task(self, data: Mapping[str, Any]) -> None:
        """A `tasks` event of the root graph: a node begins, or ends with `result` or `error`."""
        task_id = data["id"]
        if "result" not in data and "error" not in data:
            step = Step(task_id, "step", data["name"], self._clock.now(), self._clock.monotonic())
            self._tasks[task_id] = step
            self._show(step)
            return
        ended = self._tasks.get(task_id)
        if ended is not None:
            error = data.get("error")
            summary = safe_text(error)[:SUMMARY_LIMIT] if error else None
            self._end_task(ended, "failed" if error else "done", summary)

    def step_rows(self, checkpoint_id: str) -> list[Row]:
        """Records to store with this checkpoint of the root graph: it ends every node of its step, also one whose
        end LangGraph has not told yet."""
        for step in list(self._tasks.values()):
            self._end_task(step, "done", None)
        return self.records.rows(checkpoint_id)

    # --- the attempt --------------------------------------------------------------------------------------------

    def retrying(self, code: str, attempt: int, of_attempts: int, next_at: datetime) -> None:
        """A model call failed and will be tried again."""
        self._retries += 1
        last = {
            "of": "model",
            "code": code,
            "attempt": attempt,
            "of_attempts": of_attempts,
            "next_at": moment(next_at),
        }
        self._live.set("/retries", {"count": self._retries, "last": last})

    def cut(self) -> list[str]:
        """The attempt was cut: close what is open. Returns the tools whose outcome nobody knows."""
        unknown: list[str] = []
        for step in list(self._tools.values()):
            known = step.read_only
            if not known:
                unknown.append(step.name)
            self._end(step, "cancelled" if known else "unknown", step.summary)
        for call in list(self._calls.values()):
            self._end(call.step, "cancelled", call.step.summary)
        for step in list(self._tasks.values()):
            self._end_task(step, "cancelled", None)
        self._tools.clear()
        self._calls.clear()
        return unknown

    # --- inside -------------------------------------------------------------------------------------------------

    def _begin(self, step_id: str, kind: str, name: str, ns: str, summary: str | None = None) -> Step:
        step = Step(
            step_id, kind, clean_text(name), self._clock.now(), self._clock.monotonic(), summary=summary
        )
        self.records.number(step)
        task = ns.split("|", 1)[0].rpartition(":")[2]
        if task:
            self._told.add(task)
        self._show(step)
        self._live.step(step.shown())
        return step

    def _end_task(self, step: Step, status: str, summary: str | None) -> None:
        """A node ended. Where a model or tool step tells its work, there is no more to say."""
        del self._tasks[step.id]
        if step.id not in self._told:
            self.records.number(step)
            self._end(step, status, summary)

    def _end(self, step: Step, status: str, summary: str | None) -> None:
        step.status = status
        step.summary = None if summary is None else clean_text(summary)
        step.ms = round((self._clock.monotonic() - step.begun) * 1000)
        self.records.add(step)
        self._live.step(step.shown())
        if step.kind == "model":
            self._meter.model_call(status)
        elif step.kind == "tool":
            self._meter.tool_call(status)
        open_step = next(iter([*self._tools.values(), *(call.step for call in self._calls.values())]), None)
        if open_step is None:
            self._live.set("/current", None)
        elif open_step is not step:
            self._show(open_step)

    def _show(self, step: Step, progress: Mapping[str, Any] | None = None) -> None:
        current = step.current()
        if progress is not None:
            current["progress"] = progress
        self._live.set("/current", current)

    def _count(self, message: AIMessage | None) -> None:
        self.usage["model_calls"] += 1
        used = message.usage_metadata if message is not None else None
        if used is not None:
            self.usage["input"] += used.get("input_tokens", 0)
            self.usage["output"] += used.get("output_tokens", 0)
            self.usage["cached"] += (used.get("input_token_details") or {}).get("cache_read") or 0
            self.usage["reasoning"] += (used.get("output_token_details") or {}).get("reasoning") or 0
            self._live.set("/context", {"used": used.get("total_tokens", 0), "limit": None, "percent": None})
        self._live.set("/usage", dict(self.usage))


def _message_of(response: LLMResult) -> AIMessage | None:
    generation = response.generations[0][0] if response.generations and response.generations[0] else None
    message = generation.message if isinstance(generation, ChatGeneration) else None
    return message if isinstance(message, AIMessage) else None


def _own_id(message: BaseMessage, run_id: UUID) -> str:
    """The id under which an answer is shown and stored, never used twice.

    Servers that speak OpenAI's protocol often give every answer the same id; only these prefixes are trusted.
    """
    known = message.id or ""
    return known if known.startswith(("msg_", "resp_")) else f"lc_run--{run_id}"


def _is_complete(message: AIMessage) -> bool:
    return any(message.response_metadata.get(key) for key in _FINISH_KEYS) or bool(
        message.response_metadata.get("status")  # the Responses API says "completed" or "incomplete"
    )


def _summary_of(message: AIMessage | None) -> str | None:
    if message is None:
        return None
    if message.tool_calls:
        return "asks for " + ", ".join(call["name"] for call in message.tool_calls)[:SUMMARY_LIMIT]
    return str(message.text)[:SUMMARY_LIMIT] or None


def _brief(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments[:SUMMARY_LIMIT]
    try:
        return orjson.dumps(arguments, default=str).decode()[:SUMMARY_LIMIT]
    except (TypeError, ValueError):
        return str(arguments)[:SUMMARY_LIMIT]
