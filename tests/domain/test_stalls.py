"""What counts as a stall, without a clock: by what is under way, by how long, and by whose limits."""

from __future__ import annotations

from typing import Any

import pytest

from dromos.domain.stalls import StallLimits, StallPolicy, kind_of, stall_of, stalled_text

MODEL = {"kind": "model", "name": "gpt"}
TOOL = {"kind": "tool", "name": "pay"}
STEP = {"kind": "step", "name": "plan"}
LIMITS = StallLimits(model=10, tool=20)


@pytest.mark.parametrize(
    ("current", "silent", "kind"),
    [
        (MODEL, 9.9, None),
        (MODEL, 10, "model"),
        (TOOL, 19, None),
        (TOOL, 20, "tool"),
        (STEP, 19, None),
        (STEP, 21, "tool"),
        (None, 1e9, None),
    ],
)
def test_a_silence_is_a_stall_from_the_limit_of_what_is_under_way(
    current: dict[str, Any] | None, silent: float, kind: str | None
) -> None:
    stall = stall_of(current, silent, LIMITS)
    assert (stall.kind if stall else None) == kind
    if stall is not None and current is not None:
        assert (stall.name, stall.silent, kind_of(current)) == (current["name"], silent, kind)


def test_what_has_no_limit_may_be_silent_for_ever() -> None:
    limits = StallLimits(model=None, tool=20)
    assert stall_of(MODEL, 1e9, limits) is None
    assert limits.shortest == 20
    assert StallLimits(None, None).shortest is None


def test_the_shortest_limit_of_any_agent_bounds_what_has_to_be_looked_at() -> None:
    policy = StallPolicy(LIMITS, {"hasty": StallLimits(1, None), "calm": StallLimits(None, None)})
    assert (policy.shortest, policy.of("hasty").shortest, policy.of("other")) == (1, 1, LIMITS)
    assert StallPolicy(StallLimits(None, None), {"calm": StallLimits(None, None)}).shortest is None


def test_a_stalled_runs_error_names_what_was_silent_and_what_may_have_happened() -> None:
    stall = stall_of(TOOL, 31.4, LIMITS)
    assert stall is not None
    assert stalled_text(stall, "").startswith(
        "The tool pay showed no sign of work for 31 s. Its work is kept"
    )
    assert "What became of pay is unknown" in stalled_text(stall, "pay")
