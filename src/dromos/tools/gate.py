"""The gate: the one way to a tool, whoever calls and wherever the tool lives.

    recorded outcome? → policy → a person's leave → intent on disk → call → outcome on disk → result

A call runs in a task of the gate's own, so that a stop cannot cut an unsafe one in half: whoever asked for it may go,
the call goes on among those in flight, and its outcome is written all the same. Any other call is cut with whoever
asked, and so is an unsafe one that was not sent yet: that it was not is its outcome. A tool that only reads is called
without a record. It must not know engines, and not how a call is carried out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any, NoReturn, TypeVar

import structlog

from dromos.domain.call_questions import question_of, unless_too_large
from dromos.domain.effects import (
    NOT_SENT,
    Ask,
    Call,
    Fault,
    Make,
    Move,
    ReplayClass,
    ToolPolicy,
    ToolRule,
    no_fault,
    outcome_json,
)
from dromos.domain.errors import Invalid, Unavailable
from dromos.domain.statuses import RequestKind
from dromos.domain.text import clean_text
from dromos.ports.journal import Desk, Execute, NeedsPerson, Sent, Suspended
from dromos.ports.tool import ToolAnnotations, ToolOutcome
from dromos.tools.rules import ToolRules

log = structlog.get_logger("dromos.tools")

STORE_BACKOFF = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between tries to reach a store that is away; the last repeats."""

T = TypeVar("T")


class Gate:
    """`ports.journal.CallGate`."""

    def __init__(self, rules: ToolRules) -> None:
        self._rules = rules

    def rule(
        self,
        tool: str,
        source: str,
        annotations: ToolAnnotations,
        own_policy: ToolPolicy | None = None,
        own_replay: ReplayClass | None = None,
    ) -> ToolRule:
        return self._rules.of(tool, source, annotations, own_policy, own_replay)

    async def call(self, call: Call, execute: Execute, desk: Desk, fault: Fault = no_fault) -> ToolOutcome:
        if (
            call.rule.policy is ToolPolicy.AUTO
            and call.rule.replay is ReplayClass.READ
            and not await desk.journal.known(call.key)
        ):
            try:
                return await _outcome(execute, Make(call.arguments), lambda: None)
            except Suspended as suspended:  # what it asks outlives this attempt, so the call has to as well
                await desk.journal.begin(call, fault)
                return await _parked(call, suspended, desk)
        move = await _begun(call, unless_too_large(fault), desk)
        if isinstance(move, Ask):
            raise NeedsPerson(self._asked(call, move))
        if not isinstance(move, Make):
            return _of(move.outcome)
        sent = asyncio.Event()
        carrying = asyncio.create_task(_carry_out(call, move, execute, sent, desk), name=f"call:{call.tool}")
        carrying.add_done_callback(_looked_at)
        unsafe = call.rule.replay is ReplayClass.UNSAFE
        if unsafe:
            desk.in_flight.add(carrying, call.tool)
        try:
            return await asyncio.shield(carrying)
        except asyncio.CancelledError:
            if not unsafe:
                carrying.cancel()
            elif not sent.is_set():
                carrying.cancel()
                _finish(call, _not_sent(call, desk), desk)
            raise

    def _asked(self, call: Call, move: Ask) -> dict[str, Any]:
        return question_of(call, move, "worker", self._rules.expires_after, self._rules.on_timeout)


async def _begun(call: Call, fault: Fault, desk: Desk) -> Move:
    """What may be done with the call. One that must not be repeated is left with no intent by a cut that comes while it
    is being written."""
    begin = desk.journal.begin(call, fault)
    if call.rule.replay is not ReplayClass.UNSAFE:
        return await begin
    beginning = _finish(call, begin, desk)
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:

        async def take_back() -> None:
            if isinstance(await beginning, Make):
                await _not_sent(call, desk)

        _finish(call, take_back(), desk)
        raise


