"""From the lifecycle's values to the answers and events of `/api`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from starlette.responses import Response

from dromos.api import problems
from dromos.api.json import dumps
from dromos.api.sse import json_frame
from dromos.domain.errors import Refusal
from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus
from dromos.lifecycle.contract import Answer, Posted

Json = dict[str, Any]

CODES = {
    "conversation_busy": "SESSION_IN_PROGRESS",
    "run_not_resumable": "RUN_NOT_RESUMABLE",
    "not_found": "NOT_FOUND",
    "validation_failed": "BAD_REQUEST",
}
PING = json_frame("ping", "")


def ok(value: Any) -> Response:
    return Response(dumps(value), 200, None, "application/json")


def stored(answer: Answer) -> Response:
    return Response(answer.body.encode(), answer.status, None, "application/json")


def refused(error: Refusal) -> Response:
    """A problem document with this protocol's codes, which it also takes in an `error` object."""
    body = problems.refused(error)
    code = CODES.get(error.code, body["code"])
    body |= {"code": code, "error": {"code": code, "message": error.detail}}
    return problems.answer(body)


def started(posted: Posted) -> tuple[int, str]:
    assert posted.run is not None, "this protocol never lets a message wait"
    return resumed(posted.run)


def resumed(run: Run) -> tuple[int, str]:
    return 200, dumps({"conversation": run.conversation_id, "run": run.id}).decode()


def conversation(line: Mapping[str, Any]) -> Json:
    status = line["status"]
    out = {
        "id": line["id"],
        "title": line["title"],
        "updatedAt": line["updated_at"],
        "messageCount": line["message_count"],
        "status": None if status == "idle" else status,
    }
    if line.get("created_at") is not None:
        out["createdAt"] = line["created_at"]
    return out


def messages(history: Sequence[Json]) -> list[Json]:
    """The thread's messages; anchors of runs are not among them."""
    return [_message(message) for message in history if message["kind"] != "run"]


def _message(message: Json) -> Json:
    out = {"id": message["id"], "role": message["role"], "content": message["content"]}
    for name, key in (("toolCalls", "tool_calls"), ("toolCallId", "tool_call_id"), ("name", "name")):
        if message.get(key) is not None:
            out[name] = message[key]
    if message["role"] == "tool":
        out["status"] = "error" if message.get("status") == "error" else "success"
    return out


# --- events
def token(text: str, position: int) -> bytes:
    return json_frame("token", text, position)


def position(message_id: str, offset: int) -> int:
    """The number of a token: which message it belongs to, and where in it it ends, in UTF-16 units.

    It tells a reader that comes back what it has, also to another process. Below 2⁵², exact in JavaScript.
    """
    return ((crc32(message_id.encode()) & 0xFFFFF) << 32) | offset


def trace(step: Mapping[str, Any], number: int, place: int | None) -> bytes:
    running = step["status"] == "running"
    tool = step["kind"] == "tool"
    note = {
        "node": step["kind"],
        "name": step["name"],
        "step": number,
        "event": ("call" if running else "result") if tool else ("enter" if running else "leave"),
        "data": {"id": step["id"], "status": step["status"], "summary": step.get("summary")},
    }
    return json_frame("trace", note, place)


def terminal(run: Mapping[str, Any], number: int | None = None) -> bytes:
    """The one last event: `chat-error` for a run that failed, `end` with the status for every other end."""
    base = {"conversation": run["conversation_id"], "run": run["id"], "status": run["status"]}
    if run["status"] == RunStatus.FAILED:
        error = {"code": run["error_code"], "message": run["error_message"], **base}
        return json_frame("chat-error", error, number)
    return json_frame("end", base, number)


def nothing_ran(conversation_id: str) -> bytes:
    return json_frame("end", {"conversation": conversation_id, "run": None, "status": None})
