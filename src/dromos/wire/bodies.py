"""What clients send: bodies and query strings, as strict models. Unknown fields are refused, nothing is coerced.

Shapes only; what a value means is decided further in.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from dromos.domain.document import OPERATIONS
from dromos.domain.statuses import RunStatus, Verdict, WhenBusy

Title = Annotated[StrictStr, Field(max_length=500, description="One line; 500 characters at most.")]
Comment = Annotated[StrictStr, Field(max_length=8192)]
Limit = Annotated[int, Field(ge=1, le=200, description="How many at most.")]
Cursor = Annotated[str, Field(max_length=512, description="`next_cursor` of the page before.")]
Version = Annotated[
    int, Field(ge=0, lt=2**63, description="The version you saw; another one is refused with 409.")
]
Name = Annotated[StrictStr, Field(min_length=1, max_length=200)]
Text = Annotated[StrictStr, Field(min_length=1)]
Content = Text | Annotated[dict[str, Any], Field(min_length=1)] | Annotated[list[Any], Field(min_length=1)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewConversation(Strict):
    """An empty conversation; its first message may also be sent at once, it then gets its title from it."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"title": "Plan the trip", "agent": "assistant"}]}
    )
    title: Title | None = None
    agent: Name | None = Field(None, description="Name of the agent; the default agent where none is given.")


class ChangeConversation(Strict):
    """Only the fields that are given change."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"title": "The trip in May"}]})
    title: Title | None = None
    archived: StrictBool | None = None
    seen_seq: Annotated[StrictInt, Field(ge=0, lt=2**63)] | None = Field(
        None, description="The newest event number this person has seen here."
    )


class BackendPolicy(Strict):
    """Which models and providers the run may use; it narrows its agent's policy. A list left out allows all."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"models": ["qwen3*"], "providers": ["ollama"]}]}
    )
    models: list[Name] | None = Field(
        None,
        max_length=100,
        description="Patterns of `provider:name`, or of the name alone; `*` is any text.",
    )
    providers: list[Name] | None = Field(None, max_length=100)


class RunRequest(Strict):
    """What a message asks of the run it starts."""

    agent: Name | None = None
    model: Name | None = Field(
        None, description="`provider:model`; chosen when the run starts where none is given."
    )
    budget: dict[str, Any] | None = None
    deadline_s: Annotated[StrictInt | StrictFloat, Field(gt=0, le=31_536_000)] | None = Field(
        None, description="Seconds from now after which the run ends as expired."
    )
    backend_policy: BackendPolicy | None = None


class NewMessage(Strict):
    """A person's message. It starts a run, or waits where one is live."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"content": "Name one prime number.", "when_busy": "queue"}]},
    )
    content: Content
    when_busy: WhenBusy = Field(
        WhenBusy.QUEUE, description="What to do while a run of this conversation is live."
    )
    run: RunRequest | None = None


class ContinueRun(Strict):
    """Go on from where the last run stood."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}]})
    run: RunRequest | None = None


class CancelRun(Strict):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"comment": "wrong question"}]})
    comment: Comment | None = None


class ChangeFollowup(Strict):
    """Edit or move a message that still waits."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"version": 1, "content": "And in French?"}]}
    )
    version: Annotated[StrictInt, Field(ge=0, lt=2**63)]
    content: Content | None = None
    position: Annotated[StrictInt, Field(ge=-(2**31), lt=2**31)] | None = None


class SendFollowup(Strict):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"version": 1}]})
    version: Annotated[StrictInt, Field(ge=0, lt=2**63)] | None = None


class DocumentText(Strict):
    """Text that goes on behind `offset` of the message, or begins a new one at 0."""

    message_id: Annotated[StrictStr, Field(min_length=1, max_length=200)]
    offset: Annotated[StrictInt, Field(ge=0, le=2**21, description="In UTF-16 code units.")]
    append: StrictStr


class PatchDocument(Strict):
    """What changed in the document since `base_version`, as a JSON patch, and text beside it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "base_version": 4294967296,
                    "patch": [{"op": "add", "path": "/line", "value": "reading the invoices"}],
                    "text": {"message_id": "m1", "offset": 0, "append": "I found "},
                }
            ]
        },
    )
    base_version: Annotated[StrictInt, Field(ge=0, lt=2**63)]
    patch: list[Any] = Field(
        default_factory=list,
        description="RFC 6902, of it add, replace, remove and test; at most 200 operations and 64 KiB.",
        json_schema_extra={
            "items": {
                "type": "object",
                "required": ["op", "path"],
                "properties": {
                    "op": {"enum": list(OPERATIONS)},
                    "path": {"type": "string", "description": "A path of the content part."},
                    "value": {"description": "Of add, replace and test."},
                },
            }
        },
    )
    text: DocumentText | None = None


class DecideRequest(Strict):
    """A person's word on a question, and which form of the question that person saw."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "decision": "answer",
                    "request_version": 1,
                    "arguments_sha256": None,
                    "answer": "The savings account.",
                },
                {
                    "decision": "approve",
                    "request_version": 1,
                    "arguments_sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
                    "grant": "call",
                },
                {
                    "decision": "edit",
                    "request_version": 1,
                    "arguments_sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
                    "arguments": {"to": "ann"},
                    "comment": "To ann, not to bob.",
                },
                {"decision": "mark_done", "request_version": 1, "answer": "It was sent."},
            ]
        },
    )
    decision: Verdict = Field(description="One of the question's `decisions`.")
    request_version: Annotated[StrictInt, Field(ge=0, lt=2**63)] = Field(
        description="The question's `version`; another one is refused with 409."
    )
    arguments_sha256: Annotated[StrictStr, Field(max_length=64)] | None = Field(
        None, description="The question's own; another one is refused with 409."
    )
    answer: Any = Field(
        None,
        description="With `answer`: what fits the options or the schema. With `mark_done`: what came of the call.",
    )
    arguments: dict[str, Any] | None = Field(
        None, description="With `edit`: what to call with instead; it has to fit `answer_schema`."
    )
    grant: Literal["call", "tool"] | None = Field(
        None,
        description="With `approve`: do not ask again here, for just these arguments or for the whole tool.",
    )
    comment: Comment | None = None


class PageQuery(Strict):
    limit: Limit = 50
    cursor: Cursor | None = None


class ConversationsQuery(PageQuery):
    unseen: bool = Field(False, description="Only those that call a person and were not shown since.")


class OverviewQuery(Strict):
    limit: Limit = 50


class HistoryQuery(Strict):
    limit: Limit = 50
    before: Cursor | None = Field(None, description="`next_cursor` of the newer page.")


class RunsQuery(PageQuery):
    status: list[RunStatus] = Field(default_factory=list, description="May be given several times.")
    conversation_id: str | None = Field(None, max_length=64)


class RequestsQuery(PageQuery):
    status: Literal["open"] = "open"


class GrantsQuery(PageQuery):
    conversation_id: str | None = Field(None, max_length=64, description="Only those of this conversation.")


class ExportQuery(Strict):
    format: Literal["md", "jsonl", "json"] = "md"


class CancelQuery(Strict):
    wait_s: Annotated[float, Field(ge=0, le=300, allow_inf_nan=False)] | None = Field(
        None, description="Wait so long for the end: 200 once it is there, 202 if it is not."
    )


class FollowupQuery(Strict):
    version: Version | None = None


class StreamQuery(Strict):
    focus: str | None = Field(None, max_length=64, description="Also send frames of this conversation.")
    after: str | None = Field(None, max_length=64, description="Go on after this event number.")


class NoQuery(Strict):
    """No parameters."""
