"""Which models and providers a run may use: its backend policy. Pure; knows no provider and no price.

A policy is a mapping with two optional lists. `models` holds patterns (`*` any text) of whole names such as
`openai:gpt-5*`, or of the part behind the colon; `providers` holds names such as `ollama`. A list that is not
there allows everything, an empty one nothing. An agent may have a policy; a run's own narrows it and never widens it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from dromos.domain.errors import Invalid

Policy = Mapping[str, Any]
KEYS = ("models", "providers")


def refusal(policy: Policy, model: str | None) -> str | None:
    """Why `model` (`provider:name`, or a bare name) may not be used, with the cure; None: it may.

    A name that is not known (None or empty) is refused by any policy: nobody could say that it is allowed.
    """
    models, providers = policy.get("models"), policy.get("providers")
    if models is None and providers is None:
        return None
    shown = f"The model {model!r}" if model else "A model that is not named"
    cure = f"This run may use {_told(policy)}. Ask for one of those, or change its backend policy."
    if not model:
        return f"{shown} may not be used here. {cure}"
    provider, _, name = model.rpartition(":")
    if models is not None and not any(_matches(model, name, pattern) for pattern in models):
        return f"{shown} may not be used here. {cure}"
    if providers is not None and provider.lower() not in (one.lower() for one in providers):
        return f"{shown} is not of a provider that may be used here. {cure}"
    return None


def check_narrower(agent: Policy, run: Policy) -> None:
    """Raises `Invalid` where a run asks for more than its agent may use."""
    for key in KEYS:
        wider = [one for one in run.get(key) or () if not _covered(key, one, agent.get(key))]
        if wider:
            raise Invalid(
                f"backend_policy.{key}: {', '.join(wider)} is more than this agent may use "
                f"({', '.join(agent[key]) or 'nothing'}). A run may narrow its agent's policy, not widen it."
            )


def narrowed(agent: Policy, run: Policy) -> dict[str, list[str]]:
    """What a run of this agent may use: what it asks for, as far as the agent may; else what the agent may."""
    out: dict[str, list[str]] = {}
    for key in KEYS:
        allowed, asked = agent.get(key), run.get(key)
        if asked is not None:
            out[key] = [one for one in asked if _covered(key, one, allowed)]
        elif allowed is not None:
            out[key] = list(allowed)
    return out


def _matches(model: str, name: str, pattern: str) -> bool:
    return fnmatchcase(model, pattern) or (":" not in pattern and fnmatchcase(name, pattern))


def _covered(key: str, asked: str, allowed: Sequence[str] | None) -> bool:
    """True where everything that `asked` stands for is allowed; None allows everything. Providers are names."""
    if allowed is None:
        return True
    if key == "providers":
        return asked.lower() in (one.lower() for one in allowed)
    name = asked.rpartition(":")[2]
    return any(asked == pattern or _matches(asked, name, pattern) for pattern in allowed)


def _told(policy: Policy) -> str:
    parts = []
    if policy.get("models") is not None:
        parts.append("models " + (", ".join(policy["models"]) or "(none)"))
    if policy.get("providers") is not None:
        parts.append("providers " + (", ".join(policy["providers"]) or "(none)"))
    return " of ".join(parts)
