"""The classifier of exceptions, with the errors of the real clients."""

from __future__ import annotations

from datetime import UTC, datetime

import anthropic
import httpx
import ollama
import pytest

from dromos.agents.langgraph.checkpoint_rows import StateUnreadable
from dromos.agents.langgraph.failures import ConfigurationInvalid, UnfinishedAnswer, classify, safe_text
from dromos.domain.errors import StoreUnavailable
from dromos.domain.reasons import ErrorCode

REQUEST = httpx.Request("POST", "http://model.example/v1")


def status_error(status: int, text: str = "no", headers: dict[str, str] | None = None) -> Exception:
    response = httpx.Response(status, headers=headers, request=REQUEST, text=text)
    return anthropic.APIStatusError(text, response=response, body=None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (status_error(401), ErrorCode.MODEL_AUTH),
        (status_error(402), ErrorCode.MODEL_AUTH),
        (status_error(403), ErrorCode.MODEL_AUTH),
        (status_error(404), ErrorCode.MODEL_UNAVAILABLE),
        (status_error(408), ErrorCode.MODEL_BAD_RESPONSE),
        (status_error(413), ErrorCode.CONTEXT_OVERFLOW),
        (status_error(422), ErrorCode.AGENT_FAILURE),
        (status_error(429), ErrorCode.MODEL_RATE_LIMITED),
        (status_error(500), ErrorCode.MODEL_BAD_RESPONSE),
        (status_error(529), ErrorCode.MODEL_BAD_RESPONSE),
        (status_error(400, "prompt is too long: 300000 tokens"), ErrorCode.CONTEXT_OVERFLOW),
        (status_error(400, "This model's maximum context length is 10"), ErrorCode.CONTEXT_OVERFLOW),
        (anthropic.APIConnectionError(request=REQUEST), ErrorCode.MODEL_BAD_RESPONSE),
        (anthropic.APITimeoutError(request=REQUEST), ErrorCode.MODEL_BAD_RESPONSE),
        (ollama.ResponseError("model 'x' not found", 404), ErrorCode.MODEL_UNAVAILABLE),
        (ollama.ResponseError("busy", 503), ErrorCode.MODEL_BAD_RESPONSE),
        (UnfinishedAnswer(), ErrorCode.MODEL_BAD_RESPONSE),
        (StateUnreadable("marker", "gone"), ErrorCode.STATE_UNREADABLE),
        (ConfigurationInvalid("set input"), ErrorCode.CONFIG_INVALID),
        (StoreUnavailable("disk full"), ErrorCode.INTERNAL),
        (ValueError("x"), ErrorCode.AGENT_FAILURE),
    ],
)
def test_each_error_has_its_code(error, code):
    assert classify(error).code is code


def test_a_refused_connection_is_found_behind_the_clients_own_error():
    error = anthropic.APIConnectionError(request=REQUEST)
    error.__cause__ = httpx.ConnectError("refused", request=REQUEST)

    assert classify(error).code is ErrorCode.MODEL_UNAVAILABLE


def test_ollamas_builtin_error_counts_where_a_model_raised_it():
    error = ConnectionError("Failed to connect to Ollama. Please check that Ollama is downloaded.")

    assert classify(error).code is ErrorCode.AGENT_FAILURE
    assert classify(error, from_model=True).code is ErrorCode.MODEL_UNAVAILABLE


def test_an_http_error_of_a_tool_or_node_is_not_the_models():
    response = httpx.Response(503, request=REQUEST)

    assert (
        classify(httpx.HTTPStatusError("503", request=REQUEST, response=response)).code
        is ErrorCode.AGENT_FAILURE
    )


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("17", 17.0),
        ("0.5", 0.5),
        ("Sun, 29 Nov 2026 12:00:30 GMT", 30.0),
        ("Sun, 29 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("1e400", None),
        ("Sun, 99 Nov 2026 12:00:30 GMT", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header, seconds):
    now = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)

    assert classify(status_error(429, headers={"retry-after": header}), now=now).retry_after == seconds


def test_a_group_is_looked_into():
    group = ExceptionGroup("tasks", [ValueError("x"), status_error(401)])

    assert classify(group).code is ErrorCode.MODEL_AUTH


@pytest.mark.parametrize(
    "secret",
    [
        "Incorrect API key provided: sk-proj-abcdef123456",
        "Authorization: Bearer abcdef.123456",
        "https://host/x?api_key=abcdef123456",
        "http://ada:abcdef123456@host/",
    ],
)
def test_error_texts_hold_no_keys(secret):
    text = safe_text(ValueError(secret))

    assert "123456" not in text
    assert "***" in text


@pytest.mark.case("P131")
def test_error_texts_are_clean_and_capped():
    text = safe_text(ValueError("a\x00\udce9" + "x" * 5000))

    text.encode()
    assert text.startswith("a\ufffd\ufffd")
    assert len(text) <= 2001
