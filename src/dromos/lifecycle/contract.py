"""What goes into and comes out of the lifecycle: small values shared by its modules and their callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dromos.domain.effects import ReplayClass, ToolRule
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.retries import DEFAULT_POLICIES, RetryPolicy
from dromos.domain.runs import Fence, Run
from dromos.domain.stalls import StallPolicy
from dromos.domain.statuses import Recovery, RunStatus, WhenBusy
from dromos.ports.agent import Decided
from dromos.ports.store import Row


def unasked(tool: str, own: ReplayClass) -> ToolRule:
    """Of a tool that configuration says nothing of."""
    return ToolRule(replay=own)


@dataclass(frozen=True, slots=True)
class AgentPolicy:
    """What differs for one agent; None: as for all."""

    step_limit: int | None = None
    recovery: Recovery | None = None
    backend_policy: Mapping[str, Any] = field(default_factory=dict)
    steers: bool = True  # reads messages while it works


@dataclass(frozen=True, slots=True)
class Policy:
    """Configured limits. Seconds everywhere; None: no limit."""

    stop_deadline: float = 15.0
    queue_deadline: float | None = None
    step_limit: int = 25
    recovery: Recovery = Recovery.AUTO
    agents: Mapping[str, AgentPolicy] = field(default_factory=dict)
    idempotency_days: int = 7
    event_retention_days: int | None = None
    adapter_grace: float = 30.0  # an adapter session's lease of each of its runs
    waiting_limit: int = 100  # messages that may wait or be held in one conversation
    stall: StallPolicy = field(default_factory=StallPolicy)  # for runs of adapters; a worker watches its own
    retries: Mapping[ErrorCode, RetryPolicy] = field(default_factory=lambda: DEFAULT_POLICIES)
    tool_rule: Callable[[str, ReplayClass], ToolRule] = (
        unasked  # of an adapter's tool, by name and what it says
    )
    approval_expires: float | None = None  # of an approval for an adapter's call
    approval_on_timeout: str = "deny"

    def step_limit_of(self, agent: str) -> int:
        own = self.agents.get(agent)
        return own.step_limit if own is not None and own.step_limit is not None else self.step_limit

    def recovery_of(self, agent: str) -> Recovery:
        own = self.agents.get(agent)
        return own.recovery if own is not None and own.recovery is not None else self.recovery

    def steers(self, agent: str) -> bool:
        own = self.agents.get(agent)
        return own is None or own.steers

    def backend_of(self, agent: str) -> Mapping[str, Any]:
        own = self.agents.get(agent)
        return own.backend_policy if own is not None else {}


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The client's key for one call: `route` is method and path template, `body_sha256` of the raw body."""

    route: str
    key: str
    body_sha256: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What an HTTP door sends: stored with the effect where the call carried a key, and sent again to a repeat."""

    status: int
    body: str
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a message asks of the run it starts."""

    agent: str | None = None
    model: str | None = None
    budget: Mapping[str, Any] | None = None
    deadline_s: float | None = None
    backend_policy: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PostMessage:
    """A person's message. `conversation_id` None starts a conversation (lab surface, chat)."""

    content: Any
    conversation_id: str | None = None
    when_busy: WhenBusy = WhenBusy.QUEUE
    options: RunOptions = field(default_factory=RunOptions)


@dataclass(frozen=True, slots=True)
class Posted:
    """Either a message with the run it started, or a follow-up that waits."""

    conversation: Row
    message: Row | None = None
    run: Run | None = None
    followup: Row | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that now belongs to the owner. `composed` says whether its one engine input is stored already;
    `decisions` are those that no owner has applied yet. `begins`: no owner of a run had this conversation before."""

    run: Run
    fence: Fence
    composed: bool
    input: Any
    previous_document: Row | None = None
    decisions: tuple[Decided, ...] = ()
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Continuation:
    """How an ended run can be continued: `reason` resume_of or retry_of. `needs_pending`: only where the agent's
    thread has something left to do."""

    reason: Reason
    needs_pending: bool


@dataclass(frozen=True, slots=True)
class ConversationView:
    """One consistent read of a conversation: the newest page of messages, its runs, and the cursor to stream from."""

    conversation: Row
    last_run: Run | None
    messages: list[Row]
    runs: list[Run]
    requests: list[Row]
    followups: list[Row]
    seq: int
    continuation: Continuation | None = None
    before: str | None = None  # cursor of the next older page of messages


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events after a cursor; `head` is the newest number, `first` the oldest that is kept.

    `reset`: the cursor is older than what is kept.
    """

    events: list[Row]
    head: int
    first: int
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """Live runs by status, workers with a valid lease, seconds the oldest due run has been waiting, and durable events
    so far."""

    live: Mapping[RunStatus, int]
    workers: int
    queue_age: float
    events: int = 0


Encode = Callable[[Any], tuple[int, str]]
"""Turns an operation's result into (HTTP status, JSON text); pure, called inside the transaction."""
