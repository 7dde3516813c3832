"""Calls of a handler that are made once: the intent is on disk before, what came of it after.

    async with run.effect("send_mail", {"to": "ada"}, call_id="welcome") as effect:
        if not effect.done:
            effect.result = await send_mail("ada", key=effect.key)

It must not know how calls to the server are made, and nothing of the tool.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

Json = dict[str, Any]
Replay = Literal["keyed", "unsafe"]
Report = Callable[[Json, str], Awaitable[Json]]
"""Tells the server of an effect: the body, and what to do where nobody knows what became of it (`ask` | `raise`)."""


class EffectFailed(Exception):
    """What came of the call, the first time, was a failure; or a person said that it is not to be repeated."""


class OutcomeUnknown(Exception):
    """An earlier attempt was lost in the call, and it may have happened. Nothing was called now."""


@dataclass(frozen=True, slots=True)
class EffectCall:
    """One call by the handler's own id. `replay`: whether it may be made again with the same key after a crash;
    `on_unknown`: where it may not, ask a person (the run parks) or raise `OutcomeUnknown`."""

    tool: str
    arguments: Mapping[str, Any]
    call_id: str
    replay: Replay = "unsafe"
    on_unknown: Literal["ask", "raise"] = "ask"


class Effect:
    """The call within its block. Set `result` (JSON) to what came of it; a block that raises tells nothing, so that
    the next attempt makes a `keyed` call again and asks about any other."""

    def __init__(self, call: EffectCall, report: Report) -> None:
        self._call, self._report = call, report
        self.key = ""
        """The idempotency key: hand it to whatever has the effect."""
        self.done = False
        """It was made before: look at `result`, and do not call."""
        self.failed = False
        """With `done`: what came of it was a failure, in `text`."""
        self.result: Any = None
        self.text: str | None = None
        """What to read of the result; its JSON if left None."""

    async def __aenter__(self) -> Self:
        call = self._call
        body = {
            "state": "intent",
            "call_id": call.call_id,
            "tool": call.tool,
            "arguments": dict(call.arguments),
            "replay": call.replay,
        }
        told = await self._report(body, call.on_unknown)
        self.key = told["key"]
        if told["state"] == "unknown":
            raise OutcomeUnknown(
                f"{call.tool} was under way when an earlier attempt was lost. It may have happened."
            )
        outcome = told["outcome"]
        if outcome is not None:
            self.done, self.failed, self.text = True, outcome["is_error"], outcome["text"]
            self.result = outcome["structured"]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and not self.done:
            await self.settle()

    async def settle(self) -> None:
        """Tell what came of it; done at the end of the block. Raises TypeError where the result is not JSON."""
        wrong: Exception | None = None
        try:
            text = json.dumps(self.result, ensure_ascii=False, allow_nan=False)
            self.result = json.loads(text)
        except (TypeError, ValueError) as why:
            wrong, self.result, self.failed = why, None, True
            text = f"{self._call.tool} was called, and what came of it is not JSON, so it could not be kept."
        if self.text is None:
            self.text = self.result if isinstance(self.result, str) else "" if self.result is None else text
        if wrong is not None:
            self.text = text
        body = {
            "state": "outcome",
            "call_id": self._call.call_id,
            "text": self.text,
            "result": self.result,
            "is_error": self.failed,
        }
        await _even_if_cancelled(self._report(body, "raise"))
        self.done = True
        if wrong is not None:
            raise TypeError(text) from wrong


async def once(effect: Effect, make: Callable[[str], Awaitable[Any]]) -> Any:
    """`await make(key)`, if it was not made before. Raises `EffectFailed` where what came of it was a failure."""
    async with effect:
        if not effect.done:
            effect.result = await make(effect.key)
    if effect.failed:
        raise EffectFailed(effect.text)
    return effect.text if effect.result is None and effect.text else effect.result


async def _even_if_cancelled(report: Awaitable[Json]) -> None:
    """An outcome that is known is told, though the handler is being stopped."""
    telling = asyncio.ensure_future(report)
    try:
        await asyncio.shield(telling)
    except asyncio.CancelledError:
        await telling
        raise
