"""What an agent outside of this process sends and gets: the bodies and answers of `/v1/adapter`.

Strict like every body: unknown fields are refused, nothing is coerced. Shapes only; what a value means is decided
further in. The SDK builds and reads the same models.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from dromos.wire.answers import Message, Run, Shape
from dromos.wire.bodies import Content, Name, Strict

MOST_ITEMS = 200
"""Steps, messages or requests in one call."""
MAX_WAIT_S = 60

ItemId = Annotated[StrictStr, Field(min_length=1, max_length=200)]
Short = Annotated[StrictStr, Field(max_length=8192)]
Count = Annotated[StrictInt, Field(ge=0, lt=2**53)]
Session = Annotated[StrictStr, Field(pattern=r"^[!-~]{1,128}$")]


def _as_told(value: object) -> object:
    """A number, also one in quotes, is no time: nothing is coerced."""
    if isinstance(value, datetime) or (isinstance(value, str) and "-" in value[1:]):
        return value
    raise ValueError("send a time such as 2026-11-29T13:46:04Z")


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("UTC has no such year; send a time from 0001 to 9999") from None


When = Annotated[
    AwareDatetime,
    BeforeValidator(_as_told),
    AfterValidator(_in_utc),
    Field(description="RFC 3339 with an offset."),
]


# --- bodies
class ClaimRun(Strict):
    """Take the next run that waits for one of these agents."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "agents": ["researcher"],
                    "adapter_session": "laptop-4711-6f9c2f0e",
                    "wait_s": 30,
                    "prefer_own": True,
                }
            ]
        },
    )
    agents: Annotated[list[Name], Field(min_length=1, max_length=64)] = Field(
        description="Names that `dromos.toml` calls `remote = true`."
    )
    adapter_session: Session = Field(
        description="Names this start of the adapter: a new random text at each start, printable and without spaces."
    )
    wait_s: Annotated[StrictInt | StrictFloat, Field(ge=0, le=MAX_WAIT_S)] = Field(
        0, description="Wait so long for a run: 204 where none came."
    )
    prefer_own: StrictBool = Field(
        False, description="Take runs first whose last owner was this session; else the oldest."
    )


class RenewRun(Strict):
    """A sign of life for one run; brings what the adapter has to know."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"activity": True}]})
    activity: StrictBool | None = Field(
        None,
        description="The agent itself moved since the last renewal: the document's `activity_at` is now.",
    )
    document_version: Annotated[StrictInt, Field(ge=0, lt=2**63)] | None = Field(
        None,
        description="The document's version as the adapter has it; at another one `activity` changes nothing.",
    )
    session_id: ItemId | None = Field(
        None, description="The agent's own session, as soon as it is known: a takeover is told it."
    )
    steer: StrictBool = Field(
        True,
        description="Give out messages to steer by; given out they count as read. False: the agent cannot read now.",
    )


class EndRun(Strict):
    """The run's end, as its owner reports it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"to": "completed", "answer": "Seven.", "session_id": "b1c7"}]},
    )
    to: Literal["completed", "failed", "cancelled"]
    error_code: Annotated[StrictStr, Field(min_length=1, max_length=200)] | None = Field(
        None, description="With `failed`. A code that is not one of the guide's becomes ADAPTER_ERROR."
    )
    error_message: Short | None = Field(None, description="With `failed`: what a person should read.")
    session_id: ItemId | None = Field(None, description="The agent's own session; the next claim is told it.")
    line: Annotated[StrictStr, Field(max_length=500)] | None = Field(
        None, description="One line for the collapsed box."
    )
    answer: Content | None = Field(
        None, description="With `completed`: the last message of the run, where it was not sent before."
    )

    @model_validator(mode="after")
    def _fits_its_end(self) -> Self:
        if self.to != "failed" and (self.error_code is not None or self.error_message is not None):
            raise ValueError("error_code and error_message go with `failed` only; leave them out")
        if self.to != "completed" and self.answer is not None:
            raise ValueError(
                "answer goes with `completed` only; send an unfinished text as a message with `interrupted`"
            )
        return self


class StepUsage(Strict):
    """Tokens of one model call."""

    input: Count = 0
    output: Count = 0
    cached: Count = 0
    reasoning: Count = 0


