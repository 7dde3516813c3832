"""Documents whose owner is elsewhere: what this process stored is told, what another one stored is taken anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.live.fuzz import Clock, Wires
from dromos.domain import document, patches
from dromos.domain.text import utf16_length
from dromos.live import LiveHub
from dromos.live.channel import REFRESH_SECONDS
from dromos.ports.live import Patched, TextAppended
from tests.live.reader import Reader


class Outside:
    """An owner outside: patches in order, each handed to the process that stored it."""

    def __init__(self) -> None:
        self.version, self.content = document.first_version(1), document.empty_content()

    def patch(self, line: str, text: TextAppended | None = None) -> Patched:
        base = self.version
        self.content = {**self.content}
        operations, faults = patches.change(
            self.content, [{"op": "add", "path": "/line", "value": line}] if line else []
        )
        assert not faults
        self.version += bool(operations)
        if text is not None:
            before = self.content["text"]["content"] if text.offset else ""
            whole = before + text.text
            self.content["text"] = {
                "message_id": text.message_id,
                "length": utf16_length(whole),
                "content": whole,
            }
        return Patched("r", "c", base, self.version, operations, text, self.content)

    def say(self, message: str, offset: int, text: str) -> Patched:
        return self.patch("", TextAppended(message, offset, text))


def stage() -> tuple[LiveHub, Clock, list[Wires]]:
    clock = Clock()
    wires: list[Wires] = []
    wires += [Wires(wires, lambda: True), Wires(wires, lambda: True)]
    return LiveHub(wires[0], clock), clock, wires  # type: ignore[arg-type]


def woken(hub: LiveHub) -> tuple[Any, Callable[[], int]]:
    calls: list[int] = []
    return hub.subscribe("c", lambda: calls.append(1)), lambda: len(calls)


def test_patches_that_were_stored_here_are_told_together_and_in_order() -> None:
    hub, clock, _ = stage()
    outside = Outside()
    hub.relay(outside.patch("before anybody looked"))
    subscription, _ = woken(hub)
    hub.relay(outside.patch("one"))
    clock.pass_by(0)
    (first,) = subscription.take_nowait()
    assert (first.start, first.end) == (outside.version - 1, outside.version)
    for number in range(50):
        hub.relay(outside.patch(str(number)))
        hub.relay(outside.say("m", number, "x"))
    clock.pass_by(0.5)
    frames = subscription.take_nowait()
    patches_told = [frame for frame in frames if frame.event == "run.patch"]
    assert (patches_told[0].start, patches_told[-1].end) == (first.end, outside.version)
    assert len(frames) <= 5
    assert b'"49"' in patches_told[-1].data
    snapshot = hub.snapshot("r")
    assert snapshot is not None
    assert (snapshot.version, snapshot.content["text"]["length"]) == (outside.version, 50)


def test_a_snapshot_and_the_frames_behind_it_fit() -> None:
    hub, clock, _ = stage()
    outside = Outside()
    subscription, _ = woken(hub)
    hub.relay(outside.patch("one"))
    reader = Reader(hub, "c", "r")
    hub.relay(outside.patch("two"))
    hub.relay(outside.say("m", 0, "a😀"))
    hub.relay(outside.say("m", 3, "b"))
    hub.relay(outside.say("n", 0, "new"))
    clock.pass_by(1)
    reader.catch_up()
    assert reader.content["line"] == "two"
    assert reader.content["text"] == {"message_id": "n", "length": 3, "content": "new"}
    assert reader.version == outside.version
    assert reader.snapshots == 1
    subscription.close()


def test_a_patch_that_another_process_stored_in_between_makes_readers_start_anew() -> None:
    hub, clock, _ = stage()
    outside = Outside()
    subscription, _ = woken(hub)
    hub.relay(outside.patch("here"))
    clock.pass_by(1)
    subscription.take_nowait()
    outside.patch("elsewhere")
    hub.relay(outside.patch("here again"))
    clock.pass_by(1)
    assert subscription.lost
    assert not subscription.lost, "told once"
    snapshot = hub.snapshot("r")
    assert snapshot is not None
    assert (snapshot.version, snapshot.content["line"]) == (outside.version, "here again")
    hub.relay(outside.patch("and on"))
    clock.pass_by(1)
    (frame,) = subscription.take_nowait()
    assert (frame.start, frame.end) == (outside.version - 1, outside.version)


def test_text_that_another_process_stored_in_between_makes_readers_start_anew() -> None:
    hub, clock, _ = stage()
    outside = Outside()
    subscription, _ = woken(hub)
    hub.relay(outside.say("m", 0, "one "))
    clock.pass_by(1)
    outside.say("m", 4, "two ")
    hub.relay(outside.say("m", 8, "three"))
    clock.pass_by(1)
    assert subscription.lost
    hub.relay(outside.say("m", 13, "!"))
    clock.pass_by(1)
    assert [frame.start for frame in subscription.take_nowait()][-1] == 13


def test_word_of_saves_elsewhere_sends_readers_to_the_row_four_times_a_second_at_most() -> None:
    hub, clock, wires = stage()
    outside = Outside()
    subscription, calls = woken(hub)
    hub.relay(outside.patch("here"))
    clock.pass_by(1)
    before, told = calls(), 0
    for _ in range(100):
        wires[1].notify_elsewhere("document:c")
        wires[1].notify_elsewhere("document:another")
        clock.pass_by(0.01)
        told += subscription.lost
    assert told == calls() - before
    assert 3 <= told <= 1 / REFRESH_SECONDS + 1
    assert hub.snapshot("r") is None, "what stood here is outdated"


def test_nobody_looking_costs_nothing_and_leaves_nothing() -> None:
    hub, clock, wires = stage()
    outside = Outside()
    hub.relay(outside.patch("unseen"))
    assert hub.snapshot("r") is None
    subscription, _ = woken(hub)
    hub.relay(outside.patch("seen"))
    assert hub.snapshot("r") is not None
    subscription.close()
    assert hub.snapshot("r") is None
    assert wires[0].listeners["document:c"] == []
    clock.pass_by(1)


def test_an_end_tells_what_still_waited() -> None:
    hub, clock, _ = stage()
    outside = Outside()
    subscription, _ = woken(hub)
    hub.relay(outside.patch("one"))
    clock.pass_by(0)
    subscription.take_nowait()
    hub.relay(outside.patch("last"))
    hub.relay(outside.say("m", 0, "words"))
    hub.ended("r")
    assert [frame.event for frame in subscription.take_nowait()] == ["run.patch", "run.text"]
    assert hub.snapshot("r") is None
