"""`dromos chat` through pipes and real signals against a real server; on a terminal it is driven by hand."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from dromos.cli.chat import Exchange, Result
from dromos.cli.screen import PlainScreen, SilentScreen
from dromos.client import Client, RunView
from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import eventually, within
from tests.cli.conftest import Command, start

pytestmark = pytest.mark.slow(60)


async def test_the_answer_goes_to_standard_output_and_nothing_else_does(
    dromos: Command, server_url: str
) -> None:
    done = await dromos("chat", "!say three words here", "--server", server_url)
    assert (done.code, done.out) == (0, "three words here\n")
    assert "✓ done" in done.err


async def test_a_message_is_read_from_a_pipe(dromos: Command, server_url: str) -> None:
    done = await dromos("chat", "--server", server_url, stdin="!say one\n!say two\n")
    assert (done.code, done.out) == (0, "one\ntwo\n")
    nothing = await dromos("chat", "--server", server_url, stdin=" \n")
    assert (nothing.code, nothing.out) == (1, "")
    assert "dromos chat" in nothing.err


async def test_a_conversation_goes_on(dromos: Command, server_url: str) -> None:
    first = json.loads((await dromos("chat", "one", "--json", "--server", server_url)).out)
    second = json.loads(
        (
            await dromos(
                "chat", "two", "--json", "--conversation", first["conversation_id"], "--server", server_url
            )
        ).out
    )
    assert (first["answer"], second["answer"]) == ("one", "two")
    assert second["run"]["status"] == "completed"
    async with Client(server_url) as client:
        view = await client.conversation(first["conversation_id"])
    assert view["conversation"]["message_count"] == 4


async def test_a_failure_is_told_with_its_code_and_can_be_continued(dromos: Command, server_url: str) -> None:
    script = "!error 401 x1\n!say now it works"
    failed = json.loads((await dromos("chat", script, "--json", "--server", server_url)).out)
    assert failed["run"]["error_code"] == "MODEL_AUTH"
    again = await dromos(
        "chat", "/continue", "--conversation", failed["conversation_id"], "--server", server_url
    )
    assert (again.code, again.out) == (0, "now it works\n")
    plain = await dromos("chat", "!error 401", "--server", server_url)
    assert plain.code == 1
    assert "✗ failed · MODEL_AUTH" in plain.err


async def test_a_long_answer_arrives_whole_and_as_it_is_written(tmp_path: Path, server_url: str) -> None:
    process = await start("chat", "!tokens 120 60", "--server", server_url, cwd=tmp_path)
    assert process.stdout is not None
    first = await within(20, process.stdout.read(4), "the first words")
    assert process.returncode is None, "words are shown before the end"
    rest, _ = await within(20, process.communicate(), "the end")
    assert len((first + rest).decode().split()) == 120


async def test_ctrl_c_stops_the_run_and_shows_how_it_ended(tmp_path: Path, server_url: str) -> None:
    process = await start("chat", "!tokens 5000 20", "--server", server_url, cwd=tmp_path)
    assert process.stdout is not None
    await within(20, process.stdout.read(4), "the first words")
    process.send_signal(signal.SIGINT)
    _, err = await within(20, process.communicate(), "the end")
    assert process.returncode == 1
    assert "■ stopped · by you" in err.decode()


async def test_a_waiting_message_is_answered_after_the_run_before_it(
    dromos: Command, server_url: str
) -> None:
    async with Client(server_url) as client:
        conversation = await client.create_conversation()
        await client.post_message(conversation["id"], "!tokens 160 20")
        done = await dromos("chat", "!say mine", "--conversation", conversation["id"], "--server", server_url)
    assert done.code == 0, done.err
    assert done.out.endswith("mine\n")
    assert "waits for its end" in done.err


async def test_ctrl_c_takes_a_waiting_message_back_and_leaves_the_run_alone(
    tmp_path: Path, server_url: str
) -> None:
    async with Client(server_url) as client:
        conversation = await client.create_conversation()
        live = (await client.post_message(conversation["id"], "!tokens 5000 20"))["run"]
        process = await start(
            "chat", "never mind", "--conversation", conversation["id"], "--server", server_url, cwd=tmp_path
        )

        async def waits() -> bool:
            return bool((await client.conversation(conversation["id"]))["followups"])

        await eventually(waits, what="the waiting message")
        process.send_signal(signal.SIGINT)
        _, err = await within(20, process.communicate(), "the end")
        assert process.returncode == 1
        assert "taken back" in err.decode()
        assert not await waits()
        assert (await client.run(live["id"]))["status"] == "running"
        await client.cancel(live["id"], wait_s=10)


async def test_a_second_ctrl_c_only_stops_watching(tmp_path: Path) -> None:
    async with ServeProcess(tmp_path / "data") as server:
        process = await start("chat", "!tokens 5000 20", "--server", server.url, cwd=tmp_path)
        assert process.stdout is not None
        await within(20, process.stdout.read(4), "the first words")
        server.stop()  # the stop cannot be accepted now
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert b"Ctrl-C again" in await within(20, process.stderr.readline(), "a word about the stop")
        process.send_signal(signal.SIGINT)
        _, err = await within(20, process.communicate(), "the end")
        server.cont()
    assert process.returncode == 1
    assert "left; see it with: dromos runs show" in err.decode()


@pytest.mark.full
@pytest.mark.case("P01")
async def test_the_server_dies_and_comes_back_and_the_answer_still_arrives(tmp_path: Path) -> None:
    async with ServeProcess(tmp_path / "data") as server:
        process = await start("chat", "!tokens 80 40", "--server", server.url, cwd=tmp_path)
        assert process.stdout is not None
        await within(20, process.stdout.read(4), "the first words")
        server.kill()
        await server.restart()
        out, err = await within(30, process.communicate(), "the end")
        async with Client(server.url) as client:
            runs = [run async for run in client.runs()]
            messages = (await client.messages(runs[0]["conversation_id"]))["items"]
    answer = next(message["content"] for message in messages if message["role"] == "assistant")
    assert process.returncode == 0, err.decode()
    assert out.decode().endswith(f"{answer}\n")
    assert (len(runs), runs[0]["crashes"], runs[0]["attempt"]) == (1, 1, 2)


async def test_what_was_said_before_a_question_is_not_said_to_start_anew(
    tmp_path: Path, server_url: str
) -> None:
    script = '!say first\n!call ask_person {"question": "Go on?"}\n!say second'
    chat = await start("chat", script, "--server", server_url, cwd=tmp_path)
    async with Client(server_url) as client:

        async def asked() -> str | None:
            return next(iter([r["id"] async for r in client.requests() if r["prompt"] == "Go on?"]), None)

        await client.decide(
            await client.request(await eventually(asked, what="the question")), "answer", answer="yes"
        )
    out, err = await within(20, chat.communicate(), "the end")
    assert out.decode().split() == ["first", "second"]
    assert "anew" not in err.decode()


async def test_an_unknown_conversation_is_told(dromos: Command, server_url: str) -> None:
    unknown = "00000000-0000-7000-8000-000000000000"
    done = await dromos("chat", "hello", "--conversation", unknown, "--server", server_url)
    assert (done.code, done.out) == (1, "")
    assert "not_found" in done.err


async def test_a_run_that_was_over_before_it_was_known_still_shows_its_answer(server_url: str) -> None:
    async with Client(server_url) as client:
        conversation = (await client.create_conversation())["id"]
        posted = await client.post_message(conversation, "!say all of it")
        run_id = posted["run"]["id"]

        async def ended() -> bool:
            return (await client.run(run_id))["finished_at"] is not None

        await eventually(ended, what="the end of the run")
        exchange = Exchange(client, SilentScreen(), Result(conversation))
        exchange.result.followup = {"status": "applied", "message_id": posted["message"]["id"]}
        await exchange._heal()
        assert exchange.view is not None and exchange.view.ended
        assert exchange.view.text == "all of it"


async def test_a_document_that_lags_behind_brings_no_message_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Client("http://127.0.0.1:1") as client:
        exchange = Exchange(client, PlainScreen(), Result("c"))
        view = exchange.view = RunView({"id": "r", "attempt": 1, "status": "running"})
        for message_id, text in (("1", "first"), ("2", "second"), ("1", "first"), ("2", "second one")):
            view.message_id, view.text = message_id, text
            exchange._print()
    assert capsys.readouterr().out == "first\nsecond one"
