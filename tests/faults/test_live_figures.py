"""The figures of the live box, held in a small size; `make faults FULL=1` takes the full one."""

from __future__ import annotations

import os

import pytest

from benchmarks.live import bytes as wire
from benchmarks.live import devices, events, stuck
from benchmarks.live.fuzz import fuzz

FULL = bool(os.environ.get("FULL"))


@pytest.mark.slow(3600 if FULL else 120)
async def test_over_a_line_that_loses_doubles_and_reorders_every_device_ends_with_the_servers_document() -> (
    None
):
    documents = 10_000 if FULL else 60
    result = await fuzz(documents, 100)
    assert result.unequal == []
    assert result.documents == documents
    assert result.patches >= documents * 100
    assert 0 < result.resyncs < result.disturbances
    assert result.most_resyncs_per_disturbance <= 1, "one request heals one gap"


@pytest.mark.slow(900 if FULL else 120)
async def test_a_run_has_the_same_number_of_durable_events_however_much_it_shows() -> None:
    rates, steps = (events.RATES, events.STEPS) if FULL else ((0, 10, 1000), (10, 100))
    found = await events.count(rates, steps, 10.0 if FULL else 1.0)
    assert len(found) == len(rates) * len(steps)
    assert len(set(found.values())) == 1, found


@pytest.mark.slow(300 if FULL else 120)
async def test_only_who_looks_gets_frames_and_gets_them_soon() -> None:
    seen = await devices.watch(*((200, 50, 10, 60.0) if FULL else (20, 5, 10, 4.0)))
    assert seen.foreign == 0
    assert seen.events > 0
    assert seen.frames > 100
    limit = 0.25 if FULL else 1.0  # beside other tests nobody can promise more
    assert seen.percentile(0.95) <= limit


@pytest.mark.case("P91")
@pytest.mark.slow(900 if FULL else 120)
async def test_clients_that_never_read_cost_a_bounded_memory_and_hold_up_nobody() -> None:
    told = await stuck.run(*((50, 600.0) if FULL else (20, 15.0)))
    growth = told.memory[-1][1] - told.memory[0][1]
    assert growth < 96 * 1024, f"{growth} KiB"
    if FULL:
        assert told.slope() < 1024, f"{told.slope():.0f} KiB/min"
        assert told.streams == 1, "who takes nothing is cut off"
    assert told.others.percentile(0.95) <= (0.25 if FULL else 1.0)


@pytest.mark.slow(180 if FULL else 120)
async def test_a_long_answer_with_tools_is_told_in_a_small_multiple_of_its_text() -> None:
    sizes, text = await wire.count(*((4000, 200) if FULL else (2000, 400)))
    assert text > 0
    limit = 3 if FULL else 4  # a short answer has the same steps
    assert sum(sizes[name] for name in wire.LIVE) <= limit * text
