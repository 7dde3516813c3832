"""LangGraph's own conformance suite, on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

from dromos.agents.langgraph.checkpointer import Checkpointer


@pytest.mark.slow(60)
async def test_the_checkpointer_passes_the_whole_conformance_suite(room):
    await room.conversation()

    @checkpointer_test(name="dromos")
    async def saver() -> AsyncIterator[Checkpointer]:
        _, recorder = await room.run()
        yield Checkpointer(recorder)

    report = await validate(saver)
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert failures == {}
    assert report.passed_all()
    assert {name for name, result in report.results.items() if not result.detected} == set()
