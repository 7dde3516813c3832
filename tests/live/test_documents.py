"""Live documents: snapshot and frames agree, readers cost nothing when slow, nobody looking costs nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dromos.domain.text import utf16_length
from dromos.live import LiveHub, MemoryWakeup
from dromos.live.documents import QUEUE_FRAMES
from dromos.testing.waiting import within


class Reader:
    """A device: applies what it receives to the snapshot it started from."""

    def __init__(self, hub: LiveHub, conversation_id: str, run_id: str) -> None:
        self.arrived = asyncio.Event()
        self.subscription = hub.subscribe(conversation_id, self.arrived.set)
        snapshot = hub.snapshot(run_id)
        assert snapshot is not None
        self.subscription.take_nowait()  # the snapshot holds what came before it
        self.version, self.content = snapshot.version, orjson.loads(orjson.dumps(snapshot.content))
        self.frames = 0

    def catch_up(self) -> None:
        for frame in self.subscription.take_nowait():
            self.frames += 1
            data = orjson.loads(frame.data)
            if frame.event == "run.patch":
                assert data["base_version"] == self.version
                self.version = data["version"]
                for op in data["patch"]:
                    self._set(op["path"], op["value"])
            elif frame.event == "run.text":
                text = self.content["text"]
                if data["message_id"] != text["message_id"]:
                    text.update(message_id=data["message_id"], length=0, content="")
                assert data["offset"] == text["length"]
                text["content"] += data["text"]
                text["length"] += utf16_length(data["text"])

    def _set(self, path: str, value: Any) -> None:
        *parents, last = path.strip("/").split("/")
        target = self.content
        for part in parents:
            target = target[part]
        target[last] = value


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.sampled_from(["m1", "m2"]), st.text(max_size=5)),
        st.tuples(
            st.just("set"),
            st.sampled_from(["/model", "/current", "/usage/input"]),
            st.integers(-(2**53), 2**53),
        ),
        st.tuples(st.just("step"), st.sampled_from(["a", "b", "c"]), st.text(max_size=3)),
        st.tuples(st.just("join"), st.just(""), st.just("")),
        st.tuples(st.just("turn"), st.just(""), st.just("")),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(CHANGES)
def test_a_snapshot_and_the_frames_after_it_give_the_servers_document(changes: list[Any]) -> None:
    async def play() -> None:
        hub = LiveHub()
        run = hub.open("r", "c", 3, {})
        readers: list[Reader] = []
        for kind, where, value in changes:
            if kind == "text":
                run.text(where, value)
            elif kind == "set":
                run.set(where, value)
            elif kind == "step":
                run.step({"id": where, "name": value})
            elif kind == "join":
                readers.append(Reader(hub, "c", "r"))
            else:
                await asyncio.sleep(0)
        final = run.snapshot()
        for reader in readers:
            reader.catch_up()
            assert reader.version == final.version
            assert reader.content == orjson.loads(orjson.dumps(final.content))
        run.close()

    asyncio.run(play())


async def test_a_new_owner_starts_beyond_every_version_of_the_old_one() -> None:
    hub = LiveHub()
    old = hub.open("r", "c", 4, {})
    for number in range(100):
        old.set("/model", number)
        old.snapshot()
    before = old.snapshot().version
    old.close()
    assert hub.open("r", "c", 5, {}).snapshot().version > before


async def test_nobody_looking_means_nothing_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    encoded: list[str] = []
    monkeypatch.setattr(hub, "publish", lambda *args: encoded.append(args[1]))
    run.text("m", "hello")
    run.set("/model", "x")
    assert run.snapshot().content["text"]["content"] == "hello"
    assert encoded == []


async def test_a_reader_that_never_reads_is_bounded_and_told_to_start_anew() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    stuck = hub.subscribe("c", lambda: None)
    for number in range(QUEUE_FRAMES * 3):
        run.set("/model", number)
        run.snapshot()
    assert stuck.lost
    assert not stuck.lost, "told once"
    assert len(stuck.take_nowait()) <= QUEUE_FRAMES


async def test_a_closed_reader_receives_nothing_and_leaves_no_trace() -> None:
    hub = LiveHub()
    hub.open("r", "c", 1, {})
    reader = hub.subscribe("c", lambda: None)
    reader.close()
    reader.close()
    assert not hub.watched("c")


async def test_fast_text_is_coalesced_and_never_split_inside_a_character() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    reader = Reader(hub, "c", "r")
    for _ in range(400):
        run.text("m", "🏛x")
    await within(5, reader.arrived.wait(), "the first text frame")
    final = run.snapshot()
    reader.catch_up()
    assert reader.frames < 10
    assert reader.content["text"]["content"] == final.content["text"]["content"] == "🏛x" * 400
    assert final.content["text"]["length"] == 1200
    run.close()


async def test_wakeups_of_one_moment_become_one_and_a_stopped_listener_hears_nothing() -> None:
    wakeup = MemoryWakeup()
    heard: list[str] = []
    done = asyncio.Event()
    stop = wakeup.listen("t", lambda: heard.append("first"))
    wakeup.listen("t", done.set)
    wakeup.notify("t")
    wakeup.notify("t")
    await within(1, done.wait())
    assert heard == ["first"]
    stop()
    done.clear()
    await asyncio.to_thread(wakeup.notify, "t")
    await within(1, done.wait(), "a wake-up from another thread")
    assert heard == ["first"]
