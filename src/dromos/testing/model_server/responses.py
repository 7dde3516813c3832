"""What clients get: OpenAI's JSON objects and server-sent events, made from the engine's pieces.

Pure. Identifiers are numbered and `created` is 0, so that the same script gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dromos.agents.langgraph.scripted.engine import CallPiece, Reply, TextPiece, Usage

DONE = b"data: [DONE]\n\n"
"""The stop marker of a stream."""


class Encoder:
    """The answers to one request: chunks of a stream, or one whole completion."""

    def __init__(self, number: int, model: str) -> None:
        self._identity = {"id": f"chatcmpl-scripted-{number}", "created": 0, "model": model}

    def opening(self) -> bytes:
        """The first event: who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: TextPiece) -> bytes:
        """An event with a piece of text."""
        return self._chunk({"content": piece.text})

    def call(self, piece: CallPiece) -> bytes:
        """Two events, as OpenAI sends a call: its name, then its arguments."""
        head = _call(piece) | {"index": piece.index}
        head["function"] = {"name": piece.tool, "arguments": ""}
        tail = {"index": piece.index, "function": {"arguments": piece.arguments}}
        return self._chunk({"tool_calls": [head]}) + self._chunk({"tool_calls": [tail]})

    def end(self, reply: Reply, *, include_usage: bool) -> bytes:
        """The last events: why it stopped, the usage if asked for, and the stop marker."""
        last = self._chunk({}, finish_reason=reply.finish_reason)
        if include_usage:
            last += event(self._object("chat.completion.chunk", [], usage=_usage(reply.usage)))
        return last + DONE

    def whole(self, reply: Reply, pieces: Sequence[TextPiece | CallPiece], *, broken: bool) -> dict[str, Any]:
        """One completion without a stream; a broken one has no finish reason."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)),
        }
        if calls := [_call(piece) for piece in pieces if isinstance(piece, CallPiece)]:
            message["tool_calls"] = calls
        reason = None if broken else reply.finish_reason
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return self._object("chat.completion", [choice], usage=_usage(reply.usage))

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return event(self._object("chat.completion.chunk", [choice]))

    def _object(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return self._identity | {"object": kind, "choices": choices} | more


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def failure(status: int, message: str) -> dict[str, Any]:
    """An error body."""
    kinds = {
        400: ("invalid_request_error", None),
        401: ("invalid_request_error", "invalid_api_key"),
        429: ("requests", "rate_limit_exceeded"),
    }
    kind, code = kinds.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _call(piece: CallPiece) -> dict[str, Any]:
    return {
        "id": piece.id,
        "type": "function",
        "function": {"name": piece.tool, "arguments": piece.arguments},
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
