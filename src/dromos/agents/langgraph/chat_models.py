"""Chat models by name, built once and kept: the clients hold open connections.

The clients' own retries are off: how often a call is tried again is decided in one place, with the run's count.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel

from dromos.agents.langgraph.error_bodies import limit_error_bodies, limit_error_body
from dromos.agents.langgraph.failures import ModelFault, safe_text
from dromos.agents.langgraph.local_model import LocalModel
from dromos.agents.langgraph.local_model_process import CONTEXT_TOKENS
from dromos.agents.langgraph.model_choice import LOCAL, SCRIPTED, ModelSelector
from dromos.agents.langgraph.ollama_context import ollama_context
from dromos.domain.reasons import ErrorCode


class ChatModels:
    """`environ` holds the providers' own variables (OPENAI_API_KEY, OPENAI_BASE_URL, …)."""

    def __init__(self, selector: ModelSelector, local: LocalModel, environ: Mapping[str, str]) -> None:
        self._selector, self._local, self._environ = selector, local, environ
        self._built: dict[str, BaseChatModel] = {}
        self._pools: list[Any] = []

    async def get(self, name: str) -> BaseChatModel:
        """The model called `provider:model`, `local:…` or `scripted`. Raises `ModelFault` with the cure."""
        if name == LOCAL:
            address = await self._local.start()
            return await self._kept(f"{name}@{address}", lambda: self._local_client(address))
        return await self._kept(name, lambda: self._build(name))

    async def check(self, name: str) -> None:
        """Raises `ModelFault` where the model's client cannot be made: unknown provider, no key, a package missing."""
        if name != LOCAL:
            await self.get(name)

    async def context_limit(self, name: str) -> int | None:
        """Tokens that the model reads, where its own server tells; None: not told."""
        if name == LOCAL:
            return CONTEXT_TOKENS
        provider, _, model = name.partition(":")
        return await ollama_context(self._selector.ollama_url, model) if provider == "ollama" else None

    async def aclose(self) -> None:
        """Close the connections of all models, and the local one's process."""
        models = list(self._built.values())
        self._built.clear()
        while self._pools:
            await self._pools.pop().aclose()
        for model in models:
            for client in _ollama_clients(model):
                closed = client.aclose() if hasattr(client, "aclose") else client.close()
                if inspect.isawaitable(closed):
                    await closed
        await self._local.aclose()

    async def _kept(self, key: str, build: Callable[[], BaseChatModel]) -> BaseChatModel:
        model = self._built.get(key)
        if model is None:
            made = await asyncio.to_thread(build)  # imports of a provider take a second
            model = self._built.setdefault(key, made)
        return model

    def _build(self, name: str) -> BaseChatModel:
        if name == SCRIPTED:
            from dromos.agents.langgraph.scripted.chat_model import ScriptedChatModel

            return ScriptedChatModel()
        provider, found, model = name.partition(":")
        if not found or not provider or not model:
            raise ModelFault(
                ErrorCode.CONFIG_INVALID,
                f"The model {name!r} is not written as provider:model, for example openai:gpt-5 or ollama:qwen3.",
            )
        try:
            return self._client(provider, model)
        except ImportError as error:
            raise ModelFault(
                ErrorCode.CONFIG_INVALID, f"The model {name!r} needs another package: {safe_text(error)}"
            ) from error
        except Exception as error:
            text = safe_text(error)
            code = ErrorCode.MODEL_AUTH if "key" in text.lower() else ErrorCode.CONFIG_INVALID
            raise ModelFault(code, f"The model {name!r} cannot be used: {text}") from error

    def _client(self, provider: str, model: str) -> BaseChatModel:
        options: dict[str, Any] = {}
        if provider == "openai":
            options = {**_OPENAI, "http_async_client": self._openai_http()}
            base_url = self._environ.get("OPENAI_BASE_URL") or self._environ.get("OPENAI_API_BASE")
            if base_url:
                options["base_url"] = base_url
            key = self._environ.get("OPENAI_API_KEY")
            if key or base_url:
                options["api_key"] = key or "none"  # a server of one's own often wants none
        elif provider == "anthropic":
            options = {"max_retries": 0}
        elif provider == "ollama":
            options = {"base_url": self._selector.ollama_url}
        else:
            options = {"max_retries": 0}
        from langchain.chat_models import init_chat_model

        built: BaseChatModel = init_chat_model(model, model_provider=provider, **options)
        for inner in _http_clients(built):
            limit_error_bodies(inner)
        return built

    def _openai_http(self) -> Any:
        """A connection pool of this object's own: LangChain's default one is shared by the whole process."""
        from openai import DefaultAsyncHttpxClient

        client = DefaultAsyncHttpxClient(event_hooks={"response": [limit_error_body]})
        self._pools.append(client)
        return client

    def _local_client(self, address: str) -> BaseChatModel:
        from langchain_openai import ChatOpenAI
        from pydantic import SecretStr

        return ChatOpenAI(
            http_async_client=self._openai_http(),
            model=LOCAL.partition(":")[2],
            base_url=address,
            api_key=SecretStr("none"),
            **_OPENAI,
            temperature=0.2,
            max_completion_tokens=400,
            profile={"max_input_tokens": CONTEXT_TOKENS},
        )


_OPENAI: dict[str, Any] = {"max_retries": 0, "stream_usage": True, "stream_chunk_timeout": None}
"""Silence is watched by the worker. LangChain's own watch of each chunk waits in `asyncio.wait_for`, which on Python
3.11 loses a cancellation that comes together with a chunk: the model call would go on after a stop."""


def _ollama_clients(model: BaseChatModel) -> Iterator[Any]:
    """The HTTP clients inside of Ollama's, which it has no public way to close."""
    if type(model).__name__ == "ChatOllama":
        for name in ("_async_client", "_client"):
            client = getattr(getattr(model, name, None), "_client", None)
            if client is not None:
                yield client


def _http_clients(model: BaseChatModel) -> Iterator[Any]:
    """Asynchronous HTTP clients that a provider's package made itself, as far as they are where they were."""
    if type(model).__name__ in ("ChatAnthropic", "ChatOllama"):
        client = getattr(getattr(model, "_async_client", None), "_client", None)
        if client is not None and hasattr(client, "event_hooks"):
            yield client
