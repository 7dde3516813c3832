"""What a thread asks of people, and people's word handed back to it, exactly once.

LangGraph keeps a graph's open questions (`interrupt()`) beside the thread's newest checkpoint and takes answers by
their ids. Here each becomes a request; once it is decided, passes hand the decision in until the engine's own record of
it is on disk, and in that transaction the request is consumed. It must not know queues, leases or HTTP.

LangGraph's side, by which this has to go:
- A graph that is told an answer twice may take it for the answer to its next question. So one that the engine holds
  (a RESUME write of the task that asked) is never handed in again.
- A wrong answer, once kept, fails each later try. So it is looked at before, and asked for anew.
- A task that fails between two questions can lose answers it held. The question then comes back under its old id and
  is answered from the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.types import Interrupt, StateSnapshot
from pydantic import ValidationError

from dromos.agents.langgraph import breakpoints
from dromos.agents.langgraph.breakpoints import Breakpoints
from dromos.agents.langgraph.checkpoint_rows import load
from dromos.agents.langgraph.failures import safe_text
from dromos.agents.langgraph.gated import is_gates
from dromos.agents.langgraph.interrupts import Asked, Unusable, asked_by, resume_value
from dromos.agents.langgraph.pending_writes import TaskWrites
from dromos.agents.langgraph.state_serde import StateSerializer
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.requests import MAX_PROMPT, consumed
from dromos.domain.runs import Run
from dromos.domain.statuses import RequestKind, RequestStatus, Verdict
from dromos.ports.agent import Decided, Failed, Parked, decided_from
from dromos.ports.probe import Point
from dromos.ports.recorder import Recorder
from dromos.ports.store import In, ReadTx, Table, Tx

_NO_OUTPUT = frozenset({ERROR, INTERRUPT, RESUME, "__error_source_node__"})
"""What a task can write without having come to its end."""

Pending = dict[str, Interrupt[Any]]
Place = tuple[str, str]
"""Where a question was asked: namespace and task."""


@dataclass(frozen=True, slots=True)
class _Passed:
    """A decision handed to the engine. `answered`: how many answers the task that asked held before."""

    interrupt_id: str
    request_id: str
    answered: int

    def is_kept_by(self, writes: Sequence[tuple[str, Any]]) -> bool:
        """True where these writes of that task make the decision the engine's own."""
        for channel, value in writes:
            if channel == RESUME and len(_as_list(value)) > self.answered:
                return True
            if channel == INTERRUPT and all(one.id != self.interrupt_id for one in _as_list(value)):
                return True
            if channel not in _NO_OUTPUT:
                return True
        return False


