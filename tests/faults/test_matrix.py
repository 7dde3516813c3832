"""Every state of a run and everything that can be done to it: the guide's table, cell by cell, on a real stack."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docs.matrix import CELLS, LIVE, PEOPLE, STATES, Cell
from dromos.domain.statuses import Recovery
from dromos.testing.model_server import ModelServer
from dromos.testing.waiting import eventually, within
from tests.faults.theatre import RULES, Json, Theatre

SCRIPTS = {
    "queued": "!say at last",
    "backoff": "!error 503 retry-after=60",
    "rate_limited": "!error 429 retry-after=60",
    "model": "!tokens 3000 20",
    "read": '!call look {"at": "GATE"}\n!say seen',
    "unsafe": '!call pay {"at": "GATE"}\n!say paid',
    "waiting_input": "!call ask\n!say asked",
    "cancelling": '!call pay {"at": "GATE"}\n!say paid',
    "completed": "!say done",
    "failed": "!error 401",
    "cancelled": "!call ask",
    "interrupted": '!call look {"at": "GATE"}',
    "expired": "!call ask",
}
STATUS = {"backoff": "queued", "rate_limited": "queued", "model": "running", "read": "running"} | {
    "unsafe": "running"
}


class Scene:
    """Conversations whose runs stand in one state."""

    def __init__(self, theatre: Theatre, state: str) -> None:
        self.theatre, self.state = theatre, state

    async def enter(self, name: str) -> tuple[str, Json]:
        """A conversation for the cell, and its run as it stands."""
        theatre = self.theatre
        conversation, run = await theatre.begun(SCRIPTS[self.state].replace("GATE", name))
        if self.state in ("read", "unsafe", "cancelling", "interrupted"):
            await theatre.puppet.at(name)
        elif self.state == "model":
            await theatre.text_of(run["id"], 10)
        elif self.state in ("backoff", "rate_limited"):
            await eventually(lambda: self._waits(run["id"]), what="the run to wait for its time")
        elif self.state in ("waiting_input", "cancelled", "expired"):
            await theatre.reaches(run["id"], "waiting_input")
        if self.state in ("cancelling", "cancelled"):
            await theatre.cancel(run["id"])
        if self.state in ("completed", "failed"):
            await theatre.ended(run["id"])
        return conversation, await theatre.run_now(run["id"])

    async def _waits(self, run_id: str) -> bool:
        run = await self.theatre.run_now(run_id)
        return run["status"] == "queued" and run["wait"]["reason"] == self.state

    async def lead_to_end(self) -> None:
        """For states that all conversations of the scene reach together."""
        theatre = self.theatre
        if self.state == "interrupted":
            assert theatre.worker is not None
            await theatre.worker.drain()
            await theatre.start_worker()
        elif self.state == "expired":
            await eventually(self._all_expired, what="the time for an answer to be over")

    async def _all_expired(self) -> bool:
        await self.theatre.lifecycle.sweep()
        _, page = await self.theatre.ask("GET", "/v1/runs", params={"status": "waiting_input"})
        return not page["items"]

    async def act(self, action: str, conversation: str, run: Json) -> None:
        """Do it, and see what the table says."""
        cell, theatre = CELLS[self.state, action], self.theatre
        asked = asyncio.create_task(self._ask(action, conversation, run))
        if action == "delete" and self.state in ("unsafe", "cancelling"):
            await eventually(
                lambda: self._is_gone(conversation), what="the conversation to be gone for everyone"
            )
            theatre.puppet.gate(action).set()  # the erasure waits for the call
        status, body = await within(10, asked, f"the answer to {action}")
        assert (status, body.get("code", "")) == (cell.answer, cell.code), body
        if cell.then == "erased":
            assert (await theatre.ask("GET", f"/v1/runs/{run['id']}"))[0] == 404
            return
        if not cell.run:
            now = await theatre.run_now(run["id"])
            assert now["status"] == STATUS.get(self.state, self.state)
            assert self.state in LIVE or now == run, "an end is final"
        theatre.puppet.gate(action).set()
        if cell.run:
            assert (await theatre.ended(run["id"]))["status"] == cell.run
        await self._then(cell, action, conversation, run, body)

    async def _ask(self, action: str, conversation: str, run: Json) -> tuple[int, Json]:
        theatre = self.theatre
        match action:
            case "cancel":
                return await theatre.ask("POST", f"/v1/runs/{run['id']}/cancel")
            case "decide":
                request = await self._request(run)
                body = {"decision": "approve", "request_version": request["version"]}
                body |= {"arguments_sha256": request["arguments_sha256"]}
                return await theatre.ask("POST", f"/v1/requests/{request['id']}/decision", json=body)
            case "delete":
                return await theatre.ask("DELETE", f"/v1/conversations/{conversation}")
            case "continue":
                return await theatre.ask("POST", f"/v1/conversations/{conversation}/continue", json={})
        message = {"content": "!say the next one", "when_busy": action}
        return await theatre.ask("POST", f"/v1/conversations/{conversation}/messages", json=message)

    async def _request(self, run: Json) -> Json:
        """What the run asked, or what it would have to have asked."""
        _, page = await self.theatre.ask("GET", f"/v1/runs/{run['id']}/events")
        for event in page["items"]:
            if event["type"] == "request.opened":
                return dict(event["payload"]["request"])
        return {"id": self.theatre.ids.new(), "version": 1, "arguments_sha256": None}

    async def _is_gone(self, conversation: str) -> bool:
        return (await self.theatre.ask("GET", f"/v1/conversations/{conversation}"))[0] == 404

    async def _then(self, cell: Cell, action: str, conversation: str, run: Json, body: Json) -> None:
        theatre = self.theatre
        match cell.then:
            case "waits":
                assert body["followup"]["status"] == "waiting"
            case "follows":
                _, followup = await theatre.ask("GET", f"/v1/followups/{body['followup']['id']}")
                assert followup["status"] == "applied" and followup["run_id"] != run["id"]
                assert (await theatre.ended(followup["run_id"]))["line"] == "the next one"
            case "starts":
                started = body["run"]
                assert started["id"] != run["id"] == (await theatre.run_now(run["id"]))["id"]
                if self.state != "queued":
                    assert (await theatre.ended(started["id"]))["line"] == "the next one"
            case "new run":
                assert run["id"] in (body["run"]["resume_of"], body["run"]["retry_of"])
                assert (await theatre.newest(conversation))["id"] == body["run"]["id"]

    async def close(self) -> None:
        """Whatever still goes on is stopped, and ends."""
        for gate in PEOPLE:
            self.theatre.puppet.gate(gate).set()
        self.theatre.puppet.gate("slot").set()
        while True:
            _, page = await self.theatre.ask("GET", "/v1/runs", params={"status": sorted(LIVE_STATUSES)})
            if not page["items"]:
                return
            for run in page["items"]:
                await self.theatre.cancel(run["id"], wait=5)


ON_BOTH = ("queued", "unsafe", "waiting_input")
"""Rows that are carried out on both databases each time; the full size does so with all."""
LIVE_STATUSES = {"queued", "running", "waiting_input", "cancelling"}
Enter = Callable[..., Awaitable[Scene]]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Enter]:
    async with ModelServer() as model:
        opened: list[Theatre] = []

        async def begin(state: str, address: str | None = None) -> Scene:
            more: dict[str, Any] = {}
            if state == "queued":
                more["slots"] = 1
            if state == "interrupted":
                more["recovery"] = Recovery.ASK
            if state == "expired":
                more["rules"] = replace(RULES, expires_after=1.0, on_timeout="expire")
            environ = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k"}
            theatre = Theatre(
                address or tmp_path / "dromos.db",
                model="openai:scripted",
                environ=environ,
                stop_deadline=10.0,
                **more,
            )
            await theatre.__aenter__()
            opened.append(theatre)
            _, first = await theatre.begun("!say loaded")  # the engine is loaded before anything is timed
            await theatre.ended(first["id"])
            if state == "queued":
                await theatre.begun("gate slot", run={"agent": "puppet"})
                await theatre.puppet.at("slot")
            return Scene(theatre, state)

        yield begin
        for theatre in opened:
            await theatre.__aexit__()


async def carry_out(scene: Scene, actions: list[str]) -> None:
    placed = [(action, *(await scene.enter(action))) for action in actions]
    await scene.lead_to_end()
    for action, conversation, run in placed:
        if scene.state in ("interrupted", "expired"):
            run = await scene.theatre.ended(run["id"])
        assert run["status"] == STATUS.get(scene.state, scene.state)
        try:
            await scene.act(action, conversation, run)
        except AssertionError as wrong:
            raise AssertionError(
                f"{scene.state} × {action} ({CELLS[scene.state, action]}): {wrong}"
            ) from wrong
    await scene.close()
    await scene.theatre.in_order()


def test_the_table_is_whole() -> None:
    assert {(state, action) for state in STATES for action in (*PEOPLE, "TERM", "KILL")} == set(CELLS)


@pytest.mark.slow(60)
@pytest.mark.parametrize("state", STATES)
async def test_each_action_of_a_person_does_what_the_table_says(scene: Enter, state: str) -> None:
    await carry_out(await scene(state), list(PEOPLE))


@pytest.mark.slow(60)
@pytest.mark.parametrize(
    "state",
    [state if state in ON_BOTH else pytest.param(state, marks=pytest.mark.full) for state in STATES],
)
async def test_the_same_on_postgres(postgres_url: str, scene: Enter, state: str) -> None:
    await carry_out(await scene(state, postgres_url), list(PEOPLE))
