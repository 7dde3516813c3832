"""What a handler and the SDK say to each other: answers, errors, stops, questions, decisions. Plain values.

It must not know HTTP, tasks or the document's form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dromos.domain.errors import ControlSignal
from dromos.domain.text import text_of

Json = dict[str, Any]
RequestKind = Literal["question", "approval"]


@dataclass(frozen=True, slots=True)
class Answer:
    """How a handler ends a run that went well.

    `content`: what the person reads; without it, what was said with `run.say`. `session_id`: the agent's own name for
    its state, given back with the next run of the conversation. `line`: the one line that stays of the box.
    """

    content: Any = None
    session_id: str | None = None
    line: str | None = None


class AgentError(Exception):
    """Raise it to end the run as failed. `code` is one of the error codes of the guide; an unknown one becomes
    ADAPTER_ERROR and stays readable in the message."""

    def __init__(self, message: str = "", *, code: str = "ADAPTER_ERROR") -> None:
        super().__init__(message or code)
        self.message, self.code = message or code, code


class Parked(ControlSignal):
    """The run waits for a person: let it through, so that the handler ends. The run comes back with the decision."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a handler is cancelled.

    `cause`: the server's (`cancel_requested`, `superseded`, `run_deadline`, `budget_exceeded`), or of this side:
    `lease_lost` (the run belongs to another by now; nothing more is written) and `session_closed`. `by`: who asked.
    `deadline_s`: seconds within which the handler should end, counted from when this side heard of it.
    """

    cause: str
    by: str | None = None
    deadline_s: float | None = None

    @property
    def is_local(self) -> bool:
        """True where this side gave up, not the server."""
        return self.cause in ("lease_lost", "session_closed")


@dataclass(frozen=True, slots=True)
class Steer:
    """A message that the person sent into the running run."""

    id: str
    content: Any

    @property
    def text(self) -> str:
        """Its readable text; '' where it has none."""
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class Question:
    """One question to a person. `options`: answers to choose from; `schema`: JSON Schema of a free answer.

    `tool`, `arguments`, `tool_call_id`: the call that is to be approved. `expires_at` (RFC 3339 UTC) with `on_timeout`
    (`expire`, `deny`, `default`) and `default`, the answer that is then taken; without it the question waits for ever.
    """

    prompt: str
    kind: RequestKind = "question"
    options: Sequence[Any] | None = None
    schema: Mapping[str, Any] | None = None
    tool: str | None = None
    arguments: Mapping[str, Any] | None = None
    tool_call_id: str | None = None
    expires_at: str | None = None
    on_timeout: Literal["expire", "deny", "default"] | None = None
    default: Any = None

    def as_json(self) -> Json:
        """The form of one entry of `requests`."""
        fields: Json = {
            "kind": self.kind,
            "prompt": self.prompt,
            "options": None if self.options is None else list(self.options),
            "schema": None if self.schema is None else dict(self.schema),
            "tool": self.tool,
            "arguments": None if self.arguments is None else dict(self.arguments),
            "tool_call_id": self.tool_call_id,
            "expires_at": self.expires_at,
            "on_timeout": self.on_timeout,
            "default": self.default,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def is_answered_by(self, decided: Mapping[str, Any]) -> bool:
        """Whether an entry of a claim's `decisions` belongs to this question: the same kind, words and call."""
        mine = (self.kind, self.prompt, self.tool, self.tool_call_id, _plain(self.arguments))
        names = ("kind", "prompt", "tool", "tool_call_id")
        return mine == (*(decided.get(name) for name in names), _plain(decided.get("arguments")))


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided. `answer` is None unless `decision` is `answer`.

    `applied`: an earlier attempt of this run went on from it already, so what it allowed may have been done.
    """

    request_id: str
    decision: str
    answer: Any = None
    comment: str | None = None
    applied: bool = False

    @property
    def approved(self) -> bool:
        return self.decision == "approve"

    @staticmethod
    def of(decided: Mapping[str, Any], *, applied: bool = False) -> Decision:
        """From an entry of a claim's `decisions`."""
        said = decided["decision"]
        return Decision(
            decided["request_id"], said["decision"], said.get("answer"), said.get("comment"), applied
        )


def _plain(arguments: Mapping[str, Any] | None) -> Json | None:
    return dict(arguments) if arguments else None
