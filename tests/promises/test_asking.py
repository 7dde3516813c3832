"""Questions out of the middle of a call, end to end: of the assistant and of tool servers, through restarts."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dromos.testing.local_http import LocalHTTP
from tests.promises.house import House
from tests.tools.asking_server import made

SCRIPT = (
    '!call a__paint {"thing":"wall"}\n'
    '!call ask_person {"question":"Which day?","options":["Monday","Friday"]}\n'
    "!say done"
)


@pytest.fixture(params=["new", "old"])
async def asking(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Address of a server whose tool asks in the middle of a call, in this era of the protocol."""
    options = Namespace(file=tmp_path / "done", legacy=request.param == "old", forgetful=False)
    async with LocalHTTP(made(options).streamable_http_app(host="127.0.0.1")) as http:
        yield f"{http.url}/mcp"


@pytest.mark.slow(60)
async def test_a_call_that_asks_waits_through_restarts_and_goes_on_with_the_answer(
    asking: str, tmp_path: Path
) -> None:
    async with House(tmp_path, {"a": asking}) as house:
        run = await house.send(SCRIPT)
        questions = {one["tool"]: one for one in await house.asked(run["id"], 2)}
        day, colour = questions["ask_person"], questions["a__paint"]
        assert {one["kind"] for one in questions.values()} == {"question"}
        assert (day["prompt"], day["options"]) == ("Which day?", ["Monday", "Friday"])
        assert colour["prompt"] == "Which colour for wall?"
        assert colour["answer_schema"]["properties"]["colour"]["type"] == "string"
        assert colour["decisions"] == ["answer", "deny"]

        await house.decide(day, "answer", answer="Friday")
        await house.restart()
        assert [one["id"] for one in await house.asked(run["id"])] == [colour["id"]]
        wrong = await house.decide(colour, "answer", 400, answer={"colour": 3})
        assert [error["path"] for error in wrong["errors"]] == ["/answer/colour"]
        await house.decide(colour, "answer", answer={"colour": "blue"})
        assert (await house.ended(run["id"]))["status"] == "completed"
        assert sorted(await house.results(run["conversation_id"])) == ["Friday", "wall is blue"]
        assert (tmp_path / "done").read_text() == "wall blue\n"
        for one in questions.values():
            assert (await house.request(one))["status"] == "consumed"

        again = await house.send('!call a__paint {"thing":"door"}\n!say done', run["conversation_id"])
        (colour,) = await house.asked(again["id"])
        await house.decide(colour, "deny")
        assert (await house.ended(again["id"]))["status"] == "completed"
        assert (await house.results(run["conversation_id"]))[-1] == "door is decline"
