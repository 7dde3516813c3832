"""SIGKILL at every commit boundary: before the commit, after it, and after the answer; on both databases.

A case is a scenario during which the server kills itself at one moment of one point; it is started again, the client
repeats what was not answered, and in the end every invariant must hold and every effect have happened once.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.effects import asides, talks
from benchmarks.effects.stage import Client, Hall, Order
from benchmarks.measure import machine
from dromos.ports.probe import UNCALLED, Moment, Point
from dromos.testing.postgres_server import PostgresServer

RESULTS = Path(__file__).parents[1] / "RESULTS-faults.md"
DATABASES = ("sqlite", "postgres")
LIFETIME = 25
"""Cases on one database, before another folder is taken."""

_AT_WORK: Order = (Point.CHECKPOINT, Moment.COMMITTED, 2)
KILLED_BEFORE = dict.fromkeys((Point.ENSURE_USER, Point.REGISTER_OWNER, Point.ORPHANS, Point.REAP), _AT_WORK)
"""Reached by a server that comes back: it is killed there after it was killed at work."""

OF_SESSIONS = frozenset(
    {
        Point.SESSION_CLAIM,
        Point.SESSION_RENEW,
        Point.SESSION_PARK,
        Point.SESSION_END,
        Point.REPORT_STEPS,
        Point.APPEND_MESSAGES,
        Point.PATCH_DOCUMENT,
    }
)
SCENARIOS: Mapping[Point, str] = {
    **dict.fromkeys(OF_SESSIONS, "session"),
    Point.RETIRE_OWNER: "drained",
    Point.LOST_STEPS: "lost",
    Point.CONSUME_DECISION: "own",
    Point.STORE_ANSWER: "own",
    Point.THREAD_UPKEEP: "pruned",
    Point.COMPOSE_INPUT: "late",
    Point.COMMAND_TOLD: "command",
    Point.OUTDATED: "aged",
}
"""Of all others it is a talk."""
ONCE = frozenset(
    {
        *KILLED_BEFORE,
        *OF_SESSIONS,
        Point.RETIRE_OWNER,
        Point.LOST_STEPS,
        Point.SAVE_DOCUMENT,
        Point.OUTDATED,
    }
)
"""Killed at the first time only: how often they are reached goes by the clock, or by who was killed before. A worker
that claims also looks in vain, so of `claim` the last time is no moment of its own."""
STRUCK = tuple(point for point in Point if point not in UNCALLED)


@dataclass(frozen=True)
class Case:
    database: str
    scenario: str
    point: Point
    moment: Moment
    times: int = 1

    def __str__(self) -> str:
        return f"{self.point.at(self.moment)} ×{self.times} on {self.database}"

    @property
    def orders(self) -> tuple[Order, ...]:
        before = KILLED_BEFORE.get(self.point)
        mine = (self.point, self.moment, self.times)
        return (mine,) if before is None else (before, mine)


@dataclass
class Told:
    """What came of the cases."""

    killed: Counter[tuple[str, Point, Moment]] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    planned: int = 0
    cases: int = 0
    deaths: int = 0
    effects: int = 0
    seconds: float = 0.0

    def add(self, other: Told) -> None:
        self.killed += other.killed
        self.missed += other.missed
        self.wrong += other.wrong
        self.reached += other.reached
        self.cases += other.cases
        self.deaths += other.deaths
        self.effects += other.effects


PLAYED: Mapping[str, Callable[[Client, str], Awaitable[list[str]]]] = {
    "talk": talks.talk,
    "session": talks.session,
    "own": asides.own,
    "pruned": asides.pruned,
    "late": asides.late,
    "command": asides.command,
    "aged": asides.aged,
}


async def play(client: Client, scenario: str, name: str, hall: Hall) -> list[str]:
    match scenario:
        case "drained":
            return await talks.talk(client, name, meanwhile=hall.server.term)
        case "lost":
            return await talks.talk(client, name, within=hall.server.kill)
        case _:
            return await PLAYED[scenario](client, name)


@asynccontextmanager
async def halls(postgres: PostgresServer | None, folder: Path) -> AsyncIterator[Hall]:
    """A server with a folder, and on PostgreSQL a database, of its own."""
    env = {"CT_FILE": str(folder / "effects")}
    if postgres is None:
        async with Hall(folder, settings=asides.SETTINGS, env=env).open_doors() as hall:
            yield hall
        return
    with postgres.database() as url:
        async with Hall(folder, url, settings=asides.SETTINGS, env=env).open_doors() as hall:
            yield hall


async def carry_out(hall: Hall, cases: Sequence[Case], told: Told) -> None:
    """All of them, one after the other, in one folder."""
    for number, case in enumerate(cases):
        name = f"{case.point}.{case.moment}.{case.times}-{number}"
        hall.order(*case.orders)
        async with Client(hall, name) as client:
            try:
                found = await play(client, case.scenario, name, hall)
                found += await client.repeated()
            except AssertionError as failed:
                found = [f"{failed}"]
            if found:
                found[-1] += f"\n  {await hall.newest()}"
        told.cases += 1
        if hall.points.withdraw() or hall.orders_left:
            told.missed.append(str(case))
        else:
            told.killed[case.database, case.point, case.moment] += 1
        found += await hall.violations()
        told.wrong += [f"{case}: {one}" for one in found]
        if found:
            break  # what is wrong stays wrong: the next cases get a folder of their own
    told.deaths += hall.deaths
    told.effects += len(hall.effects())
    told.reached += hall.points.reached()


async def trace(folder: Path, told: Told) -> Counter[tuple[str, str]]:
    """How often an undisturbed conversation of each scenario reaches each moment."""
    seen: Counter[tuple[str, str]] = Counter()
    async with halls(None, folder) as hall:
        for scenario in dict.fromkeys(scenario_of(point) for point in STRUCK if point not in ONCE):
            before = hall.points.reached()
            async with Client(hall, f"trace {scenario}") as client:
                found = await play(client, scenario, client.name, hall)
            told.wrong += [f"undisturbed: {one}" for one in [*found, *await hall.violations()]]
            for moment, count in (hall.points.reached() - before).items():
                seen[scenario, moment] = count
    return seen


def scenario_of(point: Point) -> str:
    return SCENARIOS.get(point, "talk")


def plan(
    seen: Mapping[tuple[str, str], int], databases: Sequence[str], often: Sequence[str] = ()
) -> list[Case]:
    """Each moment of each point at its first time; on the databases `often` also in the middle and the last time, as it
    was `seen`."""
    cases: list[Case] = []
    for database in databases:
        for point in STRUCK:
            scenario = scenario_of(point)
            count = seen.get((scenario, point.at(Moment.WRITTEN)), 0)
            several = {1}
            if database in often and count and point not in ONCE:
                several |= {(count + 1) // 2} if point is Point.CLAIM else {(count + 1) // 2, count}
            for moment in Moment:
                cases += [Case(database, scenario, point, moment, times) for times in sorted(several)]
    return cases


async def matrix(
    databases: Sequence[str],
    *,
    points: Collection[Point] = STRUCK,
    sample: int | None = None,
    seed: int = 0,
    often: Sequence[str] = (),
    told: Told | None = None,
    between: Callable[[Told], None] = lambda told: None,
) -> Told:
    """The cases of these points, or `sample` of them drawn by `seed`; the databases beside each other. `between` hears
    after each folder how it stands."""
    told, began = told or Told(), time.monotonic()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dromos-crashes-")))
        seen = await trace(folder / "trace", told) if often else Counter()
        cases = [case for case in plan(seen, databases, often) if case.point in points]
        # Mixed, so that what is cut short covers all of it thinly.
        cases = random.Random(seed).sample(cases, len(cases))[:sample]
        told.planned = len(cases)
        postgres = stack.enter_context(PostgresServer()) if "postgres" in databases else None

        async def of_one(database: str) -> None:
            left = [case for case in cases if case.database == database]
            number = 0
            while left:
                number, part = number + 1, Told()
                server = postgres if database == "postgres" else None
                async with halls(server, folder / f"{database}-{number}") as hall:
                    await carry_out(hall, left[:LIFETIME], part)
                left = left[part.cases :]
                told.add(part)
                told.seconds = time.monotonic() - began
                between(told)

        await asyncio.gather(*map(of_one, databases))
    return told


def table(told: Told) -> str:
    """Points by moments: how often the server was killed there, SQLite + PostgreSQL."""
    lines = ["| point | " + " | ".join(Moment) + " |", "|---|" + "---|" * len(Moment)]
    for point in STRUCK:
        counts = [
            " + ".join(str(told.killed[database, point, moment]) for database in DATABASES)
            for moment in Moment
        ]
        lines.append(f"| `{point}` | " + " | ".join(counts) + " |")
    return "\n".join(lines)


def report(told: Told) -> str:
    day = datetime.now(UTC).date()
    lines = [
        f"{day}, {machine()}, {told.seconds / 60:.0f} minutes: {told.cases} of {told.planned} cases, "
        f"{told.deaths} deaths of the server, {told.effects} effects outside, {len(told.wrong)} faults. "
        "Kills on SQLite + PostgreSQL:",
        table(told),
    ]
    if told.missed:
        lines.append("Not reached in their case: " + ", ".join(told.missed) + ".")
    if told.wrong:
        lines.append("Faults:\n\n" + "\n".join(f"- {one.splitlines()[0][:300]}" for one in told.wrong))
    return "\n\n".join(lines) + "\n"


def keep(told: Told) -> None:
    """The committed table."""
    RESULTS.write_text(
        f"# Results of the faults\n\nWritten by `make faults FULL=1`.\n\n## crash points\n\n{report(told)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.effects.crashes")
    parser.add_argument("--sample", type=int, default=None, help="so many cases, drawn by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--often",
        action="append",
        choices=DATABASES,
        help="there each point also in the middle and the last time",
    )
    parser.add_argument("--database", action="append", choices=DATABASES)
    parser.add_argument("--point", action="append", type=Point, choices=STRUCK, help="only these")
    parser.add_argument("--keep", action="store_true", help="write the table after each folder")
    chosen = parser.parse_args()

    def between(told: Told) -> None:
        print(f"{told.cases} cases, {len(told.wrong)} faults, {told.seconds:.0f} s", flush=True)
        if chosen.keep:
            keep(told)

    told = asyncio.run(
        matrix(
            chosen.database or DATABASES,
            sample=chosen.sample,
            seed=chosen.seed,
            often=chosen.often or (),
            points=chosen.point or STRUCK,
            between=between,
        )
    )
    print(report(told))
    for one in told.wrong:
        print(one)


if __name__ == "__main__":
    main()
