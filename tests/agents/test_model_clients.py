"""The real OpenAI client against the scripted model server: streams, errors, stops, keys."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from dromos.agents.langgraph.chat_models import ChatModels
from dromos.agents.langgraph.local_model import LocalModel
from dromos.agents.langgraph.model_choice import ModelSelector
from dromos.bootstrap.parts import keep_cancellations
from dromos.bootstrap.reality import SystemClock
from dromos.domain.reasons import ErrorCode
from dromos.domain.retries import RetryPolicy
from dromos.domain.statuses import RunStatus
from dromos.ports.agent import Failed, Finished, TryLater
from dromos.ports.store import Table
from dromos.testing.model_server import ModelServer
from dromos.testing.processes import free_port
from dromos.testing.waiting import eventually
from tests.agents.kit import FunctionToolbox, assistant, history, rows
from tests.agents.test_attempts import FAST, attempt_of, talk

MODEL = "openai:scripted"


def client(room: Any, server: ModelServer, *, key: str = "k-secret-123", **options: Any) -> Any:
    environ = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": key}
    return assistant(room.store, model=MODEL, environ=environ, **options)


async def test_a_stream_is_shown_counted_and_stored_with_its_own_id(sqlite_room):
    await sqlite_room.conversation()
    async with ModelServer() as server:
        toolbox = FunctionToolbox(add=lambda arguments: arguments["a"])
        agent = client(sqlite_room, server, toolbox=toolbox)
        outcome, attempt = await talk(
            sqlite_room, agent, '!call add {"a":7}\n!say Hello over the wire\n!usage in=11 out=5 cached=3'
        )

    assert outcome == Finished()
    stored = await history(sqlite_room.store)
    assert [(row["role"], row["content"]) for row in stored][2:] == [
        ("tool", "7"),
        ("assistant", "Hello over the wire"),
    ]
    assert attempt.live.texts == {stored[-1]["id"]: "Hello over the wire"}
    usage = attempt.live.values["/usage"]
    assert (usage["model_calls"], usage["tool_calls"]) == (2, 1)
    assert usage["cached"] >= 3


async def test_many_turns_keep_distinct_ids_although_servers_repeat_theirs(sqlite_room):
    await sqlite_room.conversation()
    for turn in range(3):
        async with ModelServer() as server:  # a new one numbers its answers from the start again
            outcome, attempt = await talk(sqlite_room, client(sqlite_room, server), f"!say turn {turn}")
        assert outcome == Finished()
        assert list(attempt.live.texts) == [(await history(sqlite_room.store))[-1]["id"]]

    stored = [row for row in await history(sqlite_room.store) if row["role"] == "assistant"]
    assert [row["content"] for row in stored] == ["turn 0", "turn 1", "turn 2"]
    assert len({row["id"] for row in stored}) == 3


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("!error 401", ErrorCode.MODEL_AUTH),
        ("!error 500", ErrorCode.MODEL_BAD_RESPONSE),
        ("!error 429", ErrorCode.MODEL_RATE_LIMITED),
        ("!say half an answer\n!break", ErrorCode.MODEL_BAD_RESPONSE),
    ],
)
async def test_failures_of_the_wire_have_their_codes(sqlite_room, script, code):
    await sqlite_room.conversation()
    async with ModelServer() as server:
        outcome, _ = await talk(sqlite_room, client(sqlite_room, server, policies=FAST), script)

    assert isinstance(outcome, Failed)
    assert outcome.code is code
    assert [row["role"] for row in await history(sqlite_room.store)] == ["user"]


async def test_retry_after_is_the_servers_word(sqlite_room):
    await sqlite_room.conversation()
    async with ModelServer() as server:
        outcome, _ = await talk(sqlite_room, client(sqlite_room, server), "!error 429 retry-after=45")

    assert isinstance(outcome, TryLater)
    assert outcome.delay == 45.0


async def test_a_broken_stream_is_tried_again_and_its_half_text_is_replaced(sqlite_room):
    await sqlite_room.conversation()
    async with ModelServer() as server:
        agent = client(sqlite_room, server, policies=FAST)
        outcome, attempt = await talk(sqlite_room, agent, "!error 503 x1\n!say whole")

        assert outcome == Finished()
        assert server.statistics.as_dict()["requests"] == 2  # the client itself never repeats
    assert list(attempt.live.texts.values()) == ["whole"]


async def test_a_wrong_key_is_told_without_the_key(sqlite_room):
    await sqlite_room.conversation()
    async with ModelServer(api_key="right") as server:
        outcome, _ = await talk(sqlite_room, client(sqlite_room, server, key="sk-wrong-key-1234567"), "hi")

    assert isinstance(outcome, Failed)
    assert outcome.code is ErrorCode.MODEL_AUTH
    assert "sk-wrong" not in outcome.message


@pytest.mark.promise("S4")
async def test_nobody_at_the_address_is_model_unavailable_after_one_more_try(room):
    await room.conversation()
    environ = {"OPENAI_BASE_URL": f"http://127.0.0.1:{free_port()}/v1", "OPENAI_API_KEY": "k"}
    policies = {ErrorCode.MODEL_UNAVAILABLE: RetryPolicy(2, (0.01,))}
    agent = assistant(room.store, model=MODEL, environ=environ, policies=policies)

    outcome, attempt = await talk(room, agent, "hi")

    assert isinstance(outcome, Failed)
    assert outcome.code is ErrorCode.MODEL_UNAVAILABLE
    assert len(await rows(room.store, Table.RUN_STEPS)) == 2
    assert len(await rows(room.store, Table.WRITES, channel="__error__")) == 1
    assert attempt.live.values["/retries"]["last"]["attempt"] == 2


async def test_an_unknown_name_is_model_unavailable(sqlite_room):
    await sqlite_room.conversation()
    environ = {"OPENAI_BASE_URL": "http://nobody.invalid/v1", "OPENAI_API_KEY": "k"}
    outcome, _ = await talk(
        sqlite_room, assistant(sqlite_room.store, model=MODEL, environ=environ, policies={}), "x"
    )

    assert isinstance(outcome, Failed)
    assert outcome.code is ErrorCode.MODEL_UNAVAILABLE


async def test_a_stop_closes_the_connection_so_that_the_server_stops_writing(sqlite_room):
    await sqlite_room.conversation()
    async with ModelServer() as server:
        agent = client(sqlite_room, server)
        run, recorder = await sqlite_room.run()
        attempt = attempt_of(run, recorder, agent, "!tokens 100000 50")
        task = asyncio.create_task(agent.attempt(attempt))
        async with asyncio.timeout(10):
            await attempt.live.spoke.wait()
            await sqlite_room.change(run, status=RunStatus.CANCELLING)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await eventually(lambda: server.statistics.open == 0, what="the end of the request")
    assert server.statistics.aborted == 1


async def test_no_watch_of_single_chunks_can_lose_a_stop(monkeypatch):
    """`asyncio.wait_for` of Python 3.11 returns the chunk, and the cancellation that came with it is gone."""
    environ: dict[str, str] = {}
    keep_cancellations(environ)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    own = ChatOpenAI(model="scripted", api_key=SecretStr("none"))
    assert not own.stream_chunk_timeout
    selector = ModelSelector(SystemClock(), ollama_host="http://127.0.0.1:9")
    models = ChatModels(selector, LocalModel(), {"OPENAI_API_KEY": "k"})
    ours: Any = await models.get(MODEL)
    assert ours.stream_chunk_timeout is None
    await models.aclose()


async def test_a_model_that_is_not_written_as_provider_and_name_is_config_invalid(sqlite_room):
    await sqlite_room.conversation()
    outcome, _ = await talk(sqlite_room, assistant(sqlite_room.store, model="gpt"), "hi")

    assert isinstance(outcome, Failed)
    assert outcome.code is ErrorCode.CONFIG_INVALID
    assert "provider:model" in outcome.message


async def test_a_missing_key_is_model_auth(sqlite_room, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    await sqlite_room.conversation()
    outcome, _ = await talk(sqlite_room, assistant(sqlite_room.store, model="openai:gpt-x"), "hi")

    assert isinstance(outcome, Failed)
    assert outcome.code is ErrorCode.MODEL_AUTH
