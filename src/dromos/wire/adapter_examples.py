"""One example of every answer of `/v1/adapter`, for OpenAPI and for people who read it. Data only."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from dromos.wire.adapter import (
    ClaimedRun,
    EffectKnown,
    EndedRun,
    MessagesStored,
    ParkedRun,
    Renewed,
    StepsStored,
)
from dromos.wire.answers import MESSAGE_EXAMPLE, RUN_EXAMPLE

_RUN: dict[str, Any] = {
    **RUN_EXAMPLE,
    "agent": "researcher",
    "status": "running",
    "reason": "claimed",
    "attempt": 1,
    "epoch": 1,
    "version": 2,
    "wait": None,
    "started_at": "2026-11-29T13:46:04.420000Z",
}
_LEASE_UNTIL = "2026-11-29T13:46:34.420000Z"

ADAPTER_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    ClaimedRun: {
        "run": _RUN,
        "input": "Name one prime number.",
        "history": [],
        "progress": [],
        "decisions": [],
        "applied": [],
        "session_id": None,
        "token": "drt_q1f0yqJx3o9d3kq8m2Zr0m1Xl1cM5oVtq0b8mPzC2uE",
        "epoch": 1,
        "lease_until": _LEASE_UNTIL,
        "lease_s": 30.0,
    },
    Renewed: {
        "lease_until": _LEASE_UNTIL,
        "lease_s": 30.0,
        "document_version": (1 << 32) + 4,
        "stop": {"cause": "cancel_requested", "by": "user", "deadline_s": 14.2},
        "steer": [],
    },
    EndedRun: {
        "run": {
            **_RUN,
            "status": "completed",
            "reason": "finished",
            "epoch": 2,
            "version": 3,
            "line": "Seven.",
            "finished_at": "2026-11-29T13:46:09.812000Z",
        }
    },
    StepsStored: {"steps": 1},
    EffectKnown: {
        "key": "0a2b6f0f3f3a5c0cfb2b5d1e5b1d5f1d4a7f6c6f1f0b7f4b1a2c3d4e5f607182",
        "state": "done",
        "outcome": {"text": "sent", "is_error": False, "structured": {"message": "m-17"}},
        "run": _RUN,
        "requests": [],
    },
    MessagesStored: {
        "messages": [
            {
                **MESSAGE_EXAMPLE,
                "id": "m1",
                "role": "assistant",
                "content": "Seven.",
                "status": None,
            }
        ]
    },
    ParkedRun: {
        "run": {
            **_RUN,
            "status": "waiting_input",
            "reason": "approval_required",
            "epoch": 2,
            "version": 3,
            "wait": {"reason": "input", "until": None, "then": None},
        },
        "requests": [
            {
                "id": "019ad0f2-7c11-7b3e-a5d0-4471f0f7c8de",
                "run_id": RUN_EXAMPLE["id"],
                "conversation_id": RUN_EXAMPLE["conversation_id"],
                "kind": "approval",
                "tool": "send_mail",
                "tool_call_id": "c2",
                "arguments": {"to": "anna@example.org"},
                "prompt": "Send this mail?",
                "status": "open",
                "version": 1,
            }
        ],
    },
}
