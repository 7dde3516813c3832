"""The one way to call a tool: several toolboxes as one, each call routed by the tool's name.

What a call must pass on its way (recorded outcome, policy, approval, intent, settling) belongs here and
nowhere else. It must not know where a toolbox's tools live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from dromos.ports.tool import Toolbox, ToolContext, ToolOutcome, ToolSourceHealth, ToolSpec


class ToolGateway:
    """A `Toolbox` of toolboxes. Where two have a tool of one name, the first one's is listed and called.

    A name that nobody lists goes to the last one, whose answer says what is wrong with it.
    """

    def __init__(self, first: Toolbox, *others: Toolbox) -> None:
        self._toolboxes = (first, *others)
        self._routes: dict[str, Toolbox] = {}

    async def specs(self) -> Sequence[ToolSpec]:
        """All tools that can be listed now."""
        listings = await asyncio.gather(*(toolbox.specs() for toolbox in self._toolboxes))
        specs: dict[str, ToolSpec] = {}
        for toolbox, listing in zip(self._toolboxes, listings, strict=True):
            for spec in listing:
                if spec.name not in specs:
                    specs[spec.name] = spec
                    self._routes[spec.name] = toolbox
        return tuple(specs.values())

    async def find(self, name: str) -> ToolSpec | None:
        """From the toolbox that listed it; where none did, from the first that has it."""
        if name in self._routes:
            return await self._routes[name].find(name)
        for toolbox in self._toolboxes:
            spec = await toolbox.find(name)
            if spec is not None:
                return spec
        return None

    async def call(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """One call; every failure is an outcome."""
        if name not in self._routes:
            await self.specs()
        toolbox = self._routes.get(name, self._toolboxes[-1])
        return await toolbox.call(name, arguments, context)

    async def health(self) -> Sequence[ToolSourceHealth]:
        """The state of every source of every toolbox."""
        states = await asyncio.gather(*(toolbox.health() for toolbox in self._toolboxes))
        return [state for listing in states for state in listing]

    async def aclose(self) -> None:
        """Close all toolboxes."""
        await asyncio.gather(*(toolbox.aclose() for toolbox in self._toolboxes))
