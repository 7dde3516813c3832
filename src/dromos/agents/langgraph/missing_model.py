"""The model that stands in where none can be had: each call fails with what is wrong and the cure.

The fault then happens inside the agent's model step, like that of a model that died a moment later: the message is in
the thread, the step is pending, and Continue takes it up once there is a model.
"""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult

from dromos.agents.langgraph.failures import ModelFault
from dromos.domain.reasons import ErrorCode


class MissingModel(BaseChatModel):
    """Raises `ModelFault` with `code` and `cure` at each call."""

    code: ErrorCode
    cure: str

    @property
    def _llm_type(self) -> str:
        return "missing"

    def bind_tools(self, tools: Any, **kwargs: Any) -> MissingModel:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise ModelFault(self.code, self.cure)
