"""Builders of the public JSON shapes from runs and rows. Pure; times as RFC 3339 UTC text.

The event log stores these shapes, the HTTP answers are made of them, so a device sees one form everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dromos.domain.requests import decisions_of
from dromos.domain.runs import Run, Stop, Wait
from dromos.domain.statuses import RunStatus
from dromos.domain.text import moment_text

Json = dict[str, Any]
Row = Mapping[str, Any]

_FOR_AN_OWNER = Wait("no_worker")
"""What a queued run waits for if nothing else holds it."""
_MESSAGE_OPTIONAL = ("tool_calls", "tool_call_id", "name")


def moment(value: datetime | None) -> str | None:
    """`2026-11-29T13:46:04.123456Z`, or None."""
    return None if value is None else moment_text(value)


def wait_json(wait: Wait | None) -> Json | None:
    return None if wait is None else {"reason": wait.reason, "until": moment(wait.until), "then": wait.then}


def stop_json(stop: Stop | None) -> Json | None:
    if stop is None:
        return None
    return {
        "cause": stop.cause,
        "by": stop.by,
        "comment": stop.comment,
        "accepted_at": moment(stop.accepted_at),
        "delivered_at": moment(stop.delivered_at),
        "forced_at": moment(stop.forced_at),
        "outcome": stop.outcome,
        "waiting_for": stop.waiting_for,
        "unknown_calls": list(stop.unknown_calls),
        "step": stop.step,
    }


def run_json(run: Run) -> Json:
    """A run as `GET /v1/runs/{id}` answers it."""
    return {
        "id": run.id,
        "conversation_id": run.conversation_id,
        "agent": run.agent,
        "status": run.status,
        "reason": run.reason,
        "error_code": run.error_code,
        "error_message": run.error_message,
        "attempt": run.attempt,
        "crashes": run.crashes,
        "epoch": run.epoch,
        "version": run.version,
        "wait": wait_json(run.wait or (_FOR_AN_OWNER if run.status is RunStatus.QUEUED else None)),
        "stop": stop_json(run.stop),
        "trigger_message_id": run.trigger_message_id,
        "anchor_message_id": run.anchor_message_id,
        "resume_of": run.resume_of,
        "retry_of": run.retry_of,
        "parent_run_id": run.parent_run_id,
        "session_id": run.session_id,
        "backend_policy": dict(run.backend_policy),
        "model": run.model_used or run.model,
        "steps": run.steps,
        "line": run.line,
        "created_at": moment(run.created_at),
        "started_at": moment(run.started_at),
        "finished_at": moment(run.finished_at),
        "usage": dict(run.usage),
        "cost": run.cost,
        "document_version": run.document_version,
    }


def server_part(
    run: Json,
    requests: Sequence[Json] = (),
    followups: Sequence[Json] = (),
    owner: Json | None = None,
) -> Json:
    """The server part of `run_document.v1` from a run's JSON and what stands around it."""
    failed = run["error_code"] is not None
    return {
        "schema": "run_document.v1",
        "run_id": run["id"],
        "conversation_id": run["conversation_id"],
        "agent": run["agent"],
        "status": run["status"],
        "reason": run["reason"],
        "error": {"code": run["error_code"], "message": run["error_message"]} if failed else None,
        "run_version": run["version"],
        "created_at": run["created_at"],
        "started_at": run["started_at"],
        "finished_at": run["finished_at"],
        "attempt": run["attempt"],
        "crashes": run["crashes"],
        "owner": owner,
        "wait": run["wait"],
        "stop": run["stop"],
        "requests": list(requests),
        "followups": list(followups),
        "cost": run["cost"],
        "backend_policy": run["backend_policy"],
    }


def message_json(row: Row) -> Json:
    """One message of the history. Anchors have `kind` run and no role."""
    out: Json = {
        "id": row["id"],
        "role": row["role"],
        "kind": row["kind"],
        "content": row["content"],
        "status": row["status"],
        "run_id": row["run_id"],
        "interrupted": bool(row["interrupted"]),
        "created_at": moment(row["created_at"]),
    }
    for key in _MESSAGE_OPTIONAL:
        if row.get(key) is not None:
            out[key] = row[key]
    return out


