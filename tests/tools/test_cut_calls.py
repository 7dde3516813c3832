"""Calls over stdio that are cut: what they had started ends with their server, and nobody else's call does."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dromos.testing.waiting import eventually, within
from dromos.tools.mcp.configuration import StdioServer
from tests.tools.conftest import QUICK, context, runs, stat, toolbox

SPAWNS = """
import asyncio, subprocess, sys, time
from pathlib import Path

from mcp.server.mcpserver import MCPServer

folder = Path(sys.argv[1])
server = MCPServer("spawning")


def child(name):
    script = "import sys, time\\nwhile True: open(sys.argv[1], 'a').write('x'); time.sleep(0.1)"
    pid = subprocess.Popen([sys.executable, "-c", script, str(folder / f"{name}.out")]).pid
    (folder / f"{name}.tmp").write_text(str(pid))
    (folder / f"{name}.tmp").rename(folder / name)


@server.tool()
async def lets_go(name: str) -> str:
    child(name)
    await asyncio.sleep(600)
    return "never"


@server.tool()
def hangs(name: str) -> str:
    child(name)
    time.sleep(600)
    return "never"


@server.tool()
async def waits(name: str) -> str:
    child(name)
    while not (folder / f"{name}.go").exists():
        await asyncio.sleep(0.02)
    return f"{name} is done"


server.run("stdio")
"""


@pytest.fixture
def spawning(tmp_path: Path) -> StdioServer:
    """A server whose tools start a child each, named like its argument, and do not come back by themselves."""
    return StdioServer("s", sys.executable, ("-c", SPAWNS, str(tmp_path)))


async def _child(folder: Path, name: str) -> int:
    await eventually((folder / name).exists, what=f"the child of {name}")
    return int((folder / name).read_text())


@pytest.mark.case("P30")
@pytest.mark.parametrize(("how", "tool"), [("stop", "lets_go"), ("stop", "hangs"), ("time limit", "hangs")])
async def test_what_a_cut_call_had_started_ends_with_its_server_and_the_next_call_starts_it_anew(
    spawning: StdioServer, tmp_path: Path, how: str, tool: str
) -> None:
    limits = replace(QUICK, close=0.3, call=1.0 if how == "time limit" else 60.0)
    async with toolbox(spawning, limits=limits) as tools:
        calling = asyncio.create_task(tools.call(f"s__{tool}", {"name": "one"}, context()))
        child = await _child(tmp_path, "one")
        server = stat(child)[1]
        if how == "stop":
            calling.cancel()
        await within(3, asyncio.wait({calling}), "the cut call, which waits for no process")
        await eventually(lambda: not runs(child) and not runs(server), seconds=4, what="the group's end")
        (state,) = await tools.health()
        assert state.ok
        assert await tools.find("s__waits") is not None
        again = asyncio.create_task(tools.call("s__waits", {"name": "two"}, context()))
        await _child(tmp_path, "two")
        (tmp_path / "two.go").touch()
        assert (await within(5, again)).text == "two is done"


@pytest.mark.case("P30")
async def test_a_server_with_a_cut_call_is_ended_when_the_others_in_it_are_done_and_takes_no_new_ones(
    spawning: StdioServer, tmp_path: Path
) -> None:
    async with toolbox(spawning, limits=replace(QUICK, close=0.3)) as tools:
        cut = asyncio.create_task(tools.call("s__hangs", {"name": "cut"}, context("a")))
        other = asyncio.create_task(tools.call("s__waits", {"name": "other"}, context("b")))
        children = [await _child(tmp_path, "cut"), await _child(tmp_path, "other")]
        first = stat(children[0])[1]
        cut.cancel()
        await within(3, asyncio.wait({cut}), "the cut call")
        new = asyncio.create_task(tools.call("s__waits", {"name": "new"}, context("c")))
        kept = await _child(tmp_path, "new")
        assert stat(kept)[1] != first, "it is in a process of its own"
        assert all(map(runs, [first, *children])), "another call is under way there"
        (tmp_path / "other.go").touch()
        assert (await within(5, other)).text == "other is done"
        await eventually(lambda: not any(map(runs, [first, *children])), seconds=4, what="the group's end")
        assert runs(kept) and not new.done()
        (tmp_path / "new.go").touch()
        assert (await within(5, new)).text == "new is done"
        assert runs(kept), "nothing was cut in its server"


@pytest.mark.case("P30")
async def test_a_server_all_of_whose_calls_were_cut_is_ended_with_the_last_or_with_the_toolbox(
    spawning: StdioServer, tmp_path: Path
) -> None:
    async with toolbox(spawning, limits=replace(QUICK, close=0.3)) as tools:
        calls = {
            name: asyncio.create_task(tools.call("s__hangs", {"name": name}, context(name)))
            for name in ("one", "two")
        }
        children = [await _child(tmp_path, name) for name in calls]
        calls["one"].cancel()
        await within(3, asyncio.wait({calls["one"]}), "the first cut call")
        assert all(map(runs, children))
        calls["two"].cancel()
        await eventually(lambda: not any(map(runs, children)), seconds=4, what="their end")
        third = asyncio.create_task(tools.call("s__hangs", {"name": "three"}, context("3")))
        fourth = asyncio.create_task(tools.call("s__waits", {"name": "four"}, context("4")))
        children = [await _child(tmp_path, "three"), await _child(tmp_path, "four")]
        third.cancel()
        await asyncio.wait({third})
    assert not any(map(runs, children))
    assert (await within(3, fourth)).is_error
