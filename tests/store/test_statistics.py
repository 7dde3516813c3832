"""What the store counts, for metrics and benchmarks."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from dromos.domain.errors import NotFound
from dromos.ports.store import ReadTx, Row, Table, Tx
from dromos.store.migrations import check_schema
from dromos.store.postgres.store import PostgresStore
from dromos.store.sqlite.store import SqliteStore
from dromos.testing.conformance.rows_of import put, user
from tests.store.conftest import DatabaseBackend
from tests.store.holding import busy


async def test_commits_operations_refusals_and_waiting_are_counted(backend: DatabaseBackend) -> None:
    store = backend.store
    before = store.statistics.figures()
    assert (before.commits, before.operations_per_commit, before.waiting) == (0, 0.0, 0)
    await put(store, Table.USERS, user())
    await store.read(lambda tx: tx.count(Table.USERS, {}))

    def refuse(tx: Tx) -> None:
        raise NotFound("no")

    with pytest.raises(NotFound):
        await store.write(refuse)
    figures = store.statistics.figures()
    assert (figures.operations, figures.refusals, figures.reads, figures.failures) == (2, 1, 1, 0)
    assert figures.statements == 2
    assert len(figures.recent_write_seconds) == 2
    assert 0 < figures.write_seconds < 10


def _with_one_writer(url: str) -> PostgresStore:
    return PostgresStore(url, partial(check_schema, url), writers=1)


async def test_operations_of_one_moment_share_a_commit(backend: DatabaseBackend) -> None:
    store = backend.store if isinstance(backend.store, SqliteStore) else _with_one_writer(backend.address)
    async with busy(store):
        waiting = [asyncio.ensure_future(put(store, Table.USERS, user(f"u{number}"))) for number in range(20)]
        await asyncio.sleep(0)
        assert store.statistics.figures().waiting == 20
    await asyncio.gather(*waiting)
    figures = store.statistics.figures()
    assert (figures.operations, figures.commits, figures.largest_group) == (21, 2, 20)
    assert figures.waiting == 0
    await store.aclose()


async def test_reads_that_are_looked_ahead_for_share_a_round_trip(emptied_postgres_url: str) -> None:
    store = _with_one_writer(emptied_postgres_url)
    try:
        await put(store, Table.USERS, user())

        def look(tx: Tx, *, ahead: bool) -> int:
            reads = [partial(_named, user_id=f"u{number}") for number in range(5)]
            if ahead:
                tx.ahead(*reads)
            return len([read(tx) for read in reads])

        trips = []
        for ahead in (False, True):
            before = store.statistics.figures().round_trips
            assert await store.write(partial(look, ahead=ahead)) == 5
            trips.append(store.statistics.figures().round_trips - before)
        assert trips == [6, 2], "its own five, or one, and the commit"
    finally:
        await store.aclose()


def _named(tx: ReadTx, user_id: str) -> Row | None:
    return tx.first(Table.USERS, {"id": user_id})
