"""Documents of this process: what readers have is what the pen wrote, whatever it writes, and it costs little."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from dromos.domain import document
from dromos.domain.patches import size_of
from dromos.live import LiveHub, MemoryWakeup, teller
from dromos.live.channel import MAX_BYTES, MAX_FRAMES
from dromos.live.fitting import NOTICE
from dromos.testing.waiting import eventually, within
from tests.live.reader import Reader


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


STEP = {"kind": "tool", "name": "look", "status": "running"}
SET = st.one_of(
    st.tuples(st.sampled_from(["/model", "/line", "/usage/input"]), st.integers(0, 9) | st.text(max_size=3)),
    st.tuples(
        st.sampled_from(
            ["/subagents/a/status", "/subagents/b/title", "/background/1/title", "/workflows/w/x"]
        ),
        st.text(max_size=3),
    ),
    st.tuples(st.just("/current"), st.none() | st.just({"kind": "tool", "name": "x"})),
    st.tuples(
        st.sampled_from(["/plan/0", "/plan/-", "/plan/1/status"]), st.just("done") | st.just({"id": "1"})
    ),
    st.tuples(
        st.just("/plan"),
        st.lists(
            st.fixed_dictionaries(
                {"id": st.just("p"), "title": st.text(max_size=3), "status": st.just("active")}
            )
        ),
    ),
    st.tuples(st.sampled_from(["/nonsense", "/status", "/text", "", "x", "/context/percent"]), st.integers()),
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.sampled_from(["m1", "m2"]), st.text(max_size=5)),
        st.tuples(st.just("set"), SET, st.just("")),
        st.tuples(
            st.just("remove"),
            st.sampled_from(
                ["/subagents/a", "/background/1", "/workflows/w/x", "/plan/0", "/line", "/usage/input"]
            ),
            st.just(""),
        ),
        st.tuples(st.just("step"), st.sampled_from(["a", "b", "c"]), st.text(max_size=3)),
        st.tuples(st.just("join"), st.just(""), st.just("")),
        st.tuples(st.just("turn"), st.just(""), st.just("")),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(CHANGES)
def test_a_snapshot_and_the_frames_after_it_give_the_pens_document(changes: list[Any]) -> None:
    async def play() -> None:
        hub = LiveHub()
        run = hub.open("r", "c", 3, {})
        readers: list[Reader] = []
        message, number = "", 0
        for kind, where, value in changes:
            if kind == "text":
                number += where != message  # an id that was used is never used again
                message = where
                run.text(f"{where}-{number}", value)
            elif kind == "set":
                run.set(*where)
            elif kind == "remove":
                run.remove(where)
            elif kind == "step":
                run.step({**STEP, "id": where, "name": value})
            elif kind == "join":
                readers.append(Reader(hub, "c", "r"))
            else:
                await asyncio.sleep(0)
        final = run.shown()
        for name, form in document.CONTENT.members.items():
            assert list(form.faults(final.content[name])) == []
        for reader in readers:
            reader.catch_up()
            assert reader.version == final.version
            assert reader.content == orjson.loads(orjson.dumps(final.content))
        run.close()

    asyncio.run(play())


TOOLS = ("a", "b", "c")
ORDERS = st.permutations([*(name for name in TOOLS for _ in range(4)), *["text"] * 5])


@pytest.mark.case("P94")
@settings(max_examples=60, deadline=None)
@given(ORDERS, ORDERS)
def test_three_tools_and_text_in_any_order_give_the_same_document(one: list[str], other: list[str]) -> None:
    """Each tool's changes come in its own order; how they mix with the others' and with the text does not count."""

    async def play(order: list[str]) -> Any:
        hub = LiveHub()
        run = hub.open("r", "c", 1, {})
        for name in TOOLS:
            run.step({**STEP, "id": name})
        reader = Reader(hub, "c", "r")
        turn = dict.fromkeys([*TOOLS, "text"], 0)
        for name in order:
            number = turn[name] = turn[name] + 1
            if name == "text":
                run.text("m", f"word {number} ")
            elif number < 4:
                run.set(f"/background/{name}", {"title": name, "status": f"{number} of 3"})
                run.step({"id": name, "summary": f"{number} of 3"})
            else:
                run.remove(f"/background/{name}")
                run.step({"id": name, "status": "done", "ms": 7})
            await asyncio.sleep(0)
        final = run.shown()
        reader.catch_up()
        assert reader.content == orjson.loads(orjson.dumps(final.content))
        run.close()
        return final.content

    first = asyncio.run(play(one))
    assert first == asyncio.run(play(other))
    assert first["text"]["content"] == "word 1 word 2 word 3 word 4 word 5 "
    assert [step["status"] for step in first["steps"]] == ["done"] * 3


async def test_a_snapshot_that_was_handed_out_keeps_what_it_showed() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    run.step({**STEP, "id": "a"})
    run.text("m", "one")
    before = run.shown()
    assert run.shown() is before, "nothing changed: it is shared"
    run.step({**STEP, "id": "a", "status": "done"})
    run.set("/usage/input", 5)
    run.text("m", " two")
    after = run.shown()
    assert before.content["steps"][0]["status"] == "running"
    assert before.content["usage"]["input"] == 0
    assert before.content["text"]["content"] == "one"
    assert after.content["steps"][0]["status"] == "done"
    assert after.content["text"] == {"message_id": "m", "length": 7, "content": "one two"}
    assert after.version == before.version + 1


async def test_a_save_tells_nobody_before_their_time_and_counts_all_the_same() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    reader = Reader(hub, "c", "r")
    run.set("/line", "one")
    saved = run.snapshot()
    assert reader.subscription.take_nowait() == []
    run.set("/line", "two")
    final = run.shown()
    assert final.version == saved.version + 1 == reader.version + 2
    reader.catch_up()
    assert (reader.version, reader.content["line"]) == (final.version, "two")
    assert len(reader.frames) == 1


async def test_a_sign_of_activity_alone_is_told_seldom_and_with_whatever_else_changes() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    reader = Reader(hub, "c", "r")
    run.set("/line", "begins")
    await eventually(lambda: reader.catch_up() or reader.frames, what="the first patch")
    run.set("/activity_at", "2026-11-29T13:46:04Z")
    assert run._patch_timer is not None
    quiet = run._patch_timer.when() - asyncio.get_running_loop().time()
    assert 4 < quiet <= 5
    run.set("/line", "goes on")
    assert run._patch_timer.when() - asyncio.get_running_loop().time() < 1
    await eventually(lambda: reader.catch_up() or len(reader.frames) == 2, what="the second patch")
    assert {op["path"] for op in reader.frames[1][1]["patch"]} == {"/line", "/activity_at"}
    run.close()


async def test_of_an_object_only_what_changed_is_told() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    current = {"kind": "tool", "name": "dig", "summary": "a hole", "progress": {"value": 1, "total": 9}}
    run.set("/current", current)
    run.step({**STEP, "id": "s", "summary": "x" * 500, "ms": None})
    reader = Reader(hub, "c", "r")
    run.set("/current", {**current, "progress": {"value": 2, "total": 9}})
    run.set("/usage", {**document.EMPTY_CONTENT["usage"], "input": 7})
    run.step({"id": "s", "status": "done", "ms": 4})
    final = run.shown()
    reader.catch_up()
    assert reader.content == final.content
    assert [op["path"] for op in reader.frames[0][1]["patch"]] == [
        "/current/progress",
        "/usage/input",
        "/steps/0/status",
        "/steps/0/ms",
    ]


async def test_text_alone_raises_no_version() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    version = run.shown().version
    run.text("m", "words")
    assert run.shown().version == version == document.first_version(1)


async def test_a_new_owner_starts_beyond_every_version_of_the_old_one() -> None:
    hub = LiveHub()
    old = hub.open("r", "c", 4, {})
    for number in range(100):
        old.set("/model", str(number))
        old.shown()
    before = old.shown().version
    old.close()
    assert hub.open("r", "c", 5, {}).snapshot().version > before


async def test_of_a_step_only_that_step_is_sent() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    reader = Reader(hub, "c", "r")
    for number in range(60):
        run.step({**STEP, "id": str(number)})
        run.shown()
    run.step({"id": "59", "status": "done", "ms": 3})
    final = run.shown()
    reader.catch_up()
    assert [step["id"] for step in final.content["steps"]] == [str(number) for number in range(10, 60)]
    assert reader.content == final.content
    assert final.content["steps"][-1] == {**STEP, "id": "59", "status": "done", "ms": 3}
    patches = [data["patch"] for _, data in reader.frames]
    assert [[op["op"] for op in patch] for patch in patches] == [
        *[["add"]] * 50,
        *[["remove", "add"]] * 10,
        ["replace"],
    ]
    assert max(len(orjson.dumps(patch)) for patch in patches) < 300


async def test_a_deep_path_makes_its_entry_and_a_removed_one_is_gone() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    run.set("/subagents/a~1b/status", "reading")
    run.set("/background/7/since", datetime(2026, 11, 29, tzinfo=UTC))
    run.set("/current/progress", {"value": 1})
    shown = run.shown().content
    assert shown["subagents"] == {"a/b": {"status": "reading"}}
    assert shown["background"] == {"7": {"since": "2026-11-29T00:00:00.000000Z"}}
    assert shown["current"] is None, "there is nothing whose progress it could be"
    run.set("/current", {"kind": "tool", "name": "x"})
    run.set("/current/progress", {"value": 1})
    run.remove("/subagents/a~1b")
    run.remove("/subagents/never")
    run.remove("/usage/input")
    run.remove("/stall")
    shown = run.shown().content
    assert shown["current"]["progress"] == {"value": 1}
    assert shown["subagents"] == {}


async def test_a_patch_of_an_owner_applies_whole_or_tells_every_fault() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    reader = Reader(hub, "c", "r")
    good = [{"op": "add", "path": "/line", "value": "x"}, {"op": "test", "path": "/line", "value": "x"}]
    assert run.patch(good) == []
    bad = [{"op": "add", "path": "/model", "value": "m"}, {"op": "add", "path": "/status", "value": "done"}]
    assert [fault.code for fault in run.patch(bad)] == ["patch_path_forbidden"]
    final = run.shown()
    reader.catch_up()
    assert (final.content["line"], final.content["model"]) == ("x", None)
    assert reader.content == final.content


async def test_what_does_not_fit_is_left_out_and_told_once(logs: list[Any]) -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {"line": 7, "model": "kept", "unknown": 1})
    for _ in range(3):
        run.set("/status", "completed")
        run.set("/usage", "many")
        run.set("/current", {"kind": "tool", "name": "x", "mood": "good"})
        run.step({"id": "s", "kind": "magic"})
        run.set("/plan/9", {"id": "1", "title": "t", "status": "active"})
    run.set("/context", {"used": float("nan"), "limit": 10})
    run.set("/line", "half \ud800 and \x00")
    shown = run.shown().content
    assert shown["model"] == "kept"
    assert shown["usage"] == document.EMPTY_CONTENT["usage"]
    assert shown["current"] == {"kind": "tool", "name": "x"}
    assert shown["steps"] == shown["plan"] == []
    assert shown["context"] == {"used": None, "limit": 10, "percent": None}
    assert shown["line"] == "half \ufffd and \ufffd"
    assert sorted(log["path"] for log in logs) == ["/plan/9", "/status", "/steps", "/usage"]


async def test_nothing_that_is_written_by_mistake_fails_the_run(logs: list[Any]) -> None:
    hub = LiveHub()
    run: Any = hub.open("r", "c", 1, {})
    reader = Reader(hub, "c", "r")
    run.step({**STEP, "id": "a"})
    for value in (None, 3, object(), float("inf"), 10**400, {1: {2: 3}}, [[]], "x" * 10_000, b"bytes"):
        for path in (
            "/line",
            "/usage",
            "/workflows/w",
            "/workflows",
            "/steps/0",
            "/steps",
            "/plan/-",
            "/x",
            "~",
            "",
        ):
            run.set(path, value)
        run.text("m", value)
        run.text(value, "words")
        run.step({"name": value})
        run.step({"id": value, "name": "x"})
        run.server({"cost": value if isinstance(value, str | int | None) else str(value)})
    run.remove("/steps/9")
    run.remove("/current/kind")
    final = run.shown()
    for name, form in document.CONTENT.members.items():
        assert list(form.faults(final.content[name])) == []
    reader.catch_up()
    assert reader.content == orjson.loads(orjson.dumps(final.content))
    run.close()


async def test_a_document_that_grows_too_large_drops_what_is_oldest(logs: list[Any]) -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    reader = Reader(hub, "c", "r")
    for number in range(200):
        run.step({**STEP, "id": str(number), "summary": "s" * 8000})
        run.set(f"/background/{number}", {"title": "b" * 8000})
        if number % 7 == 0:
            run.shown()
    final = run.shown()
    assert size_of(final.content) <= document.MAX_CONTENT
    assert [step["id"] for step in final.content["steps"]][-1] == "199"
    assert list(final.content["background"])[-1] == "199"
    reader.catch_up()
    assert reader.content == final.content
    run.set("/workflows/huge", {str(number): "x" * 8000 for number in range(60)})
    assert size_of(run.shown().content) <= document.MAX_CONTENT


async def test_text_ends_at_its_limit_with_a_notice() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    reader = Reader(hub, "c", "r")
    for _ in range(40):
        run.text("m", "é" * 20_000)
        run.shown()
    final = run.shown().content["text"]
    assert final["content"].endswith(NOTICE)
    assert document.MAX_TEXT - 4 <= len(final["content"].encode()) <= document.MAX_TEXT
    reader.catch_up()
    assert reader.content["text"] == final
    run.text("n", "a new message has room again")
    assert run.shown().content["text"]["content"] == "a new message has room again"


async def test_half_a_character_waits_for_its_other_half() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    reader = Reader(hub, "c", "r")
    run.text("m", "a\ud83d")
    assert run.shown().content["text"] == {"message_id": "m", "length": 1, "content": "a"}
    run.text("m", "\ude00b\ud83d")
    assert run.shown().content["text"] == {"message_id": "m", "length": 4, "content": "a😀b"}
    run.text("n", "next\udc00")
    reader.catch_up()
    assert [data["text"] for _, data in reader.frames] == ["a", "😀b", "\ufffd"]
    run.close()
    reader.catch_up()
    assert reader.content["text"] == {"message_id": "n", "length": 5, "content": "next\ufffd"}


async def test_nobody_looking_means_nothing_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    encoded: list[Any] = []
    monkeypatch.setattr(teller.Frame, "of", lambda *args: encoded.append(args))
    run.text("m", "hello")
    run.set("/model", "x")
    assert run.shown().content["text"]["content"] == "hello"
    assert encoded == []
    assert run._patch_timer is run._text_timer is None


async def test_a_pens_frames_are_ten_a_second_at_most_and_the_first_comes_at_once() -> None:
    hub = LiveHub()
    loop = asyncio.get_running_loop()
    run = hub.open("r", "c", 1, {})
    reader = Reader(hub, "c", "r")
    began = loop.time()
    run.text("m", "first")
    await within(1, reader.arrived.wait(), "the first frame")
    assert loop.time() - began < teller.FRAME_SECONDS
    number = 0
    while loop.time() - began < 1.5:
        number += 1
        if number % 50 == 0:  # on a fast machine a document could not hold more
            run.text("m", "🏛x")
        run.set("/usage/input", number)
        run.set("/line", str(number))
        await asyncio.sleep(0)
    reader.catch_up()
    assert 5 <= len(reader.frames) <= 17
    final = run.shown()
    reader.catch_up()
    assert reader.content == final.content
    run.close()


async def test_messages_that_change_at_every_word_make_no_flood() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    reader = Reader(hub, "c", "r")
    for number in range(1000):
        run.text(str(number), "word")
        await asyncio.sleep(0)
    final = run.shown()
    reader.catch_up()
    assert len(reader.frames) < 50
    assert reader.content == final.content


async def test_a_reader_that_never_reads_is_bounded_and_told_once_to_start_anew() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    stuck, quick = Reader(hub, "c", "r"), Reader(hub, "c", "r")
    channel = hub._channels["c"]
    for number in range(MAX_FRAMES * 3):
        run.set("/model", str(number))
        run.shown()
        quick.catch_up()
        assert len(channel.frames) <= MAX_FRAMES
    assert quick.snapshots == 1
    stuck.catch_up()
    assert stuck.snapshots == 2
    assert stuck.content == quick.content
    run.set("/line", "goes on by frames")
    run.shown()
    stuck.catch_up()
    assert (stuck.snapshots, len(stuck.frames)) == (2, 1)
    for _ in range(40):
        run.text("m", "x" * 20_000)
        run.shown()
    assert sum(len(frame.sse) for frame in channel.frames) <= MAX_BYTES
    stuck.catch_up()
    assert stuck.snapshots == 3
    assert stuck.content == run.shown().content


async def test_frames_that_everybody_has_are_not_kept() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    readers = [Reader(hub, "c", "r") for _ in range(3)]
    for number in range(100):
        run.set("/model", str(number))
        run.shown()
        for reader in readers:
            reader.catch_up()
    assert len(hub._channels["c"].frames) <= 17


async def test_a_closed_reader_receives_nothing_and_leaves_no_trace() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    reader = hub.subscribe("c", lambda: None)
    reader.close()
    reader.close()
    assert not hub.watched("c")
    run.set("/model", "x")
    assert run._patch_timer is None
    run.close()
    assert hub.snapshot("r") is None


async def test_who_begins_to_look_is_woken_when_the_document_is_opened() -> None:
    hub = LiveHub()
    woken = asyncio.Event()
    hub.subscribe("c", woken.set)
    hub.open("r", "c", 1, {})
    await within(1, woken.wait(), "the wake-up")


async def test_an_owner_that_lost_its_run_tells_nothing_more() -> None:
    hub = LiveHub()
    old = hub.open("r", "c", 1, {})
    old.set("/line", "old")
    new = hub.open("r", "c", 2, {})
    reader = Reader(hub, "c", "r")
    old.set("/line", "zombie")
    old.text("m", "zombie")
    old.close()
    new.set("/line", "new")
    final = new.shown()
    reader.catch_up()
    assert reader.content == final.content
    assert hub.snapshot("r") is final


async def test_server_fields_are_told_once_a_second() -> None:
    hub = LiveHub()
    run = hub.open("r", "c", 1, {})
    reader = Reader(hub, "c", "r")
    for number in range(50):
        run.server({"cost": {"amount": str(number)}})
        await asyncio.sleep(0)
    await eventually(lambda: reader.catch_up() or reader.frames, what="the first fields")
    assert [event for event, _ in reader.frames] == ["run.server"]
    run.close()


async def test_wakeups_of_one_moment_become_one_and_a_stopped_listener_hears_nothing() -> None:
    wakeup = MemoryWakeup()
    heard: list[str] = []
    done = asyncio.Event()
    stop = wakeup.listen("t", lambda: heard.append("first"))
    wakeup.listen("t", done.set)
    wakeup.notify("t")
    wakeup.notify("t")
    wakeup.notify_elsewhere("t")
    await within(1, done.wait())
    assert heard == ["first"]
    stop()
    done.clear()
    await asyncio.to_thread(wakeup.notify, "t")
    await within(1, done.wait(), "a wake-up from another thread")
    assert heard == ["first"]
