"""What a person is asked about a call: whether it may be made, or what became of it. Pure.

What is shown is what would be called, or what was: the arguments of the agent, or those a person put in their place. A
call that cannot be shown, or that its tool does not take, is nothing to ask leave for. It must not know who asks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dromos.domain.answer_schema import answer_faults, schema_fault
from dromos.domain.effects import Ask, Call, Fault, no_fault
from dromos.domain.requests import MAX_PART
from dromos.domain.statuses import RequestKind, Verdict


def question_of(
    call: Call, move: Ask, owner: str, expires_after: float | None, on_timeout: str
) -> dict[str, Any]:
    """As `domain.requests.opening` takes it. `owner`: who may have been lost in the call (worker | adapter).

    `expires_after`: seconds until leave that nobody gave is settled by `on_timeout`; None: never.
    """
    arguments = move.arguments if move.arguments is not None else call.arguments
    asked: dict[str, Any] = {
        "kind": move.kind,
        "tool": call.tool,
        "tool_call_id": call.tool_call_id,
        "arguments": dict(arguments) if _fits(arguments) else {"cut": True},
        "call_key": call.key,
        "replaces": move.replaces,
        "ordinal": move.ordinal,
    }
    if move.kind == RequestKind.TOOL_OUTCOME_UNKNOWN:
        told = (
            f"{call.tool} was under way when its {owner} was lost. It may have happened. What became of it?"
        )
        asked["prompt"] = f"It cannot be called again: {move.why} {told}" if move.why else told
        again = [] if move.forbidden else [Verdict.RETRY.value]
        return asked | {"decisions": [*again, Verdict.MARK_DONE.value, Verdict.SKIP.value]}
    if expires_after is not None:
        asked |= {"expires_in_s": expires_after, "on_timeout": on_timeout}
    told = "Deny it, and the run goes on." if move.forbidden else f"May {call.tool} be called?"
    asked["prompt"] = f"{move.why} {told}" if move.why else told
    asked["decisions"] = [Verdict.DENY.value]
    if move.forbidden:
        return asked
    asked["grants"] = ["call", "tool"]
    asked["decisions"].insert(0, Verdict.APPROVE.value)
    if call.schema is not None and schema_fault(call.schema) is None and _fits(call.schema):
        asked["answer_schema"] = dict(
            call.schema
        )  # an edit is held to it; where it cannot be kept there is none
        asked["decisions"].insert(1, Verdict.EDIT.value)
    return asked


def unless_too_large(fault: Fault = no_fault) -> Fault:
    """`fault`, and nobody can say yes to what cannot be shown."""

    def why(arguments: Mapping[str, Any]) -> str | None:
        if not _fits(arguments):
            return f"Its arguments are too large to be shown to a person (at most {MAX_PART} bytes)."
        return fault(arguments)

    return why


def misfit(tool: str, schema: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> str | None:
    """Why the tool does not take these arguments, by the JSON Schema of them; None where it does, and where nobody can
    tell: a wrong schema is its author's business, who will say what the tool takes."""
    if schema is None or schema_fault(schema) is not None:
        return None
    wrong = answer_faults(schema, arguments, "arguments")
    return f"{tool} does not take these arguments ({wrong[0].path}: {wrong[0].message})." if wrong else None


def _fits(value: Mapping[str, Any]) -> bool:
    return len(json.dumps(dict(value)).encode()) <= MAX_PART
