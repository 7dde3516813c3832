"""The doors on a real store and a real worker, behind a real socket; only the agent is a puppet of the test."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import uuid_utils
from prometheus_client import CollectorRegistry

from dromos.agents.remote import RemoteAgent
from dromos.api.app import create_app
from dromos.api.auth import single_user
from dromos.api.door import Deps, Options
from dromos.api.metrics import StoreMetrics, WorkMetrics
from dromos.domain.reasons import ErrorCode
from dromos.lifecycle import Lifecycle
from dromos.lifecycle.contract import Policy
from dromos.live import LiveHub, MemoryWakeup
from dromos.live.postgres import PostgresWakeup
from dromos.ports.agent import (
    Agent,
    AgentInfo,
    Agents,
    Attempt,
    CheckpointSummary,
    Failed,
    Finished,
    InputMessage,
    ModelChoice,
    Outcome,
)
from dromos.store.migrations import migrate
from dromos.store.opening import open_store
from dromos.store.sql_store import SqlStore
from dromos.testing.local_http import LocalHTTP
from dromos.testing.waiting import within
from dromos.tools.gate import Gate
from dromos.tools.rules import ToolRules
from dromos.worker import Worker
from dromos.worker.service import WorkerOptions

USER = "local"


class Clock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class Ids:
    def new(self) -> str:
        return str(uuid_utils.uuid7())

    def secret(self) -> str:
        return secrets.token_urlsafe(32)


@dataclass
class Puppet:
    """Obeys the newest message, one directive a line: `say TEXT`, `tokens N`, `gate NAME`, `step NAME`, `fail CODE`,
    `raise`, `write`. A gate holds it until the test opens it; everything else is said back."""

    name: str = "puppet"
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    reached: dict[str, asyncio.Event] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    summaries: list[CheckpointSummary] = field(default_factory=list)

    @property
    def info(self) -> AgentInfo:
        model = ModelChoice("scripted", "test", "It does what the message says.")
        return AgentInfo(self.name, "does as it is told", "langgraph", model)

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    async def at(self, name: str) -> None:
        """Until the agent stands at the gate."""
        await within(5, self.reached.setdefault(name, asyncio.Event()).wait(), f"the agent at gate {name}")

    def compose(self, messages: list[InputMessage]) -> Any:
        return [message.content for message in messages]

    async def attempt(self, attempt: Attempt) -> Outcome:
        message_id = f"answer-{attempt.run.id}-{attempt.run.attempt}"
        script = attempt.input[-1] if attempt.input else "say resumed"
        if not isinstance(script, str):
            script = "say " + json.dumps(script)
        for line in script.splitlines():
            word, _, rest = line.partition(" ")
            match word:
                case "tokens":
                    for number in range(int(rest)):
                        attempt.live.text(message_id, f"word{number} ")
                        await asyncio.sleep(0)
                case "gate":
                    self.reached.setdefault(rest, asyncio.Event()).set()
                    await self.gate(rest).wait()
                case "step":
                    step = {
                        "id": f"s-{rest}",
                        "kind": "tool",
                        "name": rest,
                        "status": "running",
                        "summary": None,
                    }
                    attempt.live.step(step)
                    attempt.live.step({**step, "status": "done", "ms": 1})
                case "fail":
                    return Failed(ErrorCode(rest), "as the message asked")
                case "write":
                    await attempt.recorder.write(lambda tx, run: None)
                case "raise":
                    raise RuntimeError("the agent broke")
                case "say":
                    attempt.live.text(message_id, rest)
                case _:
                    attempt.live.text(message_id, line)
        return Finished("done")

    async def pending(self, conversation_id: str) -> tuple[str, ...]:
        return self.left

    async def checkpoints(self, conversation_id: str) -> list[CheckpointSummary]:
        return self.summaries


class Troupe:
    """`ports.agent.Agents` with one agent, and names that adapters serve."""

    default = "puppet"

    def __init__(self, puppet: Puppet, remote: tuple[str, ...] = ()) -> None:
        self.puppet = puppet
        self.remote = {name: RemoteAgent.named(name) for name in remote}

    def get(self, name: str) -> Agent | None:
        return self.puppet if name == self.puppet.name else self.remote.get(name)

    def infos(self) -> list[AgentInfo]:
        return [self.puppet.info, *(agent.info for agent in self.remote.values())]


@dataclass(frozen=True)
class Heard:
    """One event of a stream."""

    event: str
    data: Any
    id: str | None


class Listening:
    """An open stream: takes events one by one, each within a bound."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments = 0
        self.events = self._parse()

    async def _parse(self) -> AsyncIterator[Heard]:
        name, data, number = "", [], None
        async for line in self.response.aiter_lines():
            if line.startswith(":"):
                self.comments += 1
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("id: "):
                number = line[4:]
            elif line.startswith("data: "):
                data.append(line[6:])
            elif not line and data:
                yield Heard(name, json.loads("\n".join(data)), number)
                name, data, number = "", [], None

    async def next(self, event: str | None = None, seconds: float = 5) -> Heard:
        """The next event, or the next one of that name; others are passed over."""

        async def take() -> Heard:
            async for heard in self.events:
                if event is None or heard.event == event:
                    return heard
            raise AssertionError(f"the stream ended before {event or 'another event'}")

        return await within(seconds, take(), event or "an event")

    async def status(self, status: str, run_id: str | None = None) -> Heard:
        while True:
            heard = await self.next("run.status")
            run = heard.data["payload"]["run"]
            if run["status"] == status and run_id in (None, run["id"]):
                return heard

    async def rest(self, seconds: float = 5) -> list[Heard]:
        """Everything until the server ends the stream."""

        async def take() -> list[Heard]:
            return [heard async for heard in self.events]

        return await within(seconds, take(), "the end of the stream")


