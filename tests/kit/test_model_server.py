"""The model server, driven by the real OpenAI client as agents use it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from dromos.testing.model_server import ModelServer
from dromos.testing.processes import RealProcess, free_port
from dromos.testing.waiting import eventually, within


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


def client(server: ModelServer, *, key: str = "x", **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=server.base_url,
        api_key=SecretStr(key),
        model="scripted",
        max_retries=0,
        **{"stream_usage": True} | options,
    )


async def streamed(model: ChatOpenAI, *messages: Any) -> AIMessageChunk:
    whole: AIMessageChunk | None = None
    async for chunk in model.astream(list(messages)):
        assert isinstance(chunk, AIMessageChunk)
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    return whole


async def test_text_and_usage_are_streamed(server: ModelServer) -> None:
    whole = await streamed(client(server), ("user", "!say hello you\n!usage in=7 out=2 cached=5"))
    assert whole.text == "hello you"
    assert whole.response_metadata["finish_reason"] == "stop"
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["total_tokens"] == 9
    assert whole.usage_metadata["input_token_details"] == {"cache_read": 5}


async def test_usage_is_not_streamed_unless_it_is_asked_for(server: ModelServer) -> None:
    whole = await streamed(client(server, stream_usage=False), ("user", "hello"))
    assert whole.usage_metadata is None


async def test_a_whole_answer_carries_text_calls_and_usage(server: ModelServer) -> None:
    answer = await client(server).ainvoke('!say looking\n!call look {"at": 1}')
    assert answer.text == "looking"
    assert [(call["name"], call["args"], call["id"]) for call in answer.tool_calls] == [
        ("look", {"at": 1}, "call_1")
    ]
    assert answer.response_metadata["finish_reason"] == "tool_calls"
    assert answer.usage_metadata is not None


async def test_parallel_calls_are_streamed_and_the_script_goes_on_after_their_results(
    server: ModelServer,
) -> None:
    script = HumanMessage('!call look {"at": "a"}\n!call look {"at": "b"}\n!say seen')
    asked = await streamed(client(server), script)
    assert [call["args"]["at"] for call in asked.tool_calls] == ["a", "b"]

    answered = AIMessage(content="", tool_calls=asked.tool_calls)
    results = [ToolMessage("found", tool_call_id=call["id"]) for call in asked.tool_calls]
    assert (await streamed(client(server), script, answered, *results)).text == "seen"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (429, openai.RateLimitError),
        (503, openai.InternalServerError),
    ],
)
async def test_an_error_reaches_the_client_as_its_own_kind(
    server: ModelServer, status: int, error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as failure:
        await streamed(client(server), ("user", f"!error {status} retry-after=3"))
    assert failure.value.status_code == status
    assert failure.value.response.headers["retry-after"] == "3"


async def test_an_error_with_times_passes_after_them(server: ModelServer) -> None:
    for _ in range(2):
        with pytest.raises(openai.RateLimitError):
            await streamed(client(server), ("user", "!error 429 x2\n!say through"))
    assert (await streamed(client(server), ("user", "!error 429 x2\n!say through"))).text == "through"
    assert server.statistics.refused == 2


async def test_an_error_in_the_middle_of_a_stream_reaches_the_client(server: ModelServer) -> None:
    chunks = client(server).astream("!say half\n!error 500")
    assert [(await anext(chunks)).text for _ in range(2)] == ["", "half"]
    with pytest.raises(openai.APIError):
        await anext(chunks)


async def test_a_broken_stream_ends_without_a_stop_marker(server: ModelServer) -> None:
    body = {"model": "scripted", "messages": [{"role": "user", "content": "!say half\n!break"}]}
    async with httpx.AsyncClient() as http:
        url = f"{server.base_url}/chat/completions"
        text = (await http.post(url, json=body | {"stream": True})).text
        whole = (await http.post(url, json=body)).json()
    assert '"content": "half"' in text
    assert "[DONE]" not in text
    assert "stop" not in text
    assert whole["choices"][0]["finish_reason"] is None


async def test_a_wrong_key_is_refused_and_the_right_one_is_not() -> None:
    async with ModelServer(api_key="right") as guarded:
        with pytest.raises(openai.AuthenticationError):
            await client(guarded, key="wrong").ainvoke("hello")
        assert (await client(guarded, key="right").ainvoke("hello")).text == "hello"
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{guarded.base_url}/models")).status_code == 401


async def test_the_model_is_listed(server: ModelServer) -> None:
    async with httpx.AsyncClient() as http:
        listed = (await http.get(f"{server.base_url}/models")).json()
    assert [model["id"] for model in listed["data"]] == ["scripted"]


def _called(*ids: str) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _result(call: str) -> dict[str, Any]:
    return {"role": "tool", "content": "r", "tool_call_id": call}


HUMAN = {"role": "user", "content": "hello"}


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([HUMAN, _called("a")], "tool calls a have no result"),
        ([HUMAN, _called("a", "b"), _result("a")], "tool calls b have no result"),
        ([HUMAN, _called("a"), HUMAN, _result("a")], "tool calls a have no result"),
        ([HUMAN, _called("a"), _result("a"), _result("a")], "no open call"),
        ([HUMAN, _result("a")], "no open call"),
        ([HUMAN, _called("a"), _result("b")], "no open call"),
        ([HUMAN, _called("a", "a"), _result("a"), _result("a")], "without an id of its own"),
        ([{"role": "robot", "content": "hello"}], "no known role"),
        ([], "at least one message"),
    ],
)
async def test_a_history_that_openai_refuses_is_refused(
    server: ModelServer, messages: list[dict[str, Any]], complaint: str
) -> None:
    async with httpx.AsyncClient() as http:
        url = f"{server.base_url}/chat/completions"
        answer = await http.post(url, json={"model": "scripted", "messages": messages})
    assert answer.status_code == 400
    assert complaint in answer.json()["error"]["message"]


async def test_a_valid_history_with_several_turns_of_calls_is_taken(server: ModelServer) -> None:
    messages = [HUMAN, _called("a", "b"), _result("b"), _result("a"), _called("a"), _result("a"), HUMAN]
    async with httpx.AsyncClient() as http:
        url = f"{server.base_url}/chat/completions"
        answer = await http.post(url, json={"model": "scripted", "messages": messages})
    assert answer.status_code == 200


async def test_a_body_that_is_not_json_is_refused(server: ModelServer) -> None:
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{server.base_url}/chat/completions", content=b"{")
    assert answer.status_code == 400


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_is_seen_and_pulls_no_more(server: ModelServer, stream: bool) -> None:
    async def ask() -> None:
        if stream:
            async for _ in client(server).astream("!say begun\n!silent 60\n!say never"):
                pass
        else:
            await client(server).ainvoke("!say begun\n!silent 60")

    asking = asyncio.create_task(ask())
    await eventually(lambda: server.statistics.open == 1, what="the open request")
    if stream:
        await eventually(lambda: server.statistics.recent[0].tokens == 1, what="the first token")
    asking.cancel()
    await asyncio.wait({asking})
    await eventually(lambda: server.statistics.open == 0, what="the closed request")
    assert server.statistics.aborted == 1
    assert not server.statistics.recent[0].finished


async def test_statistics_tell_what_each_request_pulled(server: ModelServer) -> None:
    await streamed(client(server), ("user", "!tokens 10"))
    async with httpx.AsyncClient() as http:
        stats = (await http.get(f"{server.url}/stats")).json()
    assert (stats["requests"], stats["open"], stats["aborted"], stats["refused"]) == (1, 0, 0, 0)
    (request,) = stats["recent"]
    assert request["tokens"] == 10
    assert request["bytes"] > 1_000
    assert request["finished"]


async def test_counts_survive_a_restart_with_a_state_file(tmp_path: Path) -> None:
    script = "!error 500 x1\n!say through"
    async with ModelServer(state=tmp_path / "state.json") as first:
        with pytest.raises(openai.InternalServerError):
            await client(first).ainvoke(script)
    async with ModelServer(state=tmp_path / "state.json") as second:
        assert (await client(second).ainvoke(script)).text == "through"


def test_a_state_file_of_another_kind_is_refused_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("[]")
    with pytest.raises(ValueError, match="remove it to start anew"):
        ModelServer(state=tmp_path / "state.json")


async def test_the_server_runs_as_a_program(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "dromos.testing.model_server", "--port", str(port)]
    async with RealProcess(command, log=tmp_path / "log") as process:
        url = f"http://127.0.0.1:{port}/v1"
        await eventually(lambda: url in process.logs(), what="its URL")
        model = ChatOpenAI(base_url=url, api_key=SecretStr("x"), model="scripted", max_retries=0)
        assert (await within(10, model.ainvoke("hello"))).text == "hello"
        process.term()
        await process.wait_exit()


async def test_a_taken_port_is_said_and_not_a_traceback(tmp_path: Path, server: ModelServer) -> None:
    command = [sys.executable, "-m", "dromos.testing.model_server", "--port", str(server.port)]
    async with RealProcess(command, log=tmp_path / "log") as process:
        assert await process.wait_exit() == 1
        assert process.logs().startswith("model_server: ")
        assert "Traceback" not in process.logs()
