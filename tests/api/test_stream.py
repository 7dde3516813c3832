"""The stream: cursors, replay without holes, live frames, slow readers, goodbye."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from dromos.api.feed import Feeds, Inbox
from dromos.api.sse import Reader
from dromos.testing.waiting import eventually, within
from dromos.wire import answers
from tests.api.conftest import USER, Heard, Serving, Start


def numbers(heard: list[Heard]) -> list[int]:
    return [int(each.id) for each in heard if each.id is not None]


async def finished_run(serving: Serving, script: str = "say two") -> tuple[str, dict[str, Any]]:
    conversation = await serving.conversation()
    return conversation, await serving.ended((await serving.send(conversation, script))["run"]["id"])


async def test_without_a_cursor_the_stream_starts_at_now(served: Serving) -> None:
    conversation, _ = await finished_run(served)
    seq = (await served.http.get(f"/v1/conversations/{conversation}")).json()["seq"]
    async with served.listen() as stream:
        hello = await stream.next()
        assert (hello.event, hello.data, hello.id) == ("hello", {"seq": seq}, str(seq))
        await served.conversation(title="new")
        event = await stream.next()
        assert (event.event, event.id) == ("conversation.changed", str(seq + 1))


async def test_with_a_cursor_hello_has_no_number_and_the_replay_follows(served: Serving) -> None:
    conversation, _ = await finished_run(served)
    seq = (await served.http.get(f"/v1/conversations/{conversation}")).json()["seq"]
    async with served.listen(after=1) as stream:
        hello = await stream.next()
        assert (hello.event, hello.data, hello.id) == ("hello", {"seq": seq}, None)
        replay = [await stream.next() for _ in range(seq - 1)]
    assert numbers(replay) == list(range(2, seq + 1))
    statuses = [e.data["payload"]["run"]["status"] for e in replay if e.event == "run.status"]
    assert statuses == ["queued", "running", "completed"]
    for event in replay:
        answers.Event.model_validate(event.data)
        assert event.data["seq"] == int(event.id or 0)
        assert event.data["type"] == event.event


async def test_a_status_carries_the_whole_server_part(served: Serving) -> None:
    _, run = await finished_run(served)
    async with served.listen(after=0) as stream:
        end = await stream.status("completed")
    part = end.data["payload"]["document"]
    assert end.data["payload"]["run"] == run
    assert part["schema"] == "run_document.v1"
    assert (part["run_id"], part["status"], part["run_version"]) == (run["id"], "completed", run["version"])
    assert {"requests", "followups", "owner", "wait", "stop", "cost", "backend_policy"} <= set(part)


async def test_the_header_wins_over_the_query(served: Serving) -> None:
    await finished_run(served)
    async with served.listen(last=3, after=1) as stream:
        await stream.next("hello")
        assert (await stream.next()).id == "4"


@pytest.mark.case("P81")
@pytest.mark.parametrize("cursor", ["garbage", "-1", "1.5", "٣", "9" * 18, "9" * 400, "1e3", "0x1", " 5"])
async def test_a_cursor_that_is_none_is_answered_at_once(served: Serving, cursor: str) -> None:
    await finished_run(served)
    answer = await within(1, served.http.get("/v1/stream", params={"after": cursor}), "the refusal")
    assert answer.status_code == 400
    assert answer.json()["code"] == "validation_failed"


@pytest.mark.case("P81")
async def test_a_cursor_beyond_the_newest_event_is_answered_at_once(served: Serving) -> None:
    conversation, run = await finished_run(served)
    seq = (await served.http.get(f"/v1/conversations/{conversation}")).json()["seq"]
    for last in (seq + 1000, seq + 1, run["id"]):
        headers = {"last-event-id": str(last)}
        answer = await within(1, served.http.get("/v1/stream", headers=headers), "the refusal")
        assert answer.status_code == 400


@pytest.mark.case("P81")
async def test_a_cursor_older_than_what_is_kept_gets_a_reset(served: Serving) -> None:
    await finished_run(served)
    conversation, _ = await finished_run(served)
    seq = (await served.http.get(f"/v1/conversations/{conversation}")).json()["seq"]

    def forget(tx: Any) -> None:
        tx.remove("events", {"user_id": USER, "seq": 1})
        tx.remove("events", {"user_id": USER, "seq": 2})
        tx.change("users", {"id": USER}, {"first_seq": 3})

    await served.store.write(forget)
    async with served.listen(after=0) as stream:
        assert (await stream.next()).event == "hello"
        reset = await stream.next()
        assert (reset.event, reset.data, reset.id) == (
            "reset",
            {"reason": "cursor_too_old", "seq": seq},
            str(seq),
        )
        await served.conversation()
        assert (await stream.next()).id == str(seq + 1)


async def test_focus_on_nobody_s_conversation_is_not_found(served: Serving) -> None:
    for focus in ("nonsense", "019ad0f2-6a5e-7c3a-9b51-6f0c2d8f4e11"):
        answer = await within(1, served.http.get("/v1/stream", params={"focus": focus}), "the refusal")
        assert answer.status_code == 404


@pytest.mark.case("P92")
async def test_focus_sends_the_document_then_what_changes(served: Serving) -> None:
    conversation = await served.conversation()
    run = (await served.send(conversation, "say before\ngate g\nsay  after\nstep look\ngate h"))["run"]
    await served.puppet.at("g")
    async with served.listen(focus=conversation) as stream:
        await stream.next("hello")
        snapshot = await stream.next("run.document")
        assert snapshot.id is None
        answers.Document.model_validate(snapshot.data)
        text = snapshot.data["document"]["text"]
        assert (text["content"], text["length"]) == ("before", 6)
        served.puppet.gate("g").set()
        frame = await stream.next("run.text")
        assert frame.id is None
        assert (frame.data["offset"], frame.data["text"]) == (6, " after")
        patch = await stream.next("run.patch")
        assert patch.data["base_version"] >= snapshot.data["version"]
        assert patch.data["patch"][0]["path"] == "/steps/0"
        served.puppet.gate("h").set()
        end = await stream.status("completed", run["id"])
        assert end.id is not None
    fetched = (await served.http.get(f"/v1/runs/{run['id']}/document")).json()
    assert fetched["document"]["text"]["content"] == "before after"
    assert [step["name"] for step in fetched["document"]["steps"]] == ["look"]
    assert fetched["document"]["line"] == end.data["payload"]["run"]["line"] == "done"


async def test_a_run_that_starts_in_the_focused_conversation_sends_its_document(served: Serving) -> None:
    conversation = await served.conversation()
    async with served.listen(focus=conversation) as stream:
        await stream.next("hello")
        run = (await served.send(conversation, "say one\ngate g"))["run"]
        snapshot = await stream.next("run.document")
        assert snapshot.data["run_id"] == run["id"]
        served.puppet.gate("g").set()
        await stream.status("completed", run["id"])


async def test_who_looks_at_a_run_under_way_gets_its_document_once(served: Serving) -> None:
    conversation = await served.conversation()
    run = (await served.send(conversation, "say one\ngate g\nstep look"))["run"]
    await served.puppet.at("g")
    for cursor in ({}, {"after": 0}):
        async with served.listen(focus=conversation, **cursor) as stream:
            await stream.next("run.document")
            async with served.listen(focus=conversation, **cursor) as second:
                await second.next("run.document")
                await served.conversation(title="a mark in the log")
                heard = [(await second.next()).event]
                while heard[-1] != "conversation.changed":
                    heard.append((await second.next()).event)
            assert "run.document" not in heard
    served.puppet.gate("g").set()
    await served.ended(run["id"])


async def test_frames_go_only_to_who_looks(served: Serving) -> None:
    conversation, other = await served.conversation(), await served.conversation()
    async with served.listen(focus=other) as elsewhere, served.listen() as nowhere:
        await elsewhere.next("hello")
        await nowhere.next("hello")
        run = (await served.send(conversation, "tokens 50"))["run"]
        for stream in (elsewhere, nowhere):
            seen = []
            while not seen or seen[-1].data.get("payload", {}).get("run", {}).get("status") != "completed":
                seen.append(await stream.next())
            assert {each.event for each in seen} <= {
                *("run.status", "message.created", "message.updated", "conversation.changed"),
            }
            assert seen[-1].data["run_id"] == run["id"]


@pytest.mark.case("P92")
@pytest.mark.slow(60)
async def test_no_run_is_missed_between_reading_and_streaming(served: Serving) -> None:
    """Short runs end inside the window between the read of a conversation and its stream."""

    async def once(number: int) -> None:
        conversation = await served.conversation()
        view = (await served.http.get(f"/v1/conversations/{conversation}")).json()
        sending = asyncio.create_task(served.send(conversation, f"say {number}"))
        for _ in range(number % 7):
            await asyncio.sleep(0)
        async with served.listen(after=view["seq"], focus=conversation) as stream:
            run = (await sending)["run"]
            await stream.status("completed", run["id"])

    for batch in range(10):
        await asyncio.gather(*(once(batch * 8 + number) for number in range(8)))


@pytest.mark.case("P92")
async def test_a_run_that_ends_between_a_streams_first_read_and_its_inbox_is_told(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await served.conversation()
    seq = (await served.http.get(f"/v1/conversations/{conversation}")).json()["seq"]
    async with served.listen() as other:  # another device, which keeps the person's log followed
        join = Feeds.join

        async def late(feeds: Feeds, user_id: str, reader: Reader) -> Inbox:
            run = (await served.send(conversation, "say x"))["run"]
            await other.status("completed", run["id"])
            return await join(feeds, user_id, reader)

        monkeypatch.setattr(Feeds, "join", late)
        async with served.listen(after=seq) as stream:
            await stream.status("completed")


@pytest.mark.case("P93")
async def test_readers_with_any_cursor_see_every_event_once_in_order(served: Serving) -> None:
    """Many writers at once; readers join at different moments, one with a tiny inbox."""
    conversations = [await served.conversation() for _ in range(6)]
    stop = asyncio.Event()
    got: list[list[int]] = []

    async def reader(after: int) -> None:
        seen: list[int] = []
        got.append(seen)
        async with served.listen(after=after) as stream:
            async for heard in stream.events:
                if heard.id is not None:
                    seen.append(int(heard.id))
                if stop.is_set() and seen and seen[-1] >= last:
                    return

    last = 10**9
    readers = [asyncio.create_task(reader(0))]
    for round_number in range(4):
        runs = [(await served.send(c, f"say {round_number}"))["run"]["id"] for c in conversations]
        readers.append(asyncio.create_task(reader(0)))
        for run in runs:
            await served.ended(run)
    last = (await served.http.get(f"/v1/conversations/{conversations[0]}")).json()["seq"]
    stop.set()
    await served.http.patch(f"/v1/conversations/{conversations[0]}", json={"title": "the last event"})
    await within(10, asyncio.gather(*readers), "all readers")
    for seen in got:
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) >= last


async def test_events_are_read_once_for_all_streams(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0
    original = served.lifecycle.events_after

    async def counted(*arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        return await original(*arguments)

    monkeypatch.setattr(served.lifecycle, "events_after", counted)
    streams = [served.listen() for _ in range(10)]
    opened = [await stream.__aenter__() for stream in streams]
    for each in opened:
        await each.next("hello")
    reads = 0
    await served.conversation(title="for everyone")
    heard = [await each.next("conversation.changed") for each in opened]
    assert len({each.id for each in heard}) == 1
    assert reads <= 2
    for stream in streams:
        await stream.__aexit__(None, None, None)


async def test_an_inbox_that_is_full_makes_its_stream_read_for_itself(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dromos.api.feed.INBOX_BYTES", 10)
    async with served.listen() as stream:
        start = int((await stream.next("hello")).id or 0)
        for number in range(5):
            await served.conversation(title=str(number))
        heard = [await stream.next() for _ in range(5)]
    assert numbers(heard) == list(range(start + 1, start + 6))


@pytest.mark.case("P93")
@pytest.mark.slow(60)
async def test_a_client_that_does_not_read_costs_little_and_holds_up_nobody(served: Serving) -> None:
    conversation = await served.conversation()
    raw = socket.create_connection(("127.0.0.1", served.server.port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.sendall(f"GET /v1/stream?after=0&focus={conversation} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    await eventually(lambda: served.app.state.door.feeds.open == 1, what="the open stream")
    big = "x" * 200_000
    for number in range(30):
        await served.conversation(title=f"{number}")
        await served.ended((await served.send(conversation, f"say {big}"))["run"]["id"])
    inboxes = [inbox for tail in served.app.state.door.feeds._tails.values() for inbox in tail.inboxes]
    assert inboxes
    assert all(held(inbox) <= 512 * 1024 for inbox in inboxes)
    raw.close()
    await eventually(lambda: served.app.state.door.feeds.open == 0, what="the end of the stream")


def held(inbox: Inbox) -> int:
    return sum(len(event.bytes) for event in inbox._events)


async def test_a_heartbeat_comes_while_nothing_happens(start: Start) -> None:
    serving = await start(work=False, heartbeat=0.05)
    async with serving.listen() as stream:
        await stream.next("hello")
        waiting = asyncio.create_task(stream.next("conversation.changed"))
        await eventually(lambda: stream.comments >= 3, what="three heartbeats")
        await serving.conversation()
        await waiting


async def test_a_lost_wake_up_costs_latency_only(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = await start(work=False, reread=0.1)
    async with serving.listen() as stream:
        await stream.next("hello")
        monkeypatch.setattr(serving.lifecycle.wakeup, "notify", lambda topic, news=(): None)
        await serving.conversation()
        await stream.next("conversation.changed")


@pytest.mark.case("P138")
async def test_at_shutdown_every_stream_says_goodbye_and_ends(start: Start) -> None:
    first = await start()
    conversation = await first.conversation()
    run = (await first.send(conversation, "say one\ngate never"))["run"]
    await first.puppet.at("never")
    queries: list[dict[str, str]] = [{}, {"focus": conversation}] * 5
    streams = [first.listen(**query) for query in queries]
    opened = [await stream.__aenter__() for stream in streams]
    cursors = [(await each.next("hello")).id for each in opened]
    first.closing.set()
    for each in opened:
        rest = await each.rest(seconds=1)
        assert (rest[-1].event, rest[-1].data, rest[-1].id) == ("goodbye", {"reason": "drain"}, None)
    late = await within(1, first.http.get("/v1/stream"), "the goodbye to a late one")
    assert "goodbye" in late.text
    for stream in streams:
        await stream.__aexit__(None, None, None)
    assert first.worker is not None
    await first.worker.drain()
    first.worker = None

    second = await start()
    async with second.listen(last=cursors[0]) as stream:
        again = await stream.status("running", run["id"])
        assert again.data["payload"]["run"]["attempt"] == 2


@pytest.mark.case("P138")
async def test_a_client_that_does_not_read_cannot_hold_up_the_shutdown(start: Start) -> None:
    serving = await start(work=False)
    for number in range(30):
        await serving.conversation(title=f"{number} " + "x" * 400)
    raw = socket.create_connection(("127.0.0.1", serving.server.port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    raw.sendall(b"GET /v1/stream?after=0 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    feeds = serving.app.state.door.feeds
    await eventually(lambda: feeds.open == 1, what="the open stream")
    serving.closing.set()
    await eventually(lambda: feeds.open == 0, seconds=3, what="the end of the stream")
    raw.close()


async def test_nothing_of_a_stream_is_left_when_its_client_is_gone(served: Serving) -> None:
    conversation = await served.conversation()
    feeds = served.app.state.door.feeds
    async with served.listen(focus=conversation) as stream:
        await stream.next("hello")
        assert feeds.open == 1
    await eventually(lambda: feeds.open == 0, what="the end of the stream")
    assert (feeds._tails, feeds._stops) == ({}, {})
    assert not served.live.watched(conversation)


async def test_streams_tell_proxies_not_to_buffer(served: Serving) -> None:
    async with served.http.stream("GET", "/v1/stream") as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["x-accel-buffering"] == "no"
        assert "no-cache" in response.headers["cache-control"]


async def test_a_stream_survives_a_store_that_is_away_for_a_moment(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dromos.domain.errors import StoreUnavailable

    serving = await start(work=False, reread=0.1)
    original = serving.lifecycle.events_after
    failures = 0

    async def flaky(*arguments: Any) -> Any:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise StoreUnavailable("the database is away: wait")
        return await original(*arguments)

    async with serving.listen() as stream:
        await stream.next("hello")
        monkeypatch.setattr(serving.lifecycle, "events_after", flaky)
        notify = serving.wakeup.notify  # as if another server had written it
        monkeypatch.setattr(serving.wakeup, "notify", lambda topic, news=(): notify(topic))
        await serving.conversation()
        await stream.next("conversation.changed")
    assert failures == 2


async def test_a_stream_needs_no_body_and_no_content_type(served: Serving) -> None:
    async with httpx.AsyncClient(base_url=served.server.url, trust_env=False) as http:
        async with http.stream("GET", "/v1/stream", headers={"accept": "text/event-stream"}) as response:
            assert response.status_code == 200
