"""`dromos watch` on a real pseudo-terminal and into a pipe, and the keys of `dromos chat`."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dromos.cli.box import box
from dromos.cli.controls import Controls
from dromos.client import Client, RunView
from dromos.testing.waiting import eventually, within
from tests.cli.conftest import start
from tests.cli.test_terminal import terminal

NOW = datetime(2026, 11, 29, 12, 0, 30, tzinfo=UTC)


def moment(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat()


def drawn(document: dict[str, Any], **run: Any) -> list[str]:
    """The box as plain lines of 80 columns."""
    blank: dict[str, Any] = dict.fromkeys(
        ("error_code", "error_message", "wait", "stop", "line", "cost", "finished_at")
    )
    row = {"id": "r1", "status": "running", "reason": "claimed", "attempt": 1, "version": 1, **blank}
    view = RunView({**row, "created_at": moment(-30), "started_at": moment(-12), **run})
    view.document = document
    view.text = document.get("text", {}).get("content", "")
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(box(view, NOW, 80))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_the_box_has_the_rows_of_the_page_and_no_empty_one() -> None:
    assert drawn({}) == ["● running · 12 s", "  r1"]
    lines = drawn(
        {
            "current": {
                "kind": "tool",
                "name": "fetch",
                "summary": "example.org",
                "since": moment(-4),
                "progress": {"value": 2, "total": 3},
            },
            "context": {"percent": 42},
            "cost": {"currency": "USD", "amount": "0.031", "estimated": True},
            "text": {"content": "The page agrees."},
            "plan": [{"title": "Read", "status": "done"}, {"title": "Compare", "status": "active"}],
            "subagents": {
                "a": {"title": "compare-notes", "status": "running", "current": {"name": "search"}}
            },
            "background": {"b": {"title": "index", "status": "done"}},
            "followups": [
                {"content": "Also that", "status": "waiting"},
                {"content": "Or this", "status": "held"},
            ],
            "requests": [{"kind": "question", "prompt": "Which one?"}],
            "retries": {"count": 1, "last": None},
            "steps": [{}, {}],
        },
        attempt=2,
    )
    assert lines == [
        "● running · fetch 2 of 3 · 12 s · context 42 % · ≈ 0.031 USD",
        "  now         fetch example.org since 4.0 s",
        "  last said   The page agrees.",
        "  plan        ✓ Read",
        "              ● Compare",
        "  helpers     ● compare-notes search",
        "  background  ✓ index",
        "  waiting     Also that",
        "              Or this (held: send or discard it)",
        "  asks you    Which one? (answer on the page, or: dromos requests)",
        "  attempt 2 · 1 retry · 2 steps · r1",
    ]


@pytest.mark.parametrize(
    ("document", "run", "line"),
    [
        (
            {"owner": {"seen_at": moment(-8), "takeover_at": moment(5)}},
            {},
            "! worker silent · 8.0 s without a sign · takeover in 5.0 s, nothing is lost · 12 s",
        ),
        (
            {"stall": {"since": moment(-65), "kind": "tool"}, "current": {"name": "pay"}},
            {},
            "◔ tool silent · pay · silent for 1 min 05 s · 12 s",
        ),
        (
            {
                "retries": {
                    "last": {
                        "code": "MODEL_RATE_LIMITED",
                        "next_at": moment(4),
                        "attempt": 2,
                        "of_attempts": 5,
                    }
                }
            },
            {},
            "● rate limited · tries again in 4.0 s · attempt 2 of 5 · 12 s",
        ),
        (
            {},
            {"status": "queued", "reason": "owner_lost", "wait": {"reason": "no_worker", "until": None}},
            "◌ queued · its worker was lost, nothing else is · 12 s",
        ),
        (
            {},
            {"status": "cancelling", "stop": {"waiting_for": {"tool": "send", "since": moment(-3)}}},
            "◍ stopping · waits for send, 3.0 s · 12 s",
        ),
        (
            {"requests": [{"kind": "approval", "tool": "refund"}, {"kind": "question", "prompt": "?"}]},
            {"status": "waiting_input"},
            "? needs you · approve refund · 1 more · 12 s",
        ),
    ],
)
def test_the_three_silences_and_the_waits_are_told_apart(
    document: dict[str, Any], run: dict[str, Any], line: str
) -> None:
    assert drawn(document, **run)[0] == line


def test_a_message_is_written_edited_sent_and_given_up() -> None:
    stops: list[str] = []
    sent: list[str] = []
    controls = Controls({"s": lambda: stops.append("s")}, sent.append)
    for key in ("x", "s", "q", *"ans", "backspace", "d", "enter", "q", *"no", "escape", "s", "q", "enter"):
        controls.press(key)
    assert (stops, sent, controls.line) == (["s", "s"], ["and"], None)


@pytest.mark.slow(60)
async def test_watching_a_run_shows_its_box_stops_it_and_ends_with_it(
    tmp_path: Path, server_url: str
) -> None:
    async with Client(server_url) as client:
        talk = (await client.create_conversation())["id"]
        run = (await client.post_message(talk, "!tokens 5000 20"))["run"]
        async with terminal("watch", run["id"], "--server", server_url, cwd=tmp_path) as watch:
            await watch.shows("● running")
            await watch.shows("last said")
            watch.press("q")
            await watch.shows("queue ›")
            watch.press("!say and then\r")
            await watch.shows("waiting")
            await watch.shows("!say and then")
            watch.press("s")
            await watch.shows("■ stopped · by you")
            assert await within(10, watch.process.wait(), "the end") == 1
        assert [one["status"] for one in (await client.conversation(talk))["followups"]] == ["held"]


@pytest.mark.slow(60)
async def test_watching_all_shows_runs_as_they_come_and_go(tmp_path: Path, server_url: str) -> None:
    async with (
        Client(server_url) as client,
        terminal("watch", "--all", "--server", server_url, cwd=tmp_path) as watch,
    ):
        await watch.shows("No run is under way")
        first = (await client.create_conversation())["id"]
        await client.post_message(first, "!tokens 5000 20")
        await watch.shows("● running")
        second = (await client.create_conversation())["id"]
        other = (await client.post_message(second, "!tokens 5000 20"))["run"]
        await watch.shows(other["id"][-12:])
        watch.press("\x1b[B")
        await watch.shows(f"steps · {other['id']}")
        watch.press("s")
        await watch.shows("■ stopped · by you")
        statuses = [run["status"] async for run in client.runs(conversation_id=first)]
        assert statuses == ["running"]
        watch.press("s")
        await watch.shows("■ stopped · by you")
        watch.press("\x03")
        assert await within(10, watch.process.wait(), "the end") == 0


@pytest.mark.slow(60)
async def test_into_a_pipe_go_lines_and_documents(tmp_path: Path, server_url: str) -> None:
    async with Client(server_url) as client:
        talk = (await client.create_conversation())["id"]
        run_id = (await client.post_message(talk, "!tokens 40 40"))["run"]["id"]
        plain = await start("watch", run_id, "--server", server_url, cwd=tmp_path)
        out, _ = await within(20, plain.communicate(), "the end")
        assert plain.returncode == 0
        last = out.decode().splitlines()[-1]
        assert last.startswith(f"{run_id} ✓ done")
        documents = await start("watch", run_id, "--json", "--server", server_url, cwd=tmp_path)
        out, _ = await within(20, documents.communicate(), "the end")
        told = json.loads(out.decode().splitlines()[-1])
        assert told["run"]["status"] == "completed"
        assert told["document"]["text"]["length"] > 0
        nothing = await start("watch", "--server", server_url, cwd=tmp_path)
        _, err = await within(20, nothing.communicate(), "the end")
        assert nothing.returncode == 2 and b"--all" in err


@pytest.mark.slow(60)
async def test_keys_in_a_chat_queue_a_message_and_stop_the_answer(tmp_path: Path, server_url: str) -> None:
    async with terminal("chat", "--server", server_url, cwd=tmp_path) as chat:
        await chat.shows("› ")
        chat.press("!tokens 5000 20\r")
        await chat.shows("s stop · q queue")
        chat.press("q")
        await chat.shows("queue ›")
        chat.press("!say later")
        await chat.shows("› !say later▏")
        chat.press("\r")
        await chat.shows("waiting   !say later")
        chat.press("s")
        await chat.shows("■ stopped · by you")
        await chat.shows("› ")
    async with Client(server_url) as client:
        talks = [one async for one in client.conversations()]

        async def held() -> bool:
            followups = (await client.conversation(talks[0]["id"]))["followups"]
            return [one["status"] for one in followups] == ["held"]

        await eventually(held, what="the queued message is held after the stop")


@pytest.mark.slow(60)
async def test_a_watch_outlives_a_server_that_goes_away(tmp_path: Path) -> None:
    from dromos.testing.processes import ServeProcess

    async with ServeProcess(tmp_path / "data") as server, Client(server.url) as client:
        talk = (await client.create_conversation())["id"]
        run = (await client.post_message(talk, "!tokens 60 6"))["run"]
        async with terminal("watch", run["id"], "--server", server.url, cwd=tmp_path) as watch:
            await watch.shows("● running")
            server.kill()
            await server.wait_exit()
            await watch.shows("no connection")
            await asyncio.gather(server.start(), watch.shows("✓ done", seconds=40))
            assert await within(10, watch.process.wait(), "the end") == 0
