"""Outside effects: how a tool may be repeated, the key under which one call is known for ever, and what may be done
with a call now. Pure.

    nothing known ──policy auto, or a person's leave──> intent ──the call came back──> done
         │                                                │  └── it parked itself ──> parked ──> intent again
         ├── policy ask, nobody has said yet ──> ask      └── its owner vanished: outcome unknown
         └── policy deny, or a person's no ──> done, not called         read, keyed ──> called again, same key
                                                                        unsafe ──> ask: retry, mark done or skip
A call that is done is never made again: whoever replays it is given what it answered then.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

NO_RESULT = "no result was reported: this call may have happened"
"""The history's result of a call whose owner went on, or vanished, without telling one."""
OUTCOME_UNKNOWN = "outcome unknown: this call was under way when the run stopped and may have happened"
NOT_SENT = "The call was not made: the run was stopped, or its worker was, before the call was sent."

_RENAMED = re.compile(r"~\d+$")


class ReplayClass(StrEnum):
    """`read`: call again. `keyed`: call again with the same key. `unsafe`: never again without a person's word."""

    READ = "read"
    KEYED = "keyed"
    UNSAFE = "unsafe"


class ToolPolicy(StrEnum):
    """Whether a tool may be called: at once, after a person said so, or never."""

    AUTO = "auto"
    ASK = "ask"
    DENY = "deny"


class CallStatus(StrEnum):
    """A call in the journal: about to be made, waiting for an answer it asked for itself, or over."""

    INTENT = "intent"
    PARKED = "parked"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class ToolRule:
    """What is in force for one tool."""

    policy: ToolPolicy = ToolPolicy.AUTO
    replay: ReplayClass = ReplayClass.UNSAFE


