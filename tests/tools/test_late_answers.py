"""Calls that timed out: each is cancelled at its server, a late answer is nobody's, and the next call is right."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import pytest

from dromos.testing.waiting import eventually, within
from dromos.tools.mcp.configuration import ServerEntry, StdioServer
from tests.tools.conftest import QUICK, Effects, HttpTools, context, toolbox

CALLS = 50

ANSWERS_LATE = r"""
import json, sys, threading, time

lock, slow, cancelled, kept = threading.Lock(), [], [], {}

def say(message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def answer(id, text):
    say({"id": id, "result": {"content": [{"type": "text", "text": text}]}})

def keep_alive(token):
    for number in range(600):
        say({"method": "notifications/progress", "params": {"progressToken": token, "progress": number}})
        time.sleep(0.1)

tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("slow", "lively", "quick")]
for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params", {})
    if method == "initialize":
        say({"id": request["id"], "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
             "serverInfo": {"name": "late", "version": "1"}}})
    elif method == "tools/list":
        say({"id": request["id"], "result": {"tools": tools}})
    elif method == "tools/call" and params["name"] == "slow":
        slow.append(request["id"])
    elif method == "tools/call" and params["name"] == "lively":
        kept["id"] = request["id"]
        threading.Thread(target=keep_alive, args=[params["_meta"]["progressToken"]], daemon=True).start()
    elif method == "tools/call":
        answer(request["id"], "quick and right")
    elif method == "notifications/cancelled":
        cancelled.append(params["requestId"])
        if sorted(cancelled) == sorted(slow) and len(slow) == int(sys.argv[1]):
            for id in slow:
                answer(id, "late")
            answer(kept["id"], f"lively beside {len(slow)} late answers")
    elif "id" in request:
        say({"id": request["id"], "error": {"code": -32601, "message": "unknown"}})
"""


@pytest.fixture(params=["stdio", "http"])
def entry(request: pytest.FixtureRequest, stdio: StdioServer) -> ServerEntry:
    """The same server over both transports."""
    if request.param == "stdio":
        return stdio
    tools: HttpTools = request.getfixturevalue("http")
    return tools.entry


@pytest.mark.case("P124")
async def test_each_call_that_timed_out_is_cancelled_at_its_server_and_the_next_one_is_right(
    entry: ServerEntry, effects: Effects
) -> None:
    async with toolbox(entry, limits=replace(QUICK, idle=2.0)) as tools:
        await tools.specs()
        gate = f"{entry.name}__gate"
        calls = [tools.call(gate, {"name": "shut"}, context(str(number))) for number in range(CALLS)]
        outcomes = await within(15, asyncio.gather(*calls), "the limits of all calls")
        assert all(one.is_error and "it sent nothing for 2 s" in one.text for one in outcomes)
        each = {f"call-of-{number}" for number in range(CALLS)}
        await eventually(lambda: len(effects.cancelled()) == CALLS, what="a cancel for each at the server")
        for lines in (effects.begun(), effects.cancelled()):
            assert {line["call"] for line in lines} == each and len(lines) == CALLS
        effects.open_gate("shut")
        counted = await within(10, tools.call(f"{entry.name}__count", {"label": "after"}, context()))
        assert counted.text == "counted after"
    assert [effect["label"] for effect in effects.counted()] == ["after"]


@pytest.mark.case("P124")
async def test_what_a_server_answers_to_calls_that_timed_out_is_nobody_s_answer() -> None:
    """It answers all of them in one go, in a session in which another call is still under way."""
    entry = StdioServer("late", sys.executable, ("-c", ANSWERS_LATE, str(CALLS)))
    async with toolbox(entry, limits=replace(QUICK, idle=1.0, close=0.3)) as tools:
        await tools.specs()
        lively = asyncio.create_task(tools.call("late__lively", {}, context("lively")))
        slow = [tools.call("late__slow", {}, context(str(number))) for number in range(CALLS)]
        outcomes = await within(10, asyncio.gather(*slow), "the limits of all calls")
        assert all(one.is_error and "it sent nothing for 1 s" in one.text for one in outcomes)
        assert (await within(10, lively)).text == f"lively beside {CALLS} late answers"
        assert (await within(10, tools.call("late__quick", {}, context()))).text == "quick and right"