class StepReport(Strict):
    """One model call, tool call or other step. A known `id` is updated, a new one is added at the end."""

    id: ItemId
    kind: Literal["model", "tool", "step"]
    name: Name
    status: Literal["running", "done", "failed", "cancelled", "unknown"]
    summary: Short | None = None
    started_at: When | None = Field(
        None, description="When it began; the time of its first report if left out."
    )
    ms: Annotated[StrictInt, Field(ge=0, lt=2**31)] | None = None
    usage: StepUsage | None = None


class ReportSteps(Strict):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "steps": [
                        {
                            "id": "s1",
                            "kind": "tool",
                            "name": "search",
                            "status": "done",
                            "summary": '{"query":"invoice"}',
                            "ms": 812,
                        }
                    ]
                }
            ]
        },
    )
    steps: Annotated[list[StepReport], Field(min_length=1, max_length=MOST_ITEMS)]


class ReportEffect(Strict):
    """One call with an effect outside: before it is made (`intent`), and what came of it (`outcome`)."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "state": "intent",
                    "call_id": "c2",
                    "tool": "send_mail",
                    "arguments": {"to": "anna@example.org"},
                    "replay": "unsafe",
                },
                {"state": "outcome", "call_id": "c2", "text": "sent", "result": {"message": "m-17"}},
            ]
        },
    )
    state: Literal["intent", "outcome"]
    call_id: ItemId = Field(
        description="The adapter's own id of the call: the same when the turn is repeated, another for another call."
    )
    tool: Name | None = Field(None, description="With `intent`: the tool's name.")
    arguments: dict[str, Any] | None = Field(None, description="With `intent`: what it is called with.")
    replay: Literal["keyed", "unsafe"] = Field(
        "unsafe", description="With `intent`: whether it may be called again with the same key after a crash."
    )
    ask: StrictBool = Field(
        False,
        description="With `intent`: park the run and ask a person, where that is needed (`unknown`, `ask`).",
    )
    text: Annotated[StrictStr, Field(max_length=262_144)] = Field(
        "", description="With `outcome`: what came of it, to read."
    )
    result: Any = Field(None, description="With `outcome`: the same as JSON, given back to a repeat.")
    is_error: StrictBool = Field(
        False, description="With `outcome`: the call failed, and is not to be made again."
    )

    @model_validator(mode="after")
    def _fits_its_state(self) -> Self:
        if self.state == "intent" and self.tool is None:
            raise ValueError("an intent names its tool; add `tool`")
        if self.state == "intent" and (self.text or self.result is not None or self.is_error):
            raise ValueError("text, result and is_error go with `outcome` only; leave them out")
        if self.state == "outcome" and (self.tool is not None or self.arguments is not None or self.ask):
            raise ValueError("tool, arguments and ask go with `intent` only; leave them out")
        return self


class ToolCall(Strict):
    id: ItemId
    name: Name
    args: dict[str, Any] = Field(default_factory=dict)


class NewHistoryMessage(Strict):
    """One message for the history: what the agent said, or what a tool answered."""

    id: ItemId | None = Field(
        None, description="The adapter's own id: the same message sent twice is stored once."
    )
    role: Literal["assistant", "tool"]
    content: StrictStr | dict[str, Any] | list[Any] = ""
    tool_calls: Annotated[list[ToolCall], Field(max_length=MOST_ITEMS)] | None = Field(
        None, description="With `assistant`: the calls it makes."
    )
    tool_call_id: ItemId | None = Field(None, description="With `tool`: the call this is the result of.")
    name: Name | None = Field(None, description="With `tool`: the tool's name.")
    interrupted: StrictBool = Field(False, description="With `assistant`: the text was cut off.")

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("a tool message names its call; add tool_call_id")
        if self.role == "tool" and (self.tool_calls or self.interrupted):
            raise ValueError("a tool message makes no calls and is not interrupted; leave both out")
        if self.role == "assistant" and (self.tool_call_id is not None or self.name is not None):
            raise ValueError("tool_call_id and name belong to tool messages; leave them out")
        if self.interrupted and self.tool_calls:
            raise ValueError("an interrupted message makes no calls; leave tool_calls out")
        if self.role == "assistant" and not self.content and not self.tool_calls:
            raise ValueError("an assistant message has content or tool_calls; send one of them")
        return self


class AppendMessages(Strict):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "messages": [
                        {
                            "id": "m1",
                            "role": "assistant",
                            "content": "",
                            "tool_calls": [{"id": "c1", "name": "search", "args": {"query": "invoice"}}],
                        },
                        {
                            "id": "m2",
                            "role": "tool",
                            "tool_call_id": "c1",
                            "name": "search",
                            "content": "3 found",
                        },
                    ]
                }
            ]
        },
    )
    messages: Annotated[list[NewHistoryMessage], Field(min_length=1, max_length=MOST_ITEMS)]


class NewRequest(Strict):
    """A question to a person."""

    kind: Literal["approval", "question"]
    prompt: Annotated[StrictStr, Field(min_length=1, max_length=65_536)]
    tool: Name | None = None
    tool_call_id: ItemId | None = None
    arguments: dict[str, Any] | list[Any] | None = Field(
        None, description="What exactly would be done: shown to the person, and their answer names its hash."
    )
    options: Annotated[list[Any], Field(max_length=100)] | None = Field(
        None, description="Answers to choose from."
    )
    answer_schema: dict[str, Any] | None = Field(
        None, alias="schema", description="JSON Schema of the answer; any text where there is none."
    )
    expires_at: When | None = None
    on_timeout: Literal["expire", "deny", "default"] | None = Field(
        None, description="What happens at `expires_at`."
    )
    default: Any = Field(None, description="The answer that counts with `on_timeout` = `default`.")


class OpenRequests(Strict):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "requests": [
                        {
                            "kind": "approval",
                            "tool": "send_mail",
                            "tool_call_id": "c2",
                            "arguments": {"to": "anna@example.org"},
                            "prompt": "Send this mail?",
                        }
                    ]
                }
            ]
        },
    )
    requests: Annotated[list[NewRequest], Field(min_length=1, max_length=MOST_ITEMS)]


# --- answers
class Decided(Shape):
    """A question of this run that was answered; told with every claim until the owner went on."""

    request_id: str
    kind: str
    tool: str | None
    tool_call_id: str | None
    prompt: str | None
    arguments: Any
    decision: dict[str, Any] = Field(description="`{decision, answer, comment}`")


class ClaimedRun(Shape):
    """A run that now belongs to the session, and everything to begin with."""

    run: Run
    input: Any = Field(description="The person's content; null where the run goes on with an ended one.")
    history: list[Message] = Field(description="The conversation before that, oldest first.")
    progress: list[Message] = Field(description="What this run stored already, under earlier owners.")
    decisions: list[Decided]
    applied: list[Decided] = Field(description="Those that an earlier owner of this run went on from.")
    session_id: str | None = Field(description="The agent's own session, for its resume.")
    token: str = Field(description="Authorises every call for this run. It is told once.")
    epoch: int
    lease_until: str
    lease_s: float = Field(description="How long the lease is, for whoever has another clock.")


class StopOrder(Shape):
    """A stop that was accepted: end the run as `cancelled` within `deadline_s`, or it is ended for you."""

    cause: str
    by: str
    deadline_s: float


class SteerMessage(Shape):
    """A person's message for the run under way. Each is delivered exactly once."""

    id: str
    content: Any


