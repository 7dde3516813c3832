"""What an attempt has under way that must not be cut in half; see `ports.journal.InFlight`. It knows no tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dromos.ports.tool import Carrying


@dataclass(frozen=True, slots=True, eq=False)
class UnderWay:
    """One call that is under way, by the name of its tool."""

    tool: str


class CallsInFlight:
    """`changed` hears of each that begins or ends."""

    def __init__(self, changed: Callable[[], None] | None = None) -> None:
        self.changed = changed
        self._calls: dict[Carrying, UnderWay] = {}
        self._none = asyncio.Event()
        self._none.set()

    @property
    def tools(self) -> list[str]:
        return [one.tool for one in self._calls.values()]

    @property
    def longest(self) -> UnderWay | None:
        """The one that is longest at work."""
        return next(iter(self._calls.values()), None)

    def add(self, carrying: Carrying, tool: str) -> None:
        self._calls[carrying] = UnderWay(tool)
        self._none.clear()
        carrying.add_done_callback(self._over)
        self._tell()

    async def over(self) -> None:
        try:
            await self._none.wait()
        except asyncio.CancelledError:
            for carrying in self._calls:
                carrying.cancel()
            raise

    def _over(self, carrying: Carrying) -> None:
        del self._calls[carrying]
        if not self._calls:
            self._none.set()
        self._tell()

    def _tell(self) -> None:
        if self.changed is not None:
            self.changed()
