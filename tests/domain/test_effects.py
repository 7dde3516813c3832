"""What may be done with a tool call: leave, doubt, and what has changed since somebody said yes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dromos.domain.effects import (
    Ask,
    Call,
    CallStatus,
    Make,
    Recorded,
    Replay,
    ReplayClass,
    Settle,
    ToolPolicy,
    ToolRule,
    Word,
    arguments_digest,
    next_move,
)

ASK = ToolRule(ToolPolicy.ASK)
DENY = ToolRule(ToolPolicy.DENY)
CALL = Call("key", "pay", "c1", {"x": 1}, ASK)
DIGEST = arguments_digest(CALL.arguments)
YES = Word("r1", "approval", "approve", arguments_sha256=DIGEST)


def recorded(status: CallStatus = CallStatus.INTENT, **more: Any) -> Recorded:
    return Recorded(status, DIGEST, 1, **more)


def gone(arguments: Any) -> str:
    return "pay is not there now."


def test_what_a_person_allowed_is_made_and_uses_the_decision_up() -> None:
    assert next_move(CALL, None, [YES], None) == Make({"x": 1}, "r1")


def test_an_edit_is_made_with_the_persons_arguments() -> None:
    edit = replace(YES, decision="edit", arguments={"x": 2})
    assert next_move(CALL, None, [edit], None) == Make({"x": 2}, "r1", edited=True)


@pytest.mark.parametrize("word", [YES, replace(YES, decision="edit", arguments={"x": 2})])
def test_what_changed_since_the_decision_is_asked_about_anew(word: Word) -> None:
    assert next_move(CALL, None, [word], None, gone) == Ask("approval", "pay is not there now.", "r1")
    denied = next_move(replace(CALL, rule=DENY), None, [word], None)
    assert denied == Ask("approval", "The policy does not allow pay any more.", "r1", forbidden=True)


def test_a_no_is_final_whatever_changed() -> None:
    no = replace(YES, decision="deny", comment="too much", by="ann")
    for call in (CALL, replace(CALL, rule=DENY)):
        move = next_move(call, None, [no], None, gone)
        assert isinstance(move, Settle)
        assert move.outcome["text"] == "The call was not made. It was denied by a person: too much."


def test_other_arguments_than_those_that_were_shown_need_leave_of_their_own() -> None:
    move = next_move(replace(CALL, arguments={"x": 9}), None, [YES], None)
    assert isinstance(move, Ask)
    assert move.replaces == "r1"


def test_nobody_is_asked_about_a_call_that_cannot_be_made() -> None:
    for grant_id in (None, "g1"):
        move = next_move(CALL, None, [], grant_id, gone)
        assert isinstance(move, Settle)
        assert move.outcome == {
            "text": "The call was not made: pay is not there now.",
            "is_error": True,
            "structured": None,
        }


def test_a_grant_is_leave_and_the_intent_names_it() -> None:
    assert next_move(CALL, None, [], "g1") == Make({"x": 1}, grant_id="g1")
    assert isinstance(next_move(replace(CALL, rule=DENY), None, [], "g1"), Settle)


def test_a_retry_that_cannot_be_made_any_more_is_asked_about_anew() -> None:
    again = Word("r2", "tool_outcome_unknown", "retry", arguments_sha256=DIGEST)
    assert next_move(CALL, recorded(), [again], None) == Make({"x": 1}, "r2")
    told = Ask("tool_outcome_unknown", "pay is not there now.", "r2", ordinal=1)
    assert next_move(CALL, recorded(), [again], None, gone) == told
    move = next_move(replace(CALL, rule=DENY), recorded(), [again], None)
    assert isinstance(move, Ask) and move.replaces == "r2" and move.forbidden


def test_an_intent_of_a_keyed_call_is_leave_to_repeat_it_whatever_the_policy_says_by_now() -> None:
    keyed = replace(CALL, rule=replace(DENY, replay=ReplayClass.KEYED))
    assert next_move(keyed, replace(recorded(), replay=ReplayClass.KEYED), [], None) == Make({"x": 1})
    move = next_move(replace(CALL, rule=DENY), recorded(), [], None)
    assert isinstance(move, Ask) and move.forbidden


def test_a_call_that_had_asked_goes_on_from_where_it_stood_also_after_a_crash() -> None:
    state = {"here": 1}
    answer = Word("r3", "question", "answer", answer="blue")
    parked = recorded(CallStatus.PARKED, state=state)
    assert next_move(CALL, parked, [answer], None) == Make({"x": 1}, "r3", state=state)
    keyed = replace(CALL, rule=ToolRule(replay=ReplayClass.KEYED))
    assert next_move(keyed, recorded(state=state), [], None) == Make({"x": 1}, state=state)
    again = Word("r4", "tool_outcome_unknown", "retry")
    assert next_move(CALL, recorded(state=state), [again], None) == Make({"x": 1}, "r4", state=state)


def test_a_call_that_is_over_stays_over_whatever_the_policy_says_by_now() -> None:
    over = recorded(CallStatus.DONE, outcome={"text": "paid"})
    for rule in (ASK, DENY):
        assert next_move(replace(CALL, rule=rule), over, [YES], None) == Replay({"text": "paid"})
