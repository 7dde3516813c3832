"""A store with one writer that is busy, so that what is asked for meanwhile becomes one group."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dromos.ports.store import Store, Tx


@asynccontextmanager
async def busy(store: Store) -> AsyncIterator[None]:
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
