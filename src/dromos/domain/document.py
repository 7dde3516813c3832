"""`run_document.v1` as data: which paths there are, what may stand there, limits, and the empty document.

The server part is composed from rows and reaches devices whole; a patch never touches it. The content part is what a
run's owner patches, and the only paths a patch may name are those of `CONTENT`. The text of the answer being
written stands beside both: it grows by appending and has its own clock. The JSON Schema is generated from here.

It must not know rows, versions of anything stored, or how changes travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dromos.domain.forms import (
    Flag,
    Form,
    Free,
    Group,
    Moment,
    Number,
    Register,
    Schema,
    Series,
    Text,
)
from dromos.domain.limits import MAX_DEPTH, MAX_KEY, MAX_STRING, SAFE
from dromos.domain.pointers import copied
from dromos.domain.statuses import OwnerKind, RunStatus

SCHEMA_ID = "run_document.v1"
EPOCH_BITS = 32
"""A version of the content part is epoch × 2³² + n: a new owner always jumps forward."""

MAX_CONTENT = 256 * 1024
"""Bytes of the content part as JSON, without the text."""
MAX_TEXT = 1024 * 1024
"""Bytes of the text in UTF-8."""
MAX_PATCH = 64 * 1024
"""Bytes of one patch as JSON."""
MAX_OPERATIONS = 200
MAX_STEPS = 50

OPERATIONS = ("add", "replace", "remove", "test")

_TEXT = Text(nullable=True)
_WHEN = Moment(nullable=True)
_COUNT = Number(whole=True, least=0)
_COUNT_OR_UNKNOWN = Number(whole=True, least=0, nullable=True)
_AMOUNT = Number(nullable=True)
_STEP_KINDS = ("model", "tool", "step")
_USAGE = ("input", "output", "cached", "reasoning", "model_calls", "tool_calls")

CONTENT = Group(
    members={
        "model": Text(nullable=True, about="Provider and name of the model in use."),
        "activity_at": Moment(
            nullable=True, about="When the work last moved; apart from the owner's sign of life."
        ),
        "stall": Group(
            nullable=True,
            members={"since": Moment(), "kind": Text(choices=("model", "tool"))},
            about="What has been silent for too long, measured from activity.",
        ),
        "context": Group(
            members={
                "used": _COUNT_OR_UNKNOWN,
                "limit": _COUNT_OR_UNKNOWN,
                "percent": Number(least=0, nullable=True),
            },
            about="The model's context in tokens; null: unknown.",
        ),
        "usage": Group(
            members={**dict.fromkeys(_USAGE, _COUNT), "estimated": Flag()},
            optional=frozenset({"estimated"}),
            about="Tokens and calls so far; `estimated`: some calls were cut before they told what they used.",
        ),
        "current": Group(
            nullable=True,
            members={
                "kind": Text(choices=_STEP_KINDS),
                "name": Text(),
                "summary": _TEXT,
                "since": _WHEN,
                "progress": Group(
                    nullable=True,
                    members={"value": _AMOUNT, "total": _AMOUNT, "message": _TEXT},
                    optional=frozenset({"value", "total", "message"}),
                ),
            },
            optional=frozenset({"summary", "since", "progress"}),
            about="What is being done at this moment.",
        ),
        "plan": Series(
            of=Group(
                members={
                    "id": Text(),
                    "title": Text(),
                    "status": Text(choices=("pending", "active", "done", "skipped")),
                }
            ),
            about="The agent's own list of what it means to do.",
        ),
        "steps": Series(
            of=Group(
                members={
                    "id": Text(),
                    "kind": Text(choices=_STEP_KINDS),
                    "name": Text(),
                    "status": Text(choices=("running", "done", "failed", "cancelled", "unknown")),
                    "summary": _TEXT,
                    "started_at": _WHEN,
                    "ms": _COUNT_OR_UNKNOWN,
                },
                optional=frozenset({"summary", "started_at", "ms"}),
            ),
            most=MAX_STEPS,
            about=f"The newest {MAX_STEPS}, oldest first; all of them at /v1/runs/{{id}}/steps.",
        ),
        "subagents": Register(
            of=Group(
                members={"title": _TEXT, "status": _TEXT, "current": _TEXT, "usage": Register(of=_COUNT)},
                optional=frozenset({"title", "status", "current", "usage"}),
            ),
            about="By id.",
        ),
        "workflows": Register(of=Free(objects=True), about="By id; any object."),
        "background": Register(
            of=Group(
                members={"title": _TEXT, "status": _TEXT, "since": _WHEN},
                optional=frozenset({"title", "status", "since"}),
            ),
            about="Jobs that go on beside the run, by id.",
        ),
        "retries": Group(
            members={
                "count": _COUNT,
                "last": Group(
                    nullable=True,
                    members={
                        "of": _TEXT,
                        "code": _TEXT,
                        "attempt": _COUNT_OR_UNKNOWN,
                        "of_attempts": _COUNT_OR_UNKNOWN,
                        "next_at": _WHEN,
                    },
                    optional=frozenset({"of", "code", "attempt", "of_attempts", "next_at"}),
                ),
            },
            about="Calls that failed and were tried again.",
        ),
        "line": Text(nullable=True, about="One line for the collapsed box."),
    }
)
"""The content part without the text: the only paths a patch may touch."""

TEXT = Group(
    members={
        "message_id": _TEXT,
        "length": Number(whole=True, least=0, about="Length of `content` in UTF-16 code units."),
        "content": Free(about=f"All of the message so far; at most {MAX_TEXT} bytes."),
    },
    about="The answer being written. It grows by `run.text`, never by a patch.",
)

_OBJECT = Free(objects=True)
SERVER = Group(
    members={
        "schema": Text(choices=(SCHEMA_ID,)),
        "run_id": Text(),
        "conversation_id": Text(),
        "agent": Text(),
        "status": Text(choices=tuple(RunStatus)),
        "reason": Text(),
        "error": Group(nullable=True, members={"code": Text(), "message": _TEXT}),
        "run_version": Number(whole=True, least=0),
        "created_at": Moment(),
        "started_at": _WHEN,
        "finished_at": _WHEN,
        "attempt": _COUNT,
        "crashes": _COUNT,
        "owner": Group(
            nullable=True,
            members={"kind": Text(choices=tuple(OwnerKind)), "seen_at": _WHEN, "takeover_at": _WHEN},
            about="Who works on it, and when it was last heard; liveness, apart from activity.",
        ),
        "wait": Group(
            nullable=True,
            members={"reason": Text(), "until": _WHEN, "then": _TEXT},
            about="Why a queued or parked run waits.",
        ),
        "stop": Free(objects=True, nullable=True, about="An accepted stop, as the run shows it."),
        "requests": Series(of=_OBJECT, about="Open questions, in full."),
        "followups": Series(of=_OBJECT, about="Waiting and held follow-ups."),
        "cost": Free(
            objects=True, nullable=True, about="`amount` is null where the price is unknown, never 0."
        ),
        "backend_policy": Free(objects=True, about="What this run may use."),
    }
)
"""Composed from rows; no patch touches it."""


def _empty(form: Form) -> Any:
    if form.nullable:
        return None
    if isinstance(form, Group):
        return {name: _empty(member) for name, member in form.members.items() if name not in form.optional}
    return {Register: {}, Series: [], Number: 0, Flag: False}.get(type(form), "")


EMPTY_TEXT: Mapping[str, Any] = {"message_id": None, "length": 0, "content": ""}
EMPTY_CONTENT: Mapping[str, Any] = {**_empty(CONTENT), "text": EMPTY_TEXT}
"""The content part of a run that has not been worked on yet, in the order it is shown."""


def empty_content() -> dict[str, Any]:
    """A content part of one's own to change."""
    made: dict[str, Any] = copied(EMPTY_CONTENT)
    return made


