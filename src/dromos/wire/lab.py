"""Bodies and answers of the laboratory's protocol, `/api`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictStr, StringConstraints

from dromos.wire.answers import Shape
from dromos.wire.bodies import Strict

_ID = "019ad0f2-6a5e-7c3a-9b51-6f0c2d8f4e11"


class Chat(Strict):
    """Either a message, or `resume` with the conversation to go on with."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"message": "Name one prime number."}, {"resume": True, "conversation": _ID}]
        },
    )
    message: Annotated[StrictStr, StringConstraints(min_length=1, pattern=r"\S")] | None = None
    conversation: Annotated[StrictStr, Field(max_length=64)] | None = None
    resume: StrictBool = False


class ChatQuery(Strict):
    conversation: Annotated[str, Field(max_length=64, description="Which conversation to follow.")]


class LabExportQuery(Strict):
    format: Literal["md", "jsonl"] = "md"


class ChatStarted(Shape):
    """Ids of the conversation and of the run that was started."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"conversation": _ID, "run": _ID}]}
    )
    conversation: str
    run: str


class LabConversation(Shape):
    id: str
    title: str
    updated_at: str = Field(alias="updatedAt")
    message_count: int = Field(alias="messageCount")
    status: str | None


class LabConversations(Shape):
    conversations: list[LabConversation]


class LabMessage(Shape):
    id: str
    role: str
    content: Any


class LabThread(Shape):
    """A conversation with its messages; `resumable` where a run can be continued."""

    conversation: LabConversation
    messages: list[LabMessage]
    resumable: bool
