"""A graph's own question (`interrupt()`) as something to ask a person, and the person's word as what it resumes with.

Three forms are understood: any value a graph asks with, and the two in which LangChain's human-in-the-loop middleware
asks for leave to call tools (one question for all calls of a turn, or one for each call). Pure; it must not know
threads, runs or rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.types import Interrupt

from dromos.agents.langgraph.failures import safe_text
from dromos.agents.langgraph.gated import asked_by_gate, is_gates
from dromos.domain.answer_schema import answer_faults, schema_fault
from dromos.domain.effects import arguments_digest
from dromos.domain.requests import MAX_PART, MAX_PROMPT, are_options
from dromos.domain.statuses import RequestKind, Verdict
from dromos.domain.text import clean_json, clean_text
from dromos.ports.agent import Decided

_PROMPTS = ("prompt", "question", "message", "description", "title")
_OPTIONS = ("options", "choices")
_TEXT = {"type": "string", "minLength": 1}
_DISALLOWED = "This tool call may not be answered so."

Asked = dict[str, Any]
"""As `domain.requests.opening` takes it."""


class Unusable(Exception):
    """The graph cannot be given this decision; the text says why, for the person."""


def asked_by(interrupt: Interrupt[Any]) -> Asked:
    """What to ask a person for this interrupt."""
    value = interrupt.value
    if is_gates(interrupt):
        return asked_by_gate(interrupt)
    if _is_turn(value):
        asked = _asked_for_turn(value)
    elif _is_call(value):
        asked = _asked_for_call(value, interrupt.response_schema)
    else:
        asked = _asked_freely(value, interrupt.response_schema)
    return {**asked, "engine_id": interrupt.id}


def resume_value(interrupt: Interrupt[Any], decided: Decided) -> Any:
    """What the graph goes on with. Raises `Unusable` before a wrong answer could spoil the thread."""
    asked = asked_by(interrupt)
    if _digest(asked.get("arguments")) != _digest(decided.arguments):
        raise Unusable("What was asked has changed since.")
    if decided.decision not in _decisions(asked):
        raise Unusable(_DISALLOWED)
    if decided.decision is Verdict.ANSWER and asked.get("answer_schema") is not None:
        faults = answer_faults(asked["answer_schema"], decided.answer)
        if faults:
            raise Unusable("; ".join(f"{fault.path}: {fault.message}" for fault in faults[:3]))
    if _is_turn(interrupt.value):
        return _turn_decisions(interrupt.value, decided)
    if _is_call(interrupt.value):
        return _call_decision(decided)
    return decided.answer if decided.decision is Verdict.ANSWER else None


def _decisions(asked: Asked) -> Sequence[str]:
    named: Sequence[str] = asked["decisions"]
    return named


def _digest(arguments: Any) -> str | None:
    cleaned = clean_json(arguments)[0]
    return None if cleaned is None else arguments_digest(cleaned)


# --- anything a graph asks with -------------------------------------------------------------------------------


def _asked_freely(value: Any, schema: Any) -> Asked:
    """A text is the question itself; in an object the usual names are looked for, and all of it is shown."""
    plain = _plain(value)
    fields: Mapping[str, Any] = plain if isinstance(plain, dict) else {}
    prompt = plain if isinstance(plain, str) else next(filter(None, map(fields.get, _PROMPTS)), None)
    options = next(filter(None, map(fields.get, _OPTIONS)), None)
    schema = _usable(schema)
    declinable = schema is None or not answer_faults(schema, None)
    return {
        "kind": RequestKind.QUESTION.value,
        "prompt": _cut(prompt) if isinstance(prompt, str) else None,
        "options": options if are_options(options) else None,
        "arguments": None if isinstance(plain, str) else _bounded(plain if fields else {"value": plain}),
        "answer_schema": schema,
        "decisions": [Verdict.ANSWER.value, *([Verdict.DENY.value] if declinable else [])],
        **_deadline(fields),
    }


def _deadline(fields: Mapping[str, Any]) -> Asked:
    """A graph may say how long it waits (`expires_in_s`), and what counts then (`on_timeout`, `default`)."""
    if not isinstance(fields.get("expires_in_s"), int | float):
        return {}
    default = {"decision": Verdict.ANSWER.value, "answer": fields["default"]} if "default" in fields else None
    usual = "default" if default is not None else "expire"
    return {
        "expires_in_s": fields["expires_in_s"],
        "on_timeout": fields.get("on_timeout", usual),
        "default": default,
    }


# --- one question for all tool calls of a turn ----------------------------------------------------------------


def _is_turn(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    actions, reviews = value.get("action_requests"), value.get("review_configs")
    return (
        isinstance(actions, list)
        and isinstance(reviews, list)
        and len(actions) == len(reviews) > 0
        and all(isinstance(one, Mapping) and "name" in one and "args" in one for one in actions)
        and all(isinstance(one, Mapping) and one.get("allowed_decisions") for one in reviews)
    )


def _asked_for_turn(value: Mapping[str, Any]) -> Asked:
    actions: list[Any] = _plain(value["action_requests"])
    allowed = [list(review["allowed_decisions"]) for review in value["review_configs"]]
    if len(actions) == 1:
        (action,) = actions
        return _asked_for_tool(action, allowed[0], _turn_schema(actions, allowed))
    names = list(dict.fromkeys(str(action["name"]) for action in actions))
    decisions = [
        verdict
        for verdict, form in ((Verdict.APPROVE, "approve"), (Verdict.DENY, "reject"))
        if all(form in forms for forms in allowed)
    ]
    return {
        "kind": RequestKind.APPROVAL.value,
        "tool": names[0] if len(names) == 1 else None,
        "prompt": _cut("\n\n".join(_told(action) for action in actions)),
        "arguments": _bounded({"calls": [{"name": one["name"], "args": one["args"]} for one in actions]}),
        "answer_schema": _turn_schema(actions, allowed),
        "decisions": [*decisions, Verdict.ANSWER.value],
    }


def _turn_schema(actions: Sequence[Any], allowed: Sequence[Sequence[str]]) -> Asked:
    """As many decisions as calls, each in a form that its call allows: another number would spoil the thread."""
    forms = [
        {"oneOf": [_form(name, action) for name in names]}
        for action, names in zip(actions, allowed, strict=True)
    ]
    count = len(forms)
    decisions = {"type": "array", "prefixItems": forms, "minItems": count, "maxItems": count}
    return {"type": "object", "properties": {"decisions": decisions}, "required": ["decisions"]}


def _form(name: str, action: Mapping[str, Any]) -> Asked:
    properties: dict[str, Any] = {"type": {"const": name}}
    required = ["type"]
    if name == "edit":
        edited = {"name": {"const": action["name"]}, "args": {"type": "object"}}
        properties["edited_action"] = {"type": "object", "properties": edited, "required": ["name", "args"]}
        required.append("edited_action")
    elif name in ("reject", "respond"):
        properties["message"] = {"type": "string"}
        required += ["message"] if name == "respond" else []
    return {"type": "object", "properties": properties, "required": required}


def _turn_decisions(value: Mapping[str, Any], decided: Decided) -> Any:
    if decided.decision is Verdict.ANSWER and not isinstance(decided.answer, str):
        return decided.answer
    return {"decisions": [_call_decision(decided) for _ in value["action_requests"]]}


# --- one question for each tool call --------------------------------------------------------------------------


def _is_call(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and value.get("type") == "tool_approval"
        and isinstance(value.get("name"), str)
        and "args" in value
    )


def _asked_for_call(value: Mapping[str, Any], schema: Any) -> Asked:
    schema = _usable(schema)
    examples = {
        "approve": {"type": "approve"},
        "reject": {"type": "reject", "message": "no"},
        "respond": {"type": "respond", "message": "done"},
    }
    allowed = [name for name, form in examples.items() if schema is None or not answer_faults(schema, form)]
    if schema is not None and "edit" in json.dumps(schema):
        allowed.append("edit")
    return _asked_for_tool(_plain(value), allowed, schema)


def _asked_for_tool(action: Mapping[str, Any], allowed: Sequence[str], schema: Any) -> Asked:
    """One call. Leave to make it; or where a person stands in for the tool, the question it asks."""
    asked: Asked = {
        "tool": clean_text(str(action["name"])),
        "tool_call_id": action.get("tool_call_id"),
        "prompt": _cut(_told(action)),
        "arguments": _bounded(action["args"]),
    }
    if set(allowed) == {"respond"}:
        return asked | {
            "kind": RequestKind.QUESTION.value,
            "answer_schema": _TEXT,
            "decisions": [Verdict.ANSWER.value],
        }
    decisions = [Verdict.APPROVE.value] if "approve" in allowed else []
    decisions += [Verdict.DENY.value] if "reject" in allowed else []
    if {"edit", "respond"} & set(allowed):
        return asked | {
            "kind": RequestKind.APPROVAL.value,
            "answer_schema": schema,
            "decisions": [*decisions, Verdict.ANSWER.value],
        }
    return asked | {"kind": RequestKind.APPROVAL.value, "decisions": decisions}


def _call_decision(decided: Decided) -> Any:
    if decided.decision is Verdict.APPROVE:
        return {"type": "approve"}
    if decided.decision is Verdict.DENY:
        return {"type": "reject"} | ({"message": decided.comment} if decided.comment else {})
    if isinstance(decided.answer, str):
        return {"type": "respond", "message": decided.answer}
    return decided.answer


def _told(action: Mapping[str, Any]) -> str:
    return str(action.get("description") or f"May {action['name']} be called?")


# --- values as JSON that a request can hold -------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Any value as JSON; what JSON has no form for becomes its text."""
    try:
        return json.loads(json.dumps(value, default=_part, skipkeys=True))
    except (TypeError, ValueError, RecursionError):
        return safe_text(value)


def _part(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) and not isinstance(value, type) else safe_text(value)


def _bounded(value: Any) -> Any:
    text = json.dumps(value)
    if len(text) <= MAX_PART:
        return value
    return {"cut": True, "text": text[: MAX_PART // 2]}


def _cut(prompt: str) -> str:
    prompt = clean_text(prompt)
    return prompt if len(prompt) <= MAX_PROMPT else f"{prompt[: MAX_PROMPT - 1]}…"


def _usable(schema: Any) -> Any:
    """The schema an answer is held to; one that is none, or too long to keep, is no help and left out."""
    if not isinstance(schema, dict) or schema_fault(schema) is not None:
        return None
    return schema if len(json.dumps(schema, default=str)) <= MAX_PART else None
