"""What is said arrives once, whole and in order, whatever the server has of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dromos.client.adapter.spoken import MOST_AT_ONCE, MOST_SHOWN, Spoken
from dromos.domain.text import utf16_length


class Reader:
    """The server's text part: takes a piece only where it fits."""

    def __init__(self) -> None:
        self.message_id: str | None = None
        self.text = ""

    def take(self, piece: dict[str, Any]) -> None:
        if piece["message_id"] != self.message_id:
            assert piece["offset"] == 0
            self.message_id, self.text = piece["message_id"], ""
        assert piece["offset"] == utf16_length(self.text)
        piece["append"].encode()  # no half of a pair
        self.text += piece["append"]

    @property
    def shown(self) -> dict[str, Any]:
        return {"message_id": self.message_id, "length": utf16_length(self.text), "content": self.text}


def spoken() -> Spoken:
    numbers = iter(range(100))
    return Spoken(lambda: f"m{next(numbers)}")


def test_a_message_travels_in_pieces_and_the_next_one_begins_anew() -> None:
    said, reader = spoken(), Reader()
    said.say("Hello ")
    said.say("world")
    piece = said.piece()
    assert piece == {"message_id": "m0", "offset": 0, "append": "Hello world"}
    reader.take(piece)
    said.took(piece)
    assert said.piece() is None
    said.say("!")
    assert said.piece() == {"message_id": "m0", "offset": 11, "append": "!"}
    assert said.end() == ("m0", "Hello world!")
    assert said.piece() is None
    said.say("more")
    assert said.piece() == {"message_id": "m1", "offset": 0, "append": "more"}
    assert said.text == "more"


def test_what_the_server_refused_to_show_is_not_sent_again_once_its_document_was_read() -> None:
    said = spoken()
    said.say("refused")
    said.give_up()
    said.seen({"message_id": None, "length": 0})
    said.say(" and more")
    assert said.piece() is None
    assert said.end() == ("m0", "refused and more")
    said.say("the next")
    assert said.piece() == {"message_id": "m1", "offset": 0, "append": "the next"}


def test_a_long_message_is_cut_between_characters_and_shown_up_to_the_limit() -> None:
    said, reader = spoken(), Reader()
    said.say("🌊" * (MOST_AT_ONCE // 2 + 3))
    piece = said.piece()
    assert piece is not None and utf16_length(piece["append"]) == MOST_AT_ONCE
    said.say("x" * 2 * MOST_SHOWN)
    said.say("unseen")
    while (piece := said.piece()) is not None:
        reader.take(piece)
        said.took(piece)
    assert len(reader.text.encode()) == MOST_SHOWN
    assert said.text.startswith(reader.text) and said.text.endswith("unseen")
    said.seen(reader.shown)
    assert said.piece() is None


def test_a_pair_that_comes_in_two_halves_is_one_character() -> None:
    said = spoken()
    said.say("a\ud83c")
    assert said.piece() == {"message_id": "m0", "offset": 0, "append": "a"}
    said.say("\udf0ab\x00")
    assert said.text == "a🌊b\ufffd"


def test_a_message_whose_part_somebody_replaced_is_said_again_from_its_beginning() -> None:
    said = spoken()
    said.say("one two")
    piece = said.piece()
    assert piece is not None
    said.took(piece)
    said.seen({"message_id": "other", "length": 3})
    assert said.piece() == {"message_id": "m0", "offset": 0, "append": "one two"}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("say"), st.text("ab🌊é", max_size=4)),
            st.tuples(st.sampled_from(["arrives", "lost before", "lost after"]), st.none()),
        ),
        max_size=30,
    )
)
def test_lost_requests_and_lost_answers_neither_drop_nor_double_a_word(moves: list[tuple[str, Any]]) -> None:
    said, reader = spoken(), Reader()
    for move, text in [*moves, ("arrives", None)]:
        if move == "say":
            said.say(text)
            continue
        piece = said.piece()
        if piece is None:
            continue
        if move != "lost before":
            reader.take(piece)
        if move == "arrives":
            said.took(piece)
        else:
            said.seen(reader.shown)
    while (piece := said.piece()) is not None:
        reader.take(piece)
        said.took(piece)
    assert reader.text == said.text
