"""Texts as they are shown."""

from __future__ import annotations

import pytest

from dromos.domain.text import one_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("\n \n", ""),
        ("The answer is 4.", "The answer is 4."),
        ("# A **bold** title\n\nmore", "A bold title"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("---\n> said `so`", "said so"),
        ("First sentence. Second sentence that is too long.", "First sentence."),
        ("一句话。" * 20, "一句话。" * 10),
        ("1.5 million words without an end of a sentence at all", "1.5 million words without an end of a…"),
        ("x" * 80, "x" * 39 + "…"),
    ],
)
def test_a_text_is_put_into_one_line_by_its_first_words_or_whole_sentences(text, line):
    assert one_line(text, 40) == line
