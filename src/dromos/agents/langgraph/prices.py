"""What a model call costs, by the price list of the package `genai-prices`: offline, as old as that package.

The list is big and is imported at the first model that may have a price. A price that is not known is None, never 0.
It must not know runs or documents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import structlog

from dromos.domain.cost import Tokens

log = structlog.get_logger("dromos.agents")


@dataclass(frozen=True, slots=True)
class Priced:
    """A model as the list is asked for it: `provider` in LangChain's or the list's words. `stands_in`: a person says
    that another model is paid like this one."""

    provider: str
    model: str
    stands_in: bool = False


class PriceList:
    """One for the whole server. Safe to be asked before it is loaded: it then loads at once."""

    def __init__(self) -> None:
        self._found: dict[Priced, tuple[Any, Any] | None] = {}
        self._told: set[Priced] = set()
        self._loading: asyncio.Future[None] | None = None

    async def load(self) -> None:
        """Import the list in a thread, so that nothing has to wait for it later."""
        self.soon()
        if self._loading is not None:
            await asyncio.shield(self._loading)

    def soon(self) -> None:
        """Begin to import the list beside what goes on, once."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, _load)

    def cost(
        self, priced: Priced, tokens: Tokens, at: datetime, response: Mapping[str, Any]
    ) -> Decimal | None:
        """Dollars for `tokens` used `at` that time; None where the list does not know. `response` is the answer's
        `response_metadata`, which may name a service tier."""
        found = self._find(priced)
        if found is None:
            return None
        provider, model = found
        tier = response.get("service_tier")
        context = {"service_tier": tier} if isinstance(tier, str) and tier else None
        try:
            price = model.calc_price(
                _usage(tokens), provider, genai_request_timestamp=at, price_context=context
            )
        except (LookupError, ValueError) as error:
            if priced not in self._told:
                self._told.add(priced)
                log.debug("price.unknown", provider=priced.provider, model=priced.model, problem=str(error))
            return None
        if getattr(price.model_price, "input_mtok", None) is None and not price.total_price:
            return None  # the list names the model but no price of its tokens
        return Decimal(price.total_price)

    def context_window(self, priced: Priced) -> int | None:
        """Tokens that the model takes, None where the list does not say."""
        found = self._find(priced)
        window = None if found is None else found[1].context_window
        return window if isinstance(window, int) and window > 0 else None

    def _find(self, priced: Priced) -> tuple[Any, Any] | None:
        if priced not in self._found:
            try:
                self._found[priced] = _snapshot().find_provider_model(
                    priced.model, None, priced.provider, None
                )
            except (LookupError, ValueError, ImportError):
                self._found[priced] = None
        return self._found[priced]


def _load() -> None:
    try:
        _snapshot()
    except Exception as error:
        log.warning(
            "price.list_unusable", problem=str(error), hint="costs stay unknown; install genai-prices"
        )


def _snapshot() -> Any:
    from genai_prices.data_snapshot import get_snapshot  # late: some 20 MB, a third of a second

    return get_snapshot()


def _usage(tokens: Tokens) -> Any:
    """Only what was used: a bucket that is named must be part of another that is."""
    from genai_prices import Usage

    used: dict[str, int] = {"input_tokens": tokens.input, "output_tokens": tokens.output}
    if tokens.cached:
        used["cache_read_tokens"] = tokens.cached
    if tokens.written:
        used["cache_write_tokens"] = tokens.written
    if tokens.written_1h:
        used["cache_write_1h_tokens"] = tokens.written_1h
    if tokens.reasoning:
        used["output_reasoning_tokens"] = tokens.reasoning
    return Usage(**used)
