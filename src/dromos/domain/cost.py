"""Tokens of a model call in buckets that add up, and what they cost: pure, no price list.

Providers count in two styles: some name a whole prompt of which a part was cached, others name only what was *not*
cached and the cached part beside it. Here there is one: `input` is the whole prompt, and every bucket is part of what
stands above it, so nothing is priced twice. It must not know who counted, nor where prices come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

CURRENCY = "USD"
BYTES_A_TOKEN = 4
"""How much text a token is taken for where nobody counted: bytes of UTF-8."""
COUNTS = ("input", "output", "cached", "reasoning", "model_calls", "tool_calls")
"""What a run's usage counts: tokens, and calls of models and tools, also those that failed."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of one call. `cached` was read from a cache, `written` into one (`written_1h` of it for an hour): all part of
    `input`; `reasoning` is part of `output`. `estimated`: the call did not live to tell; what it told stands here,
    and its output is at least an estimate from what was streamed.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    written_1h: int = 0
    reasoning: int = 0
    estimated: bool = False

    @classmethod
    def counted(
        cls,
        prompt: int,
        output: int,
        *,
        cached: int = 0,
        written: int = 0,
        written_1h: int = 0,
        reasoning: int = 0,
        beside: bool = False,
        estimated: bool = False,
    ) -> Tokens:
        """`beside`: the provider's `prompt` leaves out what was cached. It does in any case where the parts are more
        than the whole."""
        cached, written, output = max(cached, 0), max(written, 0), max(output, 0)
        whole = max(prompt, 0)
        if beside or cached + written > whole:
            whole += cached + written
        return cls(
            whole,
            output,
            cached,
            written,
            min(written_1h, written),
            min(max(reasoning, 0), output),
            estimated,
        )

    def json(self) -> dict[str, Any]:
        """As `run_steps.usage` keeps it; buckets that few models have only where they hold something."""
        told: dict[str, Any] = {
            "input": self.input,
            "output": self.output,
            "cached": self.cached,
            "reasoning": self.reasoning,
        }
        if self.written:
            told["cache_write"] = self.written
        if self.estimated:
            told["estimated"] = True
        return told


def estimated_tokens(streamed_bytes: int) -> int:
    """How many tokens a text of so many bytes (UTF-8) is taken for, at least one for any text."""
    return -(-streamed_bytes // BYTES_A_TOKEN)


@dataclass(frozen=True, slots=True)
class Spent:
    """What calls cost so far, in dollars. `amount` None: a price or a count is not known, so neither is the sum."""

    amount: Decimal | None = Decimal(0)
    calls: int = 0

    def plus(self, amount: Decimal | None) -> Spent:
        """With one call more, None for an unknown price."""
        known = None if amount is None or self.amount is None else self.amount + amount
        return Spent(known, self.calls + 1)

    def json(self) -> dict[str, Any] | None:
        """As `runs.cost` and the document hold it; None before the first call that counts."""
        return None if not self.calls else {**money(self.amount), "limit": None}

    @classmethod
    def of(cls, costs: list[Mapping[str, Any] | None]) -> Spent:
        """The sum of stored costs, None among them for unknown ones."""
        spent = cls()
        for cost in costs:
            amount = None if cost is None else cost.get("amount")
            spent = spent.plus(None if amount is None else Decimal(amount))
        return spent


def money(amount: Decimal | None) -> dict[str, Any]:
    """`{"currency", "amount", "estimated"}`; an amount is decimal text without an exponent, null where unknown."""
    return {"currency": CURRENCY, "amount": None if amount is None else _plain(amount), "estimated": True}


def _plain(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
