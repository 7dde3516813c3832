"""The lifecycle on real stores: every test here runs on SQLite and on PostgreSQL.

Each database is made once for the session and emptied before each test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from dromos.ports.store import Store
from dromos.store.opening import open_store
from dromos.testing.postgres_server import PostgresServer
from tests.lifecycle.world import World, empty


def _opened(address: str) -> Iterator[Store]:
    store = asyncio.run(open_store(address))
    yield store
    asyncio.run(store.aclose())


@pytest.fixture(scope="session")
def sqlite_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    yield from _opened(str(tmp_path_factory.mktemp("lifecycle") / "dromos.db"))


@pytest.fixture(scope="session")
def postgres_store(postgres: PostgresServer) -> Iterator[Store]:
    with postgres.database() as url:
        yield from _opened(url)


@pytest.fixture(params=["sqlite", "postgres"])
def opened_store(request: pytest.FixtureRequest) -> Store:
    opened: Store = request.getfixturevalue(f"{request.param}_store")
    return opened


@pytest.fixture
async def store(opened_store: Store) -> Store:
    await opened_store.write(empty)
    return opened_store


@pytest.fixture
async def world(store: Store) -> World:
    return await World(store).begin()
