"""Questions to a person: what may be asked, who may answer what, and when it is too late. Pure.

    open ──decided──> decided ──handed to the owner, which applies it──> consumed
      │                  └── the run ended first ──> void
      ├── the run ended, or the question was asked anew ──> void
      └── nobody answered in time, and that ends the run ──> expired

An approval takes approve or deny, a question takes an answer or deny, a call of which nobody knows what became takes
retry, mark_done or skip; `decisions` of a request narrows or widens that. A request is decided once. The decision stays
with it as {"decision", "answer", "comment"}, an edit with its `arguments` and their digest, leave for good as `grant`.

Answers are compared as JSON: `true` is not 1, but 1 and 1.0 are one number, as either may be written for it on the way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dromos.domain.answer_schema import answer_faults, schema_fault
from dromos.domain.effects import arguments_digest
from dromos.domain.errors import AlreadyDecided, Fault, Invalid, RequestClosed, VersionConflict
from dromos.domain.pointers import same
from dromos.domain.statuses import OnTimeout, RequestKind, RequestStatus, Verdict
from dromos.domain.text import clean_json, moment_text

POLICY = "policy"
"""`decided_by` of a decision that no person made."""
MAX_REQUESTS = 256
MAX_PROMPT = 16_384
"""Characters."""
MAX_PART = 262_144
"""Bytes of the arguments, of the options and of the schema, each as JSON."""
MAX_OPTIONS = 200
MAX_SECONDS = 315_360_000
"""Ten years."""

_BY_KIND = {
    RequestKind.APPROVAL: (Verdict.APPROVE, Verdict.DENY),
    RequestKind.QUESTION: (Verdict.ANSWER, Verdict.DENY),
    RequestKind.TOOL_OUTCOME_UNKNOWN: (Verdict.RETRY, Verdict.MARK_DONE, Verdict.SKIP),
}
_DONE = {
    Verdict.APPROVE: "approved",
    Verdict.EDIT: "approved, with other arguments,",
    Verdict.DENY: "denied",
    Verdict.ANSWER: "answered",
    Verdict.RETRY: "said to repeat",
    Verdict.MARK_DONE: "marked as done",
    Verdict.SKIP: "skipped",
}

Request = Mapping[str, Any]
"""A row of `requests`."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person says to a request, and which form of it that person saw."""

    verdict: Verdict
    request_version: int
    arguments_sha256: str | None = None
    answer: Any = None
    comment: str | None = None
    arguments: Any = None  # of an edit
    grant: str | None = None  # with approve: "call" (exactly these arguments) or "tool", from now on

    def as_json(self) -> dict[str, Any]:
        """As it is kept with the request."""
        kept = decision_json(self.verdict, self.answer, self.comment)
        if self.verdict is Verdict.EDIT:
            kept |= {"arguments": self.arguments, "arguments_sha256": arguments_digest(self.arguments)}
        return kept | ({"grant": self.grant} if self.grant is not None else {})


def decision_json(verdict: Verdict, answer: Any = None, comment: str | None = None) -> dict[str, Any]:
    return {"decision": verdict.value, "answer": answer, "comment": comment}


# --- asking ---------------------------------------------------------------------------------------------------


def opening(asked: Mapping[str, Any], now: datetime, place: str = "") -> dict[str, Any]:
    """The columns of a new request that say what is asked, from what an agent asks for. Raises `Invalid`.

    `asked`: kind, and where there are any: tool, tool_call_id, arguments (JSON), prompt, options (texts, or objects
    with `value` and `label`), decisions, answer_schema, expires_at (aware) or expires_in_s, on_timeout, default (what
    `decision_json` makes), engine_id, replaces. `place` is a JSON pointer to it for faults.
    """
    faults: list[Fault] = []
    kind = _member(RequestKind, asked.get("kind"), f"{place}/kind", faults) or RequestKind.QUESTION
    schema = asked.get("answer_schema")
    wrong = schema_fault(schema) if schema is not None else None
    if wrong is not None:
        faults.append(Fault("bad_schema", f"{place}/answer_schema", wrong))
        schema = None
    values = {
        "kind": kind.value,
        "tool": asked.get("tool"),
        "tool_call_id": asked.get("tool_call_id"),
        "arguments": clean_json(asked.get("arguments"))[0],
        "prompt": clean_json(asked.get("prompt"))[0],
        "options": clean_json(asked.get("options"))[0],
        "answer_schema": schema,
        "engine_id": asked.get("engine_id"),
        "call_key": asked.get("call_key"),
        "grants": asked.get("grants"),
        "replaces": asked.get("replaces"),
    }
    _bounded(values, place, faults)
    _check_options(values["options"], place, faults)
    named = asked.get("decisions")
    values["decisions"] = _named_decisions(named, f"{place}/decisions", faults) or _usual(kind, schema)
    values["arguments_sha256"] = (
        None if values["arguments"] is None else arguments_digest(values["arguments"])
    )
    values |= _deadline(asked, values, now, place, faults)
    if faults:
        raise Invalid(_told(faults, "This cannot be asked"), faults=faults)
    return values


