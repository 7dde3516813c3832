"""The guide's table of states and signals: one server with a run in every state is ended, and started again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from docs.matrix import CELLS, ENDS, STATES
from dromos.store.opening import open_store
from dromos.testing.invariants import violations
from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import eventually
from tests.faults.driver import Json, Person, effects, open_gate, tools
from tests.faults.test_matrix import STATUS

SETTINGS = """
[worker]
concurrency = 4
drain_s = 1
lease_s = 3
[tools."t__gate"]
replay = "read"
[tools."t__count"]
policy = "ask"
[tools."u__gate"]
replay = "unsafe"
"""
ASKS = '!call t__count {"label": "x"}\n!say counted'
SCRIPTS = {
    "completed": "!say done",
    "failed": "!error 401",
    "cancelled": ASKS,
    "interrupted": ASKS,
    "expired": ASKS,
    "waiting_input": ASKS,
    "backoff": "!error 503 retry-after=3600",
    "rate_limited": "!error 429 retry-after=3600",
    "model": "!tokens 2000 20",
    "read": '!call t__gate {"name": "read"}\n!say seen',
    "unsafe": '!call u__gate {"name": "unsafe"}\n!say paid',
    "cancelling": '!call u__gate {"name": "cancelling"}',
    "queued": "!say at last",
}
"""In the order in which they are begun: four of the last keep their slots, so that the very last one finds none."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where the server keeps everything."""
    return (
        tmp_path / "data" / "dromos.db"
        if request.param == "sqlite"
        else request.getfixturevalue("postgres_url")
    )


@pytest.fixture
async def server(tmp_path: Path, address: Path | str) -> AsyncIterator[ServeProcess]:
    tools(tmp_path)
    file = tmp_path / "mcp.json"
    servers = json.loads(file.read_text())["mcpServers"]
    file.write_text(json.dumps({"mcpServers": {"t": servers["t"], "u": servers["t"]}}))
    (tmp_path / "dromos.toml").write_text(SETTINGS)
    env = {"DROMOS_DATABASE": address} if isinstance(address, str) else {}
    async with ServeProcess(tmp_path / "data", env=env) as process:
        yield process


class Cast:
    """A run in each state."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.talks: dict[str, str] = {}
        self.before: dict[str, Json] = {}

    async def enter(self) -> None:
        person = self.person
        for state, script in SCRIPTS.items():
            talk = self.talks[state] = await person.conversation()
            options = {"run": {"deadline_s": 2}} if state == "expired" else {}
            run_id = (await person.say(talk, script, **options))["run"]["id"]
            if state in ("completed", "failed"):
                await person.end(run_id)
            elif state in ("cancelled", "interrupted", "expired", "waiting_input"):
                await person.status_event(run_id, "waiting_input")
            elif state in ("backoff", "rate_limited"):
                await eventually(
                    lambda run_id=run_id: self._waits(run_id), what=f"the run to wait ({run_id})"
                )
            elif state == "model":
                await person.seen(lambda one: one.get("event") == "run.text", focus=talk)
            elif state != "queued":
                await eventually(lambda state=state: self._at_gate(state), what=f"the call of {state}")
            if state in ("cancelled", "cancelling"):
                await person.ask("POST", f"/v1/runs/{run_id}/cancel", 202, json={})
            if state == "interrupted":
                following = await person.say(talk, "!say instead", when_busy="interrupt")
                await person.end(following["run"]["id"])
            self.before[state] = {"id": run_id}
        await person.end(self.before["expired"]["id"])
        for state, run in self.before.items():
            self.before[state] = now = await person.run(run["id"])
            assert now["status"] == STATUS.get(state, state)

    async def _waits(self, run_id: str) -> bool:
        run = await self.person.run(run_id)
        return run["status"] == "queued" and run["attempt"] == 1

    def _at_gate(self, state: str) -> bool:
        """The tool itself says that its call began."""
        begun = self.person.server.data.parent / "effects.begun"
        calls = len(begun.read_text().splitlines()) if begun.exists() else 0
        return calls >= ("read", "unsafe", "cancelling").index(state) + 1

    async def see(self, state: str, signal: str) -> None:
        """What the table says of this state, now that the server is back."""
        cell, before, person = CELLS[state, signal], self.before[state], self.person
        run_id = before["id"]
        if cell.run in ("waiting_input", "cancelled"):
            run = await person.status_event(run_id, cell.run)
            if cell.then == "asks":
                assert (run["reason"], run["crashes"]) == ("tool_outcome_unknown", signal == "KILL")
            else:
                assert (run["stop"]["outcome"], run["stop"]["unknown_calls"]) == ("forced", ["u__gate"])
            return
        if cell.then in ("handed back", "taken over"):
            run = await eventually(lambda: self._again(run_id), what="the next attempt")
            assert (run["attempt"], run["crashes"]) == (2, 1 if cell.then == "taken over" else 0)
            return
        assert cell.then == "as it was"
        if state == "queued":  # and now there is a free slot
            assert (await person.end(run_id))["crashes"] == 0
            return
        now = await person.run(run_id)
        assert now["status"] == before["status"] and now["attempt"] == before["attempt"]
        if state in ENDS:
            assert now == before
        else:
            assert (now["wait"], now["version"]) == (before["wait"], before["version"])

    async def _again(self, run_id: str) -> Json | None:
        run = await self.person.run(run_id)
        return run if run["status"] == "running" and run["attempt"] == 2 else None

    async def close(self) -> None:
        for state in SCRIPTS:
            open_gate(self.person.server.data.parent, state)
        live = "status=queued&status=running&status=waiting_input&status=cancelling"
        while runs := (await self.person.ask("GET", f"/v1/runs?{live}"))["items"]:
            for run in runs:
                await self.person.http.post(f"/v1/runs/{run['id']}/cancel?wait_s=10")


@pytest.mark.slow(120)
@pytest.mark.parametrize("signal", ["TERM", "KILL"])
async def test_after_a_signal_each_run_stands_where_the_table_says(
    server: ServeProcess, address: Path | str, signal: str
) -> None:
    folder = server.data.parent
    async with Person(server) as person:
        cast = Cast(person)
        await cast.enter()
        if signal == "TERM":
            server.term()
            assert await server.wait_exit(1 + 2 + 5) == 0
        else:
            server.kill()
            await server.wait_exit()
        await server.start()
        for state in STATES:
            try:
                await cast.see(state, signal)
            except AssertionError as wrong:
                raise AssertionError(f"{state} × {signal} ({CELLS[state, signal]}): {wrong}") from wrong
        await cast.close()
        server.term()
        await server.wait_exit(15)
    store = await open_store(address)
    try:
        assert await violations(store, "local", effects(folder), settled=True) == []
    finally:
        await store.aclose()
