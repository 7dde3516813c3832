"""`open_store`: from an address to a store that can serve.

An address is a path to a SQLite file (`./dromos.db`, `sqlite:///…`) or a `postgresql://` URL.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from dromos.store.sqlite.connections import open_writer
from dromos.store.sqlite.store import SqliteStore
from dromos.store.tables import metadata


async def open_store(address: str | Path) -> SqliteStore:
    path = Path(str(address).removeprefix("sqlite:///"))
    await asyncio.to_thread(_create, path)
    return SqliteStore(path)


def _create(path: Path) -> None:
    import sqlalchemy as sa

    path.parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine("sqlite://", creator=lambda: open_writer(path), poolclass=sa.NullPool)
    metadata.create_all(engine)
    engine.dispose()
