"""The scripted model as a LangChain chat model, in this process and without a network.

Translates LangChain's messages to the engine's and the engine's pieces to chunks; what is said and when is
decided in `engine`. It must not know how runs, retries or steps work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LangSmithParams, LanguageModelInput
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import PrivateAttr

from dromos.agents.langgraph.scripted.engine import (
    CallPiece,
    FailureCounts,
    Message,
    Reply,
    TextPiece,
    Usage,
    compose,
    perform,
)

_counts_of_this_process = FailureCounts()


class ScriptedChatModel(BaseChatModel):
    """Obeys the directives of the newest human message; see `directives`.

    Raises ScriptedHTTPError and ScriptedStreamError where the script says so. `counts` may be given to keep
    the failures of `!error … xTIMES` apart; by default they are counted for the whole process, so that a
    model built anew for each attempt goes on counting.
    """

    model_name: str = "scripted"
    _counts: FailureCounts = PrivateAttr(default_factory=lambda: _counts_of_this_process)

    def __init__(self, *, counts: FailureCounts | None = None, **fields: Any) -> None:
        super().__init__(**fields)
        if counts is not None:
            self._counts = counts

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = "scripted"
        return params

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Accepted and ignored: the script says which tools are called, known or not."""
        return self.bind()

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        reply = compose([_told(message) for message in messages])
        async for piece in perform(reply, self._counts):
            if isinstance(piece, TextPiece):
                yield _chunk(content=piece.text)
            elif isinstance(piece, CallPiece):
                call = tool_call_chunk(name=piece.tool, args=piece.arguments, id=piece.id, index=piece.index)
                yield _chunk(content="", tool_call_chunks=[call])
        yield self._last(reply)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return generate_from_stream(iter([chunk async for chunk in self._astream(messages)]))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return asyncio.run(self._agenerate(messages))

    def _last(self, reply: Reply) -> ChatGenerationChunk:
        return _chunk(
            content="",
            chunk_position="last",
            usage_metadata=_usage(reply.usage),
            response_metadata={"finish_reason": reply.finish_reason, "model_name": self.model_name},
        )


def _chunk(**fields: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(**fields))


def _usage(usage: Usage) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_token_details=InputTokenDetails(cache_read=usage.cached_tokens),
        output_token_details=OutputTokenDetails(reasoning=usage.reasoning_tokens),
    )


def _told(message: BaseMessage) -> Message:
    match message:
        case HumanMessage():
            return Message("human", message.text)
        case AIMessage():
            calls = [*message.tool_calls, *message.invalid_tool_calls]
            return Message("assistant", message.text, tuple(call["id"] or "" for call in calls))
        case ToolMessage():
            return Message("tool", message.text, tool=message.name)
        case _:
            return Message("system", message.text)
