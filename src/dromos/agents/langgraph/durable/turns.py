"""Ids of a model's message and of its calls, made its own before they are stored. Pure.

Some model servers give every message one id, or count calls anew in each. Keys of calls are made of these ids, so
what the thread has already is replaced. It must not know tools.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage


def put_in_order(message: AIMessage, history: Sequence[BaseMessage]) -> None:
    """The message loses an id that the history has (the state gives it a new one); calls without an id of their own
    are given one."""
    if message.id is not None and any(message.id == earlier.id for earlier in history):
        message.id = None
    taken = {
        call["id"] for earlier in history if isinstance(earlier, AIMessage) for call in earlier.tool_calls
    }
    last = history[-1].id if history else None
    for position, call in enumerate(message.tool_calls):
        if not call["id"] or call["id"] in taken:
            name = f"{last}\n{len(history)}\n{position}\n{call['id']}"
            call["id"] = f"call_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:24]}"
        taken.add(call["id"])
