"""The threads that run operations: in order, bounded, and deaf to tasks and loops that are gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from dromos.domain.errors import StoreUnavailable
from dromos.store.lanes import Job, Lane, Work


class _Calls(Work):
    """Work that calls each operation with nothing, and remembers the sizes of its groups."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.closed = False

    def perform(self, group: Sequence[Job]) -> Sequence[Job]:
        self.groups.append(len(group))
        for job in group:
            job.value = job.fn(None)
        return ()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
async def held() -> AsyncIterator[Callable[..., tuple[Lane, _Calls, threading.Event]]]:
    lanes: list[Lane] = []
    gate = threading.Event()

    def make(**options: int) -> tuple[Lane, _Calls, threading.Event]:
        work = _Calls()
        lane = Lane("test", lambda: work, **options)
        lanes.append(lane)
        return lane, work, gate

    yield make
    gate.set()
    for lane in lanes:
        await asyncio.to_thread(lane.close)


async def _hold(lane: Lane, gate: threading.Event) -> asyncio.Future[None]:
    began = threading.Event()

    def hold(_: object) -> None:
        began.set()
        assert gate.wait(10)

    holding = asyncio.ensure_future(lane.run(hold))
    assert await asyncio.to_thread(began.wait, 10)
    return holding


async def test_what_waits_is_taken_in_order_up_to_the_largest_group(held) -> None:  # type: ignore[no-untyped-def]
    lane, work, gate = held(largest_group=4)
    holding = await _hold(lane, gate)
    done: list[int] = []
    tasks = [asyncio.ensure_future(lane.run(lambda _, n=n: done.append(n))) for n in range(10)]
    await asyncio.sleep(0)
    assert lane.waiting == 10
    gate.set()
    await asyncio.gather(holding, *tasks)
    assert done == list(range(10))
    assert work.groups == [1, 4, 4, 2]


async def test_a_full_queue_refuses_with_the_cure(held) -> None:  # type: ignore[no-untyped-def]
    lane, _, gate = held(most_waiting=2)
    holding = await _hold(lane, gate)
    tasks = [asyncio.ensure_future(lane.run(lambda _: "ran")) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="try again later"):
        await tasks[2]
    gate.set()
    assert await asyncio.gather(holding, *tasks[:2]) == [None, "ran", "ran"]


async def test_an_operation_that_was_cancelled_before_it_began_does_not_run(held) -> None:  # type: ignore[no-untyped-def]
    lane, _, gate = held(largest_group=4)
    holding = await _hold(lane, gate)
    ran: list[str] = []
    cancelled = asyncio.ensure_future(lane.run(lambda _: ran.append("cancelled")))
    kept = asyncio.ensure_future(lane.run(lambda _: ran.append("kept")))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(holding, kept)
    assert ran == ["kept"]
    assert cancelled.cancelled()


async def test_a_loop_that_has_ended_does_not_hold_up_the_others(held) -> None:  # type: ignore[no-untyped-def]
    lane, _, gate = held(largest_group=4)
    holding = await _hold(lane, gate)

    def another_loop() -> None:
        async def leave() -> None:
            abandoned = asyncio.ensure_future(lane.run(lambda _: "lost"))
            await asyncio.sleep(0)
            assert not abandoned.done()

        asyncio.run(leave())

    await asyncio.to_thread(another_loop)
    after = asyncio.ensure_future(lane.run(lambda _: "here"))
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(holding, after) == [None, "here"]


async def test_a_blocked_thread_gets_its_answer_or_gives_up_in_time(held) -> None:  # type: ignore[no-untyped-def]
    lane, work, gate = held()
    assert await asyncio.to_thread(lane.call, lambda _: 42, 10.0) == 42
    holding = await _hold(lane, gate)
    with pytest.raises(StoreUnavailable, match="did not answer within"):
        await asyncio.to_thread(lane.call, lambda _: 43, 0.05)
    gate.set()
    await holding
    await asyncio.to_thread(lane.close)
    assert work.closed
    with pytest.raises(StoreUnavailable, match="closed"):
        await asyncio.to_thread(lane.call, lambda _: 44, 1.0)
