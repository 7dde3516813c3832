"""`dromos requests list|show|approve|deny|answer`: what waits for a person on a running server, and that person's word.

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

Json = dict[str, Any]
Verdict = Literal["approve", "deny", "answer"]

_DONE = {"approve": "approved", "deny": "denied", "answer": "answered"}


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
        console.print(Text.assemble(("▲ ", "magenta"), request["id"], "  ", since, "  ", request["kind"]))
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
    server: str, request_id: str, verdict: Verdict, *, text: str | None, comment: str | None, as_json: bool
) -> None:
    """Say it. Raises what the server refuses: somebody was faster, it is too late, the answer does not fit."""

    async def say() -> Json:
        async with Client(server, patience=10) as client:
            request = await client.request(request_id)
            answer = None if text is None else answer_of(request, text)
            return await client.decide(request, verdict, answer=answer, comment=comment)

    decided = asyncio.run(say())
    if as_json:
        print(json.dumps(decided, indent=2))
        return
    run = decided["run"]
    console = Console(highlight=False)
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
    try:
        return json.loads(text)
    except ValueError:
        return text


def _asked(request: Mapping[str, Any]) -> str:
    tool = f"{visible(request['tool'])}: " if request["tool"] else ""
    return one_line(tool + (request["prompt"] or "a question"))


def _print(console: Console, request: Json) -> None:
    console.print(Text.assemble(("▲ ", "magenta"), request["kind"], " · ", request["status"]))
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
        console.print(Text("the answer has to fit this JSON Schema", "dim"))
        console.print(Text(visible(json.dumps(request["answer_schema"], ensure_ascii=False))))
    if request["status"] == "open":
        for decision in request["decisions"]:
            rest = " ANSWER" if decision == "answer" else ""
            console.print(Text(f"dromos requests {decision} {request['id']}{rest}", "dim"))


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
        "comment": request["comment"] and one_line(request["comment"]),
    }


def _options(options: Sequence[Any]) -> list[str]:
    told = [
        option.get("label") or option["value"] if isinstance(option, dict) else option for option in options
    ]
    return [visible(str(one)) for one in told]
