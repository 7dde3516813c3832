"""The gateway and our own tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from dromos.ports.tool import Toolbox, ToolContext, ToolOutcome, ToolSourceHealth, ToolSpec
from dromos.tools.gateway import ToolGateway
from dromos.tools.local import LocalToolbox
from dromos.tools.mcp.configuration import StdioServer
from tests.tools.conftest import Effects, context, toolbox


class FixedClock:
    """A clock that stands still."""

    def now(self) -> datetime:
        return datetime(2026, 7, 1, 12, 0, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0


class OneTool:
    """A toolbox in memory with one tool, which answers with its owner."""

    def __init__(self, owner: str, tool: str) -> None:
        self._owner = owner
        self._tool = tool
        self.closed = False

    async def specs(self) -> Sequence[ToolSpec]:
        return [ToolSpec(self._tool, "", {"type": "object"}, self._owner)]

    async def find(self, name: str) -> ToolSpec | None:
        return next((spec for spec in await self.specs() if spec.name == name), None)

    async def call(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return ToolOutcome(f"{self._owner} answers {name}")

    async def health(self) -> Sequence[ToolSourceHealth]:
        return [ToolSourceHealth(self._owner, True, "", 1)]

    async def aclose(self) -> None:
        self.closed = True


async def test_each_call_goes_to_the_toolbox_that_listed_the_tool(
    stdio: StdioServer, effects: Effects
) -> None:
    async with toolbox(stdio) as mcp:
        gateway = ToolGateway(LocalToolbox(FixedClock()), mcp)
        names = {spec.name for spec in await gateway.specs()}
        assert {"current_time", "ct__count"} <= names
        for name in ("current_time", "ct__count"):
            found = await gateway.find(name)
            assert found is not None and found.name == name
        assert await gateway.find("ct__nothing") is None and await gateway.find("nowhere") is None
        assert (await gateway.call("current_time", {}, context())).text.startswith("2026-07-01T12:00:00")
        assert (await gateway.call("ct__count", {"label": "a"}, context())).text == "counted a"
        assert len(effects.counted()) == 1


async def test_a_call_works_before_anything_was_listed() -> None:
    gateway = ToolGateway(OneTool("one", "a"), OneTool("two", "b"))
    assert (await gateway.call("a", {}, context())).text == "one answers a"


async def test_of_two_tools_with_one_name_the_first_is_listed_and_called() -> None:
    gateway = ToolGateway(OneTool("one", "a"), OneTool("two", "a"))
    assert [spec.source for spec in await gateway.specs()] == ["one"]
    assert (await gateway.call("a", {}, context())).text == "one answers a"


async def test_a_name_nobody_lists_is_answered_by_the_last() -> None:
    gateway = ToolGateway(OneTool("one", "a"), OneTool("two", "b"))
    assert (await gateway.call("c", {}, context())).text == "two answers c"


async def test_health_and_closing_reach_every_toolbox() -> None:
    boxes = OneTool("one", "a"), OneTool("two", "b")
    gateway: Toolbox = ToolGateway(*boxes)
    assert [state.name for state in await gateway.health()] == ["one", "two"]
    await gateway.aclose()
    assert all(box.closed for box in boxes)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "2026-07-01T12:00:00+00:00 (Wednesday, UTC)"),
        ({"time_zone": "Europe/Lisbon"}, "2026-07-01T13:00:00+01:00 (Wednesday, Europe/Lisbon)"),
    ],
)
async def test_the_current_time_comes_from_the_clock(arguments: dict[str, Any], text: str) -> None:
    assert await LocalToolbox(FixedClock()).call("current_time", arguments, context()) == ToolOutcome(text)


@pytest.mark.parametrize("zone", ["Mars/Base", "../etc/passwd", 7, "/", "Europe"])
async def test_a_time_zone_that_does_not_exist_is_an_error_with_the_cure(zone: Any) -> None:
    outcome = await LocalToolbox(FixedClock()).call("current_time", {"time_zone": zone}, context())
    assert outcome.is_error
    assert "use an IANA name" in outcome.text


async def test_a_tool_we_do_not_have_is_an_error_result() -> None:
    assert (await LocalToolbox(FixedClock()).call("other", {}, context())).is_error
