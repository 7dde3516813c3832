"""Backend policies: what a run may use, and that a run never gets more than its agent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dromos.domain.backend import check_narrower, narrowed, refusal
from dromos.domain.errors import Invalid


@pytest.mark.parametrize(
    ("policy", "model", "allowed"),
    [
        ({}, None, True),
        ({}, "openai:x", True),
        ({"models": ["openai:gpt-*"]}, "openai:gpt-5", True),
        ({"models": ["openai:gpt-*"]}, "azure:gpt-5", False),
        ({"models": ["gpt-*"]}, "azure:gpt-5", True),
        ({"models": ["gpt-*"]}, "gpt-5", True),
        ({"models": []}, "openai:x", False),
        ({"models": ["*"]}, None, False),
        ({"providers": ["Ollama"]}, "ollama:qwen3", True),
        ({"providers": ["ollama"]}, "openai:qwen3", False),
        ({"providers": ["ollama"]}, "qwen3", False),
        ({"models": ["qwen3"], "providers": ["ollama"]}, "ollama:qwen3", True),
        ({"models": ["qwen3"], "providers": ["ollama"]}, "openai:qwen3", False),
    ],
)
def test_a_model_is_refused_unless_every_list_has_it(
    policy: dict[str, list[str]], model: str | None, allowed: bool
) -> None:
    told = refusal(policy, model)
    assert (told is None) is allowed
    if told is not None:
        assert "may use" in told
        assert all(one in told for names in policy.values() for one in names)


def test_a_run_gets_its_agents_policy_where_it_asks_for_nothing() -> None:
    agent = {"models": ["a:*"], "providers": ["a"]}
    assert narrowed(agent, {}) == agent
    assert narrowed(agent, {"models": ["a:x"]}) == {"models": ["a:x"], "providers": ["a"]}
    assert narrowed({}, {"models": ["a:x"]}) == {"models": ["a:x"]}
    assert narrowed({}, {}) == {}


def test_a_run_that_asks_for_more_is_told_what_is_more() -> None:
    with pytest.raises(Invalid, match=r"backend_policy\.models: b:y is more .*\(a:\*\)"):
        check_narrower({"models": ["a:*"]}, {"models": ["a:x", "b:y"]})
    check_narrower({"models": ["a:*"]}, {"models": ["a:x*"]})
    check_narrower({}, {"models": ["*"], "providers": ["x"]})


names = st.text("ab:*", max_size=5)
policies = st.fixed_dictionaries(
    {}, optional={"models": st.lists(names, max_size=3), "providers": st.lists(names, max_size=3)}
)


@given(policies, policies, st.text("ab:", min_size=1, max_size=5))
def test_what_a_narrowed_policy_allows_its_agents_policy_allows(
    agent: dict[str, list[str]], run: dict[str, list[str]], model: str
) -> None:
    if refusal(narrowed(agent, run), model) is None:
        assert refusal(agent, model) is None
