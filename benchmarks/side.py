"""Our side of a benchmark: a whole server in this process, or in a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dromos.bootstrap import LOCAL_USER, System, assemble
from dromos.domain.statuses import RunStatus
from dromos.lifecycle.contract import Posted, PostMessage, RunOptions
from dromos.settings import load

AGENTS = """
default_agent = "noop"
[worker]
concurrency = 64
step_limit = 20000
[log]
level = "error"
[agents.noop]
graph = "benchmarks.graphs:noop"
[agents.fifty]
graph = "benchmarks.graphs:fifty"
[agents.thousand]
graph = "benchmarks.graphs:thousand"
"""


def write_settings(folder: Path) -> Path:
    """A dromos.toml with the benchmark's graphs; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "dromos.toml"
    file.write_text(AGENTS)
    root = str(Path(__file__).parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)
    return file


@asynccontextmanager
async def ours(folder: Path, database: str | None = None) -> AsyncIterator[System]:
    """The product in this process, without a socket."""
    flags: dict[str, Any] = {"data": folder / "data"} | ({"database": database} if database else {})
    settings = load(flags, config=write_settings(folder), environment={"DROMOS_MODEL": "scripted"})
    async with assemble(settings) as system:
        await system.agents.warm_up()
        yield system


async def run_once(system: System, agent: str, content: str = "go") -> None:
    """One message in a conversation of its own, until its run has ended on disk."""

    def encode(posted: Posted) -> tuple[int, str]:
        assert posted.run is not None
        return 201, json.dumps(posted.run.id)

    ended = asyncio.Event()
    post = PostMessage(content, options=RunOptions(agent=agent))
    answer = await system.lifecycle.post_message(LOCAL_USER, post, agent, encode, None)
    run_id = json.loads(answer.body)
    stop = system.lifecycle.wakeup.listen(f"run:{run_id}", ended.set)
    try:
        while True:
            run = await system.lifecycle.run(LOCAL_USER, run_id)
            if run.is_final:
                if run.status is not RunStatus.COMPLETED:
                    raise RuntimeError(f"the run ended {run.status}: {run.error_message}")
                return
            await ended.wait()
            ended.clear()
    finally:
        stop()
