"""Our side of a benchmark: a whole server in this process, or in a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dromos.bootstrap import LOCAL_USER, System, assemble
from dromos.domain.events import EventType
from dromos.domain.statuses import FINAL, RunStatus
from dromos.lifecycle.contract import Posted, PostMessage, RunOptions
from dromos.ports.store import Row
from dromos.ports.wakeup import user_topic
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
    """One message in a conversation of its own, until the end of its run is told, which is behind the commit."""

    def encode(posted: Posted) -> tuple[int, str]:
        assert posted.run is not None
        return 201, json.dumps(posted.run.id)

    ended: dict[str, Row] = {}
    told = asyncio.Event()

    def hear(events: Sequence[Row]) -> None:
        for event in events:
            if event["type"] == EventType.RUN_STATUS and event["payload"]["run"]["status"] in FINAL:
                ended[event["run_id"]] = event["payload"]["run"]
                told.set()

    stop = system.lifecycle.wakeup.follow(user_topic(LOCAL_USER), hear)
    try:
        post = PostMessage(content, options=RunOptions(agent=agent))
        answer = await system.lifecycle.post_message(LOCAL_USER, post, agent, encode, None)
        run_id = json.loads(answer.body)
        while run_id not in ended:
            told.clear()
            await told.wait()
        run = ended[run_id]
        if run["status"] != RunStatus.COMPLETED:
            raise RuntimeError(f"the run ended {run['status']}: {run['error_message']}")
    finally:
        stop()
