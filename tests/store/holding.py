"""A store with one writer that is busy, so that what is asked for meanwhile becomes one group."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dromos.ports.store import Tx
from dromos.store.sql_store import SqlStore


@asynccontextmanager
async def busy(store: SqlStore) -> AsyncIterator[None]:
    """Until its end, the writer works on an operation that does nothing."""
    began, go_on = threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        began.set()
        assert go_on.wait(10)

    held = asyncio.ensure_future(store.write(hold))
    assert await asyncio.to_thread(began.wait, 10)
    try:
        yield
        await asyncio.sleep(0)  # what was asked for stands in the queue
    finally:
        go_on.set()
        await held


async def together(store: SqlStore, operations: Sequence[Callable[[Tx], Any]]) -> list[Any]:
    """All of them in one group, where they are several. What each gives or raises."""
    if len(operations) == 1:
        return [await store.write(operations[0])]
    async with busy(store):
        waiting = [asyncio.ensure_future(store.write(operation)) for operation in operations]
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert store.statistics.figures().largest_group == len(operations)
    return list(done)
