"""What the journal of tool calls costs: commits by count, time as the ratio of two sides that take turns.

The other side is the same server with the gate taken out: every call goes straight to its tool.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.effects.stage import SETTINGS
from benchmarks.measure import Row, interleave
from benchmarks.side import run_once
from dromos.bootstrap import System, assemble, assembling
from dromos.domain.effects import Call, Fault, Make, no_fault
from dromos.ports.journal import Desk, Execute
from dromos.ports.probe import Moment, Point
from dromos.ports.tool import ToolOutcome
from dromos.settings import Settings, load
from dromos.testing.processes import RealProcess, free_port
from dromos.testing.waiting import eventually
from dromos.tools.gate import Gate

CALLS = 50
READS = 20
COMMITS_AIM = 2
BY_THE_CLOCK = 0.1
"""Commits for each call that come from documents and leases, which are saved by the clock, not by the call."""
RATIO_AIM = 1.15


class Bypassed(Gate):
    """No record and no leave: the call, and nothing else."""

    async def call(self, call: Call, execute: Execute, desk: Desk, fault: Fault = no_fault) -> ToolOutcome:
        return await execute(Make(call.arguments), lambda: None)


@dataclass(frozen=True)
class Costs:
    unsafe: float
    """Transactions of the journal for one unsafe call."""
    read: float
    commits: float
    """Commits that were added by one unsafe call: several transactions may share one."""
    read_commits: float
    seconds: dict[str, float]
    """Medians of each side."""
    least: dict[str, float]
    """The shortest of each side, warm-up included: what is left where others take the machine."""

    @property
    def ratio(self) -> float:
        return self.seconds["with"] / self.seconds["without"]

    @property
    def least_ratio(self) -> float:
        return self.least["with"] / self.least["without"]


def script(tool: str, arguments: str, calls: int) -> str:
    return "\n".join([f"!say {number}\n!call {tool} {arguments}" for number in range(calls)] + ["!say done"])


@asynccontextmanager
async def side(folder: Path, url: str, *, bypassed: bool) -> AsyncIterator[System]:
    folder.mkdir()
    (folder / "mcp.json").write_text(f'{{"mcpServers": {{"t": {{"url": "{url}"}}}}}}')
    (folder / "dromos.toml").write_text(SETTINGS.replace("concurrency", "step_limit = 2000\nconcurrency"))
    settings = load(
        {"data": folder / "data"},
        config=folder / "dromos.toml",
        environment={"DROMOS_MODEL": "scripted"},
    )
    usual: Any = assembling.make_gate  # type: ignore[attr-defined]

    def without(settings: Settings) -> Any:
        return Bypassed(usual(settings)._rules)

    with patch.object(assembling, "make_gate", without if bypassed else usual):
        async with assemble(settings) as system:
            await system.agents.warm_up()
            yield system


class Journalled:
    """A probe that counts what the journal commits."""

    def __init__(self) -> None:
        self.transactions = 0

    def reach(self, point: str) -> None:
        self.transactions += point in _JOURNAL


_JOURNAL = {point.at(Moment.COMMITTED) for point in (Point.INTENT, Point.OUTCOME, Point.PARKED)}


async def counts(system: System, text: str) -> tuple[int, int]:
    """Of one run: the journal's transactions, and all commits."""
    probe = system.lifecycle.probe = Journalled()
    before = system.store.statistics.figures().commits
    await run_once(system, "assistant", text)
    return probe.transactions, system.store.statistics.figures().commits - before


async def run(calls: int, rounds: int) -> Costs:
    port = free_port()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dromos-journal-")))
        command = [sys.executable, "-m", "dromos.testing.tools_server", "--http", "--port", str(port)]
        tools = RealProcess(command, log=folder / "tools.log", env={"CT_FILE": str(folder / "effects")})
        await stack.enter_async_context(tools)
        await eventually(lambda: "http" in tools.logs(), seconds=30, what="the tools")
        url = f"http://127.0.0.1:{port}/mcp"
        systems = {
            "with": await stack.enter_async_context(side(folder / "with", url, bypassed=False)),
            "without": await stack.enter_async_context(side(folder / "without", url, bypassed=True)),
        }
        unsafe = script("t__count", '{"label": "x"}', calls)
        read = script("t__sleep", '{"s": 0}', READS)
        counted: dict[tuple[str, str], tuple[int, int]] = {}
        for name, system in systems.items():
            await counts(system, script("t__count", '{"label": "warm"}', 1))
            for kind, text in (("unsafe", unsafe), ("read", read)):
                counted[name, kind] = await counts(system, text)

        least: dict[str, float] = {}

        async def timed(name: str) -> float:
            began = time.perf_counter()
            await run_once(systems[name], "assistant", unsafe)
            took = time.perf_counter() - began
            least[name] = min(took, least.get(name, took))
            return took

        seconds = await interleave(
            {"with": lambda: timed("with"), "without": lambda: timed("without")}, rounds
        )
    added = {
        kind: (counted["with", kind][1] - counted["without", kind][1]) / number
        for kind, number in (("unsafe", calls), ("read", READS))
    }
    return Costs(
        counted["with", "unsafe"][0] / calls,
        counted["with", "read"][0] / READS,
        added["unsafe"],
        added["read"],
        seconds,
        least,
    )


async def measure(full: bool) -> list[Row]:
    calls, rounds = (CALLS, 40) if full else (10, 3)
    costs = await run(calls, rounds)
    return [
        Row(
            "commits that the gate adds to an unsafe call",
            f"{costs.commits:.2f}",
            f"{costs.unsafe:.2f} transactions of the journal",
            "",
            f"≤ {COMMITS_AIM}",
            costs.commits <= COMMITS_AIM + BY_THE_CLOCK,
        ),
        Row("transactions of the journal for a read call", f"{costs.read:.2f}", "", "", "0", costs.read == 0),
        Row(
            f"a run of {calls} unsafe calls, medians of {rounds} turns",
            f"{costs.seconds['with'] * 1000:.0f} ms",
            f"{costs.seconds['without'] * 1000:.0f} ms without the gate",
            f"{costs.ratio:.2f}×",
            f"≤ {RATIO_AIM}×",
            costs.ratio <= RATIO_AIM,
        ),
    ]
