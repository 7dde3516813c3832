"""Leave for a tool from the terminal: approved, edited, allowed for good, taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from dromos.client import Client
from dromos.testing.processes import ServeProcess
from tests.cli.conftest import Command
from tests.cli.test_requests import waiting

SETTINGS = '[tools."current_time"]\npolicy = "ask"\n'
SCRIPT = '!call current_time {"time_zone":"Europe/Lisbon"}\n!say done'


@pytest.mark.slow(90)
async def test_a_call_is_edited_allowed_for_good_and_asked_about_again(
    dromos: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "dromos.toml").write_text(SETTINGS)
    async with ServeProcess(folder / "data", cwd=folder) as server, Client(server.url) as client:
        at = ("--server", server.url)
        talk = await client.create_conversation()
        await client.post_message(talk["id"], SCRIPT)
        (first,) = await waiting(client, 1)
        shown = (await dromos("requests", "show", first["id"], *at)).out
        assert "may this be called?" in shown and "Europe/Lisbon" in shown
        assert f"dromos requests edit {first['id']} ARGUMENTS" in shown
        assert f"dromos requests approve {first['id']} --always tool" in shown
        unfit = await dromos("requests", "mark-done", first["id"], "gone", *at)
        assert unfit.code == 1 and "this request takes approve or edit or deny" in unfit.err
        edited = await dromos("requests", "edit", first["id"], '{"time_zone": "Asia/Tokyo"}', *at)
        assert (edited.code, edited.err) == (0, "")

        await waiting(client, 0)
        await client.post_message(talk["id"], SCRIPT)
        (second,) = await waiting(client, 1)
        assert (await dromos("requests", "approve", second["id"], "--always", "tool", *at)).code == 0
        listed = await dromos("grants", *at)
        assert "current_time" in listed.out and "every call" in listed.out
        (grant,) = [each async for each in client.grants(talk["id"])]
        assert grant["request_id"] == second["id"]

        assert (await dromos("grants", "revoke", grant["id"], *at)).code == 0
        assert [each async for each in client.grants()] == []
        await client.post_message(talk["id"], SCRIPT)
        (third,) = await waiting(client, 1)
        assert third["id"] not in (first["id"], second["id"])
        results = [one["content"] for one in (await client.conversation(talk["id"]))["messages"]]
        assert sum("Asia/Tokyo" in str(text) for text in results) == 1