class Asking:
    """One attempt's. `note` has to be called in each transaction that stores writes of tasks."""

    def __init__(
        self,
        recorder: Recorder,
        run: Run,
        decisions: Sequence[Decided],
        serde: StateSerializer,
        stops: Breakpoints,
    ) -> None:
        self._recorder, self._run, self._serde, self._breakpoints = recorder, run, serde, stops
        self._handed = bool(decisions)
        self._open: dict[str, Decided] = {}  # by interrupt id: decided, the engine does not hold them
        self._kept: dict[str, Decided] = {}  # by interrupt id: the engine held them once
        self._repeat: set[str] = set()  # kept ones that the engine asks for once more
        self._passed: dict[Place, list[_Passed]] = {}

    async def before(self, state: StateSnapshot) -> Parked | Failed | Mapping[str, Any]:
        """What the coming pass hands in (by interrupt id), or that nothing can be done until somebody answers."""
        self._passed = {}
        pending = _pending(state)
        if not pending and self._breakpoints and await self._breakpoints.stands_at(state):
            return await self._leave(state)
        if not pending and not self._handed:
            return {}
        await self._look_up(pending)
        values, refused = self._values(pending)
        if refused:
            return self._parked(pending, refused)
        if not values and pending and not self._known(pending) and _waits_only(state):
            return self._parked(pending, {})
        if values:
            places = await self._recorder.read(
                lambda tx: _places(tx, self._run.conversation_id, values, self._serde)
            )
            for interrupt_id, (place, answered) in places.items():
                decided = self._open.get(interrupt_id) or self._kept[interrupt_id]
                self._passed.setdefault(place, []).append(_Passed(interrupt_id, decided.request_id, answered))
        return values

    async def after(self, state: StateSnapshot) -> Parked | None:
        """What the graph asks now. None: somebody has said that already, and the next pass hands it in."""
        pending = _pending(state)
        if not pending:
            return Parked(Reason.APPROVAL_REQUIRED, (breakpoints.asked_at(state),))
        await self._look_up(pending)
        forgotten = (self._kept.keys() & set(_engines(pending))) - self._repeat
        if forgotten:
            self._repeat |= forgotten
            return None
        ignored = dict.fromkeys(self._open.keys() & pending.keys(), "The agent asked once more.")
        return self._parked(pending, ignored)

    async def refused(self, state: StateSnapshot, error: Exception) -> Parked | None:
        """The graph's own check did not take an answer, and kept none of it; None where no answer was handed in."""
        pending = _pending(state)
        await self._look_up(pending)
        handed = {passed.interrupt_id for group in self._passed.values() for passed in group}
        wrong = dict.fromkeys(handed & self._open.keys() & pending.keys(), _why(error))
        return self._parked(pending, wrong) if wrong else None

    def note(self, tx: Tx, run: Run, entries: Sequence[TaskWrites]) -> None:
        """What these writes of tasks hold of what was handed in is consumed, in their own transaction."""
        kept = [
            passed.request_id
            for entry in entries
            for passed in self._passed.get((entry.ns, entry.task_id), ())
            if passed.is_kept_by(entry.writes)
        ]
        if kept:
            _consume(tx, run, kept)

    async def _leave(self, state: StateSnapshot) -> Parked | Failed | Mapping[str, Any]:
        """Whether the graph may go on from a breakpoint."""
        name = breakpoints.name_of(state)
        unused, kept = await self._recorder.read(lambda tx: _recorded(tx, self._run, [name]))
        decided = unused.get(name)
        if decided is not None:
            ids = [decided.request_id]
            await self._recorder.write(lambda tx, run: _consume(tx, run, ids), point=Point.CONSUME_DECISION)
            if decided.decision is not Verdict.APPROVE:
                why = f": {decided.comment}" if decided.comment else ""
                return Failed(ErrorCode.AGENT_FAILURE, f"It may not go on with {', '.join(state.next)}{why}")
            return {}
        if name in kept and kept[name].decision is Verdict.APPROVE:
            return {}
        return Parked(Reason.APPROVAL_REQUIRED, (breakpoints.asked_at(state),))

    # --- inside -------------------------------------------------------------------------------------------------

    async def _look_up(self, pending: Pending) -> None:
        """Bring `_open` and `_kept` up to date. What the thread no longer asks was taken by it."""
        self._open, self._kept = await self._recorder.read(lambda tx: _recorded(tx, self._run, list(pending)))
        gone = [
            one.request_id
            for name, one in self._open.items()
            if name not in pending and not breakpoints.is_one(name) and one.call_key is None
        ]
        if gone:
            await self._recorder.write(lambda tx, run: _consume(tx, run, gone), point=Point.CONSUME_DECISION)
            self._open = {name: one for name, one in self._open.items() if name in pending}

    def _known(self, pending: Pending) -> bool:
        """Whether a pass can get on: the engine held an answer once, or the gate finds a word on one of its calls."""
        words = self._open.keys() & (pending.keys() - set(_engines(pending)))
        return bool(words or self._kept.keys() & pending.keys())

    def _values(self, pending: Pending) -> tuple[dict[str, Any], dict[str, str]]:
        values: dict[str, Any] = {}
        refused: dict[str, str] = {}
        for interrupt_id in _engines(pending):
            interrupt = pending[interrupt_id]
            decided = self._open.get(interrupt_id)
            if decided is None and interrupt_id in self._repeat:
                decided = self._kept.get(interrupt_id)
            if decided is None:
                continue
            try:
                values[interrupt_id] = resume_value(interrupt, decided)
            except Unusable as why:
                refused[interrupt_id] = str(why)
        return values, refused

    def _parked(self, pending: Pending, refused: Mapping[str, str]) -> Parked:
        """Ask what nobody has said yet, and once more what could not be used."""
        asked = [
            self._once_more(interrupt, refused[name]) if name in refused else asked_by(interrupt)
            for name, interrupt in pending.items()
            if name in refused or name not in self._open
        ]
        return Parked(_reason({one["kind"] for one in asked}), tuple(asked))

    def _once_more(self, interrupt: Interrupt[Any], why: str) -> Asked:
        asked = asked_by(interrupt)
        told = f"The earlier answer could not be used. {why}"
        prompt = f"{told}\n\n{asked.get('prompt') or ''}".strip()
        before = self._open.get(interrupt.id)
        return {**asked, "prompt": prompt[:MAX_PROMPT], "replaces": before.request_id if before else None}


