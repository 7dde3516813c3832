"""`dromos watch RUN` and `dromos watch --all`: the live box of one run, or of all that are under way, on a terminal.

It shows only what the server says. `s` asks for a stop, `q` opens a line for a message that waits behind the run, up
and down choose a run, Ctrl-C leaves and changes nothing. Into a pipe it writes a line for each change.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from dromos.cli.box import box, line
from dromos.cli.clock import now
from dromos.cli.controls import Controls, Keys
from dromos.cli.failures import ExitCode
from dromos.cli.words import one_line
from dromos.client import Client, ClientError, Event, EventStream, Link, RunView
from dromos.domain.statuses import LIVE, RunStatus

Json = dict[str, Any]
TICK_SECONDS = 0.5
FETCH_SECONDS = 1.0
LIST_SECONDS = 5.0
"""The list is read again at most so often."""
KEYS_ONE = "s stop · q queue a message · Ctrl-C leaves"
KEYS_ALL = "↑ ↓ choose · s stop · q queue a message · Ctrl-C leaves"
NOTHING = 'No run is under way. Start one: dromos chat "Hello"'


def watch(server: str, run_id: str | None, *, as_json: bool) -> ExitCode:
    """Until the run ends (DONE if it completed), or, with None, until somebody leaves."""
    try:
        return asyncio.run(_watch(server, run_id, as_json))
    except KeyboardInterrupt:
        return ExitCode.DONE


async def _watch(server: str, run_id: str | None, as_json: bool) -> ExitCode:
    console = Console(highlight=False)
    out: Terminal | Lines = Terminal(console) if console.is_terminal and not as_json else Lines(as_json)
    async with Client(server, patience=0) as client:
        watcher = Watcher(client, out, run_id)
        await watcher.refresh()
        client.connection.patience = 30.0
        with out, Keys(watcher.controls.press), watcher.leaving():
            return await watcher.follow()


class Watcher:
    """Follows one run, or all that are live; the chosen one in full, by a stream that has its conversation in focus."""

    def __init__(self, client: Client, out: Terminal | Lines, run_id: str | None) -> None:
        self.client, self.out, self.run_id = client, out, run_id
        self.views: dict[str, RunView] = {}
        self.chosen: str | None = run_id
        self.hint = ""
        self.connected = True
        self.controls = Controls({"s": self._stop, "up": self._up, "down": self._down}, self._queue)
        self._cursor: int | None = None
        self._focus: str | None = None
        self._listed_at = self._fetched_at = float("-inf")
        self._wants_list = False
        self._sent: set[asyncio.Task[None]] = set()
        self._left = asyncio.Event()

    @property
    def view(self) -> RunView | None:
        """The chosen run."""
        return self.views.get(self.chosen) if self.chosen is not None else None

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Ctrl-C is noted instead of raised, where the system lets a loop do so: it may come at any moment."""
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGINT, self._left.set)
        except (NotImplementedError, RuntimeError):
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def refresh(self) -> None:
        """Read the run, or the list of live ones, by REST. Raises what the server refuses."""
        self._listed_at, self._wants_list = time.monotonic(), False
        if self.run_id is not None:
            self._meet(await self.client.run(self.run_id))
            return
        found = [run for status in LIVE async for run in self.client.runs(status=status, limit=50)]
        for run in sorted(found, key=lambda run: str(run["created_at"])):
            self._meet(run)
        for gone in self.views.keys() - {run["id"] for run in found}:
            self.views[gone].take_run(await self.client.run(gone))

    async def follow(self) -> ExitCode:
        """Draw what comes until the run ended. A run that ended before is shown as it ended."""
        while True:
            view = self.view
            if self.run_id is not None and view is not None and view.ended:
                view.take_document(await self.client.document(view.run_id))
                self.out.over(view)
                done = view.run["status"] == RunStatus.COMPLETED
                return ExitCode.DONE if done else ExitCode.FAILED
            if self._left.is_set():
                return ExitCode.DONE
            self._focus = None if view is None else view.run["conversation_id"]
            async with self.client.stream(
                focus=self._focus, after=self._cursor, on_link=self._on_link
            ) as events:
                await self._read(events)
                self._cursor = events.cursor

    async def _read(self, events: EventStream) -> None:
        """Until another conversation has to be in focus, or the one run ended."""
        incoming = asyncio.ensure_future(anext(events))
        leaving = asyncio.ensure_future(self._left.wait())
        try:
            while True:
                await asyncio.wait(
                    {incoming, leaving}, timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if self._left.is_set():
                    return
                if incoming.done():
                    self._take(incoming.result())
                    incoming = asyncio.ensure_future(anext(events))
                await self._heal()
                self._settle()
                self.out.draw(self)
                view = self.view
                if (view is None) != (self._focus is None) or (
                    view is not None and (view.run["conversation_id"] != self._focus or view.ended)
                ):
                    return
        finally:
            incoming.cancel()
            leaving.cancel()
            await asyncio.wait({incoming, leaving})

    def _take(self, event: Event) -> None:
        data: Any = event.data
        if event.type in ("hello", "reset"):
            self._wants_list = True
            if self.view is not None:
                self.view.stale = True
        elif event.type == "run.status" and (self.run_id is None or data["run_id"] == self.run_id):
            self._meet(data["payload"]["run"])
        for view in self.views.values():
            view.take(event)

    def _meet(self, run: Json) -> None:
        view = self.views.get(run["id"])
        if view is not None:
            view.take_run(run)
        elif self.run_id is not None or run["status"] in LIVE:
            self.views[run["id"]] = RunView(run)

    def _settle(self) -> None:
        """What ended leaves the list, told once; a run is chosen as long as there is one."""
        if self.run_id is None:
            for view in [view for view in self.views.values() if view.ended]:
                self.out.over(view)
                del self.views[view.run_id]
        if self.chosen not in self.views:
            self.chosen = next(iter(self.views), None)

    async def _heal(self) -> None:
        now = time.monotonic()
        if self.run_id is None and self._wants_list and now - self._listed_at >= LIST_SECONDS:
            await self.refresh()
        view = self.view
        if view is not None and view.stale and self.connected and now - self._fetched_at >= FETCH_SECONDS:
            self._fetched_at = now
            view.take_run(await self.client.run(view.run_id))
            view.take_document(await self.client.document(view.run_id))

    def _on_link(self, link: Link) -> None:
        self.connected = link == "up"

    # ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _up(self) -> None:
        self._choose(-1)

    def _down(self) -> None:
        self._choose(1)

    def _choose(self, step: int) -> None:
        ids = list(self.views)
        if self.chosen in ids:
            self.chosen = ids[(ids.index(self.chosen) + step) % len(ids)]

    def _stop(self) -> None:
        view = self.view
        if view is not None:
            self._send(self._cancel(view), "asking for the stop")

    def _queue(self, text: str) -> None:
        view = self.view
        if view is not None:
            self._send(self._post(view.run["conversation_id"], text), "sending")

    def _send(self, work: Any, hint: str) -> None:
        self.hint = hint
        task = asyncio.ensure_future(work)
        self._sent.add(task)
        task.add_done_callback(self._sent.discard)

    async def _cancel(self, view: RunView) -> None:
        try:
            view.take_run((await self.client.cancel(view.run_id))["run"])
            self.hint = ""
        except ClientError as error:
            self.hint = error.detail

    async def _post(self, conversation_id: str, text: str) -> None:
        try:
            posted = await self.client.post_message(conversation_id, text)
            self.hint = "the message waits for the run's end" if posted.get("followup") else "sent"
        except ClientError as error:
            self.hint = error.detail


class Terminal:
    """Boxes that are drawn again and again; what ended scrolls up as one line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def draw(self, watcher: Watcher) -> None:
        at, width = now(), self._console.width
        rows: list[Any] = []
        for view in watcher.views.values():
            if view is watcher.view:
                rows.append(box(view, at, width))
            else:
                rows.append(line(view.run, view.document, at).append(f" · {_named(view)}", "dim"))
        keys = KEYS_ALL if watcher.run_id is None else KEYS_ONE
        if not watcher.views:
            rows.append(Text(NOTHING, "dim"))
        if not watcher.connected:
            rows.append(Text(f"○ no connection to {watcher.client.url} · trying again", "yellow"))
        shown = Text(watcher.controls.shown(keys), "dim", no_wrap=True, overflow="ellipsis")
        if watcher.hint:
            shown.append(f" · {watcher.hint}", "yellow")
        self._live.update(Group(*rows, shown), refresh=True)

    def over(self, view: RunView) -> None:
        over = line(view.run, view.document, now(), ended=True)
        over.no_wrap = False
        self._console.print(over.append(f" · {_named(view)}", "dim"))


def _named(view: RunView) -> str:
    return f"{one_line(str(view.run['agent']), 40)} {view.run_id}"


class Lines:
    """A line, or with `as_json` an object `{"run", "document"}`, for each change of a run."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._told: dict[str, object] = {}

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def draw(self, watcher: Watcher) -> None:
        for view in watcher.views.values():
            self._tell(view)

    def over(self, view: RunView) -> None:
        self._tell(view)
        self._told.pop(view.run_id, None)

    def _tell(self, view: RunView) -> None:
        if self._as_json:
            mark: object = (view.run["version"], view.version, len(view.text))
            told = json.dumps({"run": view.run, "document": view.document})
        else:
            shown = line({**view.run, "started_at": None, "created_at": None}, view.document, now())
            mark = told = f"{view.run_id} {shown.plain}"
        if self._told.get(view.run_id) != mark:
            self._told[view.run_id] = mark
            sys.stdout.write(f"{told}\n")
            sys.stdout.flush()
