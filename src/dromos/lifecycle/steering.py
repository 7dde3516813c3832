"""`ports.agent.Steering` over the store: messages that a live run reads while it works.

They are given out inside one fenced transaction, which also holds what the agent writes of them. It knows no engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dromos.domain.errors import LeaseLost
from dromos.domain.runs import Run
from dromos.lifecycle.change import Change
from dromos.lifecycle.contract import Policy
from dromos.lifecycle.followups import deliver_steers
from dromos.lifecycle.history import input_messages
from dromos.ports.agent import InputMessage, Take
from dromos.ports.clock import Ids
from dromos.ports.probe import Moment, Point, Probe
from dromos.ports.recorder import Recorder
from dromos.ports.store import Row, Tx
from dromos.ports.wakeup import Wakeup

T = TypeVar("T")


class RunSteering:
    """One attempt's. A transaction that gave messages out is a crash point of its own, `steer`, beside the name of what
    it wrote."""

    def __init__(self, recorder: Recorder, wakeup: Wakeup, ids: Ids, policy: Policy, probe: Probe) -> None:
        self._recorder, self._wakeup, self._ids = recorder, wakeup, ids
        self._policy, self._probe = policy, probe

    async def write(self, fn: Callable[[Tx, Run, Take], T], *, point: Point = Point.RECORD) -> T:
        def operation(tx: Tx, run: Run) -> tuple[T, dict[str, list[Row]]]:
            giving = _Giving(tx, run, self._ids, self._policy)
            value = fn(tx, run, giving.take)
            if giving.topics:
                self._probe.reach(Point.STEER.at(Moment.WRITTEN))
            return value, giving.topics

        value, topics = await self._recorder.write(operation, messages=True, point=point)
        if topics:
            self._probe.reach(Point.STEER.at(Moment.COMMITTED))
        for topic, news in sorted(topics.items()):
            self._wakeup.notify(topic, news)
        return value


class _Giving:
    """What one transaction gives out, at most once."""

    def __init__(self, tx: Tx, run: Run, ids: Ids, policy: Policy) -> None:
        self._tx, self._run, self._ids, self._policy = tx, run, ids, policy
        self.topics: dict[str, list[Row]] = {}

    def take(self) -> list[InputMessage]:
        run = self._run
        change = Change(self._tx, self._ids, self._policy)
        conversation = change.lock_conversation(run.conversation_id)
        if conversation is None:
            raise LeaseLost(f"the conversation of run {run.id} is gone")
        messages = input_messages(deliver_steers(change, conversation, run))
        change.flush()
        self.topics |= change.topics
        return messages