def _pending(state: StateSnapshot) -> Pending:
    """The questions that stand. The gate's own are over with the task that asked."""
    over = {one.id for task in state.tasks if task.result is not None for one in task.interrupts}
    return {one.id: one for one in state.interrupts if one.id not in over or not is_gates(one)}


def _engines(pending: Pending) -> list[str]:
    """Those that the engine takes an answer to."""
    return [name for name, interrupt in pending.items() if not is_gates(interrupt)]


def _reason(kinds: set[str]) -> Reason:
    if RequestKind.TOOL_OUTCOME_UNKNOWN in kinds:
        return Reason.TOOL_OUTCOME_UNKNOWN
    return Reason.APPROVAL_REQUIRED if kinds == {RequestKind.APPROVAL} else Reason.QUESTION_ASKED


def _waits_only(state: StateSnapshot) -> bool:
    """True where each task that is not done yet has asked a question."""
    return all(task.interrupts or task.result is not None for task in state.tasks)


def _recorded(
    tx: ReadTx, run: Run, interrupt_ids: Sequence[str]
) -> tuple[dict[str, Decided], dict[str, Decided]]:
    """By interrupt id: this run's decisions that are not consumed, and those that a run of this thread consumed."""
    mine = {"run_id": run.id, "status": RequestStatus.DECIDED.value}
    taken = {"conversation_id": run.conversation_id, "status": RequestStatus.CONSUMED.value}
    rows = tx.find(Table.REQUESTS, mine, order=("decided_at", "id"))
    rows += tx.find(
        Table.REQUESTS, {**taken, "engine_id": In(list(interrupt_ids))}, order=("decided_at", "id")
    )
    unused: dict[str, Decided] = {}
    kept: dict[str, Decided] = {}
    for row in rows:
        one = _of_first_release(decided_from(row))
        if one.engine_id is not None:
            (unused if row["status"] == RequestStatus.DECIDED else kept)[one.engine_id] = one
    return unused, kept


def _consume(tx: Tx, run: Run, request_ids: Sequence[str]) -> None:
    where = {"id": In(list(request_ids)), "run_id": run.id, "status": RequestStatus.DECIDED.value}
    tx.change(Table.REQUESTS, where, consumed(run.epoch))


def _places(
    tx: ReadTx, thread_id: str, interrupt_ids: Mapping[str, Any], serde: StateSerializer
) -> dict[str, tuple[Place, int]]:
    """Where each question was asked, and how many answers that task holds. A graph inside a graph hands its questions
    up; they were asked in the innermost namespace that has them."""
    where = {"thread_id": thread_id, "channel": In((INTERRUPT, RESUME))}
    asked: dict[str, tuple[int, str, Place]] = {}
    answers: dict[tuple[str, Place], int] = {}
    for row in tx.find(Table.WRITES, where):
        place = (row["checkpoint_ns"], row["task_id"])
        value = load(serde, f"a pending write to {row['channel']}", (row["type"], row["value"] or b""))
        if row["channel"] == RESUME:
            answers[row["checkpoint_id"], place] = len(_as_list(value))
            continue
        for one in _as_list(value):
            depth = len(row["checkpoint_ns"])
            if one.id in interrupt_ids and asked.get(one.id, (-1, ""))[:2] < (depth, row["checkpoint_id"]):
                asked[one.id] = (depth, row["checkpoint_id"], place)
    return {
        name: (place, answers.get((checkpoint_id, place), 0))
        for name, (_, checkpoint_id, place) in asked.items()
    }


def _why(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return safe_text(error)
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        ": ".join(filter(None, ("/".join(map(str, one["loc"])), one["msg"]))) for one in faults[:3]
    )


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _of_first_release(decided: Decided) -> Decided:
    """The first release kept the interrupt's id among the arguments, and nothing of what was asked but its text."""
    kept = decided.arguments
    if decided.engine_id is None and isinstance(kept, Mapping) and kept.keys() == {"interrupt"}:
        return replace(decided, engine_id=str(kept["interrupt"]), arguments=None)
    return decided
