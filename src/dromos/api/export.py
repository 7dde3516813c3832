"""A conversation as a file: Markdown for people, JSONL with one line for each checkpoint, JSON with everything.

Made when asked, from what is stored; nothing of it is read back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from starlette.responses import Response

from dromos.api.door import Door
from dromos.api.json import dumps
from dromos.ports.agent import CheckpointSummary
from dromos.ports.store import Row
from dromos.wire import shapes

_MEDIA = {
    "md": "text/markdown; charset=utf-8",
    "jsonl": "application/x-ndjson; charset=utf-8",
    "json": "application/json",
}
_PAGE = 200


async def download(door: Door, user_id: str, conversation_id: str, format: str) -> Response:
    view = await door.lifecycle.conversation(user_id, conversation_id, 1)
    row = view.conversation
    if format == "jsonl":
        content = jsonl(await checkpoints(door, row["agent"], conversation_id))
    else:
        messages = await whole_history(door, user_id, conversation_id)
        last = view.last_run.status if view.last_run is not None else "idle"
        conversation = shapes.conversation_json(row, last)
        if format == "json":
            summaries = await checkpoints(door, row["agent"], conversation_id)
            content = dumps(
                {
                    "conversation": conversation,
                    "messages": messages,
                    "runs": [shapes.run_json(run) for run in await all_runs(door, user_id, conversation_id)],
                    "checkpoints": [checkpoint_line(summary) for summary in summaries],
                }
            )
        else:
            content = markdown(conversation, messages).encode()
    headers = {"content-disposition": f'attachment; filename="{conversation_id}.{format}"'}
    return Response(content, 200, headers, _MEDIA[format])


async def checkpoints(door: Door, agent_name: str, conversation_id: str) -> list[CheckpointSummary]:
    """Oldest first; none where the agent that wrote them is gone."""
    agent = door.deps.agents.get(agent_name)
    return [] if agent is None else await agent.checkpoints(conversation_id)


async def whole_history(door: Door, user_id: str, conversation_id: str) -> list[dict[str, Any]]:
    """Every message, oldest first."""
    pages: list[list[Row]] = []
    before: str | None = None
    while True:
        rows, before = await door.lifecycle.messages(user_id, conversation_id, before, _PAGE)
        pages.append(rows)
        if before is None:
            return [shapes.message_json(row) for page in reversed(pages) for row in page]


async def all_runs(door: Door, user_id: str, conversation_id: str) -> list[Any]:
    """Every run, oldest first."""
    runs: list[Any] = []
    cursor: str | None = None
    while True:
        page, cursor = await door.lifecycle.runs(user_id, (), conversation_id, _PAGE, cursor)
        runs += page
        if cursor is None:
            return runs[::-1]


def checkpoint_line(summary: CheckpointSummary) -> dict[str, Any]:
    return {
        "checkpoint_id": summary.checkpoint_id,
        "created_at": shapes.moment(summary.created_at),
        "run_id": summary.run_id,
        "step": summary.step,
        "source": summary.source,
        "next": list(summary.next),
        "message_count": summary.message_count,
        "last_message": summary.last_message,
    }


def jsonl(summaries: Iterable[CheckpointSummary]) -> bytes:
    return b"".join(dumps(checkpoint_line(summary)) + b"\n" for summary in summaries)


def markdown(conversation: dict[str, Any], messages: Sequence[dict[str, Any]]) -> str:
    """A transcript. Anchors are left out; tool results stand in fences that their text cannot close."""
    parts = [
        f"# {conversation['title'] or 'Conversation'}",
        f"- Conversation: `{conversation['id']}`\n- Agent: {conversation['agent']}\n"
        f"- Created: {conversation['created_at']}\n- Updated: {conversation['updated_at']}",
    ]
    for message in messages:
        if message["kind"] == "run":
            continue
        parts += _sections(message)
    return "\n\n".join(part for part in parts if part) + "\n"


def _sections(message: dict[str, Any]) -> list[str]:
    text = text_of(message["content"])
    if message["role"] == "tool":
        failed = " (failed)" if message.get("status") == "error" else ""
        return [f"### Result of `{message.get('name') or '?'}`{failed}", fenced(text)]
    parts = [f"## {str(message['role']).capitalize()}", text]
    if message["interrupted"]:
        parts.append("*(interrupted)*")
    for call in message.get("tool_calls") or ():
        arguments = orjson.dumps(call.get("args"), option=orjson.OPT_INDENT_2).decode()
        parts += [f"**Calls** `{call.get('name')}` ({call.get('id')})", fenced(arguments, "json")]
    return parts


def text_of(content: Any) -> str:
    """The text of a message's content: itself, its text parts, or its JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        if texts and all(isinstance(text, str) for text in texts):
            return "\n\n".join(str(text) for text in texts)
    return orjson.dumps(content).decode()


def fenced(text: str, language: str = "") -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
