"""The toolbox against real MCP servers: calls, cancels, deaths, and servers that were never there."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from dromos.ports.tool import ToolOutcome, ToolProgress
from dromos.testing.waiting import eventually, within
from dromos.tools.mcp.configuration import HttpServer, ServerEntry, StdioServer
from dromos.tools.mcp.connection import Connection
from dromos.tools.mcp.stdio import stdio_transport
from tests.tools.conftest import QUICK, Effects, HttpTools, children_of, context, runs, toolbox

MISSING = StdioServer("gone", "/no/such/command")


@pytest.fixture(params=["stdio", "http"])
def entry(request: pytest.FixtureRequest, stdio: StdioServer) -> ServerEntry:
    """The same server over both transports."""
    if request.param == "stdio":
        return stdio
    tools: HttpTools = request.getfixturevalue("http")
    return tools.entry


async def test_tools_are_listed_with_names_schemas_and_hints(entry: ServerEntry) -> None:
    async with toolbox(entry) as tools:
        specs = {spec.name: spec for spec in await tools.specs()}
    gate = specs[f"{entry.name}__gate"]
    assert gate.source == entry.name
    assert gate.input_schema["required"] == ["name"]
    assert gate.annotations.read_only is True
    assert specs[f"{entry.name}__count"].annotations.read_only is None
    assert specs[f"{entry.name}__count_keyed"].annotations.idempotent is True


async def test_a_call_carries_run_call_and_key_to_the_server(entry: ServerEntry, effects: Effects) -> None:
    async with toolbox(entry) as tools:
        outcome = await tools.call(f"{entry.name}__count", {"label": "a"}, context("k"))
    assert outcome == ToolOutcome("counted a", structured={"result": "counted a"})
    (effect,) = effects.counted()
    assert (effect["run"], effect["call"], effect["key"]) == ("run-1", "call-of-k", "k")
    assert (effect["tool"], effect["label"]) == ("count", "a")
    assert len(effect["arguments"]) == 64


async def test_a_keyed_tool_has_one_effect_per_key_and_an_unsafe_one_an_effect_per_call(
    stdio: StdioServer, effects: Effects
) -> None:
    async with toolbox(stdio) as tools:
        for _ in range(2):
            await tools.call("ct__count_keyed", {"label": "keyed"}, context("k"))
            await tools.call("ct__count", {"label": "unsafe"}, context("k"))
    assert sorted(effect["label"] for effect in effects.counted()) == ["keyed", "unsafe", "unsafe"]


async def test_a_tools_own_failure_is_an_error_result_with_its_text(entry: ServerEntry) -> None:
    async with toolbox(entry) as tools:
        failed = await tools.call(f"{entry.name}__fail", {"text": "no luck"}, context())
        bad = await tools.call(f"{entry.name}__sleep", {"s": "long"}, context())
        unknown = await tools.call(f"{entry.name}__nothing", {}, context())
    assert failed.is_error
    assert "no luck" in failed.text
    assert bad.is_error
    assert unknown.is_error


async def test_a_name_of_no_server_is_an_error_result(stdio: StdioServer) -> None:
    async with toolbox(stdio) as tools:
        assert await tools.call("elsewhere__count", {}, context()) == ToolOutcome(
            "There is no tool named 'elsewhere__count'.", is_error=True
        )


async def test_calls_of_one_server_run_in_parallel_on_one_session(
    entry: ServerEntry, effects: Effects
) -> None:
    async with toolbox(entry) as tools:
        gates = [
            asyncio.create_task(tools.call(f"{entry.name}__gate", {"name": name}, context(name)))
            for name in ("first", "second")
        ]
        effects.open_gate("second")
        assert (await within(10, gates[1])).text == "second is open"
        assert not gates[0].done()
        effects.open_gate("first")
        assert (await within(10, gates[0])).text == "first is open"


async def test_progress_reaches_the_caller(entry: ServerEntry) -> None:
    seen: list[ToolProgress] = []
    async with toolbox(entry) as tools:
        await tools.call(
            f"{entry.name}__sleep", {"s": 0.2, "progress_every": 0.05}, context("p", seen.append)
        )
    assert len(seen) >= 2
    assert seen[0].total == 0.2
    assert seen[0].message == "still asleep"


@pytest.mark.case("P124")
async def test_cancelling_callers_reaches_the_server_and_the_session_stays_usable(
    entry: ServerEntry, effects: Effects
) -> None:
    async with toolbox(entry) as tools:
        await tools.specs()
        calls = [
            asyncio.create_task(tools.call(f"{entry.name}__gate", {"name": "shut"}, context(str(n))))
            for n in range(50)
        ]
        await eventually(lambda: len(effects.begun()) == 50, what="50 calls at the server")
        for call in calls:
            call.cancel()
        await within(10, asyncio.wait(calls), "the cancelled callers")
        assert all(call.cancelled() for call in calls)
        await eventually(lambda: len(effects.cancelled()) == 50, what="50 cancels at the server")
        assert {line["call"] for line in effects.cancelled()} == {f"call-of-{n}" for n in range(50)}
        assert (
            await tools.call(f"{entry.name}__count", {"label": "after"}, context())
        ).text == "counted after"


@pytest.mark.case("P126")
async def test_progress_keeps_a_call_alive_and_silence_or_the_whole_limit_ends_it(
    entry: ServerEntry, effects: Effects
) -> None:
    name = f"{entry.name}__sleep"
    async with toolbox(entry, limits=replace(QUICK, idle=1.0, call=2.5)) as tools:
        await tools.specs()
        lively = await tools.call(name, {"s": 1.5, "progress_every": 0.1}, context("lively"))
        silent = await tools.call(name, {"s": 30}, context("silent"))
        endless = await tools.call(name, {"s": 30, "progress_every": 0.1}, context("endless"))
        await eventually(lambda: len(effects.cancelled()) == 2, what="both cancels at the server")
    assert lively.text == "slept 1.5 s"
    assert silent.is_error
    assert "it sent nothing for 1 s" in silent.text
    assert endless.is_error
    assert "the call took longer than 2.5 s" in endless.text
    assert {line["call"] for line in effects.cancelled()} == {"call-of-silent", "call-of-endless"}


@pytest.mark.case("P128")
async def test_a_big_result_is_cut_with_a_notice_and_the_next_call_works(entry: ServerEntry) -> None:
    async with toolbox(entry) as tools:
        outcome = await tools.call(f"{entry.name}__big", {"mb": 5}, context())
        assert not outcome.is_error
        assert len(outcome.text) < 300_000
        assert "has 5,242,880 bytes, the last 4,980,736 are left out" in outcome.text
        assert outcome.structured is None
        small = await tools.call(f"{entry.name}__count", {"label": "after"}, context())
        assert not small.is_error


@pytest.mark.case("P123")
async def test_a_stdio_server_that_dies_in_a_call_is_an_error_for_that_call_and_comes_back(
    stdio: StdioServer, effects: Effects
) -> None:
    async with toolbox(stdio) as tools:
        waiting = asyncio.create_task(tools.call("ct__gate", {"name": "shut"}, context("waiting")))
        await eventually(effects.begun, what="the call at the server")
        died = await within(10, tools.call("ct__die", {}, context()), "the error")
        other = await within(10, waiting, "the other call's error")
        for outcome in (died, other):
            assert outcome.is_error
            assert "'ct' was lost during the call: it was killed by SIGKILL" in outcome.text
            assert "Whether the call had an effect is not known." in outcome.text
        again = await within(10, tools.call("ct__count", {"label": "again"}, context()))
        assert again.text == "counted again"


async def test_a_server_that_dies_at_every_call_is_started_again_with_growing_pauses(
    stdio: StdioServer,
) -> None:
    async with toolbox(stdio) as tools:
        for _ in range(2):
            assert "was lost" in (await tools.call("ct__die", {}, context())).text
        outcome = await within(0.5, tools.call("ct__die", {}, context()), "an answer without an attempt")
    assert "'ct' is not reachable: it was killed by SIGKILL" in outcome.text
    assert "The tool was not called." in outcome.text


async def test_the_death_of_an_idle_stdio_server_is_noticed_before_the_next_call(
    stdio: StdioServer, effects: Effects
) -> None:
    async with toolbox(stdio) as tools:
        others = children_of(os.getpid())  # other tests' servers
        await tools.call("ct__count", {"label": "before"}, context())
        (pid,) = set(children_of(os.getpid())) - set(others)
        os.kill(pid, signal.SIGKILL)

        async def noticed() -> bool:
            (state,) = await tools.health()
            return not state.ok

        await eventually(noticed, what="the noticed death")
        outcome = await tools.call("ct__count", {"label": "after"}, context())
        assert not outcome.is_error
    assert [effect["label"] for effect in effects.counted()] == ["before", "after"]


@pytest.mark.case("P123")
async def test_an_http_server_that_dies_in_a_call_is_an_error_and_not_a_cancellation(
    http: HttpTools, effects: Effects
) -> None:
    async with toolbox(http.entry) as tools:
        await tools.specs()
        waiting = asyncio.create_task(tools.call("web__gate", {"name": "shut"}, context("waiting")))
        await eventually(effects.begun, what="the call at the server")
        await http.kill()
        outcome = await within(10, waiting, "the error")
        assert outcome.is_error
        assert "'web' was lost during the call: " in outcome.text
        assert waiting.cancelling() == 0

        down = await within(10, tools.call("web__count", {"label": "down"}, context()))
        assert down.is_error
        assert f"Check that a server runs at {http.entry.url}" in down.text

        await http.start()

        async def back() -> bool:
            return not (await tools.call("web__count", {"label": "back"}, context())).is_error

        await eventually(back, what="a call that works again")
    assert [effect["label"] for effect in effects.counted()] == ["back"]


async def test_an_http_server_that_was_started_again_between_calls_just_works(
    http: HttpTools, effects: Effects
) -> None:
    async with toolbox(http.entry) as tools:
        await tools.call("web__count", {"label": "before"}, context())
        await http.kill()
        await http.start()
        assert (await tools.call("web__count", {"label": "after"}, context())).text == "counted after"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (MISSING, "its command or its working folder was not found"),
        (
            StdioServer("gone", sys.executable, ("-c", "print('hi'); exit('no licence')")),
            "exit code 1 (its last words: no",
        ),
        (HttpServer("gone", "http://127.0.0.1:1/mcp"), "the connection was refused"),
    ],
    ids=["missing command", "exits at once", "nobody listens"],
)
async def test_a_server_that_is_not_there_answers_with_reason_and_cure_and_lists_nothing(
    entry: ServerEntry, reason: str
) -> None:
    async with toolbox(entry) as tools:
        assert await tools.specs() == []
        outcome = await tools.call("gone__count", {"label": "a"}, context())
        (state,) = await tools.health()
    assert outcome.is_error
    assert "'gone' is not reachable: " in outcome.text
    assert reason in outcome.text
    assert "mcpServers.gone" in outcome.text
    assert not state.ok
    assert reason in state.detail


def test_a_server_that_ended_before_its_first_message_is_told_by_its_end_on_uvloop_too() -> None:
    async def write_to_the_dead() -> str:
        why = asyncio.get_running_loop().create_future()
        async with stdio_transport(
            StdioServer("gone", sys.executable, ("-c", "exit('no licence')")), why.set_result, grace=1.0
        ) as (_, to_server):
            reason: str = await within(10, why, "the reason of its end")
            hello = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
            await within(5, to_server.send(SessionMessage(hello)), "a message that nobody reads")
        return reason

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(write_to_the_dead()) == "it ended with exit code 1 (its last words: no licence)"


async def test_a_dead_server_neither_fails_nor_delays_the_others(stdio: StdioServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        hanging = HttpServer("mute", f"http://127.0.0.1:{mute.getsockname()[1]}/mcp")
        async with toolbox(hanging, MISSING, stdio, limits=replace(QUICK, patience=5.0)) as tools:
            specs = await tools.specs()
            assert {spec.source for spec in specs} == {"ct"}
            again = await within(0.5, tools.specs(), "a list that does not wait for the mute server")
            assert len(again) == len(specs)
            outcome = await within(5, tools.call("ct__count", {"label": "a"}, context()))
            assert not outcome.is_error


async def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        hanging = HttpServer("mute", f"http://127.0.0.1:{mute.getsockname()[1]}/mcp")
        async with toolbox(hanging, limits=replace(QUICK, connect=0.3)) as tools:
            outcome = await within(5, tools.call("mute__a", {}, context()), "the error")
    assert "it did not answer within 0.3 s" in outcome.text


async def test_a_dead_servers_last_known_tools_stay_listed(stdio: StdioServer) -> None:
    async with toolbox(stdio) as tools:
        before = await tools.specs()
        for _ in range(2):
            await tools.call("ct__die", {}, context())
        assert await within(0.5, tools.specs(), "a list without waiting") == before


async def test_nothing_is_started_before_first_use(stdio: StdioServer, tmp_path: Path) -> None:
    started = tmp_path / "started"
    entry = replace(stdio, command=sys.executable, args=("-c", f"open({str(started)!r}, 'w')"))
    async with toolbox(entry) as tools:
        (state,) = await tools.health()
        assert state.ok
        assert not started.exists()
        await tools.specs()
        assert started.exists()


async def test_a_caller_that_goes_away_does_not_end_the_connecting_it_shares(stdio: StdioServer) -> None:
    async with toolbox(stdio) as tools:
        first = asyncio.create_task(tools.call("ct__count", {"label": "first"}, context()))
        second = asyncio.create_task(tools.call("ct__count", {"label": "second"}, context()))
        await asyncio.sleep(0)
        first.cancel()
        assert (await within(10, second)).text == "counted second"
        await asyncio.wait({first})
        assert first.cancelled()


@pytest.mark.case("P129")
async def test_closing_ends_the_whole_group_of_a_server_that_exits_politely(
    stdio: StdioServer, effects: Effects
) -> None:
    async with toolbox(stdio) as tools:
        child = int((await tools.call("ct__spawn", {}, context())).text)
        await eventually(effects.beside("spawn").exists, what="the child's first line")
    await eventually(lambda: not runs(child), seconds=2, what="the child's end")


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid,
      file=open(sys.argv[1], "w"), flush=True)
time.sleep(60)
"""


