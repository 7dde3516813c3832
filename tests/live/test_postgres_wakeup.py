"""Wake-ups across processes that share a PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from dromos.live.postgres import PostgresWakeup
from dromos.testing.waiting import eventually, within


@pytest.fixture
async def pair(postgres_url: str) -> AsyncIterator[tuple[PostgresWakeup, PostgresWakeup]]:
    here, there = PostgresWakeup(postgres_url, "here"), PostgresWakeup(postgres_url, "there")
    await here.start()
    await there.start()
    yield here, there
    await here.aclose()
    await there.aclose()


async def heard(wakeup: PostgresWakeup, topic: str) -> asyncio.Event:
    event = asyncio.Event()
    wakeup.listen(topic, event.set)
    return event


async def test_a_wakeup_reaches_the_other_process_and_ones_own(
    pair: tuple[PostgresWakeup, PostgresWakeup],
) -> None:
    here, there = pair
    own, other = await heard(here, "run:1"), await heard(there, "run:1")
    await within(5, other.wait(), "the wake-up at the start of listening")
    other.clear()
    here.notify("run:1")
    await within(5, other.wait())
    await within(5, own.wait())


async def test_the_last_words_of_a_process_are_heard(
    pair: tuple[PostgresWakeup, PostgresWakeup],
) -> None:
    here, there = pair
    other = await heard(there, "work")
    await within(5, other.wait(), "the wake-up at the start of listening")
    other.clear()
    here.notify("work")
    await here.aclose()
    await within(5, other.wait())


async def test_after_a_cut_connection_listeners_are_woken_to_read_what_they_missed(
    pair: tuple[PostgresWakeup, PostgresWakeup], postgres_url: str
) -> None:
    here, there = pair
    other = await heard(there, "user:1")
    await within(5, other.wait(), "the wake-up at the start of listening")
    other.clear()
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as admin:
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await within(5, other.wait(), "the wake-up after the reconnect")
    assert there.reconnects
    other.clear()
    here.notify("user:1")
    await within(5, other.wait(), "a wake-up after the reconnect")
    await eventually(lambda: not here._outgoing, what="nothing left to tell")
