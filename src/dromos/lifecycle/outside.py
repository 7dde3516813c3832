"""`Outside`: what owners outside of this process may do, by name, each one transaction. `Lifecycle.outside` is one.

`claim` is a person's; every other operation is authorised by the run's token alone. With an Idempotency-Key the answer
is built inside the transaction and stored with the effect; a repeat gets it, also after the token was spent. The rules
are in `adapters` and `reports`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from dromos.domain.errors import Duplicate, OwnershipLost, RunNotActive
from dromos.domain.runs import Run
from dromos.lifecycle import adapters, effects, patching, reports, tokens
from dromos.lifecycle.adapters import ClaimAsk, End, Renewal, SessionClaim, SignOfLife
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.contract import Answer, Encode, IdempotencyKey
from dromos.lifecycle.effects import Effect, Told
from dromos.lifecycle.idempotency import answered
from dromos.lifecycle.patching import PatchAsk
from dromos.lifecycle.tokens import ClaimKey
from dromos.ports.live import Patched
from dromos.ports.meter import Meter
from dromos.ports.probe import Point
from dromos.ports.store import Row, Store

T = TypeVar("T")


class Make(Protocol):
    """Runs one operation in a transaction of its own, then its wake-ups; `point` names its crash points."""

    def __call__(self, point: Point, operation: Callable[[Change], T]) -> Awaitable[T]: ...


MakeAnswer = Callable[[Point, Callable[[Change], Answer]], Awaitable[Answer]]


class Outside:
    """See each method. A refusal changes nothing; one that comes too late is counted."""

    def __init__(self, store: Store, change: Make, answer: MakeAnswer, meter: Meter) -> None:
        self._store, self._change, self._answer, self._meter = store, change, answer, meter

    async def waiting(self, ask: ClaimAsk) -> bool:
        """True where `claim` would find a run now, unless somebody else is faster."""
        return await self._store.read(lambda tx: adapters.waiting(tx, ask))

    async def claim(self, ask: ClaimAsk, key: ClaimKey | None) -> SessionClaim | None:
        """T2 for one run, or None. A claim whose answer was lost is repeated with the same key."""

        def operation(change: Change) -> SessionClaim | None:
            return adapters.claim(change, ask, key)

        try:
            return await self._change(Point.SESSION_CLAIM, operation)
        except Duplicate as duplicate:
            if duplicate.constraint != tokens.CLAIM_CONSTRAINT:
                raise
        return await self._change(Point.SESSION_CLAIM, operation)  # a first call with this key was faster

    async def look(self, run_id: str, token: str | None) -> Run:
        """The run, where the token may write for it now; else what a write would be refused with."""
        return await self._store.read(lambda tx: tokens.look(tx, run_id, token))

    async def renew(
        self,
        run_id: str,
        token: str | None,
        sign: SignOfLife,
        encode: Encode,
        key: IdempotencyKey | None,
    ) -> tuple[Answer, Patched | None]:
        """`encode` gets a `Renewal`. Only an answer with messages to steer by is stored: nothing else would be lost.

        Beside the answer: how the document changed, for its readers.
        """
        patched: Patched | None = None

        def effect(change: Change, conversation: Conversation, run: Run) -> Renewal:
            nonlocal patched
            renewal = adapters.renew(change, conversation, run, sign)
            patched = renewal.patched
            return renewal

        answer = await self._for(
            Point.SESSION_RENEW, run_id, token, effect, encode, key, keep=lambda told: bool(told.steer)
        )
        return answer, None if answer.replayed else patched

    async def end(
        self, run_id: str, token: str | None, end: End, encode: Encode, key: IdempotencyKey | None
    ) -> Answer:
        """T10, T11 or T17. `encode` gets the `Run`."""

        def effect(change: Change, conversation: Conversation, run: Run) -> Run:
            return adapters.end(change, conversation, run, end)

        return await self._for(Point.SESSION_END, run_id, token, effect, encode, key)

    async def park(
        self,
        run_id: str,
        token: str | None,
        asked: Sequence[Mapping[str, Any]],
        encode: Encode,
        key: IdempotencyKey | None,
    ) -> Answer:
        """T8. `encode` gets (`Run`, request rows)."""

        def effect(change: Change, conversation: Conversation, run: Run) -> tuple[Run, list[Row]]:
            return adapters.park(change, conversation, run, asked)

        return await self._for(Point.SESSION_PARK, run_id, token, effect, encode, key)

    async def report_steps(
        self,
        run_id: str,
        token: str | None,
        steps: Sequence[Mapping[str, Any]],
        encode: Encode,
        key: IdempotencyKey | None,
    ) -> Answer:
        """`encode` gets the number of steps the run has now."""

        def effect(change: Change, conversation: Conversation, run: Run) -> int:
            return reports.report_steps(change, run, steps)

        return await self._for(Point.REPORT_STEPS, run_id, token, effect, encode, key)

    async def append_messages(
        self,
        run_id: str,
        token: str | None,
        messages: Sequence[Mapping[str, Any]],
        encode: Encode,
        key: IdempotencyKey | None,
    ) -> Answer:
        """`encode` gets the rows of `messages`."""

        def effect(change: Change, conversation: Conversation, run: Run) -> list[Row]:
            return reports.append_messages(change, conversation, run, messages)

        return await self._for(Point.APPEND_MESSAGES, run_id, token, effect, encode, key)

    async def report_effect(
        self, run_id: str, token: str | None, effect: Effect, encode: Encode, key: IdempotencyKey | None
    ) -> Answer:
        """The intent or the outcome of a call; T8 where a person is asked about it. `encode` gets an `effects.Told`."""

        def reported(change: Change, conversation: Conversation, run: Run) -> Told:
            return effects.report(change, conversation, run, effect)

        point = Point.INTENT if effect.state == "intent" else Point.OUTCOME
        return await self._for(point, run_id, token, reported, encode, key)

    async def patch_document(self, run_id: str, token: str | None, ask: PatchAsk) -> Patched:
        """The document's next version, on disk; see `patching` for the order of refusals."""
        try:
            return await self._change(
                Point.PATCH_DOCUMENT, lambda change: patching.patch_document(change, run_id, token, ask)
            )
        except (OwnershipLost, RunNotActive):
            self._meter.late_write()
            raise

    async def _for(
        self,
        point: Point,
        run_id: str,
        token: str | None,
        effect: Callable[[Change, Conversation, Run], T],
        encode: Encode,
        key: IdempotencyKey | None,
        *,
        keep: Callable[[T], bool] = lambda value: True,
    ) -> Answer:
        """Whose token it is · the stored answer of a repeat · whether the token still writes · the effect."""

        def operation(change: Change) -> Answer:
            row = tokens.identify(change.tx, run_id, token)
            conversation = tokens.conversation_of(change, row)

            def checked() -> T:
                return effect(change, conversation, tokens.checked(change.tx, row))

            scope = f"{run_id} {row['epoch']} {conversation.id}"
            return answered(change, conversation.user_id, key, scope, checked, encode, keep=keep)

        try:
            return await self._answer(point, operation)
        except (OwnershipLost, RunNotActive):
            self._meter.late_write()
            raise
