"""Servers that ask a person in the middle of a call: in both eras of the protocol, over both transports."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dromos.domain.effects import Word
from dromos.ports.journal import Suspended
from dromos.ports.tool import ToolOutcome
from dromos.testing.processes import RealProcess, free_port
from dromos.testing.waiting import eventually
from dromos.tools.mcp.configuration import HttpServer, ServerEntry, StdioServer
from dromos.tools.mcp.toolbox import McpToolbox
from tests.tools.conftest import context, toolbox

SERVER = str(Path(__file__).with_name("asking_server.py"))

Asks = Callable[..., Any]


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """What the server's tools did, a line each."""
    return tmp_path / "done"


@asynccontextmanager
async def asking(done: Path, transport: str, *options: str) -> AsyncIterator[ServerEntry]:
    """The server as `a`; over HTTP it lives as long as the context."""
    arguments = (SERVER, str(done), *options)
    if transport == "stdio":
        yield StdioServer("a", sys.executable, arguments)
        return
    port = free_port()
    command = [sys.executable, *arguments, "--http", "--port", str(port)]
    process = RealProcess(command, log=done.with_name("asking.log"))
    url = f"http://127.0.0.1:{port}/mcp"
    async with process:
        await eventually(lambda: url in process.logs(), what="the asking server")
        yield HttpServer("a", url)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def suspended(box: McpToolbox, tool: str, arguments: Any, state: Any = None, *words: Word) -> Suspended:
    with pytest.raises(Suspended) as raised:
        await box.call(tool, arguments, replace(context(), state=state, answers=words))
    assert raised.value.state is not None
    return raised.value


def word(asked: Suspended, decision: str = "answer", **answer: Any) -> Word:
    assert asked.asked is not None
    number = f"r-{id(asked)}"
    return Word(number, "question", decision, answer=answer or None, prompt=asked.asked["prompt"])


ERAS = pytest.mark.parametrize("era", [(), ("--legacy",)], ids=["new", "old"])
TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", pytest.param("http", marks=pytest.mark.full)])


@ERAS
@TRANSPORTS
async def test_a_call_lets_go_for_the_question_and_goes_on_with_the_answer_in_another_session(
    done: Path, era: tuple[str, ...], transport: str
) -> None:
    async with asking(done, transport, *era) as entry:
        async with toolbox(entry) as box:
            asked = await suspended(box, "a__paint", {"thing": "wall"})
            assert asked.asked is not None
            assert asked.asked["prompt"] == "Which colour for wall?"
            assert asked.asked["answer_schema"]["required"] == ["colour"]
            if era:
                await eventually(lambda: lines(done.with_name("done.cancelled")) == ["wall"], what="a cancel")
            again = await suspended(box, "a__paint", {"thing": "wall"}, asked.state)
            assert again.asked == asked.asked, "nobody has answered yet"
            assert lines(done) == []
        async with toolbox(entry) as box:
            blue = word(asked, colour="blue")
            said = replace(context(), state=again.state, answers=(blue,))
            outcome = await box.call("a__paint", {"thing": "wall"}, said)
            assert outcome == ToolOutcome("wall is blue", structured={"result": "wall is blue"})
            no = replace(context(), state=asked.state, answers=(word(asked, "deny"),))
            assert (await box.call("a__paint", {"thing": "wall"}, no)).text == "wall is decline"
    assert lines(done) == ["wall blue", "wall decline"]


async def test_two_questions_of_one_round_are_asked_one_after_the_other(done: Path) -> None:
    async with asking(done, "stdio") as entry, toolbox(entry) as box:
        first = await suspended(box, "a__paint_both", {"thing": "shed"})
        one = word(first, colour="red")
        second = await suspended(box, "a__paint_both", {"thing": "shed"}, first.state, one)
        assert second.asked is not None and second.asked["prompt"] == "And the door of shed?"
        both = replace(context(), state=second.state, answers=(one, word(second, colour="green")))
        assert (
            await box.call("a__paint_both", {"thing": "shed"}, both)
        ).text == "shed is red, its door green"
    assert lines(done) == ["shed red green"]


async def test_a_server_that_forgot_its_state_is_given_the_same_answers_from_the_beginning(
    done: Path,
) -> None:
    async with asking(done, "stdio", "--forgetful") as entry:
        async with toolbox(entry) as box:
            asked = await suspended(box, "a__paint", {"thing": "wall"})
        async with toolbox(entry) as box:
            said = replace(context(), state=asked.state, answers=(word(asked, colour="blue"),))
            assert (await box.call("a__paint", {"thing": "wall"}, said)).text == "wall is blue"
    assert lines(done) == ["wall blue"]


async def test_the_same_question_twice_in_one_call_is_two_questions(done: Path) -> None:
    async with asking(done, "stdio", "--legacy") as entry, toolbox(entry) as box:
        wanted = {"things": ["cup", "cup"]}
        first = await suspended(box, "a__choose", wanted)
        one = word(first, colour="red")
        second = await suspended(box, "a__choose", wanted, first.state, one)
        two = word(second, colour="blue")
        said = replace(context(), state=second.state, answers=(one, two))
        assert (await box.call("a__choose", wanted, said)).text == "red, blue"


async def test_an_answer_that_does_not_fit_any_more_is_asked_for_again(done: Path) -> None:
    async with asking(done, "stdio") as entry, toolbox(entry) as box:
        asked = await suspended(box, "a__paint", {"thing": "wall"})
        again = await suspended(box, "a__paint", {"thing": "wall"}, asked.state, word(asked, size=3))
        assert again.asked == asked.asked
    assert lines(done) == []


async def test_questions_of_parallel_calls_never_reach_each_other_in_the_old_era(done: Path) -> None:
    things = ["roof", "wall"]
    async with asking(done, "http", "--legacy") as entry, toolbox(entry) as box:
        both = await asyncio.gather(*(suspended(box, "a__paint", {"thing": thing}) for thing in things))
        assert [one.asked and one.asked["prompt"] for one in both] == [
            "Which colour for roof?",
            "Which colour for wall?",
        ]


async def test_where_nothing_says_whose_a_question_is_nobody_is_asked_and_calls_are_made_singly(
    done: Path,
) -> None:
    things = ["roof", "wall"]
    async with asking(done, "stdio", "--legacy") as entry, toolbox(entry) as box:
        await box.specs()
        calls = [box.call("a__paint", {"thing": thing}, context()) for thing in things]
        first = await asyncio.gather(*calls, return_exceptions=True)
        refused = [one for one in first if isinstance(one, ToolOutcome)]
        assert refused and all(one.is_error and "call again" in one.text for one in refused), first
        both = await asyncio.gather(*(suspended(box, "a__paint", {"thing": thing}) for thing in things))
        assert [one.asked and one.asked["prompt"] for one in both] == [
            "Which colour for roof?",
            "Which colour for wall?",
        ]
    assert lines(done) == []
