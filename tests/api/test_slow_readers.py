"""Readers that are slow, stuck or away for long: they cost little, hold up nobody, and are right again afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dromos.live.channel import MAX_BYTES, MAX_FRAMES
from dromos.ports.store import Le, Table, Tx
from dromos.testing.waiting import eventually, within
from tests.api.conftest import USER, Serving, Start


@contextmanager
def stuck(serving: Serving, conversation: str, after: int | None = None) -> Iterator[socket.socket]:
    """A client with a small window that asked for the stream and reads only when the test says so."""
    with contextlib.closing(socket.socket()) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", serving.server.port))
        cursor = "" if after is None else f"&after={after}"
        raw.sendall(
            f"GET /v1/stream?focus={conversation}{cursor} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
        )
        yield raw


@pytest.mark.case("P83")
@pytest.mark.slow(90)
async def test_a_client_that_reads_byte_by_byte_slows_nothing_and_is_whole_after_it_came_back(
    served: Serving,
) -> None:
    conversation = await served.conversation()
    big = "x" * 100_000
    script = "\n".join(
        [f"say {big}\nstep s{number}\ntokens 100" for number in range(50)] + ["say the end", "step last"]
    )
    with stuck(served, conversation) as raw:
        await eventually(lambda: served.app.state.door.feeds.open == 1, what="the open stream")
        run = (await served.send(conversation, script))["run"]["id"]
        reading = asyncio.create_task(asyncio.to_thread(_byte_by_byte, raw, 200))
        async with served.listen(focus=conversation) as quick:
            end = await quick.status("completed", run)
        await reading
        channel = served.live._channels[conversation]
        assert len(channel.frames) <= MAX_FRAMES
        assert sum(len(frame.sse) for frame in channel.frames) <= MAX_BYTES
    await eventually(lambda: not served.live.watched(conversation), what="the end of the slow stream")
    async with served.listen(focus=conversation, after=0) as again:
        heard = [await again.next()]
        while heard[-1].id != end.id:
            heard.append(await again.next())
    ends = [one for one in heard if one.event == "run.status" and one.data["payload"]["run"]["finished_at"]]
    assert len(ends) == 1
    document = (await served.http.get(f"/v1/runs/{run}/document")).json()["document"]
    assert document["status"] == "completed"
    assert document["steps"][-1]["name"] == "last"


def _byte_by_byte(raw: socket.socket, count: int) -> None:
    for _ in range(count):
        raw.recv(1)


@pytest.mark.case("P91")
@pytest.mark.slow(60)
async def test_a_client_that_takes_nothing_is_cut_off_and_all_others_go_on(start: Start) -> None:
    serving = await start(heartbeat=0.2)
    conversation = await serving.conversation()
    door = serving.app.state.door
    with contextlib.ExitStack() as clients:
        for _ in range(10):
            clients.enter_context(stuck(serving, conversation))
        await eventually(lambda: door.feeds.open == 10, what="ten open streams")
        async with serving.listen(focus=conversation) as quick:
            for number in range(12):
                run = (await serving.send(conversation, f"say {'x' * 900_000}\nsay {number}"))["run"]["id"]
                await quick.status("completed", run)
            await eventually(lambda: door.feeds.open == 1, seconds=20, what="the end of the stuck streams")
            assert len(serving.live._channels[conversation].readers) == 1
            await serving.conversation(title="still told")
            await quick.next("conversation.changed")


@pytest.mark.case("P82")
async def test_who_was_away_longer_than_events_are_kept_is_told_so_and_reads_anew(served: Serving) -> None:
    """A hundred events are kept, a thousand were made while the client was away with cursor 5."""
    conversation = await served.conversation()
    run = (await served.send(conversation, "say the answer\nstep look"))["run"]["id"]
    await served.ended(run)

    def away(tx: Tx) -> None:
        last = tx.first(Table.USERS, {"id": USER})["last_seq"]  # type: ignore[index]
        events = [
            {
                "user_id": USER,
                "seq": last + number,
                "type": "conversation.changed",
                "conversation_id": conversation,
                "run_id": None,
                "at": tx.now() - timedelta(days=9) if number <= 900 else tx.now(),
                "payload": {},
            }
            for number in range(1, 1001)
        ]
        tx.put_many(Table.EVENTS, events)
        tx.change(Table.EVENTS, {"user_id": USER, "seq": Le(last)}, {"at": tx.now() - timedelta(days=10)})
        tx.change(Table.USERS, {"id": USER}, {"last_seq": last + 1000})

    await served.store.write(away)
    served.lifecycle.policy = _with_retention(served.lifecycle.policy, days=8)
    while await served.lifecycle.sweep():
        pass
    kept = await served.store.read(lambda tx: tx.count(Table.EVENTS, {"user_id": USER}))
    assert kept == 100
    head = (await served.http.get(f"/v1/conversations/{conversation}")).json()["seq"]
    async with served.listen(focus=conversation, last=5) as stream:
        assert (await stream.next(seconds=1)).event == "hello"
        reset = await stream.next(seconds=1)
        assert (reset.event, reset.data, reset.id) == (
            "reset",
            {"reason": "cursor_too_old", "seq": head},
            str(head),
        )
        await served.conversation()
        assert (await stream.next()).id == str(head + 1), "nothing that is kept is replayed as if it were all"
    document = (await served.http.get(f"/v1/runs/{run}/document")).json()["document"]
    assert (document["text"]["content"], document["status"]) == ("the answer", "completed")
    async with served.listen(last=head - 99) as stream:
        numbers = [int((await stream.next()).id or 0) for _ in range(101)][1:]
    assert numbers == list(range(head - 98, head + 2))


def _with_retention(policy: Any, days: int) -> Any:
    return replace(policy, event_retention_days=days)


async def test_a_cursor_from_before_a_restart_goes_on_where_it_stood(start: Start) -> None:
    first = await start()
    conversation = await first.conversation()
    run = (await first.send(conversation, "say one\ngate g"))["run"]["id"]
    await first.puppet.at("g")
    async with first.listen(focus=conversation, after=0) as stream:
        heard = await stream.status("running", run)
    first.puppet.gate("g").set()
    await first.ended(run)
    await first.__aexit__()
    second = await start()
    async with second.listen(focus=conversation, last=heard.id) as stream:
        assert (await within(1, stream.next("hello"), "the hello")).id is None
        events = [await stream.next(seconds=1)]
        while events[-1].data["payload"].get("run", {}).get("status") != "completed":
            events.append(await stream.next(seconds=1))
    assert [int(one.id or 0) for one in events] == list(
        range(int(heard.id or 0) + 1, int(heard.id or 0) + 1 + len(events))
    )
