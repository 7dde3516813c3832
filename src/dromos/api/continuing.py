"""Whether a conversation can be continued: what its agent's thread has left to do, asked for every protocol alike."""

from __future__ import annotations

from dromos.api.door import Door
from dromos.domain.errors import Fault, Invalid, Unavailable
from dromos.lifecycle.contract import ConversationView


async def resumable(door: Door, view: ConversationView) -> bool:
    """True where Continue would start a run now.

    An agent that cannot look at its thread now (its graph cannot be loaded) is no reason to keep the history from the
    person; Continue itself tells what is wrong with it.
    """
    way = view.continuation
    if way is None or not way.needs_pending:
        return way is not None
    try:
        return await _pending(door, view)
    except Unavailable:
        return False


async def something_pending(door: Door, user_id: str, conversation_id: str) -> bool:
    """True where the thread has a step left. Raises `NotFound` for what is not the person's."""
    view = await door.lifecycle.conversation(user_id, conversation_id, 1)
    return view.continuation is not None and view.continuation.needs_pending and await _pending(door, view)


async def _pending(door: Door, view: ConversationView) -> bool:
    """An agent that is gone has nothing to go on with."""
    name = view.last_run.agent if view.last_run is not None else view.conversation["agent"]
    agent = door.deps.agents.get(name)
    return agent is not None and bool(await agent.pending(view.conversation["id"]))


def known_agent(door: Door, name: str | None, path: str) -> str | None:
    """The name, if there is such an agent. Raises `Invalid` with the names there are."""
    if name is not None and door.deps.agents.get(name) is None:
        names = ", ".join(sorted(info.name for info in door.deps.agents.infos())) or "none"
        raise Invalid(
            f"There is no agent `{name}`. The agents are: {names}.",
            faults=[Fault("unknown_agent", path, f"the agents are: {names}")],
        )
    return name
