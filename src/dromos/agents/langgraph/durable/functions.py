"""`durable(fn)`: a function that a node calls, made once whatever happens to the node.

Arguments and result are JSON. An error of a function that may be repeated (`keyed`, `read`) is raised as it is, and
the call is made anew when the node is; of any other it is what came of the call, and is raised again on each replay.
It must not know tools.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, ParamSpec, TypeVar, cast

import orjson
from langgraph.errors import GraphInterrupt

from dromos.agents.langgraph.durable.places import KEY_NAME, Place, place_now, under_key
from dromos.agents.langgraph.gated import is_gates, through_gate
from dromos.domain.effects import Call, Make, ReplayClass, ToolPolicy
from dromos.domain.text import clean_json
from dromos.ports.journal import Sent, Suspended
from dromos.ports.tool import ToolAnnotations, ToolOutcome

P = ParamSpec("P")
T = TypeVar("T")
Policy = Literal["auto", "ask", "deny"]
Replay = Literal["read", "keyed", "unsafe"]


class DurableCallFailed(Exception):
    """What came of a durable call is no result: it failed, was denied, or a person says it is not to be repeated."""


def durable(
    fn: Callable[P, T], *, name: str | None = None, policy: Policy | None = None, replay: Replay | None = None
) -> Callable[P, T]:
    """`fn` with a memory. `name` (the function's own if left out) is what `[tools."name"]` of the server's
    configuration goes by; that comes before `policy` and `replay`. Where nobody says anything it is `unsafe`.

    A parameter `idempotency_key` that the caller leaves out is filled with the call's key. The value returned is
    always the JSON that was kept. Raises TypeError for arguments that are not JSON, and DurableCallFailed.
    """
    said = (ToolPolicy(policy) if policy else None, ReplayClass(replay) if replay else None)
    work = _Durable(fn, name or fn.__name__, *said)
    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            place = place_now()
            if place is None:
                return await fn(*args, **kwargs)
            arguments = work.arguments(args, kwargs)

            async def make(given: Mapping[str, Any]) -> Any:
                return await cast(Awaitable[Any], fn(*args, **{**kwargs, **given}))

            return await place.calls.together(place.task_id, work.through(place, arguments, make))

        return cast(Callable[P, T], call)

    @functools.wraps(fn)
    def blocking(*args: P.args, **kwargs: P.kwargs) -> Any:
        place = place_now()
        if place is None:
            return fn(*args, **kwargs)
        arguments = work.arguments(args, kwargs)

        def carried(here: Callable[[Callable[[], Any]], Awaitable[Any]]) -> Any:
            async def make(given: Mapping[str, Any]) -> Any:
                return await here(functools.partial(fn, *args, **{**kwargs, **given}))

            return place.calls.together(place.task_id, work.through(place, arguments, make))

        return place.calls.wait(carried)

    return cast(Callable[P, T], blocking)


class _Durable:
    """One function and what is said of it."""

    def __init__(
        self, fn: Callable[..., Any], name: str, policy: ToolPolicy | None, replay: ReplayClass | None
    ) -> None:
        self._name, self._policy, self._replay = name, policy, replay
        self._signature = inspect.signature(fn)
        self._takes_key = KEY_NAME in self._signature.parameters

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """By name, as JSON."""
        bound = self._signature.bind_partial(*args, **kwargs).arguments
        given = {name: value for name, value in bound.items() if name != KEY_NAME}
        try:
            return cast(dict[str, Any], _json(given))
        except (TypeError, ValueError) as why:
            raise TypeError(
                f"{self._name} is durable, so its arguments have to be JSON ({why}). Nothing was called."
            ) from None

    async def through(
        self, place: Place, arguments: Mapping[str, Any], make: Callable[[Mapping[str, Any]], Awaitable[Any]]
    ) -> Any:
        key = place.key(self._name)
        gate = place.calls.desk.gate
        rule = gate.rule(self._name, "", ToolAnnotations(), self._policy, self._replay)
        raised: list[Exception] = []

        async def carry_out(leave: Make, sent: Sent) -> ToolOutcome:
            sent()
            try:
                with under_key(key):
                    value = await make({KEY_NAME: key} if self._takes_key else {})
            except GraphInterrupt as question:
                if all(is_gates(one) for one in question.args[0]):
                    raise  # a durable call within this one needs leave
                # Its answer would go to the next question of the node once the call is not made any more.
                told = f"{self._name} asked a person with interrupt(); ask in the node, outside of the durable call."
                return ToolOutcome(told, is_error=True)
            except Exception as error:
                raised.append(error)
                if rule.replay is ReplayClass.UNSAFE:
                    raise
                raise Suspended from error
            return self._outcome(value)

        wanted = Call(key, self._name, "", arguments, rule)
        try:
            outcome = await through_gate(place.calls.desk, wanted, carry_out)
        except Suspended:
            raise raised[-1] from None
        if outcome.is_error:
            raise DurableCallFailed(outcome.text) from (raised[-1] if raised else None)
        kept = outcome.structured
        if isinstance(kept, Mapping) and kept.keys() == {"returned"}:
            return kept["returned"]
        return outcome.text if kept is None else kept  # a person said what came of it

    def _outcome(self, value: Any) -> ToolOutcome:
        try:
            kept = _json(value)
        except (TypeError, ValueError) as why:
            told = (
                f"{self._name} was called, and what it returned is not JSON ({why}), so it could not be kept."
            )
            return ToolOutcome(told, is_error=True)
        return ToolOutcome(
            "" if kept is None else json.dumps(kept, ensure_ascii=False), False, {"returned": kept}
        )


def _json(value: Any) -> Any:
    """The value as it comes back from the journal. Raises TypeError or ValueError, also for integers beyond 64 bits and
    for what is nested too deep to be kept."""
    try:
        plain, _ = clean_json(json.loads(json.dumps(value, allow_nan=False)))
        orjson.dumps(plain)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return plain
