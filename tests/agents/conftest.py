"""A real store with a run that is owned, and a recorder with the lifecycle's fence, for the agents' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest

from dromos.domain.errors import LeaseLost
from dromos.domain.runs import Fence, Run
from dromos.domain.statuses import OwnerKind, RunStatus
from dromos.ports.probe import Point
from dromos.ports.store import ReadTx, Store, Table, Tx
from dromos.store.opening import open_store
from tests.agents import kit

T = TypeVar("T")


class FencedRecorder:
    """`ports.recorder.Recorder` over a store: the run row locked, epoch and status compared in each write."""

    def __init__(self, store: Store, fence: Fence) -> None:
        self.store = store
        self.fence = fence
        self.writes = 0

    async def write(
        self,
        fn: Callable[[Tx, Run], T],
        *,
        while_cancelling: bool = False,
        messages: bool = False,
        point: Point = Point.RECORD,
    ) -> T:
        def fenced(tx: Tx) -> T:
            if messages:
                tx.lock(Table.CONVERSATIONS, {"id": self.fence.conversation_id})
            run = tx.lock_run(self.fence.run_id)
            passes = (RunStatus.RUNNING, RunStatus.CANCELLING) if while_cancelling else (RunStatus.RUNNING,)
            if run is None or run.epoch != self.fence.epoch or run.status not in passes:
                raise LeaseLost
            return fn(tx, run)

        self.writes += 1
        return await self.store.write(fenced)

    async def read(self, fn: Callable[[ReadTx], T]) -> T:
        return await self.store.read(fn)


@pytest.fixture(autouse=True)
async def close_models() -> AsyncIterator[None]:
    """Connections to models end with the test that opened them."""
    yield
    while kit.opened:
        await kit.opened.pop().aclose()


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "postgres":
        address = request.getfixturevalue("postgres_url")
    else:
        address = str(tmp_path / "dromos.db")
    opened = await open_store(address)
    yield opened
    await opened.aclose()


@pytest.fixture
async def sqlite_store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(str(tmp_path / "dromos.db"))
    yield opened
    await opened.aclose()


class Room:
    """Makes conversations and owned runs, as the lifecycle would leave them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.count = 0

    async def conversation(self, name: str = "c1") -> str:
        def make(tx: Tx) -> None:
            now = tx.now()
            if tx.first(Table.USERS, {"id": "u1"}) is None:
                tx.put(Table.USERS, {"id": "u1", "name": "Ada", "created_at": now})
            tx.put(
                Table.CONVERSATIONS,
                {
                    "id": name,
                    "user_id": "u1",
                    "title": "t",
                    "agent": "assistant",
                    "created_at": now,
                    "updated_at": now,
                },
            )

        await self.store.write(make)
        return name

    async def run(self, conversation_id: str = "c1", **changes: object) -> tuple[Run, FencedRecorder]:
        """A running run, epoch 1; the conversation's earlier run ends as completed."""
        self.count += 1
        run = Run(
            id=f"run-{self.count}",
            user_id="u1",
            conversation_id=conversation_id,
            agent="assistant",
            created_at=datetime.now(UTC),
            status=RunStatus.RUNNING,
            epoch=1,
            attempt=1,
            owner_id="o1",
            owner_kind=OwnerKind.WORKER,
        )
        run = replace(run, **changes)

        def make(tx: Tx) -> None:
            for old in tx.find_runs({"conversation_id": conversation_id}):
                if not old.is_final:
                    tx.swap_run(old, replace(old, status=RunStatus.COMPLETED, version=old.version + 1))
            tx.insert_run(run)

        await self.store.write(make)
        return run, FencedRecorder(self.store, Fence(run.id, run.epoch, conversation_id))

    async def change(self, run: Run, **changes: object) -> Run:
        """Swap the run row, as a takeover or a stop would."""

        def swap(tx: Tx) -> Run:
            before = tx.lock_run(run.id)
            assert before is not None
            after = replace(before, version=before.version + 1, **changes)
            tx.swap_run(before, after)
            return after

        return await self.store.write(swap)


@pytest.fixture
def room(store: Store) -> Room:
    return Room(store)


@pytest.fixture
def sqlite_room(sqlite_store: Store) -> Room:
    return Room(sqlite_store)
