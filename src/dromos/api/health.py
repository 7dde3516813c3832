"""Readiness, the same for every protocol: the store can be used, the schema fits, there is an agent."""

from __future__ import annotations

from starlette.responses import Response

from dromos.api import problems
from dromos.api.door import Door
from dromos.domain.errors import Unavailable


async def not_ready(door: Door) -> Response | None:
    """The 503 that says what is missing and the cure; None where the server is ready."""
    try:
        if door.deps.closing.is_set():
            raise Unavailable("The server is shutting down. Ask again when it is back.")
        await door.deps.check()
        if not door.deps.agents.infos():
            raise Unavailable(
                "No agent is configured. Name one in dromos.toml, or use the built-in `assistant`."
            )
    except Unavailable as error:
        return problems.answer(problems.refused(error), {"Retry-After": "3"})
    return None