class Renewed(Shape):
    """The lease, and what the adapter has to know."""

    lease_until: str
    lease_s: float
    document_version: int = Field(
        description="Of the run's document now: the next patch is made for this one."
    )
    stop: StopOrder | None
    steer: list[SteerMessage]


class EndedRun(Shape):
    """The run after its end."""

    run: Run


class StepsStored(Shape):
    """How many steps the run has now."""

    steps: int


class CallOutcome(Shape):
    """What came of a call."""

    text: str
    is_error: bool
    structured: Any = Field(description="The `result` that was told; null where there was none.")


class EffectKnown(Shape):
    """What is to be done with the call now."""

    key: str = Field(description="The call's idempotency key, for whatever has the effect.")
    state: Literal["make", "done", "unknown", "ask", "parked"] = Field(
        description="`make`: the intent is on disk, call now · `done`: do not call, this came of it · `unknown`: an "
        "earlier try may have happened · `ask`: a person has to allow it · `parked`: a person is asked about either, "
        "the token is spent."
    )
    outcome: CallOutcome | None
    run: Run
    requests: list[dict[str, Any]]


class MessagesStored(Shape):
    """The messages as they stand in the history, in the order they were sent."""

    messages: list[Message]


class ParkedRun(Shape):
    """The run waits for a person; the token is spent, a later claim goes on."""

    run: Run
    requests: list[dict[str, Any]]
