"""An adapter's silence at a real server: shown and taken back; a run that is given back is let go and begun anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dromos.client.adapter import AdapterRun, Answer, Current
from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import within
from tests.client.adapter.conftest import SETTINGS, Person, person_at, serving

pytestmark = pytest.mark.slow(60)
STALLS = """
[stall]
model_s = 1.5

[agents.other.stall]
policy = "retry"
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A server that takes a model for stalled soon; it gives runs of `other` back."""
    folder: Path = tmp_path_factory.mktemp("stalls")
    (folder / "dromos.toml").write_text(SETTINGS + STALLS)
    async with ServeProcess(folder / "data") as server:
        yield server.url


async def test_a_silent_model_is_shown_and_the_next_word_takes_it_back(url: str, person: Person) -> None:
    go_on = asyncio.Event()

    async def work(run: AdapterRun) -> Answer:
        run.box.current = Current("model", "gpt-5")
        await run.say("thinking ")
        await run.flush()
        await go_on.wait()
        await run.say("aloud")
        run.box.line = "moving"
        await run.flush()
        return Answer("thinking aloud")

    async with serving(url, work):
        await person.say("go")
        view = await person.sees(lambda view: view.document.get("stall") is not None)
        assert (view.document["stall"]["kind"], view.run["status"]) == ("model", "running")
        assert view.document["current"]["name"] == "gpt-5"
        go_on.set()
        view = await person.sees(lambda view: view.document["line"] == "moving")
        assert view.document["stall"] is None
        run = await person.end()
    assert (run["status"], run["attempt"]) == ("completed", 1)
    assert (await person.said())[-1] == ("assistant", "thinking aloud")


async def test_a_run_given_back_cancels_its_handler_and_is_begun_anew(url: str) -> None:
    stops: list[Any] = []
    let_go = asyncio.Event()

    async def work(run: AdapterRun) -> str:
        if run.attempt > 1:
            return "at the second try"
        run.box.current = Current("model", "gpt-5")
        await run.flush()
        try:
            await asyncio.Event().wait()
        finally:
            stops.append(run.stop)
            let_go.set()
        raise AssertionError("never")

    async with person_at(url, agent="other") as person, serving(url, work, agents=["other"]):
        await person.say("go")
        run = await person.end()
        await within(15, let_go.wait(), "the handler of the first attempt to be cancelled")
        attempts = await person.client.attempts(run["id"])
    assert (run["status"], run["attempt"], run["crashes"]) == ("completed", 2, 0)
    assert [one["reason"] for one in attempts] == ["stalled", "finished"]
    assert stops[0].cause == "lease_lost" and stops[0].is_local
