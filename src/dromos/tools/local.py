"""Tools of our own that need no server: functions of the process, answered at once.

It must not know runs or agents; time comes from the clock it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dromos.ports.clock import Clock
from dromos.ports.tool import ToolAnnotations, ToolContext, ToolOutcome, ToolSourceHealth, ToolSpec

SOURCE = "local"

CURRENT_TIME = ToolSpec(
    name="current_time",
    description="The current date and time. Takes a time zone by its IANA name; UTC without one.",
    input_schema={
        "type": "object",
        "properties": {
            "time_zone": {"type": "string", "description": "IANA name, for example Europe/Lisbon"}
        },
        "additionalProperties": False,
    },
    source=SOURCE,
    annotations=ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False),
)


class LocalToolbox:
    """The built-in assistant's own tools."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def specs(self) -> Sequence[ToolSpec]:
        """Always the same list."""
        return (CURRENT_TIME,)

    async def find(self, name: str) -> ToolSpec | None:
        return CURRENT_TIME if name == CURRENT_TIME.name else None

    async def call(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """One call; every failure is an outcome."""
        if name != CURRENT_TIME.name:
            return ToolOutcome(f"There is no tool named '{name}'.", is_error=True)
        context.sent()
        return self._current_time(arguments.get("time_zone") or "UTC")

    async def health(self) -> Sequence[ToolSourceHealth]:
        """Always well."""
        return (ToolSourceHealth(SOURCE, True, "built in", 1),)

    async def aclose(self) -> None:
        """Nothing to close."""

    def _current_time(self, time_zone: Any) -> ToolOutcome:
        try:
            zone = ZoneInfo(time_zone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            cure = "use an IANA name such as Europe/Lisbon, or leave it out for UTC"
            return ToolOutcome(f"There is no time zone {time_zone!r}; {cure}.", is_error=True)
        now = self._clock.now().astimezone(zone)
        return ToolOutcome(f"{now.isoformat(timespec='seconds')} ({now:%A}, {time_zone})")
