"""What a command-line agent says, told: to the run's live document at once, to the conversation's history in whole
messages.

`take` changes the document and remembers what has to be stored; `store` writes it under the run's fence. It must not
know how the command is started or ended, nor decide how the run ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from dromos.agents.langgraph.steps import SUMMARY_LIMIT, Step, StepRecords
from dromos.agents.message_numbers import Numbers
from dromos.agents.process.stream_json import (
    HELPER_TOOLS,
    Began,
    Call,
    Delta,
    Event,
    Result,
    Returned,
    Said,
    Session,
    plan_of,
)
from dromos.domain.effects import NO_RESULT
from dromos.domain.runs import Run
from dromos.ports.agent import Attempt
from dromos.ports.clock import Clock
from dromos.ports.probe import Point
from dromos.ports.store import Row, Table, Tx

USAGE = ("input", "output", "cached", "reasoning", "model_calls", "tool_calls")


class Telling:
    """One attempt's. `first_num` numbers the steps on from earlier attempts."""

    def __init__(self, attempt: Attempt, clock: Clock, model: str | None, first_num: int) -> None:
        self._run, self._live, self._recorder = attempt.run, attempt.live, attempt.recorder
        self._clock = clock
        self._model = model or "model"
        self.session_id: str | None = attempt.run.session_id
        self.result: Result | None = None
        self.said_anything = False
        self._before = {name: attempt.run.usage.get(name, 0) for name in USAGE}
        self._by_message: dict[str, Mapping[str, int]] = {}
        self._model_calls = self._tool_calls = 0
        self._records = StepRecords(attempt.run, first_num)
        self._model_step: Step | None = None
        self._tools: dict[str, Step] = {}
        self._helpers: dict[str, dict[str, Any]] = {}
        self._count = 0
        self._theirs: str | None = None  # the command's id of the message under way
        self._text: list[str] = []
        self._calls: list[Call] = []
        self._streamed = ""  # of the block under way, shown already
        self._open = False
        self._unsent: list[Row] = []
        self._facts: dict[str, Any] = {}
        self._think()

    @property
    def open_tools(self) -> list[str]:
        """Names of calls that have no result yet."""
        return [step.name for step in self._tools.values()]

    def take(self, event: Event) -> None:
        self._live.touch()
        match event:
            case Session(id=session, model=model):
                self._meet(session)
                if model:
                    self._model = model
                    self._live.set("/model", model)
            case Began(parent=None):
                self._close()
                self._begin(None)
            case Delta(text=text, parent=None) if text:
                self._show(text)
                self._streamed += text
            case Said(parent=None):
                self._say(event)
            case Said(parent=str(parent)) if parent in self._helpers and event.calls:
                self._help(parent, current=event.calls[-1].name)
            case Returned(parent=None):
                self._return(event)
            case Result():
                self.result = event
                self._meet(event.session_id)
                self._finish(event)
            case _:
                pass

    async def store(self, *, cancelling: bool = False) -> None:
        """Write whole messages and ended steps; what is written once is not written again."""
        rows, steps, facts = self._unsent, self._records.left(), self._facts
        self._unsent, self._facts = [], {}
        if not (rows or steps or facts):
            return

        def write(tx: Tx, run: Run) -> None:
            if rows:
                _append(tx, run, rows)
            for step in steps:
                tx.upsert(Table.RUN_STEPS, step)
            if facts:
                tx.change(Table.RUNS, {"id": run.id}, facts)

        await self._recorder.write(
            write, messages=bool(rows), while_cancelling=cancelling, point=Point.COMMAND_TOLD
        )

    def cut(self, status: str) -> list[str]:
        """The command ended or was ended: close what is open. Returns the calls whose outcome nobody knows."""
        if self._calls:  # a message that asked for a call is whole; text alone may have been cut
            self._close()
        unknown = self.open_tools
        for step in self._tools.values():
            self._end(step, "unknown")
        self.close_calls({call_id: step.name for call_id, step in self._tools.items()})
        self._tools.clear()
        if self._model_step is not None:
            self._end(self._model_step, status)
            self._model_step = None
        for helper in self._helpers:
            if self._helpers[helper]["status"] == "running":
                self._help(helper, status=status, current=None)
        self._live.set("/current", None)
        return unknown

    def close_calls(self, calls: Mapping[str, str]) -> None:
        """Nobody will tell any more how these went (names by id): the history gets a result that says so."""
        for call_id, name in calls.items():
            self._unsent.append(self._result_row(call_id, name, NO_RESULT, "error"))

    def keep_message(self) -> None:
        """The message under way is all there is: it goes into the history."""
        self._close()

    # --- messages
    def _say(self, said: Said) -> None:
        if not self._open or (self._theirs is not None and self._theirs != said.message_id):
            self._close()
            self._begin(said.message_id)
        self._theirs = said.message_id
        if said.text:
            shown = self._streamed
            rest = said.text[len(shown) :] if said.text.startswith(shown) else said.text
            self._show(rest)
            self._text.append(said.text)
            self._streamed = ""
            self.said_anything = True
        if said.usage is not None:
            self._by_message[said.message_id or f"-{self._count}"] = said.usage
            self._spend(said.usage)
        for call in said.calls:
            self._call(call)

    def _begin(self, theirs: str | None) -> None:
        self._count += 1
        self._theirs, self._text, self._calls, self._streamed, self._open = theirs, [], [], "", True

    def _close(self) -> None:
        """The message is whole."""
        if self._open and (self._text or self._calls):
            self._unsent.append(
                {
                    "id": self._message_id,
                    "role": "assistant",
                    "kind": "text",
                    "content": "".join(self._text),
                    "tool_calls": [
                        {"id": call.id, "name": call.name, "args": dict(call.arguments)}
                        for call in self._calls
                    ]
                    or None,
                }
            )
        self._open = False

    def _show(self, text: str) -> None:
        if not self._open:
            self._begin(None)
        if text:
            self._live.text(self._message_id, text)

    @property
    def _message_id(self) -> str:
        return f"{self._run.id}-{self._run.attempt}-{self._count}"

    # --- calls
    def _call(self, call: Call) -> None:
        if self._model_step is not None:
            self._end(self._model_step, "done")
            self._model_step = None
        self._calls.append(call)
        self._tool_calls += 1
        plan = plan_of(call)
        if plan is not None:
            self._live.set("/plan", plan)
        if call.name in HELPER_TOOLS:
            title = call.arguments.get("description") or call.arguments.get("prompt") or call.name
            self._helpers[call.id] = {}
            self._help(call.id, title=str(title)[:SUMMARY_LIMIT], status="running", current=None, usage={})
        brief = orjson.dumps(call.arguments).decode()[:SUMMARY_LIMIT]
        self._tools[call.id] = self._start(call.id, "tool", call.name, brief)
        self._usage()

    def _return(self, returned: Returned) -> None:
        self._close()
        step = self._tools.pop(returned.call_id, None)
        if step is None:
            return  # a result that nobody asked for would break the history
        if returned.is_error:
            step.summary = returned.text[:SUMMARY_LIMIT]
        self._end(step, "failed" if returned.is_error else "done")
        if returned.call_id in self._helpers:
            self._help(returned.call_id, status="failed" if returned.is_error else "done", current=None)
        status = "error" if returned.is_error else None
        self._unsent.append(self._result_row(returned.call_id, step.name, returned.text, status))
        if self._tools:
            self._live.set("/current", _current(next(iter(self._tools.values()))))
        else:
            self._think()

    def _result_row(self, call_id: str, name: str, content: str, status: str | None) -> Row:
        return {
            "id": f"{self._message_id}-{call_id}",
            "role": "tool",
            "kind": "tool",
            "content": content,
            "tool_call_id": call_id,
            "name": name,
            "status": status,
        }

    def _help(self, helper: str, **values: Any) -> None:
        self._helpers[helper].update(values)
        self._live.set(f"/subagents/{helper}", dict(self._helpers[helper]))

    # --- steps and numbers
    def _think(self) -> None:
        """The agent has everything it asked for: its model is at work."""
        self._model_calls += 1
        step_id = f"model-{self._run.attempt}-{self._model_calls}"
        self._model_step = self._start(step_id, "model", self._model, None)

    def _start(self, step_id: str, kind: str, name: str, summary: str | None) -> Step:
        step = Step(step_id, kind, name, self._clock.now(), self._clock.monotonic(), summary=summary)
        self._records.number(step)
        self._live.set("/current", _current(step))
        self._live.step(step.shown())
        return step

    def _end(self, step: Step, status: str) -> None:
        step.status = status
        step.ms = round((self._clock.monotonic() - step.begun) * 1000)
        self._records.add(step)
        self._live.step(step.shown())

    def _spend(self, usage: Mapping[str, int]) -> None:
        used = usage["input"] + usage["output"]
        self._live.set("/context", {"used": used, "limit": None, "percent": None})
        self._usage()

    def _usage(self, whole: Mapping[str, int] | None = None) -> None:
        """What was used: as the command counted it at its end, before that the sum of its messages."""
        now = dict.fromkeys(USAGE, 0)
        for usage in [whole] if whole is not None else self._by_message.values():
            for name, count in usage.items():
                now[name] += count
        now["model_calls"], now["tool_calls"] = max(len(self._by_message), 1), self._tool_calls
        self._live.set("/usage", {name: self._before[name] + now[name] for name in USAGE})

    def _finish(self, result: Result) -> None:
        if result.ok and result.text and not self.said_anything:
            self._say(Said("result", result.text, (), None))
        self._close()
        self._usage(result.usage)
        if self._model_step is not None:
            self._end(self._model_step, "done" if result.ok else "failed")
            self._model_step = None
        if result.cost is not None:
            cost = {"currency": "USD", "amount": result.cost, "estimated": True, "limit": None}
            self._facts["cost"] = cost
            self._live.server({"cost": cost})

    def _meet(self, session: str | None) -> None:
        if session and session != self.session_id:
            self.session_id = session
            self._facts["session_id"] = session


def _current(step: Step) -> dict[str, Any]:
    return {"kind": step.kind, "name": step.name, "summary": step.summary, "since": step.since}


def _append(tx: Tx, run: Run, rows: list[Row]) -> None:
    """Put messages at the end of the conversation's history."""
    numbers = Numbers(tx, run.conversation_id)
    for row in rows:
        num = numbers.take()
        tx.put(
            Table.MESSAGES,
            {
                **row,
                "conversation_id": run.conversation_id,
                "num": num,
                "position": num,
                "run_id": run.id,
                "created_at": tx.now(),
            },
        )
    numbers.save()
