"""SIGKILL at commit boundaries of the real server, drawn by a seed; `FULL=1` does all of them and writes the table."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.effects import crashes
from benchmarks.effects.crashes import DATABASES, Case, Told
from benchmarks.effects.stage import Client, Hall
from docs import faults
from dromos.ports.probe import UNCALLED, Moment, Point
from dromos.testing.postgres_server import PostgresServer
from dromos.testing.waiting import eventually

SAMPLE = [
    Case("sqlite", "lost", Point.LOST_STEPS, Moment.WRITTEN),
    Case("sqlite", "drained", Point.RETIRE_OWNER, Moment.COMMITTED),
    Case("sqlite", "session", Point.SESSION_PARK, Moment.COMMITTED),
    Case("sqlite", "own", Point.CONSUME_DECISION, Moment.COMMITTED),
]
"""Chosen for what they reach together: work that is taken over, a drain, an adapter's session, a graph that asks."""
UNDISTURBED = ("pruned", "late", "command", "aged")


def checked(told: Told) -> None:
    assert told.wrong == []
    assert told.missed == []


@pytest.mark.slow(300)
async def test_nothing_is_doubled_or_lost_by_a_kill_and_every_point_of_the_registry_is_reached(
    tmp_path: Path,
) -> None:
    told = Told()
    async with crashes.halls(None, tmp_path / "hall") as hall:
        await crashes.carry_out(hall, SAMPLE, told)
        for scenario in UNDISTURBED:
            async with Client(hall, scenario) as client:
                told.wrong += await crashes.play(client, scenario, scenario, hall)
        told.wrong += await hall.violations()
        reached = hall.points.reached()
    checked(told)
    assert told.deaths == len(SAMPLE) + 1, "one is killed at work first"
    assert {point for point in Point if reached[point.at(Moment.COMMITTED)] == 0} == set(UNCALLED)


def test_the_full_size_strikes_each_moment_of_all_that_is_reached_and_of_what_is_counted_the_last_too() -> (
    None
):
    counted = (Point.INTENT, Point.CLAIM, Point.SAVE_DOCUMENT)
    seen = {("talk", point.at(Moment.WRITTEN)): 5 for point in counted}
    cases = crashes.plan(seen, DATABASES, often=DATABASES)
    assert {(case.database, case.point, case.moment) for case in cases} == {
        (database, point, moment)
        for database in DATABASES
        for point in Point
        if point not in UNCALLED
        for moment in Moment
    }
    times = {point: sorted({case.times for case in cases if case.point is point}) for point in Point}
    assert (times[Point.INTENT], times[Point.CLAIM]) == ([1, 3, 5], [1, 3])
    assert {tuple(several) for point, several in times.items() if point not in counted[:2]} == {(1,), ()}


@pytest.mark.slow(180)
async def test_on_postgres_a_call_whose_outcome_was_lost_with_the_server_is_not_made_again(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    told = Told()
    async with crashes.halls(postgres, tmp_path / "hall") as hall:
        await crashes.carry_out(hall, [Case("postgres", "talk", Point.OUTCOME, Moment.WRITTEN)], told)
    checked(told)


def test_the_guide_shows_what_the_full_size_has_counted() -> None:
    told = Told(planned=4, cases=4, deaths=5, effects=6, seconds=120)
    told.killed["sqlite", Point.CLAIM, Moment.WRITTEN] = 3
    told.killed["postgres", Point.CLAIM, Moment.REPLIED] = 1
    told.wrong = ["claim.written ×1 on sqlite: I2: two ends"]
    shown = faults.shown(crashes.report(told))
    points = len(Point) - len(UNCALLED)
    assert (
        f"{points} points × 3 moments × 2 databases: 2 of {points * 6} struck in 4 cases, 5 deaths" in shown
    )
    assert "**1 faults**" in shown
    assert "| `claim` | 3 · 0 · 0 | 0 · 0 · 1 |" in shown
    assert "Not struck" not in shown
    assert "Not struck in that run: `claim`" in faults.shown(
        crashes.report(Told()).replace("| `claim` |", "| `gone` |")
    )


@pytest.mark.full
@pytest.mark.slow(4 * 3600)
async def test_at_every_point_and_moment_on_both_databases_nothing_is_doubled_or_lost() -> None:
    told = await crashes.matrix(DATABASES, often=DATABASES)
    crashes.keep(told)
    checked(told)


@pytest.mark.slow(60)
async def test_a_held_point_stands_still_until_it_is_let_go(tmp_path: Path) -> None:
    async with Hall(tmp_path / "hall").open_doors() as hall, Client(hall, "person") as client:
        hall.points.hold(Point.CREATE_CONVERSATION, Moment.WRITTEN)
        creating = asyncio.create_task(client.create("/v1/conversations", {}))
        await eventually(lambda: hall.points.hit, what="the point")
        assert not creating.done()
        assert hall.points.reached()["create_conversation.committed"] == 0
        hall.points.let_go()
        assert (await creating)["id"]
        assert hall.deaths == 0
