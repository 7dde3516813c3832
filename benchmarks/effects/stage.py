"""A server that is started again after each of its deaths, counting tools in a process that outlives it, and a client
that never gives up: everything it sends that creates has a key, and is sent again until it is answered.

It must not know what is asked of the server, nor when it dies.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from dromos.ports.probe import Moment, Point
from dromos.ports.store import ReadTx, Store, Table
from dromos.store.opening import open_store
from dromos.testing.crashing import CrashPoints
from dromos.testing.invariants import violations
from dromos.testing.processes import ProcessDiedError, RealProcess, ServeProcess, free_port
from dromos.testing.waiting import eventually

Json = dict[str, Any]
Order = tuple[Point, Moment, int]
FINAL = frozenset({"completed", "failed", "cancelled", "interrupted", "expired"})
PATIENCE = 60.0
AGAIN = 0.05

SETTINGS = """
[worker]
lease_s = 3
drain_s = 5
concurrency = 64
[adapters]
grace_s = 3
[log]
level = "error"
[approvals]
trusted_servers = ["t"]
[tools."a__count"]
policy = "ask"
[retries.MODEL_BAD_RESPONSE]
tries = 5
delays_s = [0.05]
[agents.far]
remote = true
"""


class Hall:
    """One server's folder, its lives, and the tools `t` (trusted) and `a` (one of them after a person's word)."""

    def __init__(
        self,
        folder: Path,
        database: str | None = None,
        *,
        settings: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.database = folder, database
        self.points = CrashPoints(folder / "orders")
        self.effects_file = folder / "effects"
        port = free_port()
        self._tools = RealProcess(
            [sys.executable, "-m", "dromos.testing.tools_server", "--http", "--port", str(port)],
            log=folder / "tools.log",
            env={"CT_FILE": str(self.effects_file)},
        )
        url = f"http://127.0.0.1:{port}/mcp"
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"t": {"url": url}, "a": {"url": url}}}))
        (folder / "dromos.toml").write_text(SETTINGS + settings)
        self.server = ServeProcess(
            folder / "data",
            database=database,
            env=self.points.env | dict(env or {}),
            cwd=folder,
            ready_within=90,
        )
        self.deaths = 0
        self._orders: list[Order] = []
        self._closing = False
        self._up = asyncio.Event()

    async def up(self) -> None:
        """Returns once the server answers; one that is about to die counts as well."""
        await self._up.wait()

    def order(self, *orders: Order) -> None:
        """Kill the server there; with several, each after the death by the one before."""
        self._orders = list(orders)
        self._next_order()

    @property
    def orders_left(self) -> bool:
        return bool(self._orders)

    def open(self, gate: str) -> None:
        self.effects_file.with_name(f"{self.effects_file.name}.{gate}").touch()

    def effects(self) -> list[Json]:
        if not self.effects_file.exists():
            return []
        return [json.loads(line) for line in self.effects_file.read_text().splitlines()]

    def counted(self) -> Counter[str]:
        return Counter(effect["label"] for effect in self.effects())

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """What the server stores, beside it."""
        place = self.database or str(self.folder / "data" / "dromos.db")
        store = await open_store(place if self.database else Path(place), create=False)
        try:
            yield store
        finally:
            await store.aclose()

    async def violations(self, *, settled: bool = True) -> list[str]:
        async with self.store() as store:
            return await violations(store, "local", self.effects(), settled=settled)

    async def newest(self) -> str:
        """What the server has of the newest conversation, in a few lines: to be told with a fault."""

        def look(tx: ReadTx) -> str:
            conversation = tx.find(Table.CONVERSATIONS, {}, order=("-created_at",), limit=1)[0]["id"]
            mine = {"conversation_id": conversation}
            lines = [
                f"run {run.id} {run.status} ({run.reason}), attempt {run.attempt}, crashes {run.crashes}: {run.line}"
                for run in tx.find_runs(mine, order=("created_at",))
            ]
            told: dict[Table, tuple[str, ...]] = {
                Table.RUN_FOLLOWUPS: ("status", "when_busy", "run_id", "content"),
                Table.REQUESTS: ("kind", "tool", "status", "decision"),
                Table.TOOL_CALLS: ("tool", "status", "epoch"),
                Table.MESSAGES: ("num", "role", "content", "tool_calls", "log_seq", "run_id"),
            }
            for table, columns in told.items():
                lines += [f"{table} {[row[name] for name in columns]}" for row in tx.find(table, mine)]
            return "\n  ".join(lines)

        async with self.store() as store:
            return await store.read(look)

    def _next_order(self) -> None:
        if self._orders:
            self.points.kill(*self._orders.pop(0))

    async def _keep_alive(self) -> None:
        """Started again after each death, until the block ends."""
        while True:
            await self.server.wait_exit(24 * 3600)
            if self._closing:
                return
            self._up.clear()
            self.deaths += 1
            self._next_order()
            try:
                await self.server.start()
            except ProcessDiedError:
                continue
            self._up.set()

    @asynccontextmanager
    async def open_doors(self) -> AsyncIterator[Hall]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._tools)
            await eventually(lambda: "http" in self._tools.logs(), seconds=30, what="the tools")
            await stack.enter_async_context(self.server)
            self._up.set()
            keeping = asyncio.create_task(self._keep_alive())
            try:
                yield self
            finally:
                self._closing = True
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)


@dataclass(frozen=True)
class Sent:
    path: str
    body: Json
    headers: Mapping[str, str]
    status: int
    content: bytes


class Client:
    """One person, or one adapter. What was sent with a key is kept with its answer."""

    def __init__(self, hall: Hall, name: str) -> None:
        self.hall, self.name = hall, name
        self.http = httpx.AsyncClient(base_url=hall.server.url, timeout=20, trust_env=False)
        self.sent: list[Sent] = []
        self._keys = 0

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        also: Sequence[int] = (),
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> httpx.Response:
        """Sent until it is answered. Any status but a success and `also` fails."""
        clock = asyncio.get_running_loop()
        until = clock.time() + PATIENCE
        while True:
            try:
                answer = await self.http.request(method, path, json=body, headers=headers, params=query)
            except httpx.TransportError as away:
                if clock.time() > until:
                    raise AssertionError(
                        f"{method} {path}: {away!r}\n{self.hall.server.logs_tail()}"
                    ) from None
                await asyncio.sleep(AGAIN)
                continue
            if answer.status_code == 503 and clock.time() < until:
                await asyncio.sleep(AGAIN)
                continue
            fine = answer.is_success or answer.status_code in also
            assert fine, (
                f"{method} {path}: {answer.status_code} {answer.text}\n{self.hall.server.logs_tail()}"
            )
            return answer

    @property
    def last_key(self) -> str:
        """Of what was posted last."""
        return f"{self.name}-{self._keys}"

    async def get(self, path: str, **query: Any) -> Json:
        return (await self.ask("GET", path, query=query)).json()  # type: ignore[no-any-return]

    async def post(
        self,
        path: str,
        body: Json,
        *,
        token: str | None = None,
        also: Sequence[int] = (),
        keep: bool = True,
    ) -> httpx.Response:
        """With a key of its own, the same for each time it is sent. Not `keep`: its answer may change later."""
        self._keys += 1
        headers = {"Idempotency-Key": self.last_key}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        answer = await self.ask("POST", path, body, headers=headers, also=also)
        if answer.is_success and keep:
            self.sent.append(Sent(path, body, headers, answer.status_code, answer.content))
        return answer

    async def create(self, path: str, body: Json, **options: Any) -> Json:
        return (await self.post(path, body, **options)).json()  # type: ignore[no-any-return]

    async def repeated(self) -> list[str]:
        """I12: everything that was sent with a key is sent once more; where the answer is another, it is told."""
        found = []
        for one in self.sent:
            answer = await self.ask("POST", one.path, one.body, headers=one.headers, also=range(400, 500))
            if (answer.status_code, answer.content) != (one.status, one.content):
                found.append(
                    f"I12: {one.path} was {one.status}, its repeat {answer.status_code}: {answer.text}"
                )
        return found
