"""The account of one attempt: which steps are open and which ended, and what the live document says of them.

Told by the observer, on the event loop's thread, in the words of model and tool calls, tasks, and the agent itself. It
must not know callbacks or streams, nor rows beyond a step's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from langchain_core.messages import AIMessage

from dromos.agents.langgraph.failures import safe_text
from dromos.agents.langgraph.model_facts import Expected, ModelFacts
from dromos.agents.langgraph.reporting.current import Current
from dromos.agents.langgraph.reporting.later import Later
from dromos.agents.langgraph.reporting.model_calls import ModelCalls, spoken
from dromos.agents.langgraph.reporting.plan import Plan, plan_in
from dromos.agents.langgraph.reporting.retrying import Retries
from dromos.agents.langgraph.reporting.subagents import Helper, Helpers
from dromos.agents.langgraph.reporting.told import (
    progress,
    short,
    told_entry,
    told_line,
    told_plan,
    told_progress,
)
from dromos.agents.langgraph.reporting.totals import Totals
from dromos.agents.langgraph.steps import SUMMARY_LIMIT, Step, StepRecords
from dromos.domain.cost import Spent, Tokens
from dromos.domain.pointers import pointer
from dromos.domain.runs import Run
from dromos.domain.text import clean_text, moment_text
from dromos.ports.clock import Clock
from dromos.ports.live import LiveRun
from dromos.ports.meter import Meter, NoMeter
from dromos.ports.tool import ToolProgress


class Report:
    """One attempt's."""

    def __init__(
        self,
        run: Run,
        live: LiveRun,
        clock: Clock,
        later: Later,
        *,
        first_num: int,
        expected: Expected,
        facts: ModelFacts,
        spent: Spent,
        meter: Meter | None,
    ) -> None:
        earlier = live.snapshot().content
        self.line: str | None = earlier.get("line")
        self.records = StepRecords(run, first_num)
        self.totals = Totals(live, later, run.usage, spent, run.cost)
        self._later = later
        self._live, self._clock, self._meter = live, clock, meter or NoMeter()
        self.models = ModelCalls(live, later, facts, expected, self.totals)
        self._current, self._helpers, self._retries = (
            Current(live, later),
            Helpers(live),
            Retries(live, earlier.get("retries")),
        )
        self._tools: dict[str, Step] = {}
        self._tasks: dict[str, Step] = {}
        self._helped: dict[str, Helper] = {}  # by step, where a helper does it
        self._told: set[str] = set()  # tasks whose work is told by a model or tool step
        self._plan: Plan | None = None
        self._background: dict[str, Mapping[str, Any]] = dict(earlier.get("background") or {})

    # --- model calls --------------------------------------------------------------------------------------------

    def model_began(
        self,
        call_id: UUID,
        parent: UUID | None,
        metadata: Mapping[str, Any],
        serialized: Mapping[str, Any] | None,
    ) -> None:
        levels = self._helpers.tasks_of(str(metadata.get("langgraph_checkpoint_ns", "")))
        model = self.models.called(metadata, serialized)
        step = self._new(str(call_id), "model", model.name, levels)
        step.parent = parent
        helper = self._place(step, levels, str(metadata.get("lc_agent_name") or ""))
        if not step.inner:
            self.models.answers(model)
            self._retries.tried_again(step)
        self.models.began(call_id, step, model)
        self._show_new(step, helper)

    def model_ended(self, call_id: UUID, message: AIMessage | None) -> None:
        call = self.models.ended(call_id, message)
        if call is not None:
            self._retries.succeeded(call.step)
            self._end(call.step, "done", _summary_of(message), call.tokens)

    def model_failed(self, call_id: UUID, error: BaseException, message: AIMessage | None) -> None:
        """`message`: as much of an answer as came, where the engine put it together."""
        call = self.models.failed(call_id, message)
        if call is None:
            return
        if isinstance(error, Exception):
            self._retries.failed(call.step, error)
            self._end(call.step, "failed", safe_text(error)[:SUMMARY_LIMIT], call.tokens)
        else:
            self._end(call.step, "cancelled", call.step.summary, call.tokens)

    # --- tool calls ---------------------------------------------------------------------------------------------

    def tool_began(
        self,
        step_id: str,
        name: str,
        arguments: Any,
        ns: str,
        call_id: UUID | None,
        parent: UUID | None,
        read_only: bool = False,
    ) -> None:
        levels = self._helpers.tasks_of(ns)
        step = self._new(step_id, "tool", name, levels, _brief(arguments))
        step.read_only, step.call, step.parent = read_only, call_id, parent
        helper = self._place(step, levels, "")
        self._tools[step_id] = step
        self.totals.tool_began()
        self._helpers.delegated(step, arguments)
        if not step.inner:
            self._show_plan(plan_in(arguments))
        self._show_new(step, helper)

    def tool_moved(self, step_id: str, told: ToolProgress) -> None:
        step = self._tools.get(step_id)
        if step is not None:
            self._moved(step, progress(told.value, told.total, told.message))

    def tool_ended(self, step_id: str, status: str, text: str) -> None:
        """`text` is what went wrong, '' where nothing did."""
        step = self._tools.pop(step_id, None)
        if step is not None:
            self._end(step, status, clean_text(text[:SUMMARY_LIMIT]) if text else step.summary)

    # --- nodes --------------------------------------------------------------------------------------------------

    def task_event(self, data: Mapping[str, Any]) -> None:
        """A node of the root graph begins, or ends with `result` or `error`."""
        task_id = data["id"]
        if "result" not in data and "error" not in data:
            clock = self._clock
            step = Step(task_id, "step", data["name"], clock.now(), clock.monotonic(), task=task_id)
            self._tasks[task_id] = step
            self._current.begin(step)
            return
        result = data.get("result")
        if isinstance(result, dict) and "todos" in result:
            self._show_plan(plan_in(result))
        ended = self._tasks.get(task_id)
        if ended is not None and data.get("interrupts"):
            del self._tasks[task_id]  # it asks a person: it is not done, and begins anew with the answer
            self._current.end(ended)
        elif ended is not None:
            error = data.get("error")
            summary = safe_text(error)[:SUMMARY_LIMIT] if error else None
            self._end_task(ended, "failed" if error else "done", summary)

    def end_tasks(self) -> None:
        """Every node that is open is done."""
        for step in list(self._tasks.values()):
            self._end_task(step, "done", None)
        self._helpers.next_round()

    # --- the agent's own words ----------------------------------------------------------------------------------

    def told(self, message: Mapping[str, Any], ns: str, parent: UUID | None) -> None:
        """What the agent says of itself, somewhere in the graph; `parent` is the call that it is said in."""
        levels = self._helpers.tasks_of(ns)
        if (line := told_line(message)) is not None:
            self.line = line
            self._live.set("/line", line)
        if (plan := told_plan(message)) is not None and len(levels) <= 1:
            self._show_plan(plan)
        if (moved := told_progress(message)) is not None:
            self._told_progress(moved, levels, str(parent))
        if (job := told_entry(message, "background")) is not None:
            self._told_background(*job)
        if (helper := told_entry(message, "subagent")) is not None:
            name, told = helper
            self._helpers.told(
                name,
                short(told.get("title")),
                short(told.get("status")) or "running",
                short(told.get("current")),
            )

    def _told_progress(self, moved: dict[str, Any], levels: list[tuple[str, str]], parent: str) -> None:
        task = levels[-1][1] if levels else ""
        step = self._tools.get(parent) or self._by_task().get(task) or self._tasks.get(task)
        if step is not None:
            self._moved(step, moved)
        elif (helper := self._helpers.of(levels, self._by_task(), "")) is not None:
            self._helpers.said(helper, _progress_text(moved))

    def _told_background(self, job: str, told: Mapping[str, Any]) -> None:
        path = pointer("background", job)
        if told.get("status", "running") is None:
            if self._background.pop(job, None) is not None:
                self._live.remove(path)
            return
        known = self._background.get(job)
        entry = {
            "title": short(told.get("title")) or (known or {}).get("title") or job,
            "status": short(told.get("status", "running")),
            "since": (known or {}).get("since") or moment_text(self._clock.now()),
        }
        self._background[job] = entry
        self._live.set(path, entry)

    # --- the attempt --------------------------------------------------------------------------------------------

    def retrying(self, code: str, attempt: int, of_attempts: int, next_at: datetime) -> None:
        self._retries.waits(code, attempt, of_attempts, next_at)

    @property
    def under_way(self) -> str | None:
        """The name of the tool that is longest at work, else of the node."""
        step = next(iter([*self._tools.values(), *self._tasks.values()]), None)
        return None if step is None else step.name

    def close_open(self) -> list[str]:
        """What is open will not end by itself: close it. Returns the tools whose outcome nobody knows."""
        unknown: list[str] = []
        for step in list(self._tools.values()):
            if not step.read_only:
                unknown.append(step.name)
            self._end(step, "cancelled" if step.read_only else "unknown", step.summary)
        self._tools.clear()
        for call_id in self.models.under_way():
            call = self.models.failed(call_id, None)
            if call is not None:
                self._end(call.step, "cancelled", call.step.summary, call.tokens)
        for step in list(self._tasks.values()):
            self._end_task(step, "cancelled", None)
        self._helpers.end_all("cancelled")
        self._later.flush()
        return unknown

    # --- inside -------------------------------------------------------------------------------------------------

    def _new(
        self, step_id: str, kind: str, name: str, levels: list[tuple[str, str]], summary: str | None = None
    ) -> Step:
        clock = self._clock
        step = Step(step_id, kind, clean_text(name), clock.now(), clock.monotonic(), summary=summary)
        self.records.number(step)
        if levels:
            step.task = levels[-1][1]
            self._told.add(levels[0][1])
        return step

    def _place(self, step: Step, levels: list[tuple[str, str]], name: str) -> Helper | None:
        """Whether the step is the agent's own, a helper's, or happens inside of a tool."""
        if len(levels) > 1:
            step.inner = True
            helper = self._helpers.of(levels, self._by_task(), name)
            if helper is not None:
                self._helped[step.id] = helper
            return helper
        for tool in self._tools.values():
            if step.parent is not None and step.parent == tool.call:
                step.inner = True
            elif tool.task == step.task != "" and tool.parent != step.parent:
                step.inner = (
                    True  # made by a call of which nothing is known, while a tool of the same task is open
                )
        return None

    def _show_new(self, step: Step, helper: Helper | None) -> None:
        if not step.inner:
            self._current.begin(step, instead_of=self._tasks.get(step.task))
        elif helper is not None:
            self._helpers.step_began(helper, step)
            self._later.flush()  # the node or tool that the helper is of is what is being done
        self._tell(step)

    def _tell(self, step: Step) -> None:
        self._later.tell_steps()
        self._live.step(step.shown())

    def _moved(self, step: Step, moved: dict[str, Any]) -> None:
        step.progress = moved
        helper = self._helped.get(step.id)
        if helper is not None:
            self._helpers.said(helper, f"{step.name} {_progress_text(moved)}")
        else:
            self._current.moved(step)

    def _by_task(self) -> dict[str, Step]:
        """The tools under way by their task, the oldest of each."""
        return {step.task: step for step in reversed(self._tools.values())}

    def _end_task(self, step: Step, status: str, summary: str | None) -> None:
        """A node ended. Where a model or tool step tells its work, there is no more to say."""
        del self._tasks[step.id]
        self._helpers.task_ended(step.id, status)
        if step.id in self._told:
            self._told.discard(step.id)
            self._current.end(step)
            return
        self.records.number(step)
        self._end(step, status, summary)

    def _end(self, step: Step, status: str, summary: str | None, tokens: Tokens | None = None) -> None:
        step.status = status
        step.summary = None if summary is None else clean_text(summary)
        step.ms = round((self._clock.monotonic() - step.begun) * 1000)
        self.records.add(step)
        if step.kind == "step":
            self._later.step(step)
        else:
            self._tell(step)
        helper = self._helped.pop(step.id, None)
        if helper is not None:
            self._helpers.step_ended(helper, step, tokens)
        else:
            self._current.end(step)
        if step.kind == "model":
            self._meter.model_call(status)
        elif step.kind == "tool":
            self._helpers.tool_ended(step, "cancelled" if status == "unknown" else status)
            self._meter.tool_call(status)

    def _show_plan(self, plan: Plan | None) -> None:
        if plan is not None and plan != self._plan:
            self._plan = plan
            self._live.set("/plan", plan)


def _summary_of(message: AIMessage | None) -> str | None:
    if message is None:
        return None
    if message.tool_calls:
        return "asks for " + ", ".join(call["name"] for call in message.tool_calls)[:SUMMARY_LIMIT]
    return spoken(message)[:SUMMARY_LIMIT] or None


def _progress_text(moved: Mapping[str, Any]) -> str:
    """`3 of 10: third page`"""
    far = f"{moved['value']:g}" + (f" of {moved['total']:g}" if moved["total"] is not None else "")
    return f"{far}: {moved['message']}" if moved["message"] else far


def _brief(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments[:SUMMARY_LIMIT]
    try:
        return orjson.dumps(arguments, default=str).decode()[:SUMMARY_LIMIT]
    except (TypeError, ValueError):
        return str(arguments)[:SUMMARY_LIMIT]
