"""`dromos followups list|show|edit|move|remove|send`: messages that wait for a run, and what their author does to them.

Each change is made to the message as it stood a moment before; where a run took it meanwhile the server refuses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from rich.console import Console
from rich.text import Text

from dromos.cli.words import one_line
from dromos.client import Client
from dromos.domain.statuses import FollowupStatus
from dromos.domain.text import text_of

Json = dict[str, Any]
Change = Callable[[Client, Json], Awaitable[Json]]


def show_list(server: str, conversation_id: str, *, as_json: bool) -> None:
    """Print what waits or is held, in order."""

    async def fetch() -> list[Json]:
        async with Client(server, patience=0) as client:
            return list((await client.conversation(conversation_id))["followups"])

    found = asyncio.run(fetch())
    if as_json:
        print(json.dumps({"items": found}, indent=2))
        return
    console = Console(highlight=False)
    if not found:
        console.print("Nothing waits in this conversation.")
    for place, followup in enumerate(found, 1):
        console.print(Text(f"{place:>3}  {followup['id']}  {_status(followup)}"))
        console.print(Text(f"     {_text(followup)}", "dim"), no_wrap=True, overflow="ellipsis")


def show_one(server: str, followup_id: str, *, as_json: bool) -> None:
    """Print one with its texts, the newest last."""

    async def fetch() -> Json:
        async with Client(server, patience=0) as client:
            return await client.followup(followup_id)

    followup = asyncio.run(fetch())
    if as_json:
        print(json.dumps(followup, indent=2))
        return
    console = Console(highlight=False)
    console.print(Text(f"{followup['id']}  {_status(followup)}"))
    for revision in followup["revisions"]:
        at = revision["created_at"][:19].replace("T", " ")
        console.print(Text(f"{revision['num']:>3}  {at}  {_text(revision)}"))


def edit(server: str, followup_id: str, text: str, *, as_json: bool) -> None:
    async def change(client: Client, followup: Json) -> Json:
        return await client.edit_followup(followup_id, followup["version"], text)

    _tell(_changed(server, followup_id, change), "It now says what you wrote.", as_json=as_json)


def move(server: str, followup_id: str, position: int, *, as_json: bool) -> None:
    """`position` counts from 0."""

    async def change(client: Client, followup: Json) -> Json:
        return await client.move_followup(followup_id, followup["version"], position)

    _tell(_changed(server, followup_id, change), f"It is number {position + 1} now.", as_json=as_json)


def remove(server: str, followup_id: str, *, as_json: bool) -> None:
    async def change(client: Client, followup: Json) -> Json:
        await client.discard_followup(followup_id, followup["version"])
        return await client.followup(followup_id)

    _tell(_changed(server, followup_id, change), "It is taken back.", as_json=as_json)


def send(server: str, followup_id: str, *, as_json: bool) -> None:
    """Also for one that waits already: it then goes on waiting."""

    async def change(client: Client, followup: Json) -> Json:
        return await client.send_followup(followup_id, followup["version"])

    answer = _changed(server, followup_id, change)
    run = answer.get("run")
    told = f"It started a run: dromos runs show {run['id']}" if run else "It waits for the run under way."
    _tell(answer, told, as_json=as_json)


def _changed(server: str, followup_id: str, change: Change) -> Json:
    async def look_and_change() -> Json:
        async with Client(server, patience=10) as client:
            return await change(client, await client.followup(followup_id))

    return asyncio.run(look_and_change())


def _tell(answer: Json, told: str, *, as_json: bool) -> None:
    print(json.dumps(answer, indent=2) if as_json else told)


def _status(followup: Json) -> str:
    """`waiting (steer)`, or `held`: what it is, and what it acts as while it waits."""
    status = str(followup["status"])
    return f"{status} ({followup['when_busy']})" if status == FollowupStatus.WAITING else status


def _text(part: Json) -> str:
    content = part["content"]
    return one_line(text_of(content) or json.dumps(content, ensure_ascii=False))
