"""`dromos chat`: send a message, watch the answer in the run's live box, stop it with `s` or Ctrl-C.

It shows only what the server says: "stopping" appears when the server has accepted the stop, not before. The first
Ctrl-C asks for the stop and goes on watching; the second stops watching and changes nothing. `q` writes a message that
waits behind the run.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from dromos.cli.box import box
from dromos.cli.clock import now
from dromos.cli.controls import Controls, Keys
from dromos.cli.failures import ExitCode, explain
from dromos.cli.screen import PlainScreen, Screen, SilentScreen, TerminalScreen
from dromos.cli.words import GLYPHS, one_line, seconds_between, status_line
from dromos.client import Client, ClientError, Event, EventStream, RunView
from dromos.domain.errors import DromosError, Refusal
from dromos.domain.statuses import FollowupStatus, RunStatus
from dromos.domain.text import text_of

Json = dict[str, Any]
TICK_SECONDS = 0.5
FETCH_SECONDS = 1.0
"""A view with a gap is read again at most so often."""
GIVEN_BACK = {
    FollowupStatus.HELD: "the run before it did not end well, so the message is held: send or discard it on the page",
    FollowupStatus.DISCARDED: "the message was taken back",
}
"""A waiting message that no run will take by itself."""
CONTINUE = "/continue"
KEYS = "s stop · q queue a message"
HELP = "Ctrl-C stops the answer · /continue goes on after a failure or a stop · Ctrl-D leaves"


def talk(
    server: str, message: str | None, *, conversation: str | None, agent: str | None, as_json: bool
) -> ExitCode:
    """One message, or without it a conversation at a terminal. DONE if (the last) run completed."""
    if message is None and sys.stdin.isatty() and not as_json:
        return _converse(server, conversation, agent)
    text = sys.stdin.read() if message is None else message
    if not text.strip():
        raise Refusal('there is nothing to send; write it behind the command: dromos chat "Hello"')
    result = asyncio.run(_exchange(server, text, conversation, agent, _screen(as_json)))
    if as_json:
        print(json.dumps(result.as_json(), indent=2))
    elif sys.stderr.isatty():
        print(f"go on: dromos chat --conversation {result.conversation_id}", file=sys.stderr)
    return result.exit_code


def _converse(server: str, conversation: str | None, agent: str | None) -> ExitCode:
    console = Console(highlight=False)
    console.print(Text(HELP, "dim"))
    code = ExitCode.DONE
    while True:
        try:
            text = console.input("[bold]› [/bold]")
        except (EOFError, KeyboardInterrupt):
            console.print()
            break
        if not text.strip():
            continue
        try:
            result = asyncio.run(_exchange(server, text, conversation, agent, TerminalScreen(console)))
        except KeyboardInterrupt:
            continue
        except DromosError as error:
            told, code = explain(error)
            console.print(Text(told or str(error), "red"))
        else:
            conversation, code = result.conversation_id, result.exit_code
    if conversation is not None:
        console.print(Text(f"go on: dromos chat --conversation {conversation}", "dim"))
    return code


def _screen(as_json: bool) -> Screen:
    if as_json:
        return SilentScreen()
    console = Console(highlight=False)
    return TerminalScreen(console) if console.is_terminal else PlainScreen()


@dataclass(slots=True)
class Result:
    """What came of one message. `run` is None where the reader left before a run took it."""

    conversation_id: str
    run: Json | None = None
    message: Json | None = None
    followup: Json | None = None
    answer: str = ""
    detached: bool = False

    @property
    def exit_code(self) -> ExitCode:
        done = self.run is not None and self.run["status"] == RunStatus.COMPLETED
        return ExitCode.DONE if done else ExitCode.FAILED

    def as_json(self) -> Json:
        return {
            "conversation_id": self.conversation_id,
            "message": self.message,
            "followup": self.followup,
            "run": self.run,
            "answer": self.answer,
        }


async def _exchange(
    server: str, text: str, conversation: str | None, agent: str | None, screen: Screen
) -> Result:
    async with Client(server, patience=0) as client:
        screen.box(Text("connecting", "dim"), "")
        try:
            if conversation is None:
                conversation = (await client.create_conversation(agent=agent))["id"]
            seq = (await client.conversation(conversation))["seq"]
            client.connection.patience = 30.0
            exchange = Exchange(client, screen, Result(conversation))
            async with client.stream(focus=conversation, after=seq, on_link=exchange.on_link) as events:
                return await exchange.carry_out(text, events)
        except BaseException:
            screen.close("", "")
            raise


@dataclass(slots=True)
class Exchange:
    """One message from sending to the end of its run."""

    client: Client
    screen: Screen
    result: Result
    view: RunView | None = None
    connected: bool = True
    interrupts: int = 0
    stop_sent: bool = False
    attempt: int = 0
    fetched_at: float = float("-inf")
    shown_message: str | None = None
    shown: int = 0
    shown_before: set[str | None] = field(default_factory=set)
    told_steps: set[str] = field(default_factory=set)
    look: asyncio.Event = field(default_factory=asyncio.Event)
    controls: Controls = field(init=False)
    queueing: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.controls = Controls({"s": self._interrupt}, self._queue)

    def on_link(self, link: str) -> None:
        self.connected = link == "up"
        self.look.set()

    async def carry_out(self, text: str, events: EventStream) -> Result:
        """Send, watch, and say how it ended. Raises what the server refuses."""
        incoming = asyncio.ensure_future(anext(events))
        stopping: asyncio.Task[None] | None = None
        try:
            # The stream is open before the message is sent, so that the first words are seen as they come.
            self._take(await incoming)
            incoming = asyncio.ensure_future(anext(events))
            with self._interruptible(), ExitStack() as later:
                await self._send_or_leave(text)
                later.enter_context(Keys(self._press))
                while not self._over():
                    if self.interrupts and (stopping is None or stopping.done()) and not self.stop_sent:
                        stopping = asyncio.create_task(self._stop(), name="chat: stop")
                    looking = asyncio.create_task(self.look.wait(), name="chat: look")
                    await asyncio.wait(
                        {incoming, looking}, timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                    )
                    looking.cancel()
                    self.look.clear()
                    if incoming.done():
                        self._take(incoming.result())
                        incoming = asyncio.ensure_future(anext(events))
                    await self._heal()
                    self._draw()
            await self._finish()
        finally:
            await asyncio.gather(*self.queueing)  # what was sent is sent
            for task in filter(None, (incoming, stopping)):
                task.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await task
        return self.result

    # ── what is sent ──────────────────────────────────────────────────────────────────────────────────────────

    async def _send_or_leave(self, text: str) -> None:
        """Ctrl-C stops what is being sent here once it is; the second one leaves at once."""
        sending = asyncio.ensure_future(self._send(text))
        while not sending.done():
            self.look.clear()
            looking = asyncio.create_task(self.look.wait(), name="chat: look")
            await asyncio.wait({sending, looking}, return_when=asyncio.FIRST_COMPLETED)
            looking.cancel()
            if self.interrupts > 1:
                sending.cancel()
                raise KeyboardInterrupt
        await sending

    async def _send(self, text: str) -> None:
        conversation = self.result.conversation_id
        if text.strip() == CONTINUE:
            posted = await self.client.continue_run(conversation)
        else:
            posted = await self.client.post_message(conversation, text)
        self.result.message, self.result.followup = posted.get("message"), posted.get("followup")
        if posted.get("run"):
            self._watch(posted["run"])
        else:
            self.screen.note("a run is under way; the message waits for its end")

    async def _stop(self) -> None:
        """Stop what is ours: the run that has our message, or, while that waits, only the message."""
        self.stop_sent = True
        followup, view = self.result.followup, self.view
        self.screen.hint("asking for the stop, Ctrl-C again leaves")
        try:
            if followup is not None and followup["status"] == FollowupStatus.WAITING:
                await self.client.discard_followup(followup["id"], followup["version"])
                self.result.followup = {**followup, "status": FollowupStatus.DISCARDED}
            elif view is not None:
                view.take_run((await self.client.cancel(view.run_id))["run"])
        except ClientError as error:
            # A Conflict: the run ended by itself, which its event tells, or took the message meanwhile.
            self.screen.hint(error.detail)
            self.interrupts, self.stop_sent = 0, False
        self.look.set()

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C is counted instead of raised, where the system lets a loop do so."""

        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
        except (NotImplementedError, RuntimeError):
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _interrupt(self) -> None:
        self.interrupts += 1
        self.look.set()

    def _press(self, key: str) -> None:
        if key == "s" and self.interrupts and self.controls.line is None:
            return  # asked for already; only Ctrl-C leaves
        self.controls.press(key)
        self.look.set()

    def _queue(self, text: str) -> None:
        task = asyncio.create_task(self._post(text), name="chat: queue")
        self.queueing.add(task)
        task.add_done_callback(self.queueing.discard)

    async def _post(self, text: str) -> None:
        """A further message; it waits behind the run and starts the next one."""
        try:
            await self.client.post_message(self.result.conversation_id, text)
            self.screen.hint("the message waits for the run's end")
        except ClientError as error:
            self.screen.hint(error.detail)
        self.look.set()

    # ── what arrives ──────────────────────────────────────────────────────────────────────────────────────────

    def _watch(self, run: Json) -> None:
        if self.view is None or self.view.run_id != run["id"]:
            self.view = RunView(run)

    def _take(self, event: Event) -> None:
        data: Any = event.data
        if event.type in ("hello", "reset") and self.view is not None:
            self.view.stale = True  # connected anew: frames without a number may have been missed
        elif event.type == "followup.changed":
            self._take_followup(data["payload"]["followup"])
        elif event.type == "run.status" and data["conversation_id"] == self.result.conversation_id:
            if self.view is None or self._is_ours(data["payload"]["run"]):
                self._watch(data["payload"]["run"])
        elif event.type == "message.created" and data["conversation_id"] == self.result.conversation_id:
            self._take_message(data["payload"]["message"])
        if self.view is not None:
            self.view.take(event)
            if self.view.run["status"] == RunStatus.WAITING_INPUT:
                # The attempt after a question goes on behind it; nothing starts anew.
                self.attempt = self.view.run["attempt"] + 1
        self._print()

    def _take_followup(self, followup: Json) -> None:
        ours = self.result.followup
        if ours is not None and followup["id"] == ours["id"] and followup["version"] >= ours["version"]:
            self.result.followup = followup

    def _take_message(self, message: Json) -> None:
        """The run's last answer as it was stored: whatever the frames did not bring is written now."""
        view = self.view
        if view is None or message["role"] != "assistant" or message["run_id"] != view.run_id:
            return
        content = text_of(message["content"])
        self.result.answer = content
        if content and (message["id"] != view.message_id or content.startswith(view.text)):
            view.message_id, view.text = message["id"], content

    def _is_ours(self, run: Json) -> bool:
        """The run that took our message: what counts in the end."""
        if self.result.followup is not None:
            taken = self.result.followup["message_id"]
            return taken is not None and run["trigger_message_id"] == taken
        return self.view is not None and run["id"] == self.view.run_id

    async def _heal(self) -> None:
        """Read again what the events cannot tell: the run that took a waiting message, a view with a gap."""
        taken = (self.result.followup or {}).get("message_id")
        if taken is not None and not (self.view and self._is_ours(self.view.run)):
            async for run in self.client.runs(conversation_id=self.result.conversation_id, limit=20):
                if run["trigger_message_id"] == taken:
                    self._watch(run)
                    if self.view is not None:
                        self.view.stale = True  # it may have said something, or all, before it was known here
        view, now = self.view, time.monotonic()
        if view is None or not view.stale or not self.connected or now - self.fetched_at < FETCH_SECONDS:
            return
        self.fetched_at = now
        view.take_run(await self.client.run(view.run_id))
        view.take_document(await self.client.document(view.run_id))
        self._print()

    def _over(self) -> bool:
        if self.interrupts > 1:
            self.result.detached = True
            return True
        followup = self.result.followup
        if followup is not None and followup["status"] in GIVEN_BACK:
            return True
        return self.view is not None and self.view.ended and self._is_ours(self.view.run)

    # ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────

    def _print(self) -> None:
        view = self.view
        if view is None:
            return
        if view.message_id != self.shown_message and view.message_id not in self.shown_before:
            self.shown_before.add(self.shown_message)
            self.screen.end_text()
            if self.shown and view.run["attempt"] > self.attempt:
                self.screen.note(f"  attempt {view.run['attempt']}: what was being said starts anew")
            self.attempt = view.run["attempt"]
            self.shown_message, self.shown = view.message_id, 0
        # A document that was saved before the newest message brings the one before it again.
        if view.message_id == self.shown_message and len(view.text) > self.shown:
            self.screen.text(view.text[self.shown :])
            self.shown = len(view.text)
        for step in view.document.get("steps") or ():
            if step["kind"] == "tool" and step["status"] != "running" and step["id"] not in self.told_steps:
                self.told_steps.add(step["id"])
                self.screen.end_text()
                self.screen.note(one_line(f"  {step['name']} {step['status']} {step.get('summary') or ''}"))

    def _draw(self) -> None:
        if self.view is None:
            return
        shown: RenderableType = box(self.view, now(), with_text=False)
        if not self.connected:
            shown = Text(f"○ no connection to {self.client.url} · trying again", "yellow")
        self.screen.box(shown, self.controls.shown(KEYS))

    async def _finish(self) -> None:
        view, followup = self.view, self.result.followup
        if followup is not None and followup["status"] in GIVEN_BACK:
            self.screen.close(GIVEN_BACK[followup["status"]], "yellow")
            return
        if view is None or self.result.detached:
            run = view.run if view else None
            self.result.run = run
            told = f"see it with: dromos runs show {run['id']}" if run else "the message waits its turn"
            self.screen.close(f"left; {told}", "dim")
            return
        self.result.run = view.run
        self.result.answer = self.result.answer or view.text
        took = seconds_between(view.run["started_at"], view.run["finished_at"])
        # The answer stands above: its summary would only repeat it.
        shown = {**view.run, "line": None}
        self.screen.close(status_line(shown, view.document, took), GLYPHS[view.run["status"]][2])
