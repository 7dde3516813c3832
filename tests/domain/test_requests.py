"""Rules of questions to a person, without a store: what may be asked, what an answer must fit, who may still decide."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dromos.domain.answer_schema import answer_faults, schema_fault
from dromos.domain.errors import AlreadyDecided, Invalid, Refusal, RequestClosed
from dromos.domain.requests import (
    MAX_PART,
    MAX_PROMPT,
    POLICY,
    Decision,
    decisions_of,
    judge,
    opening,
    timeout_decision,
)
from dromos.domain.statuses import Verdict

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def row(**columns: Any) -> dict[str, Any]:
    """A request as it was opened, with some columns changed."""
    asked = {"kind": "question", "prompt": "?"} | columns.pop("asked", {})
    opened = {"status": "open", "version": 1, "decided_by": None, "decided_at": None, "decision": None}
    return opening(asked, NOW) | opened | columns


def said(verdict: Verdict = Verdict.ANSWER, answer: Any = "yes", version: int = 1) -> Decision:
    return Decision(verdict, version, None, answer)


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"status": "void"}, "request_closed"),
        ({"status": "expired", "expires_at": NOW}, "request_closed"),
        ({"expires_at": NOW}, "request_closed"),
        ({"version": 2}, "version_conflict"),
        ({"arguments_sha256": "0" * 64}, "version_conflict"),
        ({"status": "decided", "decided_by": "bob", "decided_at": NOW, "decision": {}}, "already_decided"),
        ({"status": "consumed", "decided_by": POLICY, "decided_at": NOW, "decision": {}}, "already_decided"),
    ],
)
def test_what_can_no_longer_be_decided_is_refused_in_this_order(columns: dict[str, Any], code: str) -> None:
    with pytest.raises(Refusal) as refused:
        judge(row(**columns), said(), "ann", NOW)
    assert refused.value.code == code
    assert refused.value.detail.endswith((".", "stands."))


def test_an_answer_is_in_time_until_the_moment_its_time_is_over() -> None:
    assert judge(row(expires_at=NOW + timedelta(microseconds=1)), said(), "ann", NOW)
    with pytest.raises(RequestClosed):
        judge(row(expires_at=NOW), said(), "ann", NOW)


def test_the_same_word_of_the_same_person_is_no_second_decision_whatever_version_was_seen() -> None:
    decided = row(
        status="decided",
        version=2,
        decided_by="ann",
        decided_at=NOW,
        decision=said().as_json(),
    )
    assert not judge(decided, said(), "ann", NOW + timedelta(days=9))
    for other in (said(answer="no"), said(Verdict.DENY, None)):
        with pytest.raises(AlreadyDecided, match="ann answered this at 2026-11-29T12:00:00"):
            judge(decided, other, "ann", NOW)
    with pytest.raises(AlreadyDecided):
        judge(decided, said(), "bob", NOW)


def test_leave_for_good_or_other_arguments_are_another_word_than_the_one_that_was_said() -> None:
    once = Decision(Verdict.APPROVE, 1)
    edit = Decision(Verdict.EDIT, 1, arguments={"n": 1})
    for first, repeated, others in (
        (once, once, [Decision(Verdict.APPROVE, 1, grant="tool")]),
        (
            edit,
            Decision(Verdict.EDIT, 2, arguments={"n": 1.0}),
            [Decision(Verdict.EDIT, 1, arguments={"n": True})],
        ),
    ):
        decided = row(status="decided", decided_by="ann", decided_at=NOW, decision=first.as_json())
        assert not judge(decided, repeated, "ann", NOW)
        for other in others:
            with pytest.raises(AlreadyDecided):
                judge(decided, other, "ann", NOW)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        ({"a": 1, "b": [1, 2]}, {"b": [1.0, 2], "a": 1}, True),
        ({"a": [1]}, {"a": [True]}, False),
        ([1, 2], [2, 1], False),
        ({"a": None}, {}, False),
    ],
)
def test_answers_are_compared_as_json(one: Any, other: Any, equal: bool) -> None:
    for answer, option in ((one, other), (other, one)):
        asked = row(asked={"options": [{"value": option, "label": "this"}]})
        decided = row(
            status="decided", decided_by="ann", decided_at=NOW, decision=said(answer=option).as_json()
        )
        if equal:
            assert judge(asked, said(answer=answer), "ann", NOW)
            assert not judge(decided, said(answer=answer), "ann", NOW), "it is the same word again"
            continue
        with pytest.raises(Invalid) as refused:
            judge(asked, said(answer=answer), "ann", NOW)
        assert [fault.code for fault in refused.value.faults] == ["not_an_option"]
        with pytest.raises(AlreadyDecided):
            judge(decided, said(answer=answer), "ann", NOW)


@pytest.mark.parametrize(
    ("kind", "schema", "decisions"),
    [
        ("approval", None, ["approve", "deny"]),
        ("approval", {"type": "object"}, ["approve", "deny", "answer"]),
        ("question", None, ["answer", "deny"]),
        ("question", {"type": "string"}, ["answer", "deny"]),
    ],
)
def test_what_may_be_said_follows_from_what_is_asked(kind: str, schema: Any, decisions: list[str]) -> None:
    asked = row(asked={"kind": kind, "answer_schema": schema})
    assert asked["decisions"] == decisions
    assert decisions_of(asked | {"decisions": None}) == decisions, "rows of the first release do not say"


@pytest.mark.parametrize(
    ("asked", "places"),
    [
        ({"kind": "riddle", "prompt": 3}, ["/kind", "/prompt"]),
        ({"prompt": "x" * (MAX_PROMPT + 1)}, ["/prompt"]),
        ({"arguments": "x" * MAX_PART}, ["/arguments"]),
        ({"options": "yes"}, ["/options"]),
        ({"options": [1]}, ["/options"]),
        ({"options": [{"label": "one"}]}, ["/options"]),
        ({"decisions": []}, ["/decisions"]),
        ({"decisions": "approve"}, ["/decisions"]),
        ({"decisions": ["shrug"]}, ["/decisions"]),
        ({"answer_schema": {"type": "none"}}, ["/answer_schema"]),
        ({"answer_schema": "string"}, ["/answer_schema"]),
        ({"on_timeout": "deny"}, ["/on_timeout"]),
        ({"expires_in_s": 60, "on_timeout": "shrug"}, ["/on_timeout"]),
        ({"expires_in_s": True}, ["/expires_in_s"]),
        ({"expires_in_s": "60"}, ["/expires_in_s"]),
        ({"expires_in_s": float("nan")}, ["/expires_in_s"]),
        ({"expires_in_s": 60, "on_timeout": "default"}, ["/default"]),
        (
            {"expires_in_s": 60, "on_timeout": "default", "default": {"decision": "maybe"}},
            ["/default/decision"],
        ),
        (
            {
                "options": ["a"],
                "expires_in_s": 60,
                "on_timeout": "default",
                "default": {"decision": "answer", "answer": "b"},
            },
            ["/default/answer"],
        ),
    ],
)
def test_what_cannot_be_asked_is_told_with_each_place(asked: dict[str, Any], places: list[str]) -> None:
    with pytest.raises(Invalid) as refused:
        opening({"kind": "question"} | asked, NOW, "")
    assert [fault.path for fault in refused.value.faults] == places


def test_what_counts_when_time_is_over() -> None:
    denied = row(asked={"expires_in_s": 1, "on_timeout": "deny"})
    assert denied["expires_at"] == NOW + timedelta(seconds=1)
    assert timeout_decision(denied)["decision"] == "deny"
    default = {"decision": "answer", "answer": 7}
    asked = row(asked={"expires_in_s": 1, "on_timeout": "default", "default": default})
    assert timeout_decision(asked) == {"decision": "answer", "answer": 7, "comment": None}
    assert row(asked={"expires_in_s": 1})["on_timeout"] == "expire"


def test_a_text_from_anywhere_is_stored_in_its_clean_form_and_hashed_so() -> None:
    asked = row(asked={"prompt": "a\x00b", "arguments": {"text": "\ud800", "n": float("inf")}})
    assert asked["prompt"] == "a\ufffdb"
    assert asked["arguments"] == {"text": "\ufffd", "n": None}
    again = row(asked={"arguments": {"n": None, "text": "\ufffd"}})
    assert asked["arguments_sha256"] == again["arguments_sha256"]


# --- schemas


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.org/schema.json"},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"$ref": "#/$defs/missing"},
        {"$ref": "#"},
        {"anyOf": "many"},
        [],
        "string",
    ],
    ids=str,
)
def test_a_schema_that_leads_elsewhere_or_nowhere_is_no_schema(schema: Any) -> None:
    assert schema_fault(schema)


@pytest.mark.parametrize(
    ("schema", "answer", "place"),
    [
        (
            {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}},
            {"a": "x"},
            "/answer/a",
        ),
        ({"type": "array", "items": {"enum": [1, 2]}}, [1, 3], "/answer/1"),
        (
            {"$defs": {"n": {"minimum": 3}}, "properties": {"a/b": {"$ref": "#/$defs/n"}}},
            {"a/b": 1},
            "/answer/a~1b",
        ),
        ({"type": "object", "additionalProperties": False}, {"x": 1}, "/answer"),
    ],
)
def test_an_answer_that_does_not_fit_is_told_with_its_place(schema: Any, answer: Any, place: str) -> None:
    assert schema_fault(schema) is None
    assert [fault.path for fault in answer_faults(schema, answer)] == [place]


def test_patterns_are_not_carried_out_because_a_bad_one_would_hold_up_everything() -> None:
    endless = "^(a+)+$"
    assert answer_faults({"type": "string", "pattern": endless}, "a" * 40 + "b") == []
    keyed = {"patternProperties": {endless: {"type": "string"}}, "additionalProperties": False}
    assert answer_faults(keyed, {"a" * 40 + "b": 1}) == []
