"""The scripted model's language and its place in a conversation: pure, so tested without any face."""

from __future__ import annotations

import pytest

from dromos.agents.langgraph.scripted.directives import (
    Break,
    Call,
    Error,
    ReportUsage,
    Say,
    Silent,
    Tokens,
    Turn,
    parse,
)
from dromos.agents.langgraph.scripted.engine import (
    CallPiece,
    FailureCounts,
    Message,
    Opened,
    Piece,
    ScriptedHTTPError,
    ScriptedStreamError,
    TextPiece,
    Usage,
    compose,
    perform,
)


async def played(*history: Message, counts: FailureCounts | None = None) -> list[Piece]:
    return [piece async for piece in perform(compose(history), counts or FailureCounts())]


async def said(*history: Message) -> str:
    return "".join(piece.text for piece in await played(*history) if isinstance(piece, TextPiece))


def test_every_directive_is_read() -> None:
    script = "\n".join(
        [
            "!say hello there",
            "!tokens 3 20",
            "!silent 0.5",
            "!usage in=10 out=5 cached=2",
            "!error 429 x2 retry-after=3",
            "!break",
            '!call search {"query": "tea"}',
            "!call now",
            "a plain line",
        ]
    )
    assert parse(script) == (
        Turn(
            (
                Say("hello there"),
                Tokens(3, 20.0),
                Silent(0.5),
                ReportUsage(10, 5, 2),
                Error(429, 2, "3"),
                Break(),
            ),
            (Call("search", {"query": "tea"}), Call("now", {})),
        ),
        Turn((Say("a plain line"),)),
    )


def test_calls_on_adjacent_lines_are_one_turn_and_a_line_between_makes_two() -> None:
    assert [len(turn.calls) for turn in parse("!call a\n\n!call b")] == [2]
    assert [len(turn.calls) for turn in parse("!call a\n!say x\n!call b")] == [1, 1]


@pytest.mark.parametrize("text", ["hello", "two\nlines\n", "", "!unknown directive", "wow!say no"])
async def test_a_message_without_a_directive_is_echoed_whole(text: str) -> None:
    assert await said(Message("human", text)) == text


@pytest.mark.parametrize(
    "line",
    [
        "!tokens many",
        "!tokens 3 fast",
        "!call",
        "!call search {not json}",
        "!call search [1]",
        "!error soon",
        "!error 200",
        "!error 500 twice",
        '!error 500 "',
        "!silent",
        "!break now",
        "!usage in=few",
    ],
)
async def test_a_directive_that_cannot_be_read_is_answered_with_the_reason(line: str) -> None:
    assert (await said(Message("human", line))).startswith(f"Cannot read {line!r}: ")


async def test_the_script_goes_on_after_each_turns_results() -> None:
    script = Message("human", "!say first\n!call a\n!call b\n!say second\n!call c\n!say last")
    first = await played(script)
    assert [piece.id for piece in first if isinstance(piece, CallPiece)] == ["call_1", "call_2"]

    answered = (
        script,
        Message("assistant", "first", ("call_1", "call_2")),
        Message("tool", "A", tool="a"),
        Message("tool", "B", tool="b"),
    )
    second = await played(*answered)
    assert [piece.id for piece in second if isinstance(piece, CallPiece)] == ["call_3"]
    assert await played(*answered) == second  # a replay is the same to the letter

    history = (*answered, Message("assistant", "second", ("call_3",)), Message("tool", "C", tool="c"))
    assert await said(*history) == "last"


async def test_a_newer_human_message_is_a_new_script_whose_call_ids_are_new() -> None:
    history = (
        Message("human", "!call a\n!call b"),
        Message("assistant", "", ("call_1", "call_2")),
        Message("tool", "A"),
        Message("tool", "B"),
        Message("human", "!call c"),
    )
    calls = [piece for piece in await played(*history) if isinstance(piece, CallPiece)]
    assert [(call.id, call.tool) for call in calls] == [("call_3", "c")]


async def test_a_script_that_ends_with_calls_closes_by_repeating_their_results() -> None:
    history = (
        Message("human", "!call a\n!call b"),
        Message("assistant", "", ("call_1", "call_2")),
        Message("tool", "seven", tool="a"),
        Message("tool", "eight", tool="b"),
    )
    assert await said(*history) == "a: seven\nb: eight"


async def test_texts_of_one_turn_are_separated_and_come_word_by_word() -> None:
    pieces = await played(Message("human", "!say one two\n!tokens 2"))
    texts = [piece.text for piece in pieces if isinstance(piece, TextPiece)]
    assert texts == ["one", " two", "\n", "w1", " w2"]


async def test_a_very_long_text_comes_in_a_bounded_number_of_pieces() -> None:
    text = "word " * 50_000
    pieces = await played(Message("human", text))
    assert len(pieces) < 2_100
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)) == text


async def test_an_error_fails_as_often_as_it_says_and_then_starts_again() -> None:
    counts = FailureCounts()
    script = Message("human", "!error 503 x2 retry-after=7\n!say through")
    for _ in range(2):
        for _ in range(2):
            with pytest.raises(ScriptedHTTPError) as failure:
                await played(script, counts=counts)
            assert failure.value.status_code == 503
            assert failure.value.response.headers == {"retry-after": "7"}
        assert await played(script, counts=counts)


async def test_an_error_without_times_always_fails() -> None:
    counts = FailureCounts()
    for _ in range(5):
        with pytest.raises(ScriptedHTTPError):
            await played(Message("human", "!error 500"), counts=counts)


async def test_failures_of_other_conversations_are_counted_apart_and_survive_a_restart() -> None:
    counts = FailureCounts()
    with pytest.raises(ScriptedHTTPError):
        await played(Message("human", "!error 500 x1"), counts=counts)
    with pytest.raises(ScriptedHTTPError):
        await played(Message("human", "before"), Message("human", "!error 500 x1"), counts=counts)
    assert await played(Message("human", "!error 500 x1"), counts=FailureCounts(counts.as_dict()))


def test_the_oldest_failure_counts_are_forgotten() -> None:
    counts = FailureCounts(size=2)
    for key in ("a", "b", "c"):
        assert counts.fails_now(key, 1)
    assert set(counts.as_dict()) == {"b", "c"}


async def test_a_break_ends_the_stream_after_what_was_said_before() -> None:
    pieces = perform(compose([Message("human", "!say half\n!break\n!say never")]), FailureCounts())
    assert [await anext(pieces), await anext(pieces)] == [Opened(), TextPiece("half")]
    with pytest.raises(ScriptedStreamError):
        await anext(pieces)


def test_usage_is_counted_in_words_unless_the_script_reports_its_own() -> None:
    assert compose([Message("system", "be good"), Message("human", "!say a b c")]).usage == Usage(6, 3)
    assert compose([Message("human", "!say a\n!usage in=100 cached=40")]).usage == Usage(100, 1, 40)


def test_a_history_without_a_human_message_is_answered_with_nothing() -> None:
    assert compose([Message("system", "be good")]).calls == ()
