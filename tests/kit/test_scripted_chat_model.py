"""The scripted model as a LangChain model, in the agent loop it is made for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage

from dromos.agents.langgraph.scripted.chat_model import ScriptedChatModel
from dromos.agents.langgraph.scripted.engine import FailureCounts, ScriptedHTTPError, ScriptedStreamError
from dromos.testing.waiting import within


def model() -> ScriptedChatModel:
    return ScriptedChatModel(counts=FailureCounts())


async def test_an_agent_runs_parallel_calls_and_the_script_goes_on_after_their_results() -> None:
    both_running = asyncio.Barrier(2)

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        await within(5, both_running.wait(), "the parallel call")
        return a + b

    agent: Any = create_agent(model(), [add])
    script = '!say adding\n!call add {"a": 1, "b": 2}\n!call add {"a": 3, "b": 4}\n!say added'
    result = await agent.ainvoke({"messages": [("user", script)]})

    _, asked, *results, last = result["messages"]
    assert asked.text == "adding"
    assert [call["args"] for call in asked.tool_calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert [(r.tool_call_id, r.content) for r in results if isinstance(r, ToolMessage)] == [
        ("call_1", "3"),
        ("call_2", "7"),
    ]
    assert last.text == "added"


async def test_a_stream_has_a_chunk_a_word_and_usage_and_stop_marker_on_the_last() -> None:
    chunks = [chunk async for chunk in model().astream("!say one two\n!usage in=9 out=4 cached=3")]
    assert [chunk.text for chunk in chunks] == ["one", " two", ""]
    last = chunks[-1]
    assert isinstance(last, AIMessageChunk)
    assert last.chunk_position == "last"
    assert last.response_metadata == {"finish_reason": "stop", "model_name": "scripted"}
    assert last.usage_metadata == {
        "input_tokens": 9,
        "output_tokens": 4,
        "total_tokens": 13,
        "input_token_details": {"cache_read": 3},
        "output_token_details": {"reasoning": 0},
    }


async def test_invoking_gives_the_whole_message() -> None:
    message = await model().ainvoke('!say calling\n!call look {"at": "it"}')
    assert isinstance(message, AIMessage)
    assert message.text == "calling"
    assert message.tool_calls == [{"name": "look", "args": {"at": "it"}, "id": "call_1", "type": "tool_call"}]


def test_invoking_works_without_an_event_loop() -> None:
    assert model().invoke("hello").text == "hello"


async def test_an_error_carries_status_and_retry_after_as_real_clients_do() -> None:
    with pytest.raises(ScriptedHTTPError) as failure:
        await model().ainvoke("!error 429 retry-after=2")
    assert failure.value.status_code == 429
    assert failure.value.response.status_code == 429
    assert failure.value.response.headers["retry-after"] == "2"


async def test_a_break_raises_after_the_text_that_was_streamed() -> None:
    chunks = model().astream("!say half an\n!break")
    assert [(await anext(chunks)).text for _ in range(2)] == ["half", " an"]
    with pytest.raises(ScriptedStreamError):
        await anext(chunks)


async def test_a_model_built_anew_goes_on_counting_failures_of_this_process() -> None:
    script = "!error 500 x1\n!say counted for the process"
    with pytest.raises(ScriptedHTTPError):
        await ScriptedChatModel().ainvoke(script)
    assert (await ScriptedChatModel().ainvoke(script)).text == "counted for the process"


@pytest.mark.parametrize("script", ["!silent 60", "!tokens 1000 1"])
async def test_a_model_call_is_cancelled_at_once(script: str) -> None:
    streaming = asyncio.Event()

    async def listen() -> None:
        async for _ in model().astream(f"!say begun\n{script}"):
            streaming.set()

    listening = asyncio.create_task(listen())
    await within(5, streaming.wait(), "the first chunk")
    listening.cancel()
    done, _ = await asyncio.wait({listening}, timeout=1)
    assert done
    assert listening.cancelled()


async def test_tokens_come_at_their_rate() -> None:
    clock = asyncio.get_running_loop()
    begun = clock.time()
    chunks = [chunk async for chunk in model().astream("!tokens 11 50")]
    assert clock.time() - begun >= 0.2
    assert len(chunks) == 12
