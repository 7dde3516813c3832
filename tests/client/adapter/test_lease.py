"""A lease counts from before the request was sent, ends this side first, and never comes back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from dromos.client.adapter.lease import Lease
from dromos.domain.errors import LeaseLost
from dromos.testing.waiting import within

UNTIL = "2026-11-29T13:46:30.000000Z"


class Stopwatch:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Told:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


async def test_it_is_renewed_after_a_third_and_over_after_two_thirds_of_what_was_sent_for() -> None:
    watch, told = Stopwatch(), Told()
    lease = Lease(watch, told)
    watch.seconds = 104.0  # the answer took four seconds
    lease.grant(sent_at=100.0, seconds=30.0, until=UNTIL)
    assert (lease.due, lease.stops_at, lease.left) == (110.0, 120.0, 16.0)
    watch.seconds = 119.9
    lease.check()
    watch.seconds = 120.0
    with pytest.raises(LeaseLost, match="20 s"):
        lease.check()
    assert told.times == 1 and lease.over.is_set() and lease.left == 0
    lease.grant(sent_at=119.0, seconds=30.0, until=UNTIL)
    with pytest.raises(LeaseLost):
        lease.check()
    assert told.times == 1


async def test_it_ends_by_itself_and_wakes_who_waits() -> None:
    told = Told()
    lease = Lease(asyncio.get_running_loop().time, told)
    lease.grant(sent_at=lease.monotonic(), seconds=0.3, until=UNTIL)
    with pytest.raises(LeaseLost):
        await within(5, lease.pause(60), "the end of the lease")
    assert told.times == 1


async def test_a_renewal_carries_it_on_and_closing_it_tells_nobody() -> None:
    told = Told()
    lease = Lease(asyncio.get_running_loop().time, told)
    lease.grant(sent_at=lease.monotonic(), seconds=0.3, until=UNTIL)
    lease.grant(sent_at=lease.monotonic(), seconds=3.0, until=UNTIL)
    await lease.pause(0.25)
    lease.close()
    assert (lease.lost, told.times) == (None, 0)


async def test_what_the_server_said_ends_it_at_once() -> None:
    told = Told()
    lease = Lease(Stopwatch(), told)
    lease.grant(sent_at=100.0, seconds=30.0, until=UNTIL)
    lease.lose("another has it")
    lease.lose("again")
    with pytest.raises(LeaseLost, match="another has it"):
        lease.check()
    assert told.times == 1


async def test_the_time_is_the_server_s_whatever_this_side_s_clock_says() -> None:
    watch = Stopwatch()
    lease = Lease(watch, Told())
    with pytest.raises(RuntimeError):
        lease.server_now()
    lease.grant(sent_at=99.0, seconds=30.0, until=UNTIL)
    watch.seconds += 2.5
    assert lease.server_now() == datetime(2026, 11, 29, 13, 46, 0, tzinfo=UTC) + timedelta(seconds=2.5)
