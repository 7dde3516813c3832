"""`dromos requests …`: what waits for a person on a running server, and that person's word.

It shows a question whole before anybody decides it, and decides exactly the form it showed. It must not judge answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dromos.cli.words import one_line, visible
from dromos.client import Client
from dromos.domain.errors import Invalid

Json = dict[str, Any]
Verdict = Literal["approve", "edit", "deny", "answer", "retry", "mark_done", "skip"]

_DONE = {
    "approve": "approved",
    "edit": "approved with other arguments",
    "deny": "denied",
    "answer": "answered",
    "retry": "to be called again",
    "mark_done": "marked as done",
    "skip": "left as it is",
}
_KINDS = {
    "approval": "may this be called?",
    "question": "a question",
    "tool_outcome_unknown": "what became of this call?",
}
_NEEDS = {"answer": " ANSWER", "edit": " ARGUMENTS", "mark_done": " [RESULT]"}


def show_list(server: str, *, as_json: bool) -> None:
    """Print the open questions over all conversations, oldest first."""

    async def fetch() -> list[Json]:
        async with Client(server, patience=0) as client:
            return [request async for request in client.requests()]

    found = asyncio.run(fetch())
    if as_json:
        print(json.dumps({"items": found}, indent=2))
        return
    console = Console(highlight=False)
    if not found:
        console.print("Nothing waits for you.")
        return
    for request in found:
        since = request["opened_at"][:16].replace("T", " ")
        console.print(Text.assemble(("▲ ", "magenta"), request["id"], "  ", since, "  ", _kind(request)))
        console.print(Text(f"  {_asked(request)}", "dim"), no_wrap=True, overflow="ellipsis")
    console.print(Text("see one: dromos requests show ID", "dim"))


def show_one(server: str, request_id: str, *, as_json: bool) -> None:
    """Print a question with everything it is about."""

    async def fetch() -> Json:
        async with Client(server, patience=0) as client:
            return await client.request(request_id)

    request = asyncio.run(fetch())
    if as_json:
        print(json.dumps(request, indent=2))
    else:
        _print(Console(highlight=False), request)


def decide(
    server: str,
    request_id: str,
    verdict: Verdict,
    *,
    text: str | None = None,
    grant: str | None = None,
    comment: str | None,
    as_json: bool,
) -> None:
    """Say it; `text` is what was typed with it. Raises what the server refuses: somebody was faster, it is too late,
    the answer or the arguments do not fit."""

    async def say() -> Json:
        async with Client(server, patience=10) as client:
            request = await client.request(request_id)
            said: Json = {"grant": grant, "comment": comment}
            if text is not None and verdict == "edit":
                said["arguments"] = arguments_of(text)
            elif text is not None:
                said["answer"] = answer_of(request, text) if verdict == "answer" else _json_or_text(text)
            return await client.decide(request, verdict, **said)

    decided = asyncio.run(say())
    if as_json:
        print(json.dumps(decided, indent=2))
        return
    run = decided["run"]
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{_DONE[verdict]}: {_asked(decided['request'])}", markup=False)
    goes_on = "the run goes on" if run["status"] != "waiting_input" else "the run waits for another answer"
    console.print(Text(f"{goes_on}: dromos runs show {run['id']}", "dim"))


def answer_of(request: Mapping[str, Any], text: str) -> Any:
    """The typed text as the question wants it: one of its options, JSON where its schema asks for more than text."""
    for option in request["options"] or ():
        value, label = (option["value"], option.get("label")) if isinstance(option, dict) else (option, None)
        if text in (label, value if isinstance(value, str) else json.dumps(value)):
            return value
    schema = request["answer_schema"]
    if schema is None or schema.get("type") == "string":
        return text
    return _json_or_text(text)


def arguments_of(text: str) -> Json:
    """The arguments of an edit. Raises `Invalid`."""
    try:
        found = json.loads(text)
    except ValueError as error:
        found = error
    if not isinstance(found, dict):
        why = f" ({found})" if isinstance(found, ValueError) else ""
        raise Invalid(f'Write the arguments as one JSON object, for example \'{{"to": "ann"}}\'{why}.')
    return found


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _kind(request: Mapping[str, Any]) -> str:
    return _KINDS.get(request["kind"], str(request["kind"]))


def _asked(request: Mapping[str, Any]) -> str:
    tool = f"{visible(request['tool'])}: " if request["tool"] else ""
    return one_line(tool + (request["prompt"] or "a question"))


def _print(console: Console, request: Json) -> None:
    console.print(Text.assemble(("▲ ", "magenta"), _kind(request), " · ", request["status"]))
    if request["prompt"]:
        console.print(Text(visible(request["prompt"])))
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(request).items():
        if value:
            facts.add_row(Text(name, "dim"), Text(str(value)))
    console.print(facts)
    if request["arguments"] is not None:
        console.print(Text("runs exactly what is shown" if request["tool"] else "about", "dim"))
        console.print(Text(visible(json.dumps(request["arguments"], indent=2, ensure_ascii=False))))
    if request["answer_schema"] is not None:
        what = "arguments of an edit have" if "edit" in request["decisions"] else "the answer has"
        console.print(Text(f"{what} to fit this JSON Schema", "dim"))
        console.print(Text(visible(json.dumps(request["answer_schema"], ensure_ascii=False))))
    if request["status"] == "open":
        for decision in request["decisions"]:
            command = f"dromos requests {decision.replace('_', '-')} {request['id']}"
            console.print(Text(f"{command}{_NEEDS.get(decision, '')}", "dim"))
        for leave in request["grants"]:
            console.print(Text(f"dromos requests approve {request['id']} --always {leave}", "dim"))


def _facts(request: Mapping[str, Any]) -> dict[str, Any]:
    decision = request["decision"] or {}
    said = _DONE.get(decision.get("decision", ""), "")
    return {
        "question": request["id"],
        "run": request["run_id"],
        "conversation": request["conversation_id"],
        "tool": request["tool"] and visible(request["tool"]),
        "options": ", ".join(_options(request["options"] or ())),
        "asked": request["opened_at"],
        "until": request["expires_at"] and f"{request['expires_at']}, then {request['on_timeout']}",
        "decided": said and f"{said} by {visible(request['decided_by'] or '?')}, {request['decided_at']}",
        "answer": decision.get("answer") is not None and one_line(json.dumps(decision["answer"])),
        "with": "arguments" in decision and one_line(json.dumps(decision["arguments"])),
        "for good": decision.get("grant")
        and {"call": "just this call", "tool": "the whole tool"}[decision["grant"]],
        "instead of": request["replaces"],
        "comment": request["comment"] and one_line(request["comment"]),
    }


def _options(options: Sequence[Any]) -> list[str]:
    told = [
        option.get("label") or option["value"] if isinstance(option, dict) else option for option in options
    ]
    return [visible(str(one)) for one in told]
