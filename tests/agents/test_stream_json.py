"""Reading what command-line agents print: known lines become events, everything else is skipped."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dromos.agents.process.stream_json import (
    Began,
    Call,
    Delta,
    Other,
    Result,
    Returned,
    Said,
    Session,
    plan_of,
    read_line,
)


def line(**value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("given_line", "events"),
    [
        (
            line(type="system", subtype="init", session_id="s1", model="m"),
            [Session("s1", "m")],
        ),
        (line(type="stream_event", event={"type": "message_start"}), [Began()]),
        (
            line(
                type="stream_event",
                event={"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hi"}},
                parent_tool_use_id="t",
            ),
            [Delta("hi", "t")],
        ),
        (
            line(
                type="assistant",
                message={
                    "id": "m1",
                    "content": [
                        {"type": "thinking", "thinking": "hm"},
                        {"type": "text", "text": "Hello"},
                        {"type": "tool_use", "id": "c1", "name": "Read", "input": {"file": "x"}},
                    ],
                    "usage": {
                        "input_tokens": 1,
                        "cache_read_input_tokens": 2,
                        "cache_creation_input_tokens": 3,
                        "output_tokens": 4,
                    },
                },
            ),
            [
                Said(
                    "m1",
                    "Hello",
                    (Call("c1", "Read", {"file": "x"}),),
                    {"input": 6, "output": 4, "cached": 2},
                )
            ],
        ),
        (
            line(
                type="user",
                message={
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "c1",
                            "content": [{"type": "text", "text": "ok"}],
                        },
                        {"type": "tool_result", "tool_use_id": "c2", "content": "bad", "is_error": True},
                    ]
                },
            ),
            [Returned("c1", "ok", False), Returned("c2", "bad", True)],
        ),
        (
            line(type="result", subtype="success", result="done", session_id="s", total_cost_usd=0.0000012),
            [Result(True, "success", "done", "s", None, "0.0000012")],
        ),
        (
            line(type="result", subtype="error_max_turns", is_error=True),
            [Result(False, "error_max_turns", "", None, None, None)],
        ),
        (line(type="progress", percent=3), [Other()]),
        (b"Warning: no config found", [Other("Warning: no config found")]),
        (b"[1, 2]", [Other()]),
        (b"  ", []),
    ],
)
def test_a_line_becomes_its_events(given_line: bytes, events: list[Any]) -> None:
    assert read_line(given_line) == events


def test_broken_characters_are_replaced() -> None:
    assert read_line(b'{"type": "stream_event", "event": {"delta": {"text": "a\\ud800\xffb\\u0000"}}}') == [
        Delta("a\ufffd\ufffdb\ufffd")
    ]


def test_a_todo_list_becomes_a_plan() -> None:
    todos = [
        {"content": "Look", "status": "completed"},
        {"content": "Write", "status": "in_progress", "activeForm": "Writing"},
        {"content": "Check", "status": "?"},
    ]
    assert plan_of(Call("c", "TodoWrite", {"todos": todos})) == [
        {"id": "1", "title": "Look", "status": "done"},
        {"id": "2", "title": "Write", "status": "active"},
        {"id": "3", "title": "Check", "status": "pending"},
    ]
    assert plan_of(Call("c", "Read", {"todos": todos})) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
known = st.fixed_dictionaries(
    {"type": st.sampled_from(["system", "assistant", "user", "result", "stream_event"])},
    optional=dict.fromkeys(
        ("message", "event", "usage", "session_id", "subtype", "total_cost_usd", "is_error"), json_values
    ),
)


@given(st.binary(max_size=200) | known.map(lambda value: json.dumps(value).encode()))
def test_no_line_whatever_is_in_it_breaks_the_reader(anything: bytes) -> None:
    for event in read_line(anything):
        assert event is not None
