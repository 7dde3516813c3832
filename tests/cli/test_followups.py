"""Messages that wait, as their author sees and changes them in the terminal, against a real server."""

from __future__ import annotations

import json

import pytest

from dromos.client import Client
from tests.cli.conftest import Command

pytestmark = pytest.mark.slow(60)


async def test_a_message_that_waits_is_listed_edited_moved_taken_back_and_sent(
    dromos: Command, server_url: str
) -> None:
    async def say(*arguments: str, code: int = 0) -> str:
        done = await dromos("followups", *arguments, "--server", server_url)
        assert done.code == code, done.out + done.err
        return done.out if code == 0 else done.err

    async with Client(server_url) as client:
        conversation = str((await client.create_conversation())["id"])
        run = (await client.post_message(conversation, "!tokens 5000 10"))["run"]
        assert "Nothing waits" in await say("list", conversation)
        first, second, third = [
            (await client.post_message(conversation, text))["followup"]["id"]
            for text in ("!say one", "!say two", "!say three")
        ]
        await say("edit", first, "!say one, better")
        assert "number 1" in await say("move", third, "1")
        assert "taken back" in await say("remove", second)
        listed = json.loads(await say("list", conversation, "--json"))["items"]
        assert [one["content"] for one in listed] == ["!say three", "!say one, better"]
        shown = await say("show", first)
        assert "waiting (queue)" in shown
        assert shown.index("!say one\n") < shown.index("!say one, better")
        await client.cancel(run["id"], wait_s=10)
        assert "held" in await say("list", conversation)
        assert "dromos runs show" in await say("send", first)
        assert "version_conflict" in await say("edit", first, "too late", code=1)
        assert json.loads(await say("show", first, "--json"))["status"] == "applied"