async def _not_sent(call: Call, desk: Desk) -> None:
    """Nothing has happened, and nobody has to be asked about it. Not tried twice: an owner that lost the run may not
    say so, and then its next owner asks."""
    await desk.journal.settle(call.key, outcome_json(NOT_SENT, True))


def _finish(call: Call, work: Coroutine[Any, Any, T], desk: Desk) -> asyncio.Task[T]:
    """Work that a cut waits for."""
    task = asyncio.create_task(work, name=f"journal:{call.tool}")
    task.add_done_callback(_looked_at)
    desk.in_flight.add(task, call.tool)
    return task


async def _carry_out(
    call: Call, move: Make, execute: Execute, sent: asyncio.Event, desk: Desk
) -> ToolOutcome:
    """The call and the record of what came of it, as one: whoever waits for it may be gone by then."""
    try:
        if move.state is not None:
            answers = await _surely(call, partial(desk.journal.answers, call.key))
            move = replace(move, answers=tuple(answers))
        outcome = await _outcome(execute, move, sent.set)
    except Suspended as suspended:
        return await _parked(call, suspended, desk)
    if move.edited:
        outcome = _told_as_edited(outcome, move.arguments)
    try:
        await _settle(call, outcome, desk)
    except Invalid as wrong:  # the call was made: what cannot be kept of it must not take the rest away
        note = f"[The structured form of this result is left out: {wrong.detail}]"
        outcome = ToolOutcome(f"{outcome.text}\n\n{note}".strip(), outcome.is_error)
        await _settle(call, outcome, desk)
    return outcome


async def _settle(call: Call, outcome: ToolOutcome, desk: Desk) -> None:
    kept = outcome_json(outcome.text, outcome.is_error, outcome.structured)
    await _surely(call, partial(desk.journal.settle, call.key, kept))


async def _parked(call: Call, suspended: Suspended, desk: Desk) -> NoReturn:
    """The call has let go: it is made again when a person has answered."""
    await _surely(call, partial(desk.journal.park, call.key, suspended.state))
    if suspended.asked is None:
        raise suspended
    answered = len(await _surely(call, partial(desk.journal.answers, call.key)))
    asked = {
        "kind": RequestKind.QUESTION.value,
        "tool": call.tool,
        "tool_call_id": call.tool_call_id,
        "call_key": call.key,
        "ordinal": answered,
    }
    raise NeedsPerson({**asked, **suspended.asked}) from suspended


async def _outcome(execute: Execute, move: Make, sent: Sent) -> ToolOutcome:
    try:
        return await execute(move, sent)
    except Suspended:
        raise
    except Exception as error:
        return ToolOutcome(clean_text(f"The tool failed: {type(error).__name__}: {error}"), is_error=True)


async def _surely(call: Call, ask: Callable[[], Awaitable[T]]) -> T:
    """What the journal says or takes once an intent is on disk: to give up there would leave a call of which nobody
    knows how it went, so a store that is away is waited for."""
    for delay in chain(STORE_BACKOFF, repeat(STORE_BACKOFF[-1])):
        try:
            return await ask()
        except Unavailable as error:
            log.warning("call.journal_away", tool=call.tool, detail=error.detail)
            await asyncio.sleep(delay)
    raise AssertionError("the delays never end")


def _looked_at(carrying: asyncio.Task[Any]) -> None:
    """Whoever waited may be gone: what came of the call is in the journal, or was not ours to write."""
    if not carrying.cancelled():
        carrying.exception()


def _told_as_edited(outcome: ToolOutcome, arguments: Mapping[str, Any]) -> ToolOutcome:
    note = f"(A person changed the arguments; called with {json.dumps(arguments, ensure_ascii=False)}.)"
    return ToolOutcome(f"{note}\n{outcome.text}", outcome.is_error, outcome.structured)


def _of(kept: Mapping[str, Any]) -> ToolOutcome:
    return ToolOutcome(kept["text"], kept["is_error"], kept.get("structured"))
