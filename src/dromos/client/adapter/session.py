"""`AdapterSession`: claims runs of some agents from a server and hands them out, as many at a time as it has slots.

A session is one start of the adapter; its random name tells the server which runs are its own. Restarts of the server
and broken connections are waited out. It must not know what becomes of a run in a handler's hands.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import UUID

import httpx

from dromos.client.adapter.run import AdapterRun
from dromos.client.adapter.values import Answer
from dromos.client.connection import DELAYS, Connection
from dromos.client.errors import ClientError, ProtocolError, ServerFault, ServerUnreachable
from dromos.client.stream import EventStream
from dromos.domain.errors import LeaseLost

log = logging.getLogger("dromos.adapter")
T = TypeVar("T")
Json = dict[str, Any]
Handler = Callable[[AdapterRun], Awaitable[Answer | str | Json | list[Any] | None]]

CLAIM_SECONDS: Final = 25.0
"""How long one claim waits for a run."""
CLOSE_SECONDS: Final = 20.0
LET_GO_SECONDS: Final = 5.0
"""How long cancelled handlers may take when the session closes."""


def _new_id() -> str:
    return str(UUID(bytes=secrets.token_bytes(16), version=4))


class AdapterSession:
    """Serves runs of `agents` (`remote = true` in the server's `dromos.toml`), at most `slots` at a time.

    `close_s`: seconds that `aclose` gives runs under way. `listen`: also follow the server's event stream, so that a
    stop is heard at once and not with the run's next sign of life.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8321",
        *,
        agents: Sequence[str],
        slots: int = 4,
        token: str | None = None,
        prefer_own: bool = True,
        close_s: float = CLOSE_SECONDS,
        listen: bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
        name: str | None = None,
        new_id: Callable[[], str] = _new_id,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not agents or slots < 1:
            raise ValueError("name at least one agent, and give the session at least one slot")
        self.name = name or secrets.token_urlsafe(18)
        """Names this session to the server; another one at each start."""
        self.reachable = True
        """Whether the server answered the last claim."""
        self._connection = Connection(url, patience=0, token=token, transport=transport)
        self._ask: Json = {
            "agents": list(agents),
            "adapter_session": self.name,
            "wait_s": CLAIM_SECONDS,
            "prefer_own": prefer_own,
        }
        self._slots = asyncio.Semaphore(slots)
        self._close_s, self._listen = close_s, listen
        self._new_id, self._monotonic = new_id, monotonic
        self._runs: set[AdapterRun] = set()
        self._answered = False
        self._handlers: set[asyncio.Task[None]] = set()
        self._closing, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._listener: asyncio.Task[None] | None = None

    # ── claiming ──────────────────────────────────────────────────────────────────────────────────────────────

    async def serve(self, handler: Handler) -> None:
        """Give each run to `handler` in a task of its own, until `stop_claiming`; `aclose` waits for those under way.

        Whatever a handler raises ends its run, never the session. Raises an ApiError where the server refuses the
        session's claims, for example for an agent that it does not know.
        """
        async for run in self.runs():
            task = asyncio.create_task(self._handle(run, handler))
            self._handlers.add(task)
            task.add_done_callback(self._handlers.discard)

    async def runs(self) -> AsyncIterator[AdapterRun]:
        """Runs as they come, each claimed and kept alive; enter each one with `async with run:`."""
        while not self._closing.is_set():
            await self._slots.acquire()
            run = None
            try:
                run = await self._next()
            finally:
                if run is None:
                    self._slots.release()
            if run is not None:
                yield run

    def stop_claiming(self) -> None:
        """Take no further run: `serve` and `runs` end. For a signal handler of the loop, for example."""
        self._closing.set()

    async def _handle(self, run: AdapterRun, handler: Handler) -> None:
        async with run:
            result = await handler(run)
            if result is not None:
                run.result = result if isinstance(result, Answer) else Answer(result)

    async def _next(self) -> AdapterRun | None:
        """The next run, opened; None where the session closes."""
        while True:
            claimed = await self._until_closing(self._claim())
            if claimed is None:
                return None
            sent_at, claim = claimed
            run = AdapterRun(
                claim,
                connection=self._connection,
                sent_at=sent_at,
                monotonic=self._monotonic,
                new_id=self._new_id,
                on_end=self._ended,
            )
            try:
                await run.open()
            except LeaseLost as lost:
                log.warning("run %s was lost before it began: %s", run.id, lost)
                continue
            self._runs.add(run)
            self._idle.clear()
            return run

    async def _claim(self) -> tuple[float, Json]:
        """Ask until there is a run; one whose answer is lost is asked for under the same key."""
        failures = 0
        while True:
            key = self._new_id()
            while True:
                sent_at = self._monotonic()
                try:
                    answer = await self._connection.json(
                        "POST",
                        "/v1/adapter/claim",
                        body=self._ask,
                        key=key,
                        answer_seconds=CLAIM_SECONDS + 10,
                    )
                    break
                except (ServerUnreachable, ServerFault, ProtocolError) as error:
                    if isinstance(error, ProtocolError) and not self._answered:
                        raise  # another program is at this address; later it is a proxy's page
                    log.log(
                        logging.DEBUG if failures else logging.WARNING, "claiming: %s; trying again", error
                    )
                    self.reachable = False
                    await asyncio.sleep(DELAYS[min(failures, len(DELAYS) - 1)])
                    failures += 1
            if failures:
                log.info("claiming: %s answers again", self._connection.url)
            failures, self.reachable, self._answered = 0, True, True
            if answer is not None:
                return sent_at, answer

    async def _until_closing(self, claiming: Coroutine[Any, Any, T]) -> T | None:
        claim = asyncio.create_task(claiming)
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait({claim, closing}, return_when=asyncio.FIRST_COMPLETED)
            if claim.done():
                return claim.result()
            return None
        finally:
            for task in (claim, closing):
                task.cancel()
            await asyncio.gather(claim, closing, return_exceptions=True)

    def _ended(self, run: AdapterRun) -> None:
        if run in self._runs:
            self._runs.remove(run)
            self._slots.release()
        if not self._runs:
            self._idle.set()

    # ── hearing ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _hear(self) -> None:
        """A wake-up only: what happened to a run is asked for with its renewal."""
        try:
            async with EventStream(self._connection) as events:
                async for event in events:
                    for run in self._runs if event.type == "run.status" else ():
                        if run.id == event.data["run_id"]:
                            run.hint()
        except ClientError as error:
            log.warning("the event stream cannot be followed (%s); stops are heard with renewals", error)

    # ── its life ──────────────────────────────────────────────────────────────────────────────────────────────

    async def aclose(self) -> None:
        """Take no further run, give those under way `close_s` to end, and leave the rest to the server's grace."""
        self.stop_claiming()
        await self._until_idle(self._close_s)
        for run in tuple(self._runs):
            log.warning("run %s does not end in time; it is left to the server's recovery", run.id)
            run.give_up()
        await self._until_idle(LET_GO_SECONDS)
        if self._handlers:
            await asyncio.wait(self._handlers, timeout=LET_GO_SECONDS)
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        await self._connection.aclose()

    async def _until_idle(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            pass

    async def __aenter__(self) -> Self:
        if self._listen:
            self._listener = asyncio.create_task(self._hear())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def serve(handler: Handler, *, agents: Sequence[str], **options: Any) -> None:
    """A whole adapter: serves until Ctrl-C or SIGTERM, then lets runs under way end.

    `options` are the session's, `url` among them. The second signal ends the program at once; what is under way then is
    left to the server's recovery.
    """
    async with AdapterSession(agents=agents, **options) as session:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)

        def first() -> None:
            for number in signals:
                loop.remove_signal_handler(number)
            session.stop_claiming()

        try:
            for number in signals:
                loop.add_signal_handler(number, first)
        except (NotImplementedError, RuntimeError):  # no signals on this system, or not in the main thread
            pass
        await session.serve(handler)
