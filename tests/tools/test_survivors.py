"""What a server had started ends with it, also where it was killed and what it started does not want to end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from dromos.testing.waiting import eventually
from tests.tools.test_mcp_toolbox import STUBBORN, runs

STARTS = """
import subprocess, sys, time
from dromos.tools.mcp.survivors import watch
over = subprocess.Popen([sys.executable, "-c", "pass"], start_new_session=True)
watch.add(over.pid)
over.wait()
watch.remove(over.pid)
stays = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], start_new_session=True)
watch.add(stays.pid)
time.sleep(60)
"""


@pytest.mark.slow(30)
@pytest.mark.case("P129")
async def test_a_group_that_ignores_sigterm_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", STARTS, STUBBORN, str(pids))
    try:
        await eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2, what="its pids")
    finally:
        process.kill()
        await process.wait()
    started = [int(pid) for pid in pids.read_text().split()]
    assert all(map(runs, started))
    await eventually(lambda: not any(map(runs, started)), seconds=10, what="their end")
