"""What a model call used, from LangChain's `usage_metadata`, whole or as far as a call came that was cut.

It must not know prices or documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import add_usage

from dromos.domain.cost import Tokens, estimated_tokens


def tokens_of(told: Mapping[str, Any] | None) -> Tokens | None:
    """The buckets of a `usage_metadata`; None where there is none.

    Parts of a service tier (`flex_cache_read`) count as what they are. A total that only adds up with the cached
    part beside the prompt says that the prompt leaves it out.
    """
    if not told:
        return None
    prompt, output = _number(told.get("input_tokens")), _number(told.get("output_tokens"))
    into: Mapping[str, Any] = told.get("input_token_details") or {}
    out: Mapping[str, Any] = told.get("output_token_details") or {}
    if not into and not out:
        return Tokens(prompt, output)
    cached = _sum_of(into, "cache_read")
    hour = _number(into.get("ephemeral_1h_input_tokens"))
    written = _sum_of(into, "cache_creation") + hour + _number(into.get("ephemeral_5m_input_tokens"))
    total = _number(told.get("total_tokens"))
    return Tokens.counted(
        prompt,
        output,
        cached=cached,
        written=written,
        written_1h=hour,
        reasoning=_sum_of(out, "reasoning"),
        beside=bool(cached + written) and total == prompt + output + cached + written,
    )


class Streamed:
    """What a call under way has sent so far: bytes of text, reasoning and arguments, and counts if it told any."""

    __slots__ = ("_told", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._told: Any = None

    def take(self, message: BaseMessage, text: str) -> None:
        """One chunk; `text` is its text."""
        if text:
            self.bytes += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        else:
            self.bytes += _hidden_bytes(message)
        told = message.usage_metadata if isinstance(message, AIMessage) else None
        if told is not None:
            self._told = told if self._told is None else add_usage(self._told, told)

    def so_far(self) -> Tokens | None:
        """Of a call that was cut: what it told, its output at least an estimate from what it sent. None: nothing."""
        told = tokens_of(self._told)
        output = max(estimated_tokens(self.bytes), told.output if told else 0)
        if told is None:
            return Tokens(output=output, estimated=True) if output else None
        return Tokens.counted(
            told.input,
            output,
            cached=told.cached,
            written=told.written,
            written_1h=told.written_1h,
            reasoning=told.reasoning,
            estimated=True,
        )


def final(message: AIMessage | None, streamed: Streamed) -> Tokens | None:
    """Of a call that ended: what its message tells, else what its stream told; None where neither did."""
    told = None if message is None else message.usage_metadata
    return tokens_of(told or streamed._told)


def _hidden_bytes(message: Any) -> int:
    """Of a chunk without text: arguments of calls and reasoning are tokens too."""
    size = 0
    for call in getattr(message, "tool_call_chunks", None) or ():
        size += len((call.get("name") or "").encode()) + len(
            (call.get("args") or "").encode("utf-8", "replace")
        )
    if size or not isinstance(message.content, list):
        told = message.additional_kwargs.get("reasoning_content")
        return size + (len(told.encode("utf-8", "replace")) if isinstance(told, str) else 0)
    for block in message.content:
        if isinstance(block, dict):
            told = block.get("thinking") or block.get("reasoning")
            size += len(told.encode("utf-8", "replace")) if isinstance(told, str) else 0
    return size


def _sum_of(details: Mapping[str, Any], bucket: str) -> int:
    """Of the bucket itself and of the same in a service tier."""
    if not details:
        return 0
    return sum(
        _number(value) for name, value in details.items() if name == bucket or name.endswith(f"_{bucket}")
    )


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
