"""What stays on a terminal when the status line is gone: the text, each word once."""

from __future__ import annotations

import io
import itertools

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dromos.cli.screen import TerminalScreen


def kept(pieces: list[str], width: int) -> str:
    """What was printed above the status line, in order."""
    paper = io.StringIO()
    console = Console(file=paper, width=width, force_terminal=False, highlight=False)
    screen = TerminalScreen(console)
    for piece in pieces:
        screen.text(piece)
    screen.close("the end", "")
    return paper.getvalue()


WORDS = st.lists(st.from_regex(r"[a-z]{1,12}", fullmatch=True), max_size=200)


@given(WORDS, st.lists(st.integers(0, 2000), max_size=20), st.integers(20, 100))
def test_each_word_is_written_once_in_its_order(words: list[str], cuts: list[int], width: int) -> None:
    text = " ".join(words)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(edges)]
    printed = kept(pieces, width)
    assert printed.split() == [*words, "the", "end"]
    assert max(map(len, printed.splitlines())) <= width


def test_lines_of_the_answer_stay_lines() -> None:
    assert kept(["one\ntw", "o\n\n  three", "\n"], 40) == "one\ntwo\n\n  three\nthe end\n"


def test_control_characters_of_a_model_are_shown_and_not_obeyed() -> None:
    assert kept(["\x1b[2Jgone?\x07"], 40) == "\\u001b[2Jgone?\\u0007\nthe end\n"
