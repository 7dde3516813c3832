"""What a call costs, in exact numbers of the price list, and which models have a price at all."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from dromos.agents.langgraph.model_facts import Expected, ModelConfig, ModelFacts, is_private
from dromos.agents.langgraph.prices import Priced, PriceList
from dromos.agents.langgraph.usage import Streamed, final, tokens_of
from dromos.domain.cost import Tokens

AT = datetime(2026, 11, 1, tzinfo=UTC)
MILLION = Decimal(1_000_000)


def per_million(**prices: str) -> Decimal:
    """Dollars for `tokens x price`, written as `n_tokens_name="dollars a million"`."""
    total = Decimal(0)
    for name, price in prices.items():
        total += Decimal(name.rpartition("_")[2]) * Decimal(price) / MILLION
    return total


def cost(model: str, told: dict[str, Any], response: dict[str, Any] | None = None) -> Decimal | None:
    provider, _, name = model.partition(":")
    tokens = tokens_of(told)
    assert tokens is not None
    return PriceList().cost(Priced(provider, name), tokens, AT, response or {})


OPENAI = {
    "input_tokens": 1000,
    "output_tokens": 50,
    "total_tokens": 1050,
    "input_token_details": {"cache_read": 800},
    "output_token_details": {"reasoning": 30},
}
EXCLUSIVE = {
    "input_tokens": 200,
    "output_tokens": 50,
    "total_tokens": 250,
    "input_token_details": {"cache_read": 800, "cache_creation": 0},
}
ANTHROPIC = {
    "input_tokens": 1000,
    "output_tokens": 50,
    "total_tokens": 1050,
    "input_token_details": {"cache_read": 800, "cache_creation": 100},
}
ANTHROPIC_BY_TIME = {
    "input_tokens": 1000,
    "output_tokens": 50,
    "total_tokens": 1050,
    "input_token_details": {
        "cache_read": 800,
        "cache_creation": 0,
        "ephemeral_5m_input_tokens": 60,
        "ephemeral_1h_input_tokens": 40,
    },
}


@pytest.mark.case("P116")
def test_cached_tokens_are_priced_once_in_either_style():
    expected = per_million(fresh_200="1.25", cached_800="0.125", output_50="10")

    assert cost("openai:gpt-5", OPENAI) == expected == Decimal("0.00085")
    assert cost("openai:gpt-5", EXCLUSIVE) == expected
    assert tokens_of(OPENAI) == Tokens(input=1000, output=50, cached=800, reasoning=30)
    assert tokens_of(EXCLUSIVE) == Tokens(input=1000, output=50, cached=800)


@pytest.mark.case("P116")
def test_reading_and_writing_a_cache_have_prices_of_their_own():
    assert cost("anthropic:claude-sonnet-4-5", ANTHROPIC) == per_million(
        fresh_100="3", read_800="0.3", written_100="3.75", output_50="15"
    )
    assert cost("anthropic:claude-sonnet-4-5", ANTHROPIC_BY_TIME) == per_million(
        fresh_100="3", read_800="0.3", five_60="3.75", hour_40="6", output_50="15"
    )
    assert tokens_of(ANTHROPIC_BY_TIME) == Tokens(
        input=1000, output=50, cached=800, written=100, written_1h=40
    )


@pytest.mark.case("P116")
def test_the_anthropic_clients_own_counting_is_read_right():
    """Anthropic itself counts what was not cached; its client for LangChain adds the cached part."""
    from anthropic.types import Usage as Counted
    from langchain_anthropic.chat_models import _create_usage_metadata

    told = _create_usage_metadata(
        Counted(
            input_tokens=100, output_tokens=50, cache_read_input_tokens=800, cache_creation_input_tokens=100
        )
    )

    assert tokens_of(told) == tokens_of(ANTHROPIC)


def test_a_count_whose_total_only_adds_up_with_the_cache_beside_it_leaves_the_cache_out():
    told = {**EXCLUSIVE, "input_tokens": 900, "total_tokens": 1750}
    assert tokens_of(told) == Tokens(input=1700, output=50, cached=800)


def test_a_service_tier_has_its_own_price_and_its_parts_count_too():
    told = {
        **OPENAI,
        "input_token_details": {"flex_cache_read": 800, "flex": 200},
        "output_token_details": {"flex_reasoning": 30, "flex": 20},
    }
    assert tokens_of(told) == Tokens(input=1000, output=50, cached=800, reasoning=30)
    assert cost("openai:gpt-5", told, {"service_tier": "flex"}) == per_million(
        fresh_200="0.625", cached_800="0.0625", output_50="5"
    )


@pytest.mark.parametrize("model", ["openai:no-such-model", "nobody:gpt-5", "scripted:scripted"])
def test_what_the_list_does_not_know_has_no_price(model):
    assert cost(model, OPENAI) is None


def facts(models: dict[str, ModelConfig] | None = None, **environ: str) -> ModelFacts:
    return ModelFacts(models, environ)


def called(known: ModelFacts, provider: str, model: str, address: str | None = None, **of: Any) -> Any:
    serialized: dict[str, Any] = {"kwargs": {} if address is None else {"openai_api_base": address}}
    metadata = {"ls_provider": provider, "ls_model_name": model}
    return known.called(metadata, {**serialized, **of}, Expected())


@pytest.mark.parametrize(
    ("provider", "model"),
    [("ollama", "qwen3"), ("scripted", "scripted"), ("fakechatmodel", "gpt-5"), ("", "gpt-5")],
)
def test_models_of_ones_own_have_no_price_and_no_guessed_limit(provider, model):
    known = called(facts(), provider, model)
    assert known.priced is None or PriceList().cost(known.priced, Tokens(input=1), AT, {}) is None
    assert known.limit is None


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:8000/v1",
        "http://[::1]:8000/v1",
        "http://localhost/v1",
        "http://192.168.1.7/v1",
        "http://vllm:8000/v1",
        "https://models.example.internal/v1",
    ],
)
def test_a_server_of_ones_own_serves_anything_under_any_name(address):
    known = called(facts(), "openai", "gpt-5", address)

    assert is_private(address)
    assert (known.name, known.priced, known.limit) == ("openai:gpt-5", None, None)
    by_environment = called(facts(OPENAI_BASE_URL=address), "openai", "gpt-5")
    assert by_environment.priced is None


def test_a_public_address_does_not_hide_what_a_model_is():
    known = called(facts(), "openai", "gpt-5", "https://api.openai.com/v1")
    assert known.priced == Priced("openai", "gpt-5")
    assert known.limit == 272_000


def test_settings_say_what_nobody_else_does_and_the_first_pattern_wins():
    known = facts(
        {
            "openai:my-*": ModelConfig(context_limit=9000),
            "openai:*": ModelConfig(context_limit=1, price_as="openai:gpt-5"),
        }
    )
    mine = called(known, "openai", "my-model", "http://127.0.0.1/v1")

    assert mine.limit == 9000
    assert mine.priced == Priced("openai", "gpt-5", stands_in=True)
    assert known.limit(called(known, "openai", "other", "http://127.0.0.1/v1")) == 1


def test_a_price_that_stands_in_says_nothing_about_the_context():
    known = facts({"ollama:*": ModelConfig(price_as="openai:gpt-5")})
    assert known.limit(called(known, "ollama", "qwen3")) is None


def test_the_list_knows_limits_that_langchain_does_not():
    known = facts()
    model = called(known, "xai", "grok-3")
    assert model.limit is None
    assert known.limit(model) == 131_072


@pytest.mark.parametrize(
    ("chunks", "tokens"),
    [
        ([], None),
        ([AIMessageChunk(content="")], None),
        ([AIMessageChunk(content="abcdefghi")], Tokens(output=3, estimated=True)),
        ([AIMessageChunk(content="ab\ud83d")], Tokens(output=1, estimated=True)),
        (
            [
                AIMessageChunk(
                    content="",
                    tool_call_chunks=[{"name": "look", "args": '{"a":1}', "id": "1", "index": 0}],
                )
            ],
            Tokens(output=3, estimated=True),
        ),
        (
            [
                AIMessageChunk(
                    content="",
                    usage_metadata={"input_tokens": 100, "output_tokens": 1, "total_tokens": 101},
                ),
                AIMessageChunk(content="abcdefgh"),
            ],
            Tokens(input=100, output=2, estimated=True),
        ),
    ],
)
def test_a_call_that_was_cut_counts_with_what_it_told_and_what_it_sent(chunks, tokens):
    streamed = Streamed()
    for chunk in chunks:
        streamed.take(chunk, chunk.content)
    assert streamed.so_far() == tokens


def test_an_answer_without_a_count_has_none():
    assert final(AIMessage("text"), Streamed()) is None
    assert final(None, Streamed()) is None
