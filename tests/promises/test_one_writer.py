"""Many runs and many readers on one SQLite file: the engine's checkpoints and the product's rows never collide."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dromos.testing.processes import ServeProcess
from tests.faults.driver import Person, tools

RUNS, READERS, TURNS = 8, 20, 6


@pytest.mark.slow(120)
@pytest.mark.case("P104")
async def test_eight_streaming_runs_and_twenty_readers_never_meet_a_locked_database(tmp_path: Path) -> None:
    tools(tmp_path)
    turn = '!tokens 20 100\n!call t__count {"label": "step"}'
    script = "\n".join([turn] * TURNS) + "\n!say done"
    async with ServeProcess(tmp_path / "data") as server, Person(server) as person:
        conversations = [await person.conversation() for _ in range(RUNS)]
        over = asyncio.Event()

        async def read(conversation: str) -> int:
            answers = 0
            while not over.is_set():
                await person.history(conversation)
                answers += 1
            return answers

        readers = [asyncio.create_task(read(conversations[n % RUNS])) for n in range(READERS)]
        try:
            posted = await asyncio.gather(*(person.say(each, script) for each in conversations))
            ends = await asyncio.gather(*(person.end(each["run"]["id"], 60) for each in posted))
        finally:
            over.set()
        answers = await asyncio.gather(*readers)
        log = server.logs()

    assert [(end["status"], end["attempt"], end["crashes"]) for end in ends] == [("completed", 1, 0)] * RUNS
    assert min(answers) > 0
    assert "locked" not in log.lower()
