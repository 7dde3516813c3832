"""What clients send: a chat request read from JSON, and refused where OpenAI's own API would refuse it.

Pure. The important rule: an assistant message with tool calls is followed, before anything else, by exactly
one result for each call, and a result answers a call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dromos.agents.langgraph.scripted.engine import Message

_ROLES: dict[str, Literal["system", "human", "assistant", "tool"]] = {
    "system": "system",
    "developer": "system",
    "user": "human",
    "assistant": "assistant",
    "tool": "tool",
}


class RefusedRequestError(Exception):
    """The request is not one that OpenAI's API takes; the message says why."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One `/v1/chat/completions` request."""

    model: str
    history: tuple[Message, ...]
    stream: bool
    include_usage: bool
    """Whether the client asked for usage at the end of the stream; without a stream it always comes."""


def decode(body: Any) -> ChatRequest:
    """Read a parsed JSON body.

    Raises RefusedRequestError.
    """
    if not isinstance(body, dict):
        raise RefusedRequestError("the body must be a JSON object")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RefusedRequestError("'messages' must be a list with at least one message")
    check_history(messages)
    names = {
        call["id"]: call.get("function", {}).get("name")
        for message in messages
        for call in message.get("tool_calls") or ()
    }
    options = body.get("stream_options") or {}
    return ChatRequest(
        model=str(body.get("model", "scripted")),
        history=tuple(_message(message, names) for message in messages),
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def check_history(messages: list[Any]) -> None:
    """Refuse a history in which a tool call has not exactly one result, or a result has no call.

    Raises RefusedRequestError.
    """
    open_calls: list[str] = []
    for at, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in _ROLES:
            raise RefusedRequestError(f"messages[{at}] has no known role")
        if role == "tool":
            answered = message.get("tool_call_id")
            if answered not in open_calls:
                raise RefusedRequestError(
                    f"messages[{at}] answers tool call {answered!r}, which is no open call of the assistant "
                    "message before it"
                )
            open_calls.remove(answered)
            continue
        _all_answered(open_calls, at)
        for call in message.get("tool_calls") or ():
            identity = call.get("id") if isinstance(call, dict) else None
            if not isinstance(identity, str) or not identity or identity in open_calls:
                raise RefusedRequestError(f"messages[{at}] has a tool call without an id of its own")
            open_calls.append(identity)
    _all_answered(open_calls, len(messages))


def _all_answered(open_calls: list[str], at: int) -> None:
    if open_calls:
        raise RefusedRequestError(f"tool calls {', '.join(open_calls)} have no result before messages[{at}]")


def _message(message: dict[str, Any], names: dict[str, str | None]) -> Message:
    return Message(
        role=_ROLES[message["role"]],
        text=_text(message.get("content")),
        calls=tuple(call["id"] for call in message.get("tool_calls") or ()),
        tool=names.get(message.get("tool_call_id", "")),
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""