@pytest.mark.case("P129")
async def test_a_server_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    entry = StdioServer("stubborn", sys.executable, ("-c", STUBBORN, str(pids)))
    async with toolbox(entry, limits=replace(QUICK, patience=0.0, close=0.2)) as tools:
        await tools.specs()
        await eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2, what="its pids")
    started = [int(pid) for pid in pids.read_text().split()]
    await eventually(lambda: not any(map(runs, started)), seconds=2, what="their end")


BROKEN_CHARACTERS = r"""
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    method, result = request.get("method"), None
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "broken", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "speak", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        print("a line that is no message", flush=True)
        sys.stdout.buffer.write(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": "'
            % request["id"] + b"lone \\ud83d, \xff and \\u0000" + b'"}]}}\n')
        sys.stdout.buffer.flush()
        continue
    if "id" in request:
        answer = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
"""


@pytest.mark.case("P131")
async def test_broken_characters_of_a_server_are_replaced_and_cost_no_message() -> None:
    entry = StdioServer("broken", sys.executable, ("-c", BROKEN_CHARACTERS))
    async with toolbox(entry) as tools:
        assert [spec.name for spec in await tools.specs()] == ["broken__speak"]
        outcome = await within(5, tools.call("broken__speak", {}, context()), "the result")
    assert outcome == ToolOutcome("lone \ufffd, \ufffd and \ufffd")


