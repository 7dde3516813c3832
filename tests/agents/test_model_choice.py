"""Which model answers: the order of the choice, and what is told about it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from dromos.agents.langgraph import model_choice
from dromos.agents.langgraph.failures import ModelFault
from dromos.agents.langgraph.local_model import LocalModel, weights_path
from dromos.agents.langgraph.model_choice import LOCAL, SCRIPTED, ModelSelector
from dromos.domain.reasons import ErrorCode
from dromos.ports.agent import Finished
from dromos.testing.local_http import LocalHTTP
from tests.agents.kit import SystemClock, assistant, history
from tests.agents.test_attempts import talk


@pytest.fixture(autouse=True)
def nothing_at_the_default_address(monkeypatch):
    monkeypatch.setattr(model_choice, "OLLAMA_DEFAULT", "http://127.0.0.1:9")


def selector(**options: Any) -> ModelSelector:
    return ModelSelector(SystemClock(), **{"has_local": lambda: True, **options})


@asynccontextmanager
async def ollama(*models: str) -> AsyncIterator[LocalHTTP]:
    """A server that speaks the parts of Ollama's protocol that are used."""

    async def tags(request: Any) -> JSONResponse:
        return JSONResponse({"models": [{"name": name} for name in models]})

    async def chat(request: Any) -> StreamingResponse:
        asked = await request.json()
        lines = [
            {"model": asked["model"], "message": {"role": "assistant", "content": text}, "done": False}
            for text in ("Hello ", asked["messages"][-1]["content"])
        ]
        lines.append(
            {
                "model": asked["model"],
                "message": {"role": "assistant", "content": ""},
                "done": True,
                "done_reason": "stop",
                "prompt_eval_count": 7,
                "eval_count": 2,
            }
        )
        return StreamingResponse(iter(json.dumps(line) + "\n" for line in lines))

    routes = [Route("/api/tags", tags), Route("/api/chat", chat, methods=["POST"])]
    async with LocalHTTP(Starlette(routes=routes)) as server:
        yield server


async def test_the_runs_wish_comes_first():
    async with ollama("qwen3") as server:
        choice = await selector(model="openai:a", ollama_host=server.url).choose("anthropic:b")

    assert (choice.name, choice.source) == ("anthropic:b", "run")


async def test_then_the_setting():
    choice = await selector(model="local").choose()

    assert (choice.name, choice.source) == (LOCAL, "settings")


async def test_then_ollamas_first_model():
    async with ollama("qwen3:8b", "other") as server:
        choice = await selector(ollama_host=server.url).choose()

    assert (choice.name, choice.source) == ("ollama:qwen3:8b", "ollama")


async def test_an_ollama_that_is_set_is_used_whether_it_answers_or_not():
    with pytest.raises(ModelFault, match="OLLAMA_HOST") as caught:
        await selector(ollama_host="http://127.0.0.1:9").choose()

    assert caught.value.code is ErrorCode.MODEL_UNAVAILABLE


async def test_an_ollama_that_is_set_without_a_model_says_how_to_get_one():
    async with ollama() as server:
        with pytest.raises(ModelFault, match="ollama pull"):
            await selector(ollama_host=server.url).choose()


async def test_an_ollama_at_the_default_address_is_found(monkeypatch):
    async with ollama("phi") as server:
        monkeypatch.setattr(model_choice, "OLLAMA_DEFAULT", server.url)
        choice = await selector().choose()

    assert choice.name == "ollama:phi"


async def test_without_ollama_the_small_model_answers_and_says_how_to_get_a_better_one():
    choice = await selector().choose()

    assert (choice.name, choice.source) == (LOCAL, "local")
    assert "DROMOS_MODEL" in choice.hint


async def test_without_anything_the_scripted_model_does():
    choice = await selector(has_local=lambda: False).choose()

    assert choice.name == SCRIPTED
    assert "local" in choice.hint


async def test_ollama_answers_through_its_own_client(sqlite_room):
    await sqlite_room.conversation()
    async with ollama("tiny") as server:
        agent = assistant(sqlite_room.store, model="ollama:tiny", ollama_host=server.url)
        outcome, attempt = await talk(sqlite_room, agent, "you")

    assert outcome == Finished()
    assert (await history(sqlite_room.store))[-1]["content"] == "Hello you"
    assert attempt.live.values["/usage"]["input"] == 7


@pytest.mark.slow(90)
async def test_the_small_model_answers_a_chat_and_ends_with_its_owner(sqlite_room):
    if weights_path() is None:
        pytest.skip("the extra `local` is not installed")
    await sqlite_room.conversation()
    local = LocalModel()
    agent = assistant(sqlite_room.store, model="local", local=local)
    try:
        outcome, attempt = await talk(sqlite_room, agent, "Say hello to me.")
        assert outcome == Finished()
        answer = (await history(sqlite_room.store))[-1]
        assert answer["role"] == "assistant"
        assert len(answer["content"]) > 3
        assert attempt.live.values["/usage"]["output"] > 0
        assert attempt.live.values["/model"] == LOCAL
    finally:
        await local.aclose()
    assert local.process_id is None
