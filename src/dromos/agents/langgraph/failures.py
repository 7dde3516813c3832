"""What went wrong in an attempt, in the closed set of error codes: the one classifier of exceptions.

It knows the errors of the model clients by their names and status codes, so that none of them has to be imported.
A status code counts only where the error comes from a model: a tool's or a node's own HTTP error is the agent's.
"""

from __future__ import annotations

import errno
import math
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from dromos.domain.errors import Unavailable
from dromos.domain.reasons import ErrorCode
from dromos.domain.text import clean_text

MESSAGE_LIMIT = 2000
"""Characters of an error's text that are kept."""

_MODEL_PACKAGES = frozenset(
    {
        "anthropic",
        "openai",
        "ollama",
        "langchain_anthropic",
        "langchain_openai",
        "langchain_ollama",
        "langchain_google_genai",
        "langchain_mistralai",
        "langchain_groq",
        "langchain_aws",
    }
)
_SCRIPTED = "dromos.agents.langgraph.scripted"
_CONTEXT = re.compile(
    r"context_length_exceeded|context length|maximum context|context window|prompt is too long|too many tokens"
    r"|exceeds? the (available )?context",
    re.IGNORECASE,
)
_SECRETS = re.compile(
    r"(?i)\b(?:sk|pk|rk|key|ghp|gho|xox[abp])-[\w-]{8,}"
    r"|(?<=bearer )[\w.~+/=-]{8,}"
    r"|(?<=api[-_]key[=:])\s*\"?[\w.-]{6,}"
    r"|(?<=://)[^/@\s:]+:[^/@\s]+(?=@)"
)
_REFUSED = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "ProxyError"})
_BROKEN = frozenset(
    {
        "ReadError",
        "ReadTimeout",
        "WriteError",
        "WriteTimeout",
        "RemoteProtocolError",
        "LocalProtocolError",
        "DecodingError",
        "JSONDecodeError",
        "IncompleteRead",
        "APIResponseValidationError",
        "ScriptedStreamError",
        "UnfinishedAnswer",
    }
)


class UnfinishedAnswer(Exception):
    """A model's stream ended without saying that the answer is complete."""

    def __init__(self) -> None:
        super().__init__("the model's answer broke off: its stream ended without a stop marker")


class ConfigurationInvalid(Exception):
    """The agent cannot work as configured; the message says the cure."""


class ModelFault(Exception):
    """Something about the choice of model; `code` says what."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception, understood. `retry_after` in seconds where the model's server named a time. `is_final`: trying
    again cannot help."""

    code: ErrorCode
    message: str
    retry_after: float | None = None
    is_final: bool = False


def classify(error: BaseException, *, from_model: bool = False, now: datetime | None = None) -> Failure:
    """`from_model`: a model call is known to have raised it. `now` is needed for a Retry-After that is a date."""
    if isinstance(error, ModelFault):
        return Failure(error.code, safe_text(error))
    if isinstance(error, ConfigurationInvalid):
        return Failure(ErrorCode.CONFIG_INVALID, safe_text(error))
    if isinstance(error, Unavailable):
        return Failure(ErrorCode.INTERNAL, safe_text(error.detail))
    name = type(error).__name__
    if name == "GraphRecursionError":
        return Failure(
            ErrorCode.RECURSION_LIMIT, "The run reached its step limit. Continue gives it a fresh one."
        )
    if name == "StateUnreadable":
        return Failure(ErrorCode.STATE_UNREADABLE, f"{safe_text(error)} Put the class back, then continue.")
    if from_model or any(_is_of_model(link) for link in _chain(error)):
        return _of_model(error, now)
    text = safe_text(error)
    return Failure(ErrorCode.AGENT_FAILURE, f"{name}: {text}" if text else name)


def _of_model(error: BaseException, now: datetime | None) -> Failure:
    text = safe_text(error) or type(error).__name__
    status = next((code for link in _chain(error) if (code := _status(link)) is not None), None)
    if status is not None:
        return _of_status(status, error, text, now)
    names = {type(link).__name__ for link in _chain(error)}
    if _CONTEXT.search(text):
        return Failure(ErrorCode.CONTEXT_OVERFLOW, f"The conversation is too long for the model: {text}")
    if names & _REFUSED or any(map(_is_refusal, _chain(error))):
        return Failure(ErrorCode.MODEL_UNAVAILABLE, f"The model's server cannot be reached: {text}")
    if "AuthenticationError" in names or "api_key" in text:
        return Failure(ErrorCode.MODEL_AUTH, text)
    if names & _BROKEN or names & {"APIConnectionError", "APITimeoutError", "APIError"}:
        return Failure(ErrorCode.MODEL_BAD_RESPONSE, text)
    if isinstance(error, ConnectionError | TimeoutError):
        return Failure(ErrorCode.MODEL_UNAVAILABLE, f"The model's server cannot be reached: {text}")
    return Failure(ErrorCode.MODEL_BAD_RESPONSE, text)


def _of_status(status: int, error: BaseException, text: str, now: datetime | None) -> Failure:
    if status in (401, 402, 403):
        return Failure(ErrorCode.MODEL_AUTH, f"The model's server refused the key ({status}): {text}")
    if status == 429:
        wait = next((w for link in _chain(error) if (w := _retry_after(link, now)) is not None), None)
        return Failure(ErrorCode.MODEL_RATE_LIMITED, text, wait, is_final="insufficient_quota" in text)
    if status == 413 or (status < 500 and _CONTEXT.search(text)):
        return Failure(ErrorCode.CONTEXT_OVERFLOW, f"The conversation is too long for the model: {text}")
    if status == 404:
        return Failure(ErrorCode.MODEL_UNAVAILABLE, f"The model's server does not have this model: {text}")
    if status >= 500 or status in (408, 409, 425) or status < 400:
        wait = next((w for link in _chain(error) if (w := _retry_after(link, now)) is not None), None)
        return Failure(ErrorCode.MODEL_BAD_RESPONSE, text, wait)
    return Failure(ErrorCode.AGENT_FAILURE, f"The model's server refused the request ({status}): {text}")


def safe_text(error: object) -> str:
    """An error's text without keys, cleaned and capped."""
    text = _SECRETS.sub("***", clean_text(str(error))).strip()
    return text if len(text) <= MESSAGE_LIMIT else f"{text[:MESSAGE_LIMIT]}…"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, outermost first; every member of a group."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop(0)
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(link.exceptions)
        waiting.append(link.__cause__ or (None if link.__suppress_context__ else link.__context__))


def _is_of_model(error: BaseException) -> bool:
    module = type(error).__module__
    return (
        module.split(".", 1)[0] in _MODEL_PACKAGES
        or module.startswith(_SCRIPTED)
        or (isinstance(error, UnfinishedAnswer))
    )


def _is_refusal(error: BaseException) -> bool:
    if isinstance(error, ConnectionRefusedError | socket.gaierror):
        return True
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return True
    return isinstance(error, ConnectionError) and "Failed to connect" in str(error)


def _status(error: BaseException) -> int | None:
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int) and not isinstance(status, bool) and status > 0:
            return status
    return None


def _retry_after(error: BaseException, now: datetime | None) -> float | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    raw = headers.get("retry-after") if headers is not None else getattr(error, "retry_after", None)
    if raw is None:
        return None
    try:
        seconds = float(raw)
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    except (TypeError, ValueError):
        pass
    try:
        at = parsedate_to_datetime(str(raw))
    except ValueError:
        return None
    if now is None:
        return None
    return max((at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds(), 0.0)
