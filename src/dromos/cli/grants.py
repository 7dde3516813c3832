"""`dromos grants`, `dromos grants revoke`: what was allowed for good, and taking it back. It decides nothing else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from rich.console import Console
from rich.text import Text

from dromos.cli.words import one_line, visible
from dromos.client import Client

Json = dict[str, Any]


def show_list(server: str, *, conversation: str | None, as_json: bool) -> None:
    """Print what is in force, newest first."""

    async def fetch() -> list[Json]:
        async with Client(server, patience=0) as client:
            return [grant async for grant in client.grants(conversation)]

    found = asyncio.run(fetch())
    if as_json:
        print(json.dumps({"items": found}, indent=2))
        return
    console = Console(highlight=False)
    if not found:
        console.print("Nothing is allowed for good: you are asked each time.")
        return
    for grant in found:
        since = grant["created_at"][:16].replace("T", " ")
        console.print(Text.assemble(grant["id"], "  ", since, "  ", (visible(grant["tool"]), "bold")))
        which = (
            "every call" if grant["arguments"] is None else f"only {one_line(json.dumps(grant['arguments']))}"
        )
        told = f"  {which}, in conversation {grant['conversation_id']}"
        console.print(Text(told, "dim"), no_wrap=True, overflow="ellipsis")
    console.print(Text("take one back: dromos grants revoke ID", "dim"))


def revoke(server: str, grant_id: str, *, as_json: bool) -> None:
    """Take it back. Raises what the server refuses."""

    async def say() -> None:
        async with Client(server, patience=10) as client:
            await client.revoke_grant(grant_id)

    asyncio.run(say())
    if as_json:
        print(json.dumps({"revoked": grant_id}))
    else:
        print("taken back: from the next call on you are asked again")
