"""What a person is shown of a call: what would be called, or what was."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dromos.domain.call_questions import misfit, question_of, unless_too_large
from dromos.domain.effects import Ask, Call, CallStatus, Recorded, arguments_digest, next_move
from dromos.domain.requests import MAX_PART, opening

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
CALL = Call("key", "pay", "c1", {"x": 1})
TOO_LARGE = {"text": "a" * MAX_PART}
NUMBER = {"type": "object", "properties": {"x": {"type": "integer"}}}


def test_of_a_call_with_edited_arguments_those_are_shown_that_were_called() -> None:
    lost = Recorded(CallStatus.INTENT, arguments_digest({"x": 1}), 1, edited={"x": 2})

    move = next_move(CALL, lost, [], None)

    assert move == Ask("tool_outcome_unknown", ordinal=1, arguments={"x": 2})
    opened = opening(question_of(CALL, move, "worker", None, "deny"), NOW)
    assert (opened["arguments"], opened["arguments_sha256"]) == ({"x": 2}, arguments_digest({"x": 2}))
    assert opened["decisions"] == ["retry", "mark_done", "skip"]


def test_what_is_too_large_to_be_shown_is_not_asked_leave_for_and_can_still_be_marked_as_done() -> None:
    assert "too large" in (unless_too_large()(TOO_LARGE) or "")
    assert unless_too_large()(CALL.arguments) is None
    asked = question_of(
        replace(CALL, arguments=TOO_LARGE), Ask("tool_outcome_unknown"), "adapter", 60.0, "deny"
    )
    opened = opening(asked, NOW)
    assert (opened["arguments"], opened["expires_at"]) == ({"cut": True}, None)
    assert "its adapter was lost" in opened["prompt"]


@pytest.mark.parametrize(
    ("schema", "decisions"),
    [
        (None, ["approve", "deny"]),
        (NUMBER, ["approve", "edit", "deny"]),
        ({"type": "nonsense"}, ["approve", "deny"]),
    ],
)
def test_an_edit_is_offered_where_it_can_be_held_to_a_schema(schema, decisions) -> None:
    asked = question_of(replace(CALL, schema=schema), Ask("approval"), "worker", 60.0, "deny")
    opened = opening(asked, NOW)
    assert (opened["decisions"], opened["on_timeout"]) == (decisions, "deny")
    assert opened["answer_schema"] == (schema if "edit" in decisions else None)


def test_leave_is_not_offered_for_what_the_policy_forbids() -> None:
    forbidden = Ask("approval", "The policy does not allow pay any more.", "r1", forbidden=True)
    opened = opening(question_of(replace(CALL, schema=NUMBER), forbidden, "worker", 60.0, "deny"), NOW)
    assert (opened["decisions"], opened["grants"], opened["on_timeout"]) == (["deny"], None, "deny")
    assert opened["prompt"] == "The policy does not allow pay any more. Deny it, and the run goes on."
    lost = question_of(CALL, replace(forbidden, kind="tool_outcome_unknown"), "worker", None, "deny")
    assert opening(lost, NOW)["decisions"] == ["mark_done", "skip"]


def test_a_wrong_schema_is_no_reason_to_refuse_a_call() -> None:
    assert misfit("pay", NUMBER, {"x": 1}) is None
    assert "pay does not take these arguments (arguments/x:" in (misfit("pay", NUMBER, {"x": "one"}) or "")
    assert misfit("pay", {"type": "nonsense"}, {"x": 1}) is None
    assert misfit("pay", None, {"x": 1}) is None
