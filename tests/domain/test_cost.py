"""Tokens in buckets that add up, and sums of what calls cost."""

from __future__ import annotations

from decimal import Decimal

import pytest

from dromos.domain.cost import Spent, Tokens, estimated_tokens, money


@pytest.mark.case("P116")
def test_both_styles_of_counting_what_was_cached_give_the_same_buckets():
    inclusive = Tokens.counted(1000, 50, cached=800)
    exclusive = Tokens.counted(200, 50, cached=800, beside=True)

    assert inclusive == exclusive == Tokens(input=1000, output=50, cached=800)
    assert inclusive.input == (inclusive.input - inclusive.cached - inclusive.written) + 800


def test_parts_that_are_more_than_the_whole_stand_beside_it_whoever_says_what():
    assert Tokens.counted(200, 5, cached=800) == Tokens(input=1000, output=5, cached=800)
    assert Tokens.counted(100, 5, cached=50, written=60) == Tokens(input=210, output=5, cached=50, written=60)
    assert Tokens.counted(0, 0, cached=0) == Tokens()


def test_buckets_are_never_negative_and_parts_of_output_never_more_than_it():
    assert Tokens.counted(-5, -1, cached=-3, reasoning=9) == Tokens()
    assert Tokens.counted(10, 4, reasoning=9).reasoning == 4
    assert Tokens.counted(10, 4, written=2, written_1h=5).written_1h == 2


def test_usage_is_kept_with_what_is_special_only_where_it_is():
    assert Tokens(input=3, output=2).json() == {"input": 3, "output": 2, "cached": 0, "reasoning": 0}
    assert Tokens(input=3, written=1, estimated=True).json() == {
        "input": 3,
        "output": 0,
        "cached": 0,
        "reasoning": 0,
        "cache_write": 1,
        "estimated": True,
    }


@pytest.mark.parametrize(("size", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (400, 100)])
def test_a_text_that_nobody_counted_is_taken_for_a_token_every_four_bytes(size, tokens):
    assert estimated_tokens(size) == tokens


@pytest.mark.parametrize(
    ("amount", "text"),
    [("0.00045", "0.00045"), ("1E-7", "0.0000001"), ("1.500", "1.5"), ("2", "2"), ("0.0", "0")],
)
def test_an_amount_is_decimal_text_without_an_exponent(amount, text):
    assert money(Decimal(amount)) == {"currency": "USD", "amount": text, "estimated": True}


def test_an_unknown_price_makes_the_sum_unknown_and_never_zero():
    known = Spent().plus(Decimal("0.1")).plus(Decimal("0.02"))

    assert known.json() == {"currency": "USD", "amount": "0.12", "estimated": True, "limit": None}
    assert known.plus(None).json() == {"currency": "USD", "amount": None, "estimated": True, "limit": None}
    assert known.plus(None).plus(Decimal(1)).amount is None
    assert Spent().json() is None


def test_a_sum_is_taken_up_from_what_is_stored():
    assert Spent.of([{"amount": "0.1"}, {"amount": "0.02"}]) == Spent(Decimal("0.12"), 2)
    assert Spent.of([{"amount": "0.1"}, None]).amount is None
    assert Spent.of([]) == Spent()