@dataclass(frozen=True, slots=True)
class Call:
    """One call that an agent wants to make. `schema` is the tool's JSON Schema of its arguments, where there is one."""

    key: str
    tool: str
    tool_call_id: str
    arguments: Mapping[str, Any]
    rule: ToolRule = field(default_factory=ToolRule)
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the journal has of a call. `outcome` is {"text", "is_error", "structured"} of one that is done; `state` is
    what one that parked itself goes on with."""

    status: CallStatus
    arguments_sha256: str
    tries: int
    outcome: Mapping[str, Any] | None = None
    edited: Mapping[str, Any] | None = None
    state: Any = None
    replay: ReplayClass | None = None


@dataclass(frozen=True, slots=True)
class Word:
    """A person's decision on a request for this call."""

    request_id: str
    kind: str  # approval | tool_outcome_unknown | question
    decision: str
    arguments: Mapping[str, Any] | None = None  # of an edit
    arguments_sha256: str | None = None  # what was shown
    answer: Any = None
    comment: str | None = None
    by: str | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """It is over, or not to be made: this is what the agent reads. Nothing is written."""

    outcome: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Make:
    """Write the intent and call. `request_id`: the decision that is used up by it; `grant_id`: the leave it rests on;
    `state`: what the call parked itself with, and then `answers`: what people said to its questions, oldest first."""

    arguments: Mapping[str, Any]
    request_id: str | None = None
    grant_id: str | None = None
    edited: bool = False
    state: Any = None
    answers: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Settle:
    """Do not call: write this outcome, and use up the decision it comes from."""

    outcome: Mapping[str, Any]
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Nothing may be done before a person has spoken. `replaces`: an earlier decision that does not fit any more;
    `ordinal`: intents written before, which tells one question about a call from the next; `arguments`: what it was
    called with, where a person had changed that; `forbidden`: the policy does not allow the call any more, so leave
    for it is not offered."""

    kind: str
    why: str | None = None
    replaces: str | None = None
    ordinal: int = 0
    arguments: Mapping[str, Any] | None = None
    forbidden: bool = False


Move = Replay | Make | Settle | Ask


Fault = Callable[[Mapping[str, Any]], str | None]
"""Why a call cannot be made with these arguments as things are now (the tool is gone, its schema is another); None."""


def no_fault(arguments: Mapping[str, Any]) -> str | None:
    return None


def next_move(
    call: Call,
    recorded: Recorded | None,
    words: Sequence[Word],
    grant_id: str | None,
    fault: Fault = no_fault,
) -> Move:
    """What may be done with a call now. `words` that nobody has applied yet, oldest first; `grant_id` of a leave that
    covers it."""
    if recorded is not None and recorded.arguments_sha256 != arguments_digest(call.arguments):
        told = "The call was not made: its key was used before with other arguments. Nothing was changed."
        return Replay(outcome_json(told, True))
    if recorded is not None and recorded.status is CallStatus.DONE:
        return Replay(recorded.outcome or outcome_json("", False))
    word = words[-1] if words else None
    if recorded is not None and recorded.status is CallStatus.INTENT:
        return _after_intent(call, recorded, word, fault)
    if recorded is not None and recorded.status is CallStatus.PARKED:
        if call.rule.policy is ToolPolicy.DENY:
            return Settle(_not_allowed(call), word.request_id if word is not None else None)
        used = word.request_id if word is not None else None
        edited = recorded.edited is not None
        return Make(recorded.edited or call.arguments, used, edited=edited, state=recorded.state)
    if word is not None:
        return _after_asking(call, word, fault)
    if call.rule.policy is ToolPolicy.DENY:
        return Settle(_not_allowed(call))
    if call.rule.policy is ToolPolicy.AUTO:
        return Make(call.arguments)
    why = fault(call.arguments)
    if why is not None:  # nobody is asked about a call that cannot be made
        return Settle(outcome_json(f"The call was not made: {why}", True))
    return Make(call.arguments, grant_id=grant_id) if grant_id is not None else Ask("approval")


def _after_intent(call: Call, recorded: Recorded, word: Word | None, fault: Fault) -> Move:
    arguments = recorded.edited or call.arguments
    edited = recorded.edited is not None
    if word is not None and word.decision == "retry":
        why = _fault_now(call, arguments, fault)
        if why is not None:
            return Ask(
                "tool_outcome_unknown",
                why,
                word.request_id,
                recorded.tries,
                recorded.edited,
                _forbidden(call),
            )
        return Make(arguments, word.request_id, edited=edited, state=recorded.state)
    if ReplayClass.UNSAFE not in (call.rule.replay, recorded.replay):  # the stricter of then and now
        return Make(arguments, edited=edited, state=recorded.state)
    return Ask(
        "tool_outcome_unknown",
        ordinal=recorded.tries,
        arguments=recorded.edited,
        forbidden=_forbidden(call),
    )


def _after_asking(call: Call, word: Word, fault: Fault) -> Move:
    if word.decision == "deny":
        return Settle(denied(word), word.request_id)
    if word.decision == "answer":
        return Settle(answered(word), word.request_id)
    if word.arguments_sha256 != arguments_digest(call.arguments):
        return Ask("approval", "What was allowed is not what is about to be called.", word.request_id)
    edited = word.decision == "edit"
    arguments = (word.arguments or {}) if edited else call.arguments
    why = _fault_now(call, arguments, fault)
    if why is not None:
        return Ask("approval", why, word.request_id, forbidden=_forbidden(call))
    return Make(arguments, word.request_id, edited=edited)


def _fault_now(call: Call, arguments: Mapping[str, Any], fault: Fault) -> str | None:
    """Why a call that a person allowed cannot be made any more."""
    return f"The policy does not allow {call.tool} any more." if _forbidden(call) else fault(arguments)


def _forbidden(call: Call) -> bool:
    return call.rule.policy is ToolPolicy.DENY


def _not_allowed(call: Call) -> dict[str, Any]:
    return outcome_json(f"The call was not made: {call.tool} is not allowed here.", True)


def outcome_json(text: str, is_error: bool, structured: Any = None) -> dict[str, Any]:
    """An outcome as the journal keeps it."""
    return {"text": text, "is_error": is_error, "structured": structured}


def denied(word: Word) -> dict[str, Any]:
    """What the agent reads of a call that a person did not allow."""
    who = "a person" if word.by != "policy" else "the policy, because nobody answered in time"
    why = f": {word.comment}" if word.comment and word.by != "policy" else ""
    return outcome_json(f"The call was not made. It was denied by {who}{why}.", True)


def answered(word: Word) -> dict[str, Any]:
    """What the agent reads where a person spoke in the tool's place."""
    text = word.answer if isinstance(word.answer, str) else json.dumps(word.answer, ensure_ascii=False)
    return outcome_json(text, False, None if isinstance(word.answer, str) else word.answer)


def declined(word: Word) -> dict[str, Any]:
    """What the agent reads where a person did not want to answer."""
    why = f": {word.comment}" if word.comment else "."
    return outcome_json(f"The person does not want to answer that{why}", False)


def replay_class(read_only: bool | None, idempotent: bool | None, *, trusted: bool) -> ReplayClass:
    """The class of a tool by its annotations, which count only where configuration trusts the server."""
    if trusted and read_only:
        return ReplayClass.READ
    if trusted and idempotent:
        return ReplayClass.KEYED
    return ReplayClass.UNSAFE


def call_key(thread_id: str, message_id: str, position: int) -> str:
    """The idempotency key of the `position`-th call of a stored assistant message: the same across replays."""
    return _digest(f"{thread_id}\n{message_id}\n{position}")


def task_call_key(thread_id: str, task_id: str, ordinal: int = 0) -> str:
    """The key of a call that stands in no assistant message: by the engine's task, which is stable over replays."""
    return _digest(f"{thread_id}\ntask:{task_id}\n{ordinal}")


def adapter_call_key(thread_id: str, trigger_message_id: str, call_id: str) -> str:
    """The key of a call that an adapter names itself, within the turn that the person's message started."""
    return _digest(f"{thread_id}\nturn:{trigger_message_id}\n{call_id}")


def given_call_id(stored: str) -> str:
    """The id that an adapter gave to a call. It is stored with a number behind it (`c1~2`) where an earlier turn had
    one of that id."""
    return _RENAMED.sub("", stored)


def arguments_digest(arguments: Any) -> str:
    """SHA-256 of the arguments in canonical JSON (keys sorted), hex."""
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return _digest(canonical)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
