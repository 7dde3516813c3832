"""Stops that are asked of one process and carried out by another, over a PostgreSQL whose news do not come through."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest

from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import eventually
from tests.faults.driver import Person
from tests.faults.theatre import Theatre


@pytest.mark.slow(60)
@pytest.mark.case("P20")
async def test_a_stop_whose_news_is_lost_is_on_disk_answered_honestly_and_seen_by_the_next_sweep(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Theatre(postgres_url) as worker, Theatre(postgres_url, work=False) as door:
        _, run = await worker.begun("!tokens 3000 20")
        await worker.text_of(run["id"], 10)
        monkeypatch.setattr(door.wakeup, "_enqueue", lambda topic: None)  # nobody elsewhere hears of it
        status, answered = await door.cancel(run["id"], wait=0.2)
        assert (status, answered["status"]) == (202, "cancelling")
        assert answered["stop"]["delivered_at"] is None
        with psycopg.connect(postgres_url) as database:
            row = database.execute("SELECT status FROM runs WHERE id = %s", [run["id"]]).fetchone()
        assert row == ("cancelling",)
        status, answered = await door.cancel(run["id"], wait=10)
        assert (status, answered["status"], answered["stop"]["outcome"]) == (200, "cancelled", "acknowledged")


@pytest.mark.slow(120)
@pytest.mark.case("P21")
async def test_a_stop_reaches_a_worker_all_of_whose_connections_were_cut(
    postgres_url: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(
            ServeProcess(tmp_path / "a", database=postgres_url, ready_within=60)
        )
        owner = await stack.enter_async_context(Person(first))
        talk = await owner.conversation()
        run_id = (await owner.say(talk, "!tokens 3000 20"))["run"]["id"]
        await owner.seen(lambda one: one.get("event") == "run.text", focus=talk)
        with psycopg.connect(postgres_url, autocommit=True) as database:
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        second = await stack.enter_async_context(
            ServeProcess(tmp_path / "b", database=postgres_url, ready_within=60)
        )
        other = await stack.enter_async_context(Person(second))

        async def gap_is_counted() -> bool:
            lines = (await owner.http.get("/metrics")).text.splitlines()
            counted = [line for line in lines if line.startswith("dromos_wakeup_reconnects_total ")]
            return bool(counted) and float(counted[0].split()[1]) >= 1

        await eventually(gap_is_counted, what="the gap in the figures")
        asked = time.monotonic()
        stopped = await other.ask("POST", f"/v1/runs/{run_id}/cancel?wait_s=10", 200, json={})
        assert time.monotonic() - asked < 5
        assert (stopped["run"]["status"], stopped["run"]["stop"]["outcome"]) == ("cancelled", "acknowledged")
