"""The whole of `run_document.v1` for a reader: the server part composed from rows, the content part as it was saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

EMPTY_CONTENT: Mapping[str, Any] = {
    "model": None,
    "activity_at": None,
    "stall": None,
    "context": {"used": None, "limit": None, "percent": None},
    "usage": {"input": 0, "output": 0, "cached": 0, "reasoning": 0, "model_calls": 0, "tool_calls": 0},
    "current": None,
    "text": {"message_id": None, "length": 0, "content": ""},
    "plan": [],
    "steps": [],
    "subagents": {},
    "workflows": {},
    "background": {},
    "retries": {"count": 0, "last": None},
    "line": None,
}
"""The content part of a run that has not been worked on yet."""


def document_json(server: Mapping[str, Any], content: Mapping[str, Any] | None, version: int) -> Json:
    """`{"run_id", "version", "run_version", "document"}`: a snapshot as it is fetched and streamed.

    The server part wins over a content key of the same name.
    """
    return {
        "run_id": server["run_id"],
        "version": version,
        "run_version": server["run_version"],
        "document": {**EMPTY_CONTENT, **(content or {}), **server},
    }
