"""A tool call of a graph on its way through the gate, and the gate's questions as the graph's own.

A call that needs a person's word ends its task as an interrupt does, so that its siblings go on and everything they did
is kept; when the person has spoken the task runs again and the gate finds the word in the journal. The engine itself is
handed no answer. It must not know how a tool is carried out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from langgraph.errors import GraphBubbleUp, GraphInterrupt, is_invalid_resume
from langgraph.types import Interrupt

from dromos.domain.effects import Call, Fault, Make, no_fault
from dromos.ports.journal import Desk, Execute, NeedsPerson, Sent, Suspended
from dromos.ports.tool import ToolOutcome

DESK_KEY = "__dromos_desk"
"""Key of `configurable` under which a graph finds where the attempt's calls are recorded."""
_QUESTION = "dromos_question"
"""The only key of the value of an interrupt that the gate raised."""


def is_gates(interrupt: Interrupt[Any]) -> bool:
    """True where the gate asks, not the graph."""
    return isinstance(interrupt.value, Mapping) and interrupt.value.keys() == {_QUESTION}


def asked_by_gate(interrupt: Interrupt[Any]) -> dict[str, Any]:
    """What to ask a person, as `domain.requests.opening` takes it."""
    return {**interrupt.value[_QUESTION], "engine_id": interrupt.id}


async def through_gate(
    desk: Desk,
    call: Call,
    execute: Execute,
    fault: Fault = no_fault,
) -> ToolOutcome:
    """The outcome of the call. Raises `GraphInterrupt` where a person has to speak first, `Suspended` where `execute`
    does."""
    own: list[Exception] = []

    async def carry_out(leave: Make, sent: Sent) -> ToolOutcome:
        try:
            return await execute(leave, sent)
        except GraphBubbleUp as signal:  # the tool asks in the engine's own way, or its graph drains
            own.append(signal)
            raise Suspended from signal
        except Exception as error:
            if not is_invalid_resume(error):
                raise
            own.append(error)  # an answer that it does not take is asked for anew
            raise Suspended from error

    try:
        return await desk.gate.call(call, carry_out, desk, fault)
    except NeedsPerson as needs:
        raise GraphInterrupt(
            (Interrupt(value={_QUESTION: dict(needs.asked)}, id=_name(needs.asked)),)
        ) from None
    except Suspended:
        if not own:
            raise
        raise own[-1] from None


def _name(asked: Mapping[str, Any]) -> str:
    """The same for the same question about a call, however often its task runs; another for the next question."""
    parts = (asked["call_key"], asked["kind"], str(asked.get("ordinal", 0)), asked.get("replaces") or "")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
