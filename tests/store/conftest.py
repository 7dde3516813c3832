"""Both databases for the tests of the store: `backend` is either, the other fixtures a certain one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from dromos.ports.store import LeaseKeeper, Table
from dromos.store.migrations import migrate
from dromos.store.opening import open_store
from dromos.store.sql_store import SqlStore
from dromos.testing.postgres_server import PostgresServer

pytest.register_assert_rewrite("dromos.testing.conformance")


class DatabaseBackend:
    """`dromos.testing.conformance.Backend` on a database at an address."""

    def __init__(self, address: str, store: SqlStore, *, one_writer: bool) -> None:
        self.address = address
        self.store = store
        self._one_writer = one_writer
        self._opened = [store]
        self._keepers: list[LeaseKeeper] = []

    async def elsewhere(self) -> SqlStore:
        if self._one_writer:
            return self.store
        another = await open_store(self.address)
        self._opened.append(another)
        return another

    def lease_keeper(self) -> LeaseKeeper:
        keeper = self.store.lease_keeper()
        self._keepers.append(keeper)
        return keeper

    async def aclose(self) -> None:
        for keeper in self._keepers:
            keeper.close()
        for store in self._opened:
            await store.aclose()


@pytest.fixture(scope="session")
def _postgres_with_tables(postgres: PostgresServer) -> str:
    url = postgres.url(postgres.create_database())
    migrate(url)
    return url


@pytest.fixture
def emptied_postgres_url(_postgres_with_tables: str) -> str:
    """A database that has the schema and no rows; one for the session, because making one takes a second."""
    with psycopg.connect(_postgres_with_tables, autocommit=True) as connection:
        connection.execute("; ".join(f"DELETE FROM {table.value}" for table in Table).encode())
    return _postgres_with_tables


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "dromos.db"


@pytest.fixture(params=["sqlite", "postgres"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[DatabaseBackend]:
    sqlite = request.param == "sqlite"
    address = str(request.getfixturevalue("sqlite_path" if sqlite else "emptied_postgres_url"))
    made = DatabaseBackend(address, await open_store(address), one_writer=sqlite)
    try:
        yield made
    finally:
        await made.aclose()
