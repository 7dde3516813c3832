"""How an attempt writes: every write is fenced by the run's epoch in its own transaction.

The recorder belongs to one attempt of one run. It raises `LeaseLost` where the epoch is old or the status takes no
such write; the writer stops at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from dromos.domain.runs import Fence, Run
from dromos.ports.probe import Point
from dromos.ports.store import ReadTx, Tx

T = TypeVar("T")


class Recorder(Protocol):
    fence: Fence

    async def write(
        self,
        fn: Callable[[Tx, Run], T],
        *,
        while_cancelling: bool = False,
        messages: bool = False,
        point: Point = Point.RECORD,
    ) -> T:
        """Run `fn(tx, run)` under the fence, with the run row locked.

        `messages` where `fn` stores messages: their numbers are the conversation's, whose row is then locked
        before the run's, as the lock order wants it.

        `while_cancelling` is for what a run in `cancelling` may still write: journal outcomes, partial text, usage
        and the document. `point` names the transaction for fault tests.
        """
        ...

    async def read(self, fn: Callable[[ReadTx], T]) -> T: ...
