"""Both databases for the tests of the store: `backend` is either, the other fixtures a certain one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dromos.ports.store import LeaseKeeper
from dromos.store.migrations import migrate
from dromos.store.opening import SqlStore, open_store
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
            keeper.close()  # type: ignore[attr-defined]
        for store in self._opened:
            await store.aclose()


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer) -> str:
    """A database that has the schema, to be copied."""
    name = postgres.create_database()
    migrate(postgres.url(name))
    return name


@pytest.fixture
def migrated_postgres_url(postgres: PostgresServer, postgres_template: str) -> Iterator[str]:
    with postgres.database(template=postgres_template) as url:
        yield url


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "dromos.db"


@pytest.fixture(params=["sqlite", "postgres"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[DatabaseBackend]:
    sqlite = request.param == "sqlite"
    address = str(request.getfixturevalue("sqlite_path" if sqlite else "migrated_postgres_url"))
    made = DatabaseBackend(address, await open_store(address), one_writer=sqlite)
    try:
        yield made
    finally:
        await made.aclose()
