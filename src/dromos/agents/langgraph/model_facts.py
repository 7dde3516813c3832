"""The model that a call really uses: its name as it is shown, how much it can read, and as what it is priced.

Told by LangChain's callback of the call, so it holds for any graph and for fallbacks too. What is not known stays
None; nothing is guessed: a server of one's own may serve anything under any name, so only what is configured, or
what the server itself told, counts there. It must not know runs or documents.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from dromos.agents.langgraph.model_choice import LOCAL, SCRIPTED
from dromos.agents.langgraph.prices import Priced, PriceList

_ADDRESS_KEYS = (
    "base_url",
    "openai_api_base",
    "anthropic_api_url",
    "azure_endpoint",
    "endpoint_url",
    "api_base",
    "endpoint",
)
_ADDRESS_VARIABLES = {
    "openai": ("OPENAI_API_BASE", "OPENAI_BASE_URL"),
    "anthropic": ("ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL"),
}
_NEVER_PRICED = frozenset({"local", "ollama", "scripted", "llamacpp", "huggingface", "fake"})
_NUM_CTX = re.compile(r"\bnum_ctx=(\d+)")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """`[models."PATTERN"]`: what a person says of the models whose names match."""

    context_limit: int | None = None
    price_as: str | None = None


@dataclass(frozen=True, slots=True)
class CalledModel:
    """`limit` in tokens and `priced`: None where unknown."""

    name: str
    limit: int | None = None
    priced: Priced | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """The model an attempt was planned with; `limit` in tokens, None where nobody told."""

    name: str = ""
    limit: int | None = None


class ModelFacts:
    """One for the whole server. `models` by pattern (`openai:gpt-5*`), the first that matches counts."""

    def __init__(
        self,
        models: Mapping[str, ModelConfig] | None = None,
        environ: Mapping[str, str] | None = None,
        prices: PriceList | None = None,
    ) -> None:
        self._models, self._environ = dict(models or {}), dict(environ or {})
        self.prices = prices or PriceList()
        self._known: dict[tuple[str, str, str | None, int | None, str, int | None], CalledModel] = {}

    def called(
        self, metadata: Mapping[str, Any], serialized: Mapping[str, Any] | None, expected: Expected
    ) -> CalledModel:
        """From what LangChain tells at a call's start."""
        provider = str(metadata.get("ls_provider") or "")
        model = str(metadata.get("ls_model_name") or "")
        address, window = _construction(provider, serialized or {})
        key = (provider, model, address, window, expected.name, expected.limit)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 1000:  # names come from the graphs, so they are few; this is for the others
                self._known.clear()
            found = self._known[key] = self._look_up(provider, model, address, window, expected)
        return found

    def by_name(self, name: str) -> CalledModel:
        """Of a model called `provider:model` at the provider's own address, for warming up."""
        provider, _, model = name.partition(":")
        return self._look_up(provider, model, None, None, Expected())

    def limit(self, called: CalledModel) -> int | None:
        """Tokens it can read. The price list knows some that LangChain does not; it may have to be loaded for that."""
        if called.limit is None and called.priced is not None and not called.priced.stands_in:
            return self.prices.context_window(called.priced)
        return called.limit

    async def prepare(self, name: str) -> None:
        """Load the price list now where `name` may have a price."""
        if self.by_name(name).priced is not None:
            await self.prices.load()

    def _look_up(
        self, provider: str, model: str, address: str | None, window: int | None, expected: Expected
    ) -> CalledModel:
        name = _shown(provider, model, expected)
        config = self._config(name)
        own = self._is_own(provider, address)
        priced: Priced | None = None
        if config.price_as is not None:
            listed, _, listed_model = config.price_as.partition(":")
            priced = Priced(listed, listed_model, stands_in=True)
        elif not own and provider and model and name.partition(":")[0] not in _NEVER_PRICED:
            priced = Priced(provider, model)
        limit = config.context_limit or window
        if limit is None and expected.name == name:
            limit = expected.limit
        if limit is None and not own and name not in (LOCAL, SCRIPTED):
            limit = profile_limit(provider, model)
        return CalledModel(name, limit, priced)

    def _config(self, name: str) -> ModelConfig:
        limit, price_as = None, None
        for pattern, config in self._models.items():
            if fnmatchcase(name, pattern):
                limit = limit or config.context_limit
                price_as = price_as or config.price_as
        return ModelConfig(limit, price_as)

    def _is_own(self, provider: str, address: str | None) -> bool:
        """True for a server on this machine or in a private network."""
        for variable in () if address else _ADDRESS_VARIABLES.get(provider, ()):
            address = address or self._environ.get(variable)
        return address is not None and is_private(address)


def profile_limit(provider: str, model: str) -> int | None:
    """Tokens of a prompt at most, by the data that LangChain's package of the provider carries; None: not there."""
    profile = _profiles(provider).get(model)
    limit = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    return limit if isinstance(limit, int) and limit > 0 else None


@lru_cache(maxsize=64)
def _profiles(provider: str) -> Mapping[str, Any]:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", provider):
        return {}
    try:
        module = importlib.import_module(f"langchain_{provider}.data._profiles")
    except ImportError:
        return {}
    profiles = getattr(module, "_PROFILES", None)
    return profiles if isinstance(profiles, Mapping) else {}


def is_private(address: str) -> bool:
    """True where the address names this machine or one of a private network."""
    try:
        host = (urlsplit(address if "//" in address else f"//{address}").hostname or "").rstrip(".")
    except ValueError:
        return True
    try:
        ip = ip_address(host)
    except ValueError:
        inner = (".local", ".localhost", ".internal", ".lan", ".home.arpa", ".svc")
        return "." not in host or host.endswith(inner)
    return ip.is_private or ip.is_loopback or ip.is_link_local


def _shown(provider: str, model: str, expected: Expected) -> str:
    """`provider:model`; the planned name where the call is its: the small local model speaks OpenAI's protocol."""
    if not model or model in (expected.name, expected.name.partition(":")[2]):
        return expected.name or model or "model"
    if model == SCRIPTED:
        return SCRIPTED
    return f"{provider}:{model}" if provider else model


def _construction(provider: str, serialized: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Address and context of a client as it was made, as far as LangChain shows them."""
    kwargs = serialized.get("kwargs")
    if isinstance(kwargs, Mapping):
        for key in _ADDRESS_KEYS:
            if key in kwargs and isinstance(kwargs[key], str):
                return kwargs[key], None
    elif provider == "ollama":  # its client shows itself as text only
        found = _NUM_CTX.search(str(serialized.get("repr", "")))
        return None, int(found[1]) if found else None
    return None, None
