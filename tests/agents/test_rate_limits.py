"""A model's server that refuses: what the box says, for how long a run waits, and that a refusal has an end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import httpx2
import pytest

from dromos.agents.langgraph import error_bodies
from dromos.agents.langgraph.chat_models import ChatModels
from dromos.agents.langgraph.error_bodies import BYTES, limit_error_bodies, limit_error_body
from dromos.agents.langgraph.local_model import LocalModel
from dromos.agents.langgraph.model_choice import ModelSelector
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.retries import RetryPolicy
from dromos.ports.agent import Failed, Finished, TryLater
from dromos.ports.store import Table
from dromos.testing.model_server import ModelServer
from tests.agents.kit import SystemClock, assistant, rows
from tests.agents.test_attempts import FAST, talk


def client(room: Any, server: ModelServer, **options: Any) -> Any:
    environ = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
    return assistant(room.store, model="openai:scripted", environ=environ, **options)


@pytest.mark.case("P139")
async def test_a_short_wait_is_kept_in_the_step_and_told_with_its_end(sqlite_room):
    await sqlite_room.conversation()
    before = datetime.now(UTC)
    async with ModelServer() as server:
        outcome, attempt = await talk(
            sqlite_room, client(sqlite_room, server), "!error 429 x1 retry-after=1\n!say at last"
        )

    assert outcome == Finished()
    retries = attempt.live.values["/retries"]
    last = retries["last"]
    assert (retries["count"], last["code"]) == (1, "MODEL_RATE_LIMITED")
    assert (last["attempt"], last["of_attempts"]) == (2, 5)
    until = datetime.fromisoformat(last["next_at"])
    assert timedelta(seconds=1) <= until - before < timedelta(seconds=15)


@pytest.mark.case("P139")
@pytest.mark.parametrize("how", ["seconds", "date"])
async def test_a_wait_of_hours_gives_the_slot_back_until_then(sqlite_room, how):
    await sqlite_room.conversation()
    three_hours = 3 * 3600
    if how == "date":
        at = datetime.now(UTC) + timedelta(seconds=three_hours)
        header = f'"retry-after={format_datetime(at, usegmt=True)}"'
    else:
        header = f"retry-after={three_hours}"
    async with ModelServer() as server:
        outcome, attempt = await talk(sqlite_room, client(sqlite_room, server), f"!error 429 {header}")
        asked = server.statistics.as_dict()["requests"]

    assert isinstance(outcome, TryLater)
    assert outcome.reason is Reason.RATE_LIMITED
    assert outcome.delay == pytest.approx(three_hours, abs=30)
    assert outcome.then == "try 2 of 5"
    assert asked == 1
    assert attempt.live.values["/retries"]["last"]["attempt"] == 2


@pytest.mark.case("P139")
async def test_refusals_that_name_no_time_are_tried_so_often_and_no_more(sqlite_room):
    await sqlite_room.conversation()
    async with ModelServer() as server:
        outcome, _ = await talk(sqlite_room, client(sqlite_room, server, policies=FAST), "!error 429")
        asked = server.statistics.as_dict()["requests"]

    assert isinstance(outcome, Failed)
    assert outcome.code is ErrorCode.MODEL_RATE_LIMITED
    assert asked == FAST[ErrorCode.MODEL_RATE_LIMITED].tries == 5


@pytest.mark.case("P139")
async def test_a_refusal_whose_body_never_ends_is_a_refusal_all_the_same(sqlite_room):
    await sqlite_room.conversation()
    policies = {ErrorCode.MODEL_RATE_LIMITED: RetryPolicy(2, (0.01,), honours_retry_after=True)}
    async with ModelServer() as server, asyncio.timeout(15):
        outcome, _ = await talk(
            sqlite_room, client(sqlite_room, server, policies=policies), "!error 429 endless"
        )

    assert isinstance(outcome, Failed)
    assert outcome.code is ErrorCode.MODEL_RATE_LIMITED
    assert len(outcome.message) < 3000
    assert len(await rows(sqlite_room.store, Table.RUN_STEPS)) == 2


async def test_a_used_up_quota_is_not_asked_again(sqlite_room):
    """OpenAI says it with 429 too; no waiting helps."""
    from dromos.agents.langgraph.failures import classify

    class Refused(Exception):
        status_code = 429

    Refused.__module__ = "openai"
    failure = classify(Refused("{'error': {'code': 'insufficient_quota', 'message': 'You exceeded …'}}"))

    assert failure.code is ErrorCode.MODEL_RATE_LIMITED
    assert failure.is_final


async def answering(*pieces: bytes, then: str) -> asyncio.Server:
    """A server that refuses with these pieces of a body, and then goes on for ever or says nothing more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        try:
            for piece in pieces:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            while then == "more":
                writer.write(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
                await writer.drain()
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("then", ["more", "silence"])
async def test_an_error_body_is_cut_by_bytes_or_by_time(library, then, monkeypatch):
    monkeypatch.setattr(error_bodies, "SECONDS", 0.2 if then == "silence" else 10.0)
    server = await answering(b"quota ", b"block", then=then)
    port = server.sockets[0].getsockname()[1]
    async with server, library.AsyncClient(trust_env=False) as http:
        limit_error_bodies(http)
        limit_error_bodies(http)
        async with asyncio.timeout(10):
            answer = await http.get(f"http://127.0.0.1:{port}/")

    assert len(http.event_hooks["response"]) == 1
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "7"
    assert answer.text.startswith("quota block")
    assert len(answer.content) == (BYTES if then == "more" else len("quota block"))


async def test_the_clients_of_all_providers_cut_error_bodies():
    """Their HTTP clients are found where their packages keep them today; this says when they move."""
    environ = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    models = ChatModels(ModelSelector(SystemClock(), ollama_host="http://127.0.0.1:9"), LocalModel(), environ)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ANTHROPIC_API_KEY", "k")
            anthropic: Any = await models.get("anthropic:claude-sonnet-4-5")
        ollama: Any = await models.get("ollama:qwen3")
        openai: Any = await models.get("openai:gpt-5")
    finally:
        inner = [anthropic._async_client._client, ollama._async_client._client, openai.http_async_client]
        hooks = [one.event_hooks["response"] for one in inner]
        await models.aclose()
        await inner[0].aclose()

    assert hooks == [[limit_error_body]] * 3