class Serving:
    """One process: store, worker, doors, a socket. `http` speaks to it."""

    def __init__(
        self, address: Path | str, options: Options, work: bool, remote: tuple[str, ...] = ()
    ) -> None:
        self.address, self.options, self.work, self.remote = address, options, work, remote
        self.puppet = Puppet()
        self.rules = ToolRules()
        self.limits = WorkerOptions(stop_deadline=2.0, drain=1.0)
        self.policy = Policy(stop_deadline=2.0)
        self.closing = asyncio.Event()

    def company(self) -> Agents:
        """The agents of this process, once its store is open."""
        return Troupe(self.puppet, self.remote)

    async def __aenter__(self) -> Self:
        self.store: SqlStore = await open_store(self.address)
        self.ids = Ids()
        self.wakeup: MemoryWakeup | PostgresWakeup = MemoryWakeup()
        if isinstance(self.address, str) and self.address.startswith("postgresql"):
            self.wakeup = PostgresWakeup(self.address, self.ids.new())
            await self.wakeup.start()
        self.live = LiveHub(self.wakeup)
        registry = CollectorRegistry()
        StoreMetrics(self.store.statistics.figures, registry)
        self.lifecycle = Lifecycle(
            self.store,
            self.wakeup,
            self.ids,
            self.policy,
            meter=WorkMetrics(registry),
        )
        await self.lifecycle.ensure_user(USER, "You")
        self.agents = self.company()
        self.deps = Deps(
            lifecycle=self.lifecycle,
            live=self.live,
            wakeup=self.wakeup,
            agents=self.agents,
            clock=Clock(),
            ids=self.ids,
            principal=single_user(USER, "You"),
            closing=self.closing,
            version="test",
            check=self.store.check,
            registry=registry,
            options=self.options,
        )
        self.app = create_app(self.deps)
        self.worker: Worker | None = None
        if self.work:
            await self.start_worker()
        self.server = LocalHTTP(self.app)
        await self.server.__aenter__()
        self.http = httpx.AsyncClient(base_url=self.server.url, timeout=10, trust_env=False)
        return self

    async def start_worker(self) -> None:
        self.worker = Worker(
            self.lifecycle,
            self.live,
            self.wakeup,
            self.agents,
            Gate(self.rules),
            Clock(),
            self.ids,
            self.limits,
        )
        await self.worker.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.http.aclose()
        self.closing.set()
        if self.worker is not None:
            await self.worker.aclose()
        await self.server.__aexit__(None, None, None)
        if isinstance(self.wakeup, PostgresWakeup):
            await self.wakeup.aclose()
        await self.store.aclose()

    # --- what tests say often
    async def conversation(self, **body: Any) -> str:
        answer = await self.http.post("/v1/conversations", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def send(self, conversation: str, content: Any, **more: Any) -> dict[str, Any]:
        answer = await self.http.post(
            f"/v1/conversations/{conversation}/messages", json={"content": content, **more}
        )
        assert answer.status_code in (201, 202), answer.text
        return dict(answer.json())

    @asynccontextmanager
    async def listen(
        self, path: str = "/v1/stream", last: str | int | None = None, **query: Any
    ) -> AsyncIterator[Listening]:
        headers = {} if last is None else {"last-event-id": str(last)}
        async with self.http.stream("GET", path, params=query, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            yield Listening(response)

    async def ended(self, run_id: str) -> dict[str, Any]:
        """The run, once it has ended."""
        async with self.listen(after=0) as stream:
            while True:
                run = (await stream.next("run.status")).data["payload"]["run"]
                if run["id"] == run_id and run["finished_at"] is not None:
                    return dict(run)


Start = Callable[..., Awaitable[Serving]]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with tables and no rows, to be copied: making the tables takes longer than most tests."""
    path = tmp_path_factory.mktemp("empty") / "dromos.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
async def start(tmp_path: Path, empty_database: Path) -> AsyncIterator[Start]:
    """Starts a process on the test's database; each is stopped at the end. Again: the same database."""
    shutil.copy(empty_database, tmp_path / "dromos.db")
    open_ones: list[Serving] = []

    async def begin(
        *,
        work: bool = True,
        address: str | None = None,
        remote: tuple[str, ...] = (),
        **options: Any,
    ) -> Serving:
        serving = Serving(address or tmp_path / "dromos.db", Options(**options), work, remote)
        await serving.__aenter__()
        open_ones.append(serving)
        return serving

    yield begin
    for serving in reversed(open_ones):
        await serving.__aexit__()


@pytest.fixture
async def served(start: Start) -> Serving:
    """A process with a worker."""
    return await start()


@pytest.fixture
async def idle(start: Start) -> Serving:
    """A process whose runs stay queued: no worker."""
    return await start(work=False)
