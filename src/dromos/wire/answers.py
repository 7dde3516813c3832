"""What the server answers, as models. They document `shapes` for OpenAPI and let clients read answers with types.

The server builds its answers with `shapes`; a test holds the two together.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.statuses import (
    FollowupStatus,
    OnTimeout,
    RequestKind,
    RequestStatus,
    RunStatus,
    Verdict,
    WhenBusy,
)

T = TypeVar("T")

_ID = "019ad0f2-6a5e-7c3a-9b51-6f0c2d8f4e11"
_OTHER = "019ad0f2-6a60-7d0f-8a3c-1b7e55a0c9d2"
_RUN = "019ad0f2-6a61-7aa4-b0cf-93f1c2de7701"
_ANCHOR = "019ad0f2-6a62-7b19-a3d4-2c44ef9f0b63"
_AT = "2026-11-29T13:46:04.123456Z"


class Shape(BaseModel):
    model_config = ConfigDict(extra="allow")


class Page(Shape, Generic[T]):
    """A list. `next_cursor` is null on the last page."""

    items: list[T]
    next_cursor: str | None


class Wait(Shape):
    reason: str
    until: str | None
    then: str | None


class Stop(Shape):
    """A stop that was accepted."""

    cause: str
    by: str
    comment: str | None
    accepted_at: str
    delivered_at: str | None
    forced_at: str | None
    outcome: str | None
    waiting_for: dict[str, Any] | None
    unknown_calls: list[str]
    step: str | None = Field(
        description="Of a run that has ended: its newest step, in which or behind which it stopped."
    )


RUN_EXAMPLE: dict[str, Any] = {
    "id": _RUN,
    "conversation_id": _ID,
    "agent": "assistant",
    "status": "queued",
    "reason": "created",
    "error_code": None,
    "error_message": None,
    "attempt": 0,
    "crashes": 0,
    "epoch": 0,
    "version": 1,
    "wait": {"reason": "no_worker", "until": None, "then": None},
    "stop": None,
    "trigger_message_id": _OTHER,
    "anchor_message_id": _ANCHOR,
    "resume_of": None,
    "retry_of": None,
    "parent_run_id": None,
    "session_id": None,
    "backend_policy": {},
    "model": None,
    "steps": 0,
    "line": None,
    "created_at": _AT,
    "started_at": None,
    "finished_at": None,
    "usage": {},
    "cost": None,
    "document_version": 0,
}


class Run(Shape):
    """One attempt of an agent at one piece of work, with exactly one end."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [RUN_EXAMPLE]})
    id: str
    conversation_id: str
    agent: str
    status: RunStatus
    reason: Reason
    error_code: ErrorCode | None
    error_message: str | None
    attempt: int
    crashes: int
    epoch: int
    version: int
    wait: Wait | None
    stop: Stop | None
    trigger_message_id: str | None
    anchor_message_id: str | None
    resume_of: str | None
    retry_of: str | None
    parent_run_id: str | None
    session_id: str | None
    backend_policy: dict[str, Any]
    model: str | None
    steps: int
    line: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    usage: dict[str, int]
    cost: dict[str, Any] | None
    document_version: int


MESSAGE_EXAMPLE: dict[str, Any] = {
    "id": _OTHER,
    "role": "user",
    "kind": "text",
    "content": "Name one prime number.",
    "status": "pending",
    "run_id": _RUN,
    "interrupted": False,
    "created_at": _AT,
}


class Message(Shape):
    """One message of the history. A run's anchor has `kind` run and no role; an unsent follow-up has no id yet."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [MESSAGE_EXAMPLE]})
    id: str | None
    role: Literal["user", "assistant", "tool", "system"] | None
    kind: Literal["text", "run", "tool"]
    content: Any
    status: str | None
    run_id: str | None
    interrupted: bool
    created_at: str
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class Followup(Shape):
    """A message that waits for the live run to read it or to end, or is held after a stop."""

    id: str
    conversation_id: str
    run_id: str
    status: FollowupStatus
    when_busy: WhenBusy = Field(description="What it acts as.")
    asked: WhenBusy = Field(description="How it was sent.")
    author_id: str
    content: Any
    position: int
    version: int
    message_id: str | None
    created_at: str
    updated_at: str


class Revision(Shape):
    """One text that a waiting message had; number 1 is the first."""

    num: int
    content: Any
    author_id: str
    created_at: str


class FollowupRead(Followup):
    """A follow-up, and every text it had while it waited, oldest first."""

    revisions: list[Revision]


CONVERSATION_EXAMPLE: dict[str, Any] = {
    "id": _ID,
    "title": "Plan the trip",
    "agent": "assistant",
    "status": "idle",
    "message_count": 0,
    "archived": False,
    "unseen": False,
    "created_at": _AT,
    "updated_at": _AT,
}


class Conversation(Shape):
    """`status` is that of the newest run, `idle` where there is none. `unseen`: something in it calls a person."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [CONVERSATION_EXAMPLE]})
    id: str
    title: str
    agent: str
    status: str
    message_count: int
    archived: bool
    unseen: bool
    created_at: str
    updated_at: str


class ConversationLine(Shape):
    """A conversation in the list. `unseen`: a question was put or a run ended in it, and no device has shown that."""

    id: str
    title: str
    agent: str
    status: str
    line: str | None
    open_requests: int
    message_count: int
    archived: bool
    created_at: str
    updated_at: str
    unseen: bool


