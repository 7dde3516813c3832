"""A run in one line, as a terminal shows it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dromos.cli.words import GLYPHS, cost, duration, one_line, status_line, visible, what_now
from dromos.domain.statuses import RunStatus


def run(status: str, **fields: Any) -> dict[str, Any]:
    blank = {"reason": "claimed", "error_code": None, "error_message": None, "wait": None, "stop": None}
    return {"status": status, **blank, "line": None, "cost": None, **fields}


def test_each_status_has_a_glyph_and_a_word_of_its_own() -> None:
    assert set(GLYPHS) == set(RunStatus)
    assert (
        len({glyph for glyph, _, _ in GLYPHS.values()}) == len({word for _, word, _ in GLYPHS.values()}) == 9
    )


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (run("queued", wait={"reason": "no_worker", "until": None}), "◌ queued · waiting for a free worker"),
        (run("running"), "● running"),
        (run("cancelling", stop={"waiting_for": {"tool": "fetch"}}), "◍ stopping · waits for fetch"),
        (run("completed", line="3 primes"), "✓ done · 3 primes"),
        (
            run("failed", error_code="MODEL_UNAVAILABLE", error_message="nobody\nanswers"),
            "✗ failed · MODEL_UNAVAILABLE · nobody answers",
        ),
        (
            run("cancelled", reason="cancelled_by_user", stop={"unknown_calls": ["pay"]}),
            "■ stopped · by you · may have happened: pay",
        ),
    ],
)
def test_a_line_says_status_and_why(shown: dict[str, Any], line: str) -> None:
    assert status_line(shown, {}, None) == line


def test_the_parts_of_a_line_stand_in_their_order() -> None:
    document = {"current": {"name": "fetch", "summary": "example.org"}, "context": {"percent": 9.5}}
    shown = run("running", cost={"currency": "USD", "amount": "0.0123", "estimated": True})
    assert status_line(shown, document, 72.4) == (
        "● running · fetch example.org · 1 min 12 s · context 9.5 % · ≈ 0.0123 USD"
    )


def test_an_unknown_price_is_not_shown_as_nothing() -> None:
    assert cost(None) == cost({"currency": "USD", "amount": None}) == ""


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0.0021000000000000003", "0.0021"),
        ("12", "12"),
        ("100.50", "100.5"),
        ("0", "0"),
        ("0.0000001", "0.0000001"),
    ],
)
def test_a_price_has_no_digits_that_say_nothing(amount: str, shown: str) -> None:
    assert cost({"currency": "USD", "amount": amount}) == f"{shown} USD"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.84, "0.8 s"), (12.4, "12 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")]
)
def test_a_duration_reads_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(st.text())
def test_nothing_that_could_steer_a_terminal_gets_through(text: str) -> None:
    shown = visible(text + "\x1b[2J\u202e\x9b\r\x07")
    assert not set(shown) & {chr(n) for n in (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2066)}
    assert "\n" not in one_line(text)
    assert len(one_line(text)) <= 120


def test_what_a_tool_names_is_shown_and_not_obeyed() -> None:
    hostile = {"current": {"name": "\x1b]0;owned\x07", "summary": None}}
    assert "\x1b" not in what_now(run("running"), hostile)


def test_what_a_document_leaves_out_of_a_retry_is_left_out() -> None:
    last = {"next_at": "2126-11-29t13:46:04z", "attempt": None, "of_attempts": 3}
    assert what_now(run("running"), {"retries": {"count": 1, "last": last}}).startswith("tries again at ")
