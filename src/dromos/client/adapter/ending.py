"""What end a run gets from how its handler was left. Pure; it must not know tasks or HTTP."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from dromos.client.adapter.values import AgentError, Answer, Stop

Json = dict[str, Any]

MOST_LINE: Final = 500
MOST_MESSAGE: Final = 8000
MOST_CODE: Final = 200


def end_of(
    error: BaseException | None, *, result: Answer | None, stop: Stop | None, from_outside: bool, said: str
) -> Json | None:
    """The body of the run's `transition`; None where it has none: parked, or left to the server's recovery.

    `error`: what left the handler. `from_outside`: somebody else than this SDK cancelled it. `said`: the text of the
    message that was streamed last.
    """
    stopped = stop is not None and not stop.is_local
    if isinstance(error, AgentError):
        return failed(error.message, error.code)
    if isinstance(error, Exception):
        return failed(f"{type(error).__name__}: {error}")
    if isinstance(error, asyncio.CancelledError):
        if stopped:
            return {"to": "cancelled"}
        if from_outside or stop is not None:
            return None
        return failed("The agent cancelled itself without being stopped.")
    if error is not None:
        return None
    if result is None and stop is not None:
        return {"to": "cancelled"} if stopped else None
    return _completed(result or Answer(), said)


def failed(message: str, code: str = "ADAPTER_ERROR") -> Json:
    return {
        "to": "failed",
        "error_code": code[:MOST_CODE] or "ADAPTER_ERROR",
        "error_message": message[:MOST_MESSAGE],
    }


def _completed(answer: Answer, said: str) -> Json:
    content = said if answer.content is None else answer.content
    if not isinstance(content, str | dict | list):
        content = str(content)
    fields: Json = {
        "to": "completed",
        "answer": content or None,
        "session_id": answer.session_id,
        "line": answer.line[:MOST_LINE] if answer.line else None,
    }
    return {name: value for name, value in fields.items() if value is not None}
