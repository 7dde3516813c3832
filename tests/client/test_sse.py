"""The parser of server-sent events: what the standard says, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dromos.client.sse import ServerSentEvent, SseParser, SseTooLong


def parse(content: bytes, *cuts: int) -> list[ServerSentEvent]:
    parser, events = SseParser(), []
    edges = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    for start, end in pairwise(edges):
        events += parser.feed(content[start:end])
    return events


@pytest.mark.parametrize(
    ("content", "events"),
    [
        ("data: a\n\n", [("message", "a", None)]),
        ("event: x\nid: 7\ndata: a\ndata:\ndata:  b\n\n", [("x", "a\n\n b", "7")]),
        (": a comment\n:\ndata: a\n\n", [("message", "a", None)]),
        ("\ufeffdata: a\n\n", [("message", "a", None)]),
        ("data: a\r\rdata: b\r\n\r\ndata: c\n\r", [("message", x, None) for x in "abc"]),
        ("event: x\n\ndata: a\n\n", [("message", "a", None)]),
        ("id: 7\n\ndata: a\n\n", [("message", "a", None)]),
        ("id: 7\ndata: a\n\ndata: b\n\n", [("message", "a", "7"), ("message", "b", None)]),
        ("id: 1\0\ndata: a\n\n", [("message", "a", None)]),
        ("data\n\n", [("message", "", None)]),
        ("unknown: x\ndata: a\n\n", [("message", "a", None)]),
        ("data: cut off", []),
        ("data: cut off\n", []),
        ("data: Grüße 🌊\n\n", [("message", "Grüße 🌊", None)]),
    ],
)
def test_a_stream_reads_as_the_standard_says(content: str, events: list[tuple[str, str, str | None]]) -> None:
    expected = [ServerSentEvent(*event) for event in events]
    encoded = content.encode()
    assert parse(encoded) == expected
    assert parse(encoded, *range(len(encoded))) == expected, "byte by byte"


LINES = st.sampled_from(
    ["data: ä🌊", "data:", "event: e", "id: 4", ": c", "", "retry: 9", "x", "data: {}", "\u2028"]
)
ENDS = st.sampled_from(["\n", "\r", "\r\n"])


@given(st.lists(st.tuples(LINES, ENDS)), st.lists(st.integers(0, 400)))
def test_any_cut_of_the_bytes_gives_the_same_events(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    content = "".join(line + end for line, end in lines).encode()
    assert parse(content, *cuts) == parse(content)


NO_BREAK = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))
WORD = st.from_regex(r"[a-z.]{1,9}", fullmatch=True)


@given(
    st.lists(st.tuples(WORD, st.lists(NO_BREAK, min_size=1), st.none() | WORD)), ENDS, st.lists(st.integers())
)
def test_what_is_written_is_what_is_read(
    events: list[tuple[str, list[str], str | None]], end: str, cuts: list[int]
) -> None:
    content = ""
    for event, lines, number in events:
        head = [f"event: {event}", *([f"id: {number}"] if number is not None else [])]
        content += end.join([*head, *(f"data: {line}" for line in lines), "", ""])
    expected = [ServerSentEvent(event, "\n".join(lines), number) for event, lines, number in events]
    assert parse(content.encode(), *cuts) == expected


def test_the_wish_for_a_pause_is_kept() -> None:
    parser = SseParser()
    list(parser.feed(b"retry: 250\nretry: soon\n\n"))
    assert parser.retry_ms == 250


@pytest.mark.parametrize("piece", [b"data: aaaaaaaaaaaaaaaa\n", b"aaaaaaaaaaaaaaaa"])
def test_an_event_without_end_is_refused_before_it_fills_the_memory(piece: bytes) -> None:
    parser, fed = SseParser(limit=1000), 0

    def feed() -> int:
        return len(list(parser.feed(piece)))

    while fed + len(piece) < 1000:
        assert feed() == 0
        fed += len(piece)
    with pytest.raises(SseTooLong):
        [feed() for _ in range(50)]
