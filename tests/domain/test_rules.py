"""The small rules beside the machine: reasons, retries, follow-ups, texts, keys, shapes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dromos.domain.effects import ReplayClass, arguments_digest, call_key, replay_class, task_call_key
from dromos.domain.followups import Plan, Waiting, after_end
from dromos.domain.ids import is_id
from dromos.domain.machine import CREATION, EDGES
from dromos.domain.reasons import REASON_OF_CODE, ErrorCode, Reason, normalize_adapter_failure
from dromos.domain.retries import DEFAULT_POLICIES, IN_STEP_SECONDS, LONGEST_WAIT, next_try
from dromos.domain.statuses import FINAL, LIVE, RunStatus
from dromos.domain.text import (
    REPLACEMENT,
    clean_json,
    clean_text,
    text_of,
    title_of,
    utf16_from,
    utf16_length,
)
from dromos.wire.shapes import run_json, server_part
from tests.domain.samples import NOW, run_in

# --- reasons


@pytest.mark.promise("L9")
def test_every_reason_belongs_to_an_edge_or_to_the_creation() -> None:
    used = set(CREATION.reasons).union(*(edge.reasons for edge in EDGES.values()))
    assert used == set(Reason)


def test_every_error_code_has_the_reason_of_an_edge_from_running_to_failed() -> None:
    assert set(REASON_OF_CODE) == set(ErrorCode)
    assert set(REASON_OF_CODE.values()) == EDGES[RunStatus.RUNNING, RunStatus.FAILED].reasons


@pytest.mark.promise("L9")
def test_an_adapters_unknown_word_becomes_adapter_error_and_keeps_its_text() -> None:
    assert normalize_adapter_failure("E_WEIRD", "it fell over") == (
        ErrorCode.ADAPTER_ERROR,
        "E_WEIRD: it fell over",
    )
    assert normalize_adapter_failure("MODEL_AUTH", "bad key") == (ErrorCode.MODEL_AUTH, "bad key")
    code, text = normalize_adapter_failure(None, None)
    assert code is ErrorCode.ADAPTER_ERROR
    assert text


def test_a_status_is_either_live_or_final() -> None:
    assert set(RunStatus) == FINAL | LIVE
    assert not FINAL & LIVE


# --- retries


def delays_of(code: ErrorCode, retry_after: float | None = None) -> list[float]:
    """The waits before each further try, until the run fails."""
    tries: dict[str, int] = {}
    delays = []
    while (retry := next_try(code, tries, retry_after)) is not None:
        delays.append(retry.delay)
        tries = dict(retry.tries)
    return delays


@pytest.mark.parametrize(
    ("code", "delays"),
    [
        (ErrorCode.MODEL_RATE_LIMITED, [1, 2, 4, 8]),
        (ErrorCode.MODEL_BAD_RESPONSE, [1, 2, 4, 8]),
        (ErrorCode.MODEL_UNAVAILABLE, [0.5]),
        (ErrorCode.STALLED, [0]),
    ],
)
def test_what_is_tried_again_and_after_how_long(code: ErrorCode, delays: list[float]) -> None:
    assert delays_of(code) == delays


def test_everything_else_fails_at_once() -> None:
    assert {code for code in ErrorCode if delays_of(code)} == set(DEFAULT_POLICIES)


def test_a_servers_retry_after_wins_and_a_long_one_gives_the_slot_back() -> None:
    assert delays_of(ErrorCode.MODEL_RATE_LIMITED, retry_after=3.0) == [3.0] * 4
    short = next_try(ErrorCode.MODEL_RATE_LIMITED, {}, retry_after=IN_STEP_SECONDS)
    long = next_try(ErrorCode.MODEL_RATE_LIMITED, {}, retry_after=IN_STEP_SECONDS + 0.1)
    assert short is not None and not short.hand_back
    assert long is not None and long.hand_back
    assert delays_of(ErrorCode.MODEL_RATE_LIMITED, retry_after=1e12) == [LONGEST_WAIT] * 4
    assert next_try(ErrorCode.MODEL_UNAVAILABLE, {}, retry_after=99.0).delay == 0.5  # type: ignore[union-attr]


def test_the_counts_of_different_failures_are_kept_apart() -> None:
    retry = next_try(ErrorCode.MODEL_BAD_RESPONSE, {"MODEL_RATE_LIMITED": 4})
    assert retry is not None
    assert retry.tries == {"MODEL_RATE_LIMITED": 4, "MODEL_BAD_RESPONSE": 1}
    assert (retry.attempt, retry.of_attempts) == (2, 5)


# --- follow-ups

OLD, OLDER, LATE = Waiting("old", False), Waiting("older", False), Waiting("late", True)


@pytest.mark.parametrize(
    ("status", "reason", "plan"),
    [
        (RunStatus.COMPLETED, Reason.FINISHED, Plan("old", ("older", "late"), ())),
        (RunStatus.INTERRUPTED, Reason.SUPERSEDED, Plan("old", ("older", "late"), ())),
        (RunStatus.INTERRUPTED, Reason.OWNER_LOST, Plan("late", (), ("old", "older"))),
        (RunStatus.INTERRUPTED, Reason.BUDGET_EXCEEDED, Plan("late", (), ("old", "older"))),
        (RunStatus.CANCELLED, Reason.CANCEL_REQUESTED, Plan("late", (), ("old", "older"))),
        (RunStatus.FAILED, Reason.MODEL_ERROR, Plan("late", (), ("old", "older"))),
        (RunStatus.EXPIRED, Reason.RUN_DEADLINE, Plan("late", (), ("old", "older"))),
    ],
)
def test_nothing_older_than_a_stop_starts_by_itself(status: RunStatus, reason: Reason, plan: Plan) -> None:
    assert after_end(run_in(status, reason=reason), [OLD, OLDER, LATE]) == plan


@given(st.sampled_from(sorted(FINAL)), st.lists(st.booleans(), max_size=6))
def test_every_waiting_message_has_exactly_one_fate(status: RunStatus, during_stop: list[bool]) -> None:
    waiting = [Waiting(str(n), during) for n, during in enumerate(during_stop)]
    plan = after_end(run_in(status), waiting)
    fates = [*([plan.start] if plan.start else []), *plan.pass_on, *plan.hold]
    assert sorted(fates) == sorted(one.id for one in waiting)
    going_on = [one for one in fates if one not in plan.hold]
    assert going_on == sorted(going_on, key=int)


# --- texts


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Z", "Cc", "Cf", "Cs"])))
def test_clean_text_can_be_stored_everywhere_and_is_cleaned_once(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode()
    assert "\x00" not in cleaned
    assert clean_text(cleaned) is cleaned


@pytest.mark.case("P130")
@pytest.mark.case("P131")
def test_nul_and_lone_surrogates_are_replaced_and_pairs_joined() -> None:
    assert clean_text("a\x00b") == f"a{REPLACEMENT}b"
    assert clean_text("\ud83d") == REPLACEMENT
    assert clean_text("\ud83d\ude00") == "\U0001f600"
    assert clean_text("left\u202eright") == "left\u202eright"


def test_json_is_cleaned_at_every_depth_and_infinities_are_reported() -> None:
    cleaned, flagged = clean_json({"a\x00": [1, float("nan"), {"b": "\udc00"}], "c": (True, None)})
    assert cleaned == {f"a{REPLACEMENT}": [1, None, {"b": REPLACEMENT}], "c": [True, None]}
    assert flagged
    assert clean_json({"x": 1.5}) == ({"x": 1.5}, False)


def test_a_title_is_the_first_line_cut_at_a_word() -> None:
    assert title_of("\n  hello there \nmore") == "hello there"
    assert title_of("word " * 30) == "word " * 11 + "word…"
    assert title_of("") == ""


def test_the_text_of_a_content_is_that_of_its_text_blocks() -> None:
    assert text_of("plain") == "plain"
    assert text_of([{"type": "text", "text": "a"}, {"type": "tool_use", "name": "x"}, "b"]) == "ab"
    assert text_of({"field": 1}) == text_of(None) == ""


@given(st.text())
def test_lengths_count_utf16_units(text: str) -> None:
    assert utf16_length(text) == len(text.encode("utf-16-le")) // 2


@pytest.mark.parametrize(("units", "rest"), [(0, "a😀b"), (1, "😀b"), (3, "b"), (4, "")])
def test_text_is_cut_at_utf16_units(units: int, rest: str) -> None:
    assert utf16_from("a😀b", units) == rest
    assert utf16_from("plain", 2) == "ain"


# --- keys and ids


def test_a_calls_key_is_the_same_across_replays_and_different_for_another_call() -> None:
    assert call_key("t", "m", 0) == call_key("t", "m", 0)
    keys = {call_key("t", "m", 0), call_key("t", "m", 1), call_key("t", "n", 0), call_key("u", "m", 0)}
    assert len(keys | {task_call_key("t", "m", 0)}) == 5


def test_arguments_are_the_same_whatever_the_order_of_their_keys() -> None:
    assert arguments_digest({"a": 1, "b": [2]}) == arguments_digest({"b": [2], "a": 1})
    assert arguments_digest({"a": 1}) != arguments_digest({"a": "1"})


def test_annotations_count_only_where_the_server_is_trusted() -> None:
    assert replay_class(True, None, trusted=True) is ReplayClass.READ
    assert replay_class(None, True, trusted=True) is ReplayClass.KEYED
    assert replay_class(True, True, trusted=False) is ReplayClass.UNSAFE
    assert replay_class(None, None, trusted=True) is ReplayClass.UNSAFE


def test_an_id_is_a_lower_case_uuid_and_nothing_else() -> None:
    assert is_id("01a227aa-17fd-77d5-af64-0702387297f4")
    for wrong in ("", "01A227AA-17FD-77D5-AF64-0702387297F4", "x" * 36, "01a227aa17fd77d5af640702387297f4"):
        assert not is_id(wrong)


# --- shapes


def test_the_server_part_tells_an_error_only_for_a_failed_run() -> None:
    failed = server_part(run_json(run_in(RunStatus.FAILED)))
    assert failed["error"] == {"code": "AGENT_FAILURE", "message": "it broke"}
    assert server_part(run_json(run_in(RunStatus.RUNNING)))["error"] is None


def test_times_are_rfc_3339_in_utc() -> None:
    late = run_in(RunStatus.RUNNING, started_at=NOW.astimezone(tz=None) + timedelta(microseconds=5))
    assert run_json(late)["started_at"] == "2026-05-04T12:00:00.000005Z"
