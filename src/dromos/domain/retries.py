"""Which failures of an attempt are tried again, how often, and after how long.

The count lives with the run (`Run.tries`) and restarts when a checkpoint commits. Waits up to `IN_STEP_SECONDS`
pass inside the step; longer ones give the slot back (T7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dromos.domain.reasons import ErrorCode

IN_STEP_SECONDS = 10.0
LONGEST_WAIT = 86_400.0
"""Seconds. A server that asks for more is asked again after this time."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`tries` counts all tries of a step, the first included; `delays` are the seconds before each further one."""

    tries: int
    delays: tuple[float, ...]
    honours_retry_after: bool = False


_MODEL_TROUBLE = RetryPolicy(5, (1.0, 2.0, 4.0, 8.0), honours_retry_after=True)

DEFAULT_POLICIES: dict[ErrorCode, RetryPolicy] = {
    ErrorCode.MODEL_RATE_LIMITED: _MODEL_TROUBLE,
    ErrorCode.MODEL_BAD_RESPONSE: _MODEL_TROUBLE,
    ErrorCode.MODEL_UNAVAILABLE: RetryPolicy(2, (0.5,)),
    ErrorCode.INTERNAL: RetryPolicy(5, (1.0, 2.0, 4.0, 8.0)),  # the database was away
    ErrorCode.STALLED: RetryPolicy(2, (0.0,)),
}


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `delay` seconds; `tries` is the run's count to store. `hand_back`: give the slot back."""

    delay: float
    attempt: int
    of_attempts: int
    hand_back: bool
    tries: Mapping[str, int] = field(default_factory=dict)


def next_try(
    code: ErrorCode,
    tries: Mapping[str, int],
    retry_after: float | None = None,
    policies: Mapping[ErrorCode, RetryPolicy] = DEFAULT_POLICIES,
) -> Retry | None:
    """The next try after a failure with `code`, given the failures counted so far; None: the run fails.

    A server's 5xx counts as `MODEL_BAD_RESPONSE`; `MODEL_UNAVAILABLE` is a refused connection or unknown name.
    """
    policy = policies.get(code)
    if policy is None:
        return None
    failed = tries.get(code, 0) + 1
    if failed >= policy.tries:
        return None
    delay = policy.delays[min(failed, len(policy.delays)) - 1]
    if policy.honours_retry_after and retry_after is not None:
        delay = min(max(retry_after, 0.0), LONGEST_WAIT)
    return Retry(
        delay=delay,
        attempt=failed + 1,
        of_attempts=policy.tries,
        hand_back=delay > IN_STEP_SECONDS,
        tries={**tries, code.value: failed},
    )
