"""The figures of what happens outside, held in a small size; `FULL=1` takes the full one."""

from __future__ import annotations

import os

import pytest

from benchmarks.effects import approvals, followups, journal, soak, stops

FULL = bool(os.environ.get("FULL"))
BESIDE_OTHERS = 3.0
"""How much more time is allowed beside other tests, where nobody can promise the figure itself."""


@pytest.mark.slow(1800 if FULL else 120)
async def test_of_twenty_presses_at_once_one_wins_and_what_was_allowed_happens_once_and_soon() -> None:
    told = await approvals.run(*((500, 200) if FULL else (20, 5)))
    assert told.wrong == []
    assert told.rounds == (500 if FULL else 20)
    assert told.percentile(0.95) <= 0.3 * BESIDE_OTHERS


@pytest.mark.slow(1800 if FULL else 120)
async def test_messages_around_the_end_of_a_run_are_used_once_and_in_order() -> None:
    told = await followups.run(500 if FULL else 50)
    assert told.wrong == []
    assert told.sent == (500 if FULL else 50)


@pytest.mark.slow(900 if FULL else 120)
async def test_a_stop_ends_a_streaming_model_call_at_once_and_takes_nothing_more_of_it() -> None:
    told = await stops.run(200 if FULL else 10)
    assert told.wrong == []
    assert stops.percentile(told.ended, 0.95) <= 0.3 * BESIDE_OTHERS
    assert max(told.closed) <= 1.0 * BESIDE_OTHERS
    assert max(told.pulled) <= stops.RATE * 0.3 * BESIDE_OTHERS


@pytest.mark.slow(600 if FULL else 120)
async def test_the_journal_adds_two_commits_to_an_unsafe_call_at_most_none_to_a_read_and_little_time() -> (
    None
):
    costs = await journal.run(journal.CALLS, 40 if FULL else 1)
    assert (costs.unsafe, costs.read) == (2, 0)
    assert round(costs.commits) <= journal.COMMITS_AIM, "but for those that come by the clock"
    assert round(costs.read_commits) <= 0
    if FULL:  # beside other tests one round says nothing of the time
        assert min(costs.ratio, costs.least_ratio) <= journal.RATIO_AIM


@pytest.mark.slow(3600 if FULL else 180)
async def test_under_random_signals_nothing_outside_is_doubled_or_lost() -> None:
    told = await soak.waves(*((soak.WAVES, 6, 8) if FULL else (1, 3, 2)))
    assert told.wrong == []
    assert (told.doubled, told.lost) == ([], [])
    assert told.ends.total() == told.runs
    assert told.blows.total() > 0
