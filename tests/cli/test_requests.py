"""What waits for a person, seen and decided from the terminal, and by the Python client, on the example that asks."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dromos.cli.requests import answer_of, arguments_of
from dromos.client import Client, Conflict, InvalidRequest
from dromos.domain.errors import Invalid
from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import within
from tests.cli.conftest import Command

EXAMPLE = Path(__file__).parents[2] / "examples" / "04_questions"


@pytest.mark.parametrize(
    ("options", "schema", "text", "answer"),
    [
        (None, None, "7", "7"),
        (["a", "b"], None, "b", "b"),
        ([{"value": 3, "label": "three"}], None, "three", 3),
        ([{"value": 3, "label": "three"}], None, "3", 3),
        ([{"value": 3}], None, "4", "4"),
        (None, {"type": "integer"}, "7", 7),
        (None, {"type": "string"}, "7", "7"),
        (None, {"type": "object"}, '{"a": [1]}', {"a": [1]}),
        (None, {"oneOf": []}, "no json", "no json"),
    ],
)
def test_what_is_typed_is_taken_as_the_question_wants_it(
    options: Any, schema: Any, text: str, answer: Any
) -> None:
    assert answer_of({"options": options, "answer_schema": schema}, text) == answer


def test_the_arguments_of_an_edit_are_one_json_object() -> None:
    assert arguments_of('{"to": "ann"}') == {"to": "ann"}
    for text in ("to=ann", "[1]", "null"):
        with pytest.raises(Invalid, match="one JSON object"):
            arguments_of(text)


async def waiting(client: Client, count: int) -> list[dict[str, Any]]:
    """The open questions, once there are so many."""
    async with client.stream(after=0) as events:

        async def look() -> list[dict[str, Any]]:
            while True:
                found = [request async for request in client.requests()]
                if len(found) == count:
                    return found
                await anext(events)

        return await within(20, look(), f"{count} open questions")


@pytest.mark.slow(120)
async def test_questions_are_listed_shown_and_decided(dromos: Command, tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("dromos-data", "__pycache__"))
    async with ServeProcess(folder / "data", cwd=folder) as server, Client(server.url) as client:
        at = ("--server", server.url)
        assert "Nothing waits" in (await dromos("requests", "list", *at)).out
        talk = await client.create_conversation()
        run = (await client.post_message(talk["id"], "I need a holiday"))["run"]
        asked = {request["prompt"]: request for request in await waiting(client, 2)}
        where, budget = asked["Where to?"], asked["How much may it cost?"]

        listed, shown = await asyncio.gather(
            dromos("requests", "list", *at), dromos("requests", "show", where["id"], *at)
        )
        assert where["id"] in listed.out and "How much may it cost?" in listed.out
        assert "the sea, the mountains" in shown.out
        assert f"dromos requests answer {where['id']} ANSWER" in shown.out
        assert f"dromos requests deny {where['id']}" in shown.out

        wrong = await dromos("requests", "answer", budget["id"], "plenty", *at)
        assert wrong.code == 1 and "/answer" in wrong.err
        with pytest.raises(InvalidRequest) as refused:
            await client.decide(budget, "approve")
        assert "answer" in str(refused.value)
        done = await dromos("requests", "answer", budget["id"], "900", *at)
        assert (done.code, done.err) == (0, "") and "waits for another answer" in done.out
        decided = await dromos("requests", "deny", where["id"], "--comment", "surprise me", "--json", *at)
        assert json.loads(decided.out)["request"]["comment"] == "surprise me"
        again = await dromos("requests", "answer", where["id"], "the sea", *at)
        assert again.code == 1 and "local denied this at" in again.err
        with pytest.raises(Conflict) as late:
            await client.decide(where, "answer", answer="the sea")
        assert late.value.code == "already_decided"
        assert late.value.current["request"]["decided_by"] == "local"

        (leave,) = await waiting(client, 1)
        assert (await client.decide(leave, "answer", answer="yes", comment="have fun"))["run"]["id"] == run[
            "id"
        ]
        seen = await dromos("requests", "show", leave["id"], *at)
        assert "answered by local" in seen.out and "have fun" in seen.out
        unknown = await dromos("requests", "approve", "no-such-id", *at)
        assert unknown.code == 1 and "no such question" in unknown.err