class Request(Shape):
    """A question to a person. `decision` holds `decision`, `answer` and `comment`, once there is one; an edit's
    `arguments` with their `arguments_sha256`; and `grant`."""

    id: str
    run_id: str
    conversation_id: str
    kind: RequestKind
    tool: str | None
    tool_call_id: str | None
    arguments: Any = Field(description="What the tool, or the question, is about: shown whole.")
    arguments_sha256: str | None
    prompt: str | None
    options: list[Any] | None = Field(description="Answers to choose from: texts, or `{value, label}`.")
    decisions: list[Verdict] = Field(description="What may be said to it.")
    answer_schema: dict[str, Any] | None = Field(
        description="JSON Schema of the answer, or of the arguments of an edit; null: anything."
    )
    grants: list[str] = Field(description="What leave may be given for with `approve`: `call`, `tool`.")
    status: RequestStatus
    version: int
    expires_at: str | None
    on_timeout: OnTimeout | None
    opened_at: str
    decided_by: str | None = Field(description="Who decided; `policy` where nobody did in time.")
    decided_at: str | None
    decision: dict[str, Any] | None
    comment: str | None
    replaces: str | None = Field(description="The question that this one asks anew.")


class Grant(Shape):
    """Leave that a person gave for good, within one conversation; `request_id` is the approval it was given with."""

    id: str
    conversation_id: str
    tool: str
    arguments: Any = Field(description="It holds for exactly these; null: for every call of the tool.")
    request_id: str
    created_at: str


class ConversationView(Shape):
    """One consistent read; `seq` is the event number to stream from."""

    conversation: Conversation
    messages: list[Message] = Field(description="The newest page.")
    next_cursor: str | None = Field(description="`before` for older messages; null where there are none.")
    runs: list[Run] = Field(description="The live ones.")
    requests: list[Request]
    followups: list[Followup]
    resumable: bool
    seq: int


class Owner(Shape):
    """Who has a run now, when it gave its last sign of life, and when others may take over."""

    kind: str
    seen_at: str | None
    takeover_at: str | None


class RunLine(Run):
    """A run in the list; `owner` is null where nobody has it."""

    owner: Owner | None


class Overview(Shape):
    """What a device shows beside the open conversation, as one read. Stream on from `seq`."""

    seq: int
    conversations: Page[ConversationLine] = Field(description="The newest page.")
    also: list[ConversationLine] = Field(
        description="Of the runs and requests below, those that are not on that page."
    )
    unseen: int = Field(description="How many conversations call a person, those of later pages included.")
    runs: Page[RunLine] = Field(description="The newest live ones.")
    requests: Page[Request] = Field(description="The open ones that were put first.")


class MessageStarted(Shape):
    """The message, and the run it started."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"message": MESSAGE_EXAMPLE, "run": RUN_EXAMPLE}]}
    )
    message: Message
    run: Run


class MessageWaits(Shape):
    """The message waits behind the live run; it gets its place and id in the history when it is applied."""

    message: Message
    followup: Followup


class RequestDecided(Shape):
    """The question with its decision, and the run it let go on."""

    request: Request
    run: Run


class RunAnswer(Shape):
    run: Run


class Checkpoint(Shape):
    checkpoint_id: str
    step: int
    source: str
    next: list[str]
    run_id: str | None
    created_at: str
    message_count: int


class Step(Shape):
    id: str
    kind: str
    name: str
    status: str
    summary: str | None
    attempt: int
    checkpoint_id: str | None
    started_at: str
    ms: int | None
    usage: dict[str, Any] | None
    cost: dict[str, Any] | None


class Attempt(Shape):
    attempt: int
    epoch: int
    started_at: str
    ended_at: str | None
    reason: str | None


class Event(Shape):
    """A durable event. `seq` numbers the events of one person without a gap."""

    seq: int
    type: str
    conversation_id: str | None
    run_id: str | None
    at: str
    payload: dict[str, Any] | None


class Document(Shape):
    """`run_document.v1`: what a run is doing, server part and content part as one object."""

    run_id: str
    version: int
    run_version: int
    document: dict[str, Any]


class DocumentVersion(Shape):
    """The version of the document behind the patch."""

    version: int


class ModelInUse(Shape):
    name: str
    source: str
    hint: str


class Agent(Shape):
    name: str
    description: str
    kind: str
    default: bool
    model: ModelInUse | None


class Person(Shape):
    id: str
    name: str


class Worker(Shape):
    """An owner of runs and its lease."""

    id: str
    kind: str
    host: str
    pid: int
    started_at: str
    seen_at: str
    lease_until: str | None


class Health(Shape):
    status: Literal["ok", "not_ready"]
    version: str | None = None


class FaultShape(Shape):
    code: str
    path: str
    message: str


class Problem(Shape):
    """RFC 9457. `detail` says the cure; `errors` where several things are wrong; on 409 what is current."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:dromos:problem:not_found",
                    "title": "Not found",
                    "status": 404,
                    "code": "not_found",
                    "detail": "There is no such conversation, or it is not yours.",
                }
            ]
        },
    )
    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[FaultShape] | None = None
    run: Run | None = None
    request: Request | None = None
    document: dict[str, Any] | None = None
