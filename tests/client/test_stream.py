"""The stream comes back behind the last event it gave, whatever cuts it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from starlette.responses import JSONResponse, PlainTextResponse

from dromos.client import Event, EventStream, InvalidRequest, Link, ProtocolError, ServerUnreachable
from dromos.client.connection import Connection
from dromos.testing.local_http import LocalHTTP
from dromos.testing.processes import free_port
from dromos.testing.waiting import within
from tests.client.played import HANG, Played, fact, frame

QUICK = (0.01,)


@pytest.fixture
async def played() -> AsyncIterator[tuple[Played, Connection]]:
    server = Played()
    async with LocalHTTP(server.app()) as http:
        connection = Connection(http.url, patience=0)
        yield server, connection
        server.over.set()
        await connection.aclose()


async def take(stream: EventStream, count: int) -> list[Event]:
    return [await within(5, anext(stream), "the next event") for _ in range(count)]


Server = tuple[Played, Connection]


async def test_a_cut_stream_goes_on_behind_the_last_number(played: Server) -> None:
    server, connection = played
    server.parts = [
        [
            frame("hello", {"seq": 3}, 3),
            fact(4),
            frame("run.text", {"offset": 0}),
            fact(5),
            b"id: 6\nevent: run.st",
        ],
        [frame("hello", {"seq": 9}), fact(6), HANG],
    ]
    async with EventStream(connection, focus="c", delays=QUICK) as stream:
        events = await take(stream, 6)
        assert stream.cursor == 6
    assert [(event.type, event.seq) for event in events] == [
        ("hello", 3),
        ("run.status", 4),
        ("run.text", None),
        ("run.status", 5),
        ("hello", None),
        ("run.status", 6),
    ]
    assert server.cursors == [None, "5"]
    assert server.focuses == ["c", "c"]


async def test_a_first_cursor_is_sent_and_nothing_is_given_twice(played: Server) -> None:
    server, connection = played
    server.parts = [[frame("hello", {"seq": 9}), fact(7), fact(8), fact(8), fact(9), HANG]]
    async with EventStream(connection, after=7, delays=QUICK) as stream:
        assert [event.seq for event in await take(stream, 3)] == [None, 8, 9]
    assert server.cursors == ["7"]


async def test_silence_is_a_cut(played: Server) -> None:
    server, connection = played
    server.parts = [
        [frame("hello", {"seq": 1}, 1), b":\n\n", HANG],
        [frame("hello", {"seq": 1}), fact(2), HANG],
    ]
    links: list[Link] = []
    async with EventStream(connection, silence=0.2, delays=QUICK, on_link=links.append) as stream:
        await take(stream, 3)
    assert links == ["up", "down", "up"]


async def test_a_goodbye_is_given_and_the_stream_comes_back(played: Server) -> None:
    server, connection = played
    server.parts = [
        [frame("hello", {"seq": 1}, 1), frame("goodbye", {"reason": "drain"}), HANG],
        [frame("hello", {"seq": 1}), fact(2), HANG],
    ]
    async with EventStream(connection, delays=QUICK) as stream:
        assert [event.type for event in await take(stream, 4)] == ["hello", "goodbye", "hello", "run.status"]


async def test_a_reset_moves_the_cursor_back_or_forth(played: Server) -> None:
    server, connection = played
    server.parts = [
        [frame("reset", {"reason": "cursor_too_old", "seq": 3}, 3), fact(4)],
        [frame("hello", {"seq": 4}), HANG],
    ]
    async with EventStream(connection, after=50, delays=QUICK) as stream:
        assert [event.seq for event in await take(stream, 3)] == [3, 4, None]
    assert server.cursors == ["50", "4"]


async def test_a_server_that_cannot_at_the_moment_is_asked_again(played: Server) -> None:
    server, connection = played
    server.parts = [
        JSONResponse({"code": "store_unavailable", "detail": "later"}, 503),
        PlainTextResponse("bad gateway", 502),
        [frame("hello", {"seq": 1}, 1), HANG],
    ]
    async with EventStream(connection, delays=QUICK) as stream:
        assert [event.type for event in await take(stream, 1)] == ["hello"]
        assert stream.connects == 1


async def test_a_refused_cursor_is_an_error_at_once(played: Server) -> None:
    server, connection = played
    server.parts = [JSONResponse({"code": "validation_failed", "detail": "no such number"}, 400)]
    async with EventStream(connection, after=1, delays=QUICK) as stream:
        with pytest.raises(InvalidRequest, match="no such number"):
            await take(stream, 1)


async def test_something_that_is_no_stream_is_named(played: Server) -> None:
    server, connection = played
    server.parts = [PlainTextResponse("hello, I am a router")]
    async with EventStream(connection, delays=QUICK) as stream:
        with pytest.raises(ProtocolError, match="is it a Dromos server"):
            await take(stream, 1)


async def test_patience_ends_where_nobody_listens() -> None:
    connection = Connection(f"http://127.0.0.1:{free_port()}", patience=0)
    async with EventStream(connection, delays=QUICK, patience=0.05) as stream:
        with pytest.raises(ServerUnreachable, match="dromos serve"):
            await take(stream, 1)
    await connection.aclose()


async def test_a_closed_stream_ends(played: Server) -> None:
    server, connection = played
    server.parts = [[frame("hello", {"seq": 1}, 1), HANG]]
    stream = EventStream(connection, delays=QUICK)
    await take(stream, 1)
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