async def test_a_closed_toolbox_answers_with_errors_and_starts_nothing(stdio: StdioServer) -> None:
    async with toolbox(stdio) as tools:
        await tools.specs()
    outcome = await tools.call("ct__count", {"label": "late"}, context())
    assert outcome.is_error
    assert "it was closed" in outcome.text


async def test_a_server_that_breaks_while_it_lists_its_tools_fails_nobody(
    stdio: StdioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(connection: Connection) -> None:
        raise ValueError("this is no list of tools")

    async with toolbox(stdio) as tools:
        name = f"{stdio.name}__gate"
        assert await tools.find(name) is not None
        monkeypatch.setattr(Connection, "relist", broken)
        assert await tools.find(name) is None
        monkeypatch.undo()
        assert await tools.find(name) is not None


PASSES_ON = """
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError

server = MCPServer("gateway")


@server.tool()
async def send(code: int, text: str) -> str:
    with Path(sys.argv[1]).open("a") as sent:
        sent.write(text + "\\n")
    raise MCPError(code, text)


server.run()
"""


@pytest.mark.parametrize(("code", "text"), [(-32600, "Session terminated"), (-32020, "x"), (-32000, "y")])
async def test_an_error_that_a_tools_own_work_met_is_no_leave_to_call_it_again(
    tmp_path: Path, code: int, text: str
) -> None:
    """Over HTTP these words are the transport's: the call was not looked at. Elsewhere anybody can say them."""
    (tmp_path / "gateway.py").write_text(PASSES_ON)
    sent = tmp_path / "sent"
    server = StdioServer("gw", sys.executable, (str(tmp_path / "gateway.py"), str(sent)))
    async with toolbox(server) as tools:
        outcome = await tools.call("gw__send", {"code": code, "text": text}, context())
    assert outcome.is_error and "effect is not known" in outcome.text
    assert sent.read_text() == f"{text}\n"
