"""A worker on a real store, with an agent whose every move the test decides."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uuid_utils

from dromos.domain.runs import Run
from dromos.domain.statuses import RunStatus, WhenBusy
from dromos.lifecycle import Lifecycle
from dromos.lifecycle.contract import Policy, Posted, PostMessage
from dromos.live import LiveHub, MemoryWakeup
from dromos.ports.agent import Agent, AgentInfo, Attempt, CheckpointSummary, InputMessage, Outcome
from dromos.ports.wakeup import user_topic
from dromos.store.opening import open_store
from dromos.store.sql_store import SqlStore
from dromos.testing.waiting import within
from dromos.tools.gate import Gate
from dromos.tools.rules import ToolRules
from dromos.worker import Worker
from dromos.worker.service import WorkerOptions

USER = "somebody"


class Clock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class Ids:
    def new(self) -> str:
        return str(uuid_utils.uuid7())


Play = Callable[[Attempt], Awaitable[Outcome]]


@dataclass
class Puppet:
    """An agent that does what the test put into `play`."""

    play: Play
    attempts: list[Attempt] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def info(self) -> AgentInfo:
        return AgentInfo("puppet", "moves as the test says", "test")

    def compose(self, messages: list[InputMessage]) -> Any:
        return [message.content for message in messages]

    async def attempt(self, attempt: Attempt) -> Outcome:
        self.attempts.append(attempt)
        self.began.set()
        return await self.play(attempt)

    async def pending(self, conversation_id: str) -> tuple[str, ...]:
        return ()

    async def checkpoints(self, conversation_id: str) -> list[CheckpointSummary]:
        return []


@dataclass
class Troupe:
    """`ports.agent.Agents` with one agent."""

    puppet: Puppet
    default: str = "puppet"

    def get(self, name: str) -> Agent | None:
        return self.puppet if name == "puppet" else None

    def infos(self) -> list[AgentInfo]:
        return [self.puppet.info]


class Stage:
    """Everything of one process but HTTP."""

    def __init__(self, store: SqlStore, policy: Policy, wakeup: MemoryWakeup, live: LiveHub) -> None:
        self.store, self.wakeup, self.live = store, wakeup, live
        self.ids, self.clock = Ids(), Clock()
        self.lifecycle = Lifecycle(store, wakeup, self.ids, policy)
        self.workers: list[Worker] = []

    async def worker(self, play: Play, **options: Any) -> tuple[Worker, Puppet]:
        puppet = Puppet(play)
        keeper = self.store.lease_keeper() if options.get("lease") else None
        worker = Worker(
            self.lifecycle,
            self.live,
            self.wakeup,
            Troupe(puppet),
            Gate(ToolRules()),
            self.clock,
            self.ids,
            WorkerOptions(**{"stop_deadline": 2.0, "drain": 2.0, **options}),
            keeper,
        )
        self.workers.append(worker)
        await worker.start()
        return worker, puppet

    async def post(self, content: str, conversation: str | None = None, agent: str = "puppet") -> Any:
        def encode(posted: Posted) -> tuple[int, str]:
            run = posted.run.id if posted.run else None
            followup = posted.followup["id"] if posted.followup else None
            return 201, json.dumps([posted.conversation["id"], run, followup])

        post = PostMessage(content, conversation, WhenBusy.QUEUE)
        answer = await self.lifecycle.post_message(USER, post, agent, encode, None)
        return json.loads(answer.body)

    async def until(self, run_id: str, *statuses: RunStatus, seconds: float = 10.0) -> Run:
        """Wait for a status by the wake-ups of the user's events."""
        changed = asyncio.Event()
        stop = self.wakeup.listen(user_topic(USER), changed.set)

        async def look() -> Run:
            while True:
                changed.clear()
                run = await self.lifecycle.run(USER, run_id)
                if run.status in statuses:
                    return run
                await changed.wait()

        try:
            return await within(seconds, look(), f"run {run_id} in {statuses}")
        finally:
            stop()

    async def end(self, run_id: str) -> Run:
        return await self.until(run_id, *(status for status in RunStatus if status.is_final))


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Both databases."""
    if request.param == "sqlite":
        return str(tmp_path / "dromos.db")
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def stage(address: str) -> AsyncIterator[Stage]:
    store = await open_store(address)
    stage = Stage(store, Policy(stop_deadline=2.0), MemoryWakeup(), LiveHub())
    await stage.lifecycle.ensure_user(USER, "Somebody")
    yield stage
    for worker in stage.workers:
        await worker.aclose()
    await store.aclose()