def _usual(kind: RequestKind, schema: Any) -> list[str]:
    usual = list(_BY_KIND[kind])
    if schema is not None and Verdict.ANSWER not in usual:
        usual.append(Verdict.ANSWER)
    return [verdict.value for verdict in usual]


def _named_decisions(named: Any, place: str, faults: list[Fault]) -> list[str]:
    if named is None:
        return []
    if isinstance(named, str) or not isinstance(named, Sequence) or not named:
        faults.append(Fault("bad_decisions", place, "name at least one of approve, deny, answer, as a list"))
        return []
    found = [_member(Verdict, one, place, faults) for one in named]
    return list(dict.fromkeys(one.value for one in found if one is not None))


def _bounded(values: Mapping[str, Any], place: str, faults: list[Fault]) -> None:
    prompt = values["prompt"]
    if prompt is not None and (not isinstance(prompt, str) or len(prompt) > MAX_PROMPT):
        faults.append(Fault("bad_prompt", f"{place}/prompt", f"a text of at most {MAX_PROMPT} characters"))
    for name in ("arguments", "options", "answer_schema"):
        if values[name] is not None and len(json.dumps(values[name]).encode()) > MAX_PART:
            faults.append(Fault("too_large", f"{place}/{name}", f"at most {MAX_PART} bytes as JSON"))


def _check_options(options: Any, place: str, faults: list[Fault]) -> None:
    if options is not None and not are_options(options):
        told = f'1 to {MAX_OPTIONS} texts, or objects such as {{"value": 1, "label": "one"}}'
        faults.append(Fault("bad_options", f"{place}/options", told))


def are_options(value: Any) -> bool:
    """Whether a person can be given this to choose from."""
    fits = isinstance(value, list) and 0 < len(value) <= MAX_OPTIONS
    return fits and all(isinstance(one, str) or _is_labelled(one) for one in value)


def _is_labelled(option: Any) -> bool:
    return isinstance(option, dict) and "value" in option and isinstance(option.get("label", ""), str)


def _deadline(
    asked: Mapping[str, Any], values: Mapping[str, Any], now: datetime, place: str, faults: list[Fault]
) -> dict[str, Any]:
    expires_at, seconds = asked.get("expires_at"), asked.get("expires_in_s")
    if expires_at is None and seconds is not None:
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not 0 < seconds <= MAX_SECONDS
        ):
            told = f"seconds, more than 0 and at most {MAX_SECONDS}"
            faults.append(Fault("bad_deadline", f"{place}/expires_in_s", told))
        else:
            expires_at = now + timedelta(seconds=seconds)
    policy, default = asked.get("on_timeout"), asked.get("default")
    if expires_at is None:
        if policy is not None:
            told = "says what happens at a time that is not given: add expires_at, or leave on_timeout out"
            faults.append(Fault("no_deadline", f"{place}/on_timeout", told))
        return {"expires_at": None, "on_timeout": None, "default_decision": None}
    on_timeout = _member(OnTimeout, policy or OnTimeout.EXPIRE, f"{place}/on_timeout", faults)
    if on_timeout is OnTimeout.DENY and Verdict.DENY not in values["decisions"]:
        faults.append(
            Fault("not_allowed", f"{place}/on_timeout", "deny is not among what this request takes")
        )
    if on_timeout is OnTimeout.DEFAULT:
        faults += _faults_of_default(values, default, f"{place}/default")
    kept = default if on_timeout is OnTimeout.DEFAULT else None
    return {
        "expires_at": expires_at,
        "on_timeout": on_timeout.value if on_timeout else None,
        "default_decision": clean_json(kept)[0],
    }


def _faults_of_default(values: Mapping[str, Any], default: Any, place: str) -> list[Fault]:
    if not isinstance(default, Mapping):
        told = 'say what counts where nobody answers in time, e.g. {"decision": "approve"}'
        return [Fault("no_default", place, told)]
    faults: list[Fault] = []
    verdict = _member(Verdict, default.get("decision"), f"{place}/decision", faults)
    return faults if verdict is None else _faults_of(values, verdict, default.get("answer"), place)


def _member(kinds: Any, value: Any, place: str, faults: list[Fault]) -> Any:
    try:
        return kinds(value)
    except ValueError:
        faults.append(Fault("unknown_value", place, f"one of {', '.join(kinds)}"))
        return None


# --- deciding -------------------------------------------------------------------------------------------------


