"""An agent as the worker sees it: it makes one engine input, and carries out attempts.

The adapter translates its framework to this and knows nothing of queues, leases or HTTP. Everything it writes goes
through the attempt's `recorder`; everything it shows goes through `live`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import Verdict
from dromos.ports.journal import Desk
from dromos.ports.live import LiveRun
from dromos.ports.probe import Point
from dromos.ports.recorder import Recorder
from dromos.ports.store import Row, Tx

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finished:
    """The engine ended. `line` for the collapsed box (None: the server writes it)."""

    line: str | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class TryLater:
    """Give the slot back and try again (T7): retry_backoff or rate_limited, with the run's counts to store."""

    reason: Reason
    delay: float
    tries: Mapping[str, int]
    then: str


@dataclass(frozen=True, slots=True)
class Drained:
    """The attempt stopped at a step boundary because it was asked to (`drain`)."""


@dataclass(frozen=True, slots=True)
class Parked:
    """The run waits for a person (T8): what is asked, each as `domain.requests.opening` takes it."""

    reason: Reason
    requests: tuple[Mapping[str, Any], ...]


Outcome = Finished | Failed | TryLater | Drained | Parked


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision on a request of this run that no owner has applied yet.

    It is handed to every attempt until the agent says, in the transaction that keeps what came of it, that it is
    consumed. `engine_id` is the engine's own name of the question; `arguments` and `prompt` are what was shown. One
    with a `call_key` belongs to the journal, which applies it when the call is made.
    """

    request_id: str
    kind: str
    decision: Verdict
    answer: Any = None
    comment: str | None = None
    tool: str | None = None
    tool_call_id: str | None = None
    arguments: Any = None
    prompt: str | None = None
    engine_id: str | None = None
    call_key: str | None = None


def decided_from(row: Row) -> Decided:
    """The decision that a row of `requests` holds."""
    kept = row["decision"] or {}
    return Decided(
        request_id=row["id"],
        kind=row["kind"],
        decision=Verdict(kept.get("decision", Verdict.DENY)),
        answer=kept.get("answer"),
        comment=kept.get("comment"),
        tool=row["tool"],
        tool_call_id=row["tool_call_id"],
        arguments=row["arguments"],
        prompt=row["prompt"],
        engine_id=row["engine_id"],
        call_key=row["call_key"],
    )


class Signal(Protocol):
    """Something that is set once; an `asyncio.Event` is one."""

    def is_set(self) -> bool: ...

    async def wait(self) -> object:
        """Returns when it is set, at once where it is set already."""
        ...


async def _nowhere(tries: Mapping[str, int]) -> None:
    """For an attempt that nobody could take over."""


NoteTries = Callable[[Mapping[str, int]], Awaitable[None]]


Take = Callable[[], "list[InputMessage]"]
"""Gives out the messages that wait to be read by the live run, oldest first. With it they are applied."""


class Steering(Protocol):
    """What a person sends while the run is at work, for the agent to read before its next model call.

    A message is given out once, in the transaction in which it enters the history; rolled back, it waits as before.
    What no call takes waits for the run's successor. Raises `LeaseLost` as the recorder does.
    """

    async def write(self, fn: Callable[[Tx, Run, Take], T], *, point: Point = Point.RECORD) -> T:
        """As the recorder's `write` with `messages`. Where `fn` calls its last argument, what waits enters the
        history behind everything `fn` stored before, and `fn` stores it in the agent's own state."""
        ...


@dataclass(slots=True)
class Attempt:
    """One attempt of one run, handed to the agent.

    `input` is what `compose` returned and the store kept (None for a `resume_of` run). `drain` is set when the
    agent should stop at the next step boundary. A stop cancels the task that awaits `Agent.attempt`.
    `decisions` are what people answered since it parked, to be applied now.
    `unknown_calls` is filled with the tools whose outcome nobody knows when the attempt was cut. `note_tries` keeps
    the count of failed tries with the run, so that a takeover goes on counting. `steer` gives out what people send
    meanwhile; an agent that cannot read while it works leaves it alone. `desk` is where its tool calls are recorded.
    `begins`: nobody worked in this conversation before, so there is nothing to take up.
    """

    run: Run
    input: Any
    recorder: Recorder
    live: LiveRun
    drain: Signal
    note_tries: NoteTries = _nowhere
    steer: Steering | None = None
    unknown_calls: list[str] = field(default_factory=list)
    decisions: Sequence[Decided] = ()
    desk: Desk | None = None
    begins: bool = False


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model answers, why it was chosen, and how to get a better one."""

    name: str
    source: str
    hint: str


REMOTE = "remote"
"""The kind of an agent whose runs are carried out elsewhere: adapters claim them, and no worker does."""


@dataclass(frozen=True, slots=True)
class AgentInfo:
    name: str
    description: str
    kind: str  # langgraph | process | REMOTE
    model: ModelChoice | None = None


@dataclass(frozen=True, slots=True)
class InputMessage:
    """One message of the history that the thread does not hold yet, in the order it must enter."""

    id: str
    role: str  # user | assistant | tool
    content: Any
    tool_call_id: str | None = None
    name: str | None = None
    status: str | None = None  # "error" for a synthetic or failed tool result


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """One line of the export: the state after a step."""

    checkpoint_id: str
    step: int
    source: str
    next: tuple[str, ...]
    run_id: str | None
    created_at: datetime
    message_count: int
    last_message: Mapping[str, Any] | None = None  # {"id", "role", "content"}


class Agent(Protocol):
    @property
    def info(self) -> AgentInfo: ...

    def compose(self, messages: list[InputMessage]) -> Any:
        """The run's one engine input, as JSON, from the messages that have to enter the thread."""
        ...

    async def attempt(self, attempt: Attempt) -> Outcome:
        """Carry the run on from where its thread stands. Raises nothing but `LeaseLost` and cancellation."""
        ...

    async def pending(self, conversation_id: str) -> tuple[str, ...]:
        """Names of what the thread would run next; () where nothing is left to do or there is no thread."""
        ...

    async def checkpoints(self, conversation_id: str) -> list[CheckpointSummary]:
        """The thread's checkpoints (root namespace), oldest first."""
        ...


class Agents(Protocol):
    """The registry: agents by name."""

    def get(self, name: str) -> Agent | None: ...

    def infos(self) -> list[AgentInfo]: ...

    @property
    def default(self) -> str: ...
