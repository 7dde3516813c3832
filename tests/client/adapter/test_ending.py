"""Each way out of a handler has its end, and a run whose handler was only interrupted has none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dromos.client.adapter import AgentError, Answer, LeaseLost, Parked, Stop
from dromos.client.adapter.ending import end_of

CANCEL = Stop("cancel_requested", "user", 15.0)
CLOSED = Stop("session_closed")
CANCELLED = asyncio.CancelledError()


def end(
    error: BaseException | None = None,
    result: Answer | None = None,
    stop: Stop | None = None,
    from_outside: bool = False,
    said: str = "",
) -> dict[str, Any] | None:
    return end_of(error, result=result, stop=stop, from_outside=from_outside, said=said)


def test_work_that_was_done_is_completed_also_after_a_stop() -> None:
    assert end(result=Answer("a", "s", "l")) == {
        "to": "completed",
        "answer": "a",
        "session_id": "s",
        "line": "l",
    }
    assert end() == {"to": "completed"}
    assert end(said="so far") == {"to": "completed", "answer": "so far"}
    assert end(result=Answer(line="x" * 900), said="t") == {
        "to": "completed",
        "answer": "t",
        "line": "x" * 500,
    }
    assert end(result=Answer({"n": 1}), stop=CANCEL) == {"to": "completed", "answer": {"n": 1}}
    assert end(result=Answer(42), stop=CLOSED) == {"to": "completed", "answer": "42"}


def test_a_stop_that_was_obeyed_is_cancelled() -> None:
    assert end(CANCELLED, stop=CANCEL) == {"to": "cancelled"}
    assert end(stop=CANCEL, said="half") == {"to": "cancelled"}, (
        "it swallowed the cancellation and gave no answer"
    )


def test_an_error_is_a_failure_with_its_words() -> None:
    assert end(ValueError("no page")) == {
        "to": "failed",
        "error_code": "ADAPTER_ERROR",
        "error_message": "ValueError: no page",
    }
    assert end(AgentError("no key", code="MODEL_AUTH"), stop=CANCEL) == {
        "to": "failed",
        "error_code": "MODEL_AUTH",
        "error_message": "no key",
    }
    assert end(AgentError())["error_message"] == "ADAPTER_ERROR"  # type: ignore[index]
    assert end(AgentError("x" * 9000))["error_message"] == "x" * 8000  # type: ignore[index]
    assert "cancelled itself" in end(CANCELLED)["error_message"]  # type: ignore[index]


@pytest.mark.parametrize(
    "left",
    [
        {"error": Parked()},
        {"error": LeaseLost("gone")},
        {"error": KeyboardInterrupt()},
        {"error": CANCELLED, "from_outside": True},
        {"error": CANCELLED, "stop": CLOSED},
        {"stop": CLOSED},
    ],
)
def test_a_run_that_is_another_s_or_goes_on_later_gets_no_end(left: dict[str, Any]) -> None:
    assert end(**left) is None
