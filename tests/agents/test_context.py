"""How full the context of the model that really answers is; a limit that nobody told is unknown."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_ollama import ChatOllama
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from dromos.agents.langgraph.local_model import LocalModel, weights_path
from dromos.agents.langgraph.local_model_process import CONTEXT_TOKENS
from dromos.agents.langgraph.model_facts import ModelConfig, ModelFacts, profile_limit
from dromos.agents.langgraph.ollama_context import ollama_context
from dromos.agents.langgraph.scripted.chat_model import ScriptedChatModel
from dromos.ports.agent import Finished
from dromos.testing.local_http import LocalHTTP
from tests.agents.graphs import Watched
from tests.agents.kit import assistant
from tests.agents.test_attempts import talk


class Ollama:
    """As much of an Ollama server as a chat and its facts need; the shapes are those of its documentation."""

    def __init__(self, loaded: int | None = None, num_ctx: int | None = None) -> None:
        self.loaded, self.num_ctx = loaded, num_ctx

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/tags", self.tags),
                Route("/api/ps", self.ps),
                Route("/api/show", self.show, methods=["POST"]),
                Route("/api/chat", self.chat, methods=["POST"]),
            ]
        )

    async def tags(self, request: Request) -> JSONResponse:
        return JSONResponse({"models": [{"name": "qwen3:latest", "model": "qwen3:latest"}]})

    async def ps(self, request: Request) -> JSONResponse:
        entry = {"name": "qwen3:latest", "model": "qwen3:latest", "context_length": self.loaded}
        return JSONResponse({"models": [entry] if self.loaded else []})

    async def show(self, request: Request) -> JSONResponse:
        parameters = "temperature 0.6" + (
            f"\nnum_ctx                        {self.num_ctx}" if self.num_ctx else ""
        )
        return JSONResponse(
            {"parameters": parameters, "model_info": {"qwen3.context_length": 262144}, "details": {}}
        )

    async def chat(self, request: Request) -> StreamingResponse:
        async def lines() -> Any:
            yield b'{"model":"qwen3","message":{"role":"assistant","content":"hi"},"done":false}\n'
            yield (
                b'{"model":"qwen3","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop",'
                b'"prompt_eval_count":90,"eval_count":10}\n'
            )

        return StreamingResponse(lines(), media_type="application/x-ndjson")


@pytest.mark.parametrize(
    ("server", "limit"),
    [(Ollama(loaded=4096, num_ctx=9), 4096), (Ollama(num_ctx=8192), 8192), (Ollama(), None)],
)
async def test_ollama_tells_the_context_it_gives_and_not_what_the_model_was_trained_for(
    sqlite_room, server, limit
):
    await sqlite_room.conversation()
    async with LocalHTTP(server.app()) as http:
        agent = assistant(sqlite_room.store, model="ollama:qwen3", ollama_host=http.url)
        outcome, attempt = await talk(sqlite_room, agent, "hello")

    assert outcome == Finished()
    percent = None if limit is None else round(100 * 100 / limit, 1)
    assert attempt.live.values["/context"] == {"used": 100, "limit": limit, "percent": percent}
    assert attempt.live.fields["cost"]["amount"] is None


async def test_an_ollama_that_does_not_answer_delays_nothing():
    assert await ollama_context("http://127.0.0.1:9", "qwen3") is None


async def test_a_persons_own_ollama_client_tells_its_window(sqlite_room):
    await sqlite_room.conversation()
    async with LocalHTTP(Ollama().app()) as http:
        model = ChatOllama(model="qwen3", base_url=http.url, num_ctx=2000)
        watched = Watched(sqlite_room, create_agent(model, tools=[]))
        assert await watched.run("hello") == Finished()
        await model._async_client._client.aclose()

    assert watched.shown["context"] == {"used": 100, "limit": 2000, "percent": 5.0}
    assert watched.shown["model"] == "ollama:qwen3"


async def test_an_unknown_limit_is_null_and_a_configured_one_counts(sqlite_room):
    await sqlite_room.conversation()
    agent = create_agent(ScriptedChatModel(), tools=[])
    unknown = Watched(sqlite_room, agent)
    known = Watched(sqlite_room, agent, ModelFacts({"scripted": ModelConfig(context_limit=200)}))

    await unknown.run("!say a\n!usage in=90 out=10")
    await known.run("!say a\n!usage in=90 out=10")

    assert unknown.shown["context"] == {"used": 100, "limit": None, "percent": None}
    assert known.shown["context"] == {"used": 100, "limit": 200, "percent": 50.0}


async def test_a_helpers_context_is_not_the_agents(sqlite_room):
    await sqlite_room.conversation()
    from langgraph.graph import START, MessagesState, StateGraph

    inner = create_agent(ScriptedChatModel(), tools=[])
    graph = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner").compile()
    watched = Watched(sqlite_room, graph)
    await watched.run("!say a\n!usage in=90 out=10")

    assert watched.shown["context"]["used"] is None
    assert watched.shown["usage"]["input"] == 90


def test_limits_of_known_models_are_those_of_their_packages():
    """They are read where LangChain's packages keep them today; this says when they move."""
    assert profile_limit("openai", "gpt-5") == 272_000
    assert profile_limit("anthropic", "claude-sonnet-4-5") == 200_000
    assert profile_limit("openai", "nobody") is None
    assert profile_limit("no_such_provider", "gpt-5") is None


@pytest.mark.full
@pytest.mark.slow(90)
async def test_the_small_models_limit_is_the_one_its_engine_runs_with(sqlite_room):
    if weights_path() is None:
        pytest.skip("the extra `local` is not installed")
    await sqlite_room.conversation()
    local = LocalModel()
    try:
        agent = assistant(sqlite_room.store, model="local", local=local)
        outcome, attempt = await talk(sqlite_room, agent, "Say hello.")
        async with httpx.AsyncClient(trust_env=False) as client:
            engine = (await client.get(f"{(await local.start()).removesuffix('/v1')}/props")).json()
    finally:
        await local.aclose()

    assert outcome == Finished()
    context = attempt.live.values["/context"]
    assert context["limit"] == CONTEXT_TOKENS == engine["default_generation_settings"]["n_ctx"]
    usage = attempt.live.values["/usage"]
    assert context["used"] == usage["input"] + usage["output"] > 0
    assert attempt.live.fields["cost"]["amount"] is None