def followup_json(row: Row) -> Json:
    """A message that waits, or waited. `asked` is how it was sent, `when_busy` what it acts as."""
    return {
        "id": row["id"],
        "conversation_id": row["conversation_id"],
        "run_id": row["run_id"],
        "status": row["status"],
        "when_busy": row["when_busy"],
        "asked": row["asked"] or row["when_busy"],
        "author_id": row["user_id"],
        "content": row["content"],
        "position": row["position"],
        "version": row["version"],
        "message_id": row["message_id"],
        "created_at": moment(row["created_at"]),
        "updated_at": moment(row["updated_at"]),
    }


def revision_json(row: Row) -> Json:
    """One text that a follow-up had; number 1 is the first."""
    return {
        "num": row["num"],
        "content": row["content"],
        "author_id": row["author_id"],
        "created_at": moment(row["created_at"]),
    }


def request_json(row: Row) -> Json:
    """A question to a person, in full."""
    return {
        "id": row["id"],
        "run_id": row["run_id"],
        "conversation_id": row["conversation_id"],
        "kind": row["kind"],
        "tool": row["tool"],
        "tool_call_id": row["tool_call_id"],
        "arguments": row["arguments"],
        "arguments_sha256": row["arguments_sha256"],
        "prompt": row["prompt"],
        "options": row["options"],
        "decisions": decisions_of(row),
        "answer_schema": row["answer_schema"],
        "grants": row["grants"] or [],
        "status": row["status"],
        "version": row["version"],
        "expires_at": moment(row["expires_at"]),
        "on_timeout": row["on_timeout"],
        "opened_at": moment(row["opened_at"]),
        "decided_by": row["decided_by"],
        "decided_at": moment(row["decided_at"]),
        "decision": row["decision"],
        "comment": row["comment"],
        "replaces": row["replaces"],
    }


def grant_json(row: Row) -> Json:
    """Leave given for good."""
    return {
        "id": row["id"],
        "conversation_id": row["conversation_id"],
        "tool": row["tool"],
        "arguments": row["arguments"],
        "request_id": row["request_id"],
        "created_at": moment(row["created_at"]),
    }


def conversation_json(row: Row, status: str = "idle") -> Json:
    """A conversation; `status` is that of its newest run, `idle` where it has none.

    `unseen`: a question was put or a run ended in it, and no device of the person has shown that yet.
    """
    return {
        "id": row["id"],
        "title": row["title"],
        "agent": row["agent"],
        "status": status,
        "message_count": row["message_count"],
        "archived": bool(row["archived"]),
        "unseen": row["unseen_seq"] > 0,
        "created_at": moment(row["created_at"]),
        "updated_at": moment(row["updated_at"]),
    }


def event_json(row: Row) -> Json:
    """A durable event as it stands on the stream and in `GET /v1/runs/{id}/events`."""
    return {
        "seq": row["seq"],
        "type": row["type"],
        "conversation_id": row["conversation_id"],
        "run_id": row["run_id"],
        "at": moment(row["at"]),
        "payload": row["payload"],
    }


def step_json(row: Row) -> Json:
    """A step; `usage` and `cost` are a model call's, null where nobody told or no price is known."""
    return {
        "id": row["id"],
        "kind": row["kind"],
        "name": row["name"],
        "status": row["status"],
        "summary": row["summary"],
        "attempt": row["attempt"],
        "checkpoint_id": row["checkpoint_id"],
        "started_at": moment(row["started_at"]),
        "ms": row["ms"],
        "usage": row["usage"],
        "cost": row["cost"],
    }


def attempt_json(row: Row) -> Json:
    return {
        "attempt": row["attempt"],
        "epoch": row["epoch"],
        "started_at": moment(row["started_at"]),
        "ended_at": moment(row["ended_at"]),
        "reason": row["reason"],
    }