def filled(content: Mapping[str, Any] | None) -> dict[str, Any]:
    """A content part with every member, those that `content` has not being empty. Members of `content` are shared."""
    return {**empty_content(), **(content or {})}


OF_ITS_OWNER = frozenset({"text", "current", "stall"})
"""What a document shows of an owner's work under way; the next owner begins without."""


def carried_over(content: Mapping[str, Any] | None) -> dict[str, Any]:
    """The content part with which the next owner begins."""
    return filled({name: value for name, value in (content or {}).items() if name not in OF_ITS_OWNER})


def first_version(epoch: int) -> int:
    """The version of the content part as an owner of this epoch finds it."""
    return epoch << EPOCH_BITS


def form_at(parts: list[str]) -> Form | None:
    """The form of what stands at a path of the content part; None where no patch may go."""
    form: Form | None = CONTENT
    for part in parts:
        if form is None:
            return None
        form = form.member(part)
    return form


def json_schema() -> Schema:
    """The whole document as JSON Schema 2020-12. Each member says in `x-part` who changes it."""
    parts: dict[str, Mapping[str, Form]] = {
        "server": SERVER.members,
        "content": {**CONTENT.members, "text": TEXT},
    }
    properties = {
        name: {**form.schema(), "x-part": part}
        for part, members in parts.items()
        for name, form in members.items()
    }
    properties["text"]["properties"]["content"] = {
        "type": "string",
        "maxLength": MAX_TEXT,
        "description": TEXT.members["content"].about,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:dromos:{SCHEMA_ID}",
        "title": SCHEMA_ID,
        "description": "What one run is doing. Members of the server part are read, never patched; a patch may touch "
        "the paths of the content part. A reader passes over members it does not know.",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "x-limits": {
            "content_bytes": MAX_CONTENT,
            "text_bytes": MAX_TEXT,
            "patch_bytes": MAX_PATCH,
            "patch_operations": MAX_OPERATIONS,
            "string_bytes": MAX_STRING,
            "depth": MAX_DEPTH,
            "steps": MAX_STEPS,
            "id_characters": MAX_KEY,
            "largest_whole_number": SAFE,
        },
    }


def paths() -> list[tuple[str, str]]:
    """Every path a patch may touch and what stands there; `<id>` and `<n>` stand for one's own ids and places."""
    found: list[tuple[str, str]] = []

    def walk(form: Form, path: str) -> None:
        if path:
            found.append((path, _said(form)))
        if isinstance(form, Group):
            for name, member in form.members.items():
                walk(member, f"{path}/{name}")
        elif isinstance(form, Register):
            walk(form.of, f"{path}/<id>")
        elif isinstance(form, Series):
            walk(form.of, f"{path}/<n>")

    walk(CONTENT, "")
    return found


def _said(form: Form) -> str:
    match form:
        case Text(choices=choices) if choices:
            what = " · ".join(f"`{choice}`" for choice in choices)
        case Text():
            what = "text"
        case Moment():
            what = "time"
        case Number(whole=whole):
            what = "whole number" if whole else "number"
        case Series():
            what = "list"
        case Register():
            what = "object by id"
        case Free():
            what = "any object"
        case _:
            what = "object"
    return what + (" or null" if form.nullable else "")