def judge(request: Request, decision: Decision, person: str, now: datetime) -> bool:
    """True: it is to be recorded. False: this person has said just that before, and it stands.

    Raises `AlreadyDecided`, `RequestClosed` (void, expired, or too late by the database's clock), `VersionConflict`
    and `Invalid`.
    """
    status = RequestStatus(request["status"])
    if status in (RequestStatus.DECIDED, RequestStatus.CONSUMED):
        kept = request["decision"] or {}
        if request["decided_by"] == person and _same(kept, decision):
            return False
        raise AlreadyDecided(f"{_who(request)} {_done(kept)} this at {_at(request)}; that stands.")
    if status is RequestStatus.VOID:
        raise RequestClosed(
            "This question is no longer asked: its run ended or asked anew. Nothing was changed."
        )
    if status is RequestStatus.EXPIRED or is_late(request, now):
        at = moment_text(request["expires_at"])
        raise RequestClosed(f"The time to answer this was over at {at}. Nothing was changed.")
    if request["version"] != decision.request_version:
        raise VersionConflict("This question was changed meanwhile; look at it again and repeat.")
    if request["arguments_sha256"] != decision.arguments_sha256:
        raise VersionConflict(
            "The arguments are not those of `arguments_sha256`. Look at the request again and send its own."
        )
    faults = _faults_of(request, decision.verdict, decision.answer, "")
    faults += _faults_of_extras(request, decision)
    if faults:
        raise Invalid(_told(faults, "The decision was not taken"), faults=faults)
    return True


def is_late(request: Request, now: datetime) -> bool:
    """True from `expires_at` on, whether a sweep was there or not."""
    return request["expires_at"] is not None and request["expires_at"] <= now


def on_timeout(request: Request) -> OnTimeout:
    return OnTimeout(request["on_timeout"] or OnTimeout.EXPIRE)


def timeout_decision(request: Request) -> dict[str, Any]:
    """What counts for a request that nobody answered in time and that does not end its run."""
    if on_timeout(request) is OnTimeout.DEFAULT and request["default_decision"]:
        kept = request["default_decision"]
        return decision_json(Verdict(kept["decision"]), kept.get("answer"), kept.get("comment"))
    return decision_json(Verdict.DENY, comment="nobody answered in time")


def consumed(epoch: int) -> dict[str, Any]:
    """Columns of a decided request that the owner with this epoch has applied."""
    return {"status": RequestStatus.CONSUMED.value, "consumed_epoch": epoch}


def decisions_of(request: Request) -> list[str]:
    """What this request takes. The first release's rows do not say."""
    named: list[str] | None = request["decisions"]
    return named or _usual(RequestKind(request["kind"]), request["answer_schema"])


def _faults_of(request: Request, verdict: Verdict, answer: Any, place: str) -> list[Fault]:
    allowed = decisions_of(request)
    if verdict not in allowed:
        return [Fault("not_allowed", f"{place}/decision", f"this request takes {' or '.join(allowed)}")]
    if verdict is Verdict.MARK_DONE:
        return []  # what came of the call, in any form; nothing where nobody knows more
    if verdict is not Verdict.ANSWER:
        if answer is None:
            return []
        return [
            Fault(
                "no_answer_wanted", f"{place}/answer", f"leave it out, or send the decision {Verdict.ANSWER}"
            )
        ]
    if request["answer_schema"] is not None:
        return answer_faults(request["answer_schema"], answer, f"{place}/answer")
    if answer is None:
        return [Fault("missing", f"{place}/answer", "say what the answer is")]
    values = [one["value"] if isinstance(one, dict) else one for one in request["options"] or ()]
    if values and not any(same(answer, value) for value in values):
        told = f"one of the options: {', '.join(map(repr, values))[:400]}"
        return [Fault("not_an_option", f"{place}/answer", told)]
    return []


def _faults_of_extras(request: Request, decision: Decision) -> list[Fault]:
    """Faults of an edit's arguments, and of leave for good."""
    faults: list[Fault] = []
    if decision.verdict is Verdict.EDIT:
        if not isinstance(decision.arguments, Mapping):
            faults.append(Fault("missing", "/arguments", "say which arguments to call with, as an object"))
        elif request["answer_schema"] is not None:
            faults += answer_faults(request["answer_schema"], decision.arguments, "/arguments")
    elif decision.arguments is not None:
        faults.append(Fault("no_arguments_wanted", "/arguments", f"leave it out, or decide {Verdict.EDIT}"))
    allowed = request["grants"] or ()
    if decision.grant is not None and (
        decision.verdict is not Verdict.APPROVE or decision.grant not in allowed
    ):
        told = (
            f"one of {', '.join(allowed)}, with {Verdict.APPROVE}"
            if allowed
            else "no leave for good is given here"
        )
        faults.append(Fault("not_allowed", "/grant", told))
    return faults


def _same(kept: Mapping[str, Any], decision: Decision) -> bool:
    now = decision.as_json()
    parts = ("decision", "answer", "comment", "arguments", "grant")
    return all(same(kept.get(name), now.get(name)) for name in parts)


def _who(request: Request) -> str:
    return "The policy" if request["decided_by"] == POLICY else str(request["decided_by"] or "Somebody")


def _done(kept: Mapping[str, Any]) -> str:
    return _DONE.get(kept.get("decision"), "decided")  # type: ignore[arg-type]


def _at(request: Request) -> str:
    return moment_text(request["decided_at"]) if request["decided_at"] is not None else "an unknown time"


def _told(faults: Sequence[Fault], what: str) -> str:
    first = "; ".join(f"{fault.path or '/'}: {fault.message}" for fault in faults[:3])
    return f"{what}: {first}."
