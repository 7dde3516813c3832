"""One example of every answer, for OpenAPI and for people who read it. Data only; a test holds it to the models."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from dromos.wire import answers, lab
from dromos.wire.adapter_examples import ADAPTER_EXAMPLES
from dromos.wire.answers import CONVERSATION_EXAMPLE, MESSAGE_EXAMPLE, RUN_EXAMPLE
from dromos.wire.document import document_json
from dromos.wire.shapes import server_part

_AT = RUN_EXAMPLE["created_at"]
_LATER = "2026-11-29T13:46:09.812000Z"
_CHECKPOINT = "1f1ec067-0687-6db7-bfff-3a5fb8c49406"
_FOLLOWUP_ID = "019ad0f2-71aa-7d52-8e0b-5f3b8f1c2a90"

_RUNNING: dict[str, Any] = {
    **RUN_EXAMPLE,
    "status": "running",
    "reason": "claimed",
    "attempt": 1,
    "epoch": 1,
    "version": 2,
    "wait": None,
    "model": "ollama:qwen3",
    "started_at": _AT,
}
_LINE: dict[str, Any] = {
    **CONVERSATION_EXAMPLE,
    "status": "completed",
    "line": "Seven.",
    "open_requests": 0,
    "message_count": 2,
    "unseen": True,
}
_RUN_LINE: dict[str, Any] = {
    **_RUNNING,
    "owner": {"kind": "worker", "seen_at": _LATER, "takeover_at": None},
}
_FOLLOWUP: dict[str, Any] = {
    "id": _FOLLOWUP_ID,
    "conversation_id": RUN_EXAMPLE["conversation_id"],
    "run_id": RUN_EXAMPLE["id"],
    "status": "waiting",
    "when_busy": "queue",
    "asked": "steer",
    "author_id": "local",
    "content": "And another one.",
    "position": 1,
    "version": 1,
    "message_id": None,
    "created_at": _LATER,
    "updated_at": _LATER,
}
_REVISION: dict[str, Any] = {
    "num": 1,
    "content": "And another one.",
    "author_id": "local",
    "created_at": _LATER,
}
_WAITING_MESSAGE: dict[str, Any] = {
    **MESSAGE_EXAMPLE,
    "id": None,
    "content": "And another one.",
    "run_id": None,
    "created_at": _LATER,
}
_STEP: dict[str, Any] = {
    "id": "019ad0f2-6b02-7a10-9f6e-0d7c61a2b3c4",
    "kind": "tool",
    "name": "files__search",
    "status": "done",
    "summary": '{"query":"invoice"}',
    "attempt": 1,
    "checkpoint_id": _CHECKPOINT,
    "started_at": _AT,
    "ms": 812,
    "usage": None,
    "cost": None,
}
_DOCUMENT = document_json(
    server_part(_RUNNING, owner={"kind": "worker", "seen_at": _AT, "takeover_at": None}),
    {
        "model": "ollama:qwen3",
        "text": {"message_id": "msg_1", "length": 6, "content": "Seven."},
        "steps": [
            {key: _STEP[key] for key in _STEP if key not in ("attempt", "checkpoint_id", "usage", "cost")}
        ],
    },
    (1 << 32) + 3,
)
_LAB_CONVERSATION: dict[str, Any] = {
    "id": RUN_EXAMPLE["conversation_id"],
    "title": "Name one prime number.",
    "updatedAt": _LATER,
    "messageCount": 2,
    "status": "completed",
}

_QUESTION: dict[str, Any] = {
    "id": "019ad0f2-7c11-7b3e-a5d0-4471f0f7c8de",
    "run_id": RUN_EXAMPLE["id"],
    "conversation_id": RUN_EXAMPLE["conversation_id"],
    "kind": "question",
    "tool": None,
    "tool_call_id": None,
    "arguments": None,
    "arguments_sha256": None,
    "prompt": "Which account?",
    "options": ["savings", "current"],
    "decisions": ["answer", "deny"],
    "answer_schema": None,
    "grants": [],
    "status": "open",
    "version": 1,
    "expires_at": None,
    "on_timeout": None,
    "opened_at": _LATER,
    "decided_by": None,
    "decided_at": None,
    "decision": None,
    "comment": None,
    "replaces": None,
}
_DECIDED: dict[str, Any] = {
    **_QUESTION,
    "status": "decided",
    "version": 2,
    "decided_by": "local",
    "decided_at": _LATER,
    "decision": {"decision": "answer", "answer": "savings", "comment": None},
}

EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    answers.Run: RUN_EXAMPLE,
    answers.RunLine: _RUN_LINE,
    answers.Overview: {
        "seq": 6,
        "conversations": {"items": [_LINE], "next_cursor": None},
        "also": [],
        "unseen": 1,
        "runs": {"items": [_RUN_LINE], "next_cursor": None},
        "requests": {"items": [], "next_cursor": None},
    },
    answers.Message: MESSAGE_EXAMPLE,
    answers.Conversation: CONVERSATION_EXAMPLE,
    answers.ConversationLine: _LINE,
    answers.Followup: _FOLLOWUP,
    answers.FollowupRead: {**_FOLLOWUP, "revisions": [_REVISION]},
    answers.RunAnswer: {"run": RUN_EXAMPLE},
    answers.MessageStarted: {"message": MESSAGE_EXAMPLE, "run": RUN_EXAMPLE},
    answers.MessageWaits: {"message": _WAITING_MESSAGE, "followup": _FOLLOWUP},
    answers.ConversationView: {
        "conversation": {**CONVERSATION_EXAMPLE, "status": "running"},
        "messages": [MESSAGE_EXAMPLE],
        "next_cursor": None,
        "runs": [_RUNNING],
        "requests": [],
        "followups": [_FOLLOWUP],
        "resumable": False,
        "seq": 5,
    },
    answers.Request: _QUESTION,
    answers.RequestDecided: {
        "request": _DECIDED,
        "run": {**_RUNNING, "status": "queued", "reason": "decision_recorded", "version": 5},
    },
    answers.Grant: {
        "id": "019ad0f2-8d44-7a0e-9c1b-52d4c1f0a7e3",
        "conversation_id": RUN_EXAMPLE["conversation_id"],
        "tool": "mail__send",
        "arguments": None,
        "request_id": _QUESTION["id"],
        "created_at": _LATER,
    },
    answers.Checkpoint: {
        "checkpoint_id": _CHECKPOINT,
        "step": 1,
        "source": "loop",
        "next": [],
        "run_id": RUN_EXAMPLE["id"],
        "created_at": _LATER,
        "message_count": 2,
    },
    answers.Step: _STEP,
    answers.Attempt: {"attempt": 1, "epoch": 1, "started_at": _AT, "ended_at": _LATER, "reason": "finished"},
    answers.Event: {
        "seq": 6,
        "type": "message.updated",
        "conversation_id": RUN_EXAMPLE["conversation_id"],
        "run_id": RUN_EXAMPLE["id"],
        "at": _LATER,
        "payload": {"message": {"id": MESSAGE_EXAMPLE["id"], "status": "answered"}},
    },
    answers.Document: _DOCUMENT,
    answers.DocumentVersion: {"version": (1 << 32) + 4},
    answers.Agent: {
        "name": "assistant",
        "description": "Answers, and uses the configured tools.",
        "kind": "langgraph",
        "default": True,
        "model": {"name": "ollama:qwen3", "source": "ollama", "hint": "Found at http://127.0.0.1:11434."},
    },
    answers.Person: {"id": "local", "name": "You"},
    answers.Worker: {
        "id": "019ad0e0-0b4c-7c8e-9a63-7f0e6f4c2d11",
        "kind": "worker",
        "host": "laptop",
        "pid": 4711,
        "started_at": _AT,
        "seen_at": _LATER,
        "lease_until": None,
    },
    answers.Health: {"status": "ok", "version": "0.1.0"},
    lab.ChatStarted: {"conversation": RUN_EXAMPLE["conversation_id"], "run": RUN_EXAMPLE["id"]},
    lab.LabConversations: {"conversations": [_LAB_CONVERSATION]},
    lab.LabThread: {
        "conversation": _LAB_CONVERSATION,
        "messages": [
            {"id": MESSAGE_EXAMPLE["id"], "role": "user", "content": "Name one prime number."},
            {"id": "msg_1", "role": "assistant", "content": "Seven."},
        ],
        "resumable": False,
    },
}

EXAMPLES.update(ADAPTER_EXAMPLES)

STREAMS: dict[str, str] = {
    "text/event-stream": 'id: 6\nevent: message.updated\ndata: {"seq":6,"type":"message.updated","payload":{}}\n\n',
    "application/schema+json": '{"$id":"urn:dromos:run_document.v1","title":"run_document.v1","type":"object"}',
    "text/plain": 'dromos_runs_live{status="running"} 1.0\n',
}
"""What a little of an answer that is no JSON looks like, by its media type."""


def example_of(model: type[BaseModel]) -> dict[str, Any]:
    """An example of an answer; a page holds one of its things. Raises `KeyError` for an answer without one."""
    arguments = model.__pydantic_generic_metadata__["args"]
    if arguments:
        return {"items": [EXAMPLES[arguments[0]]], "next_cursor": None}
    return EXAMPLES[model]
