"""The input of a run as its first checkpoint holds it: messages that are rows already are named, not copied.

Between the input and the first step LangGraph keeps the raw input in the channel `__start__`. The messages in it are
the person's, results and interrupted text, all of them rows of `messages`; so only their ids are stored there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ormsgpack

from dromos.ports.store import In, ReadTx, Row, Table

START_CHANNEL = "__start__"
TYPE = "input"
"""Type of such a value; its bytes are the input without the contents of its messages."""


def message_ids(value: Any) -> list[str]:
    """Ids of the messages in a chat input; [] where it is something else."""
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return []
    messages = value["messages"]
    if not all(isinstance(m, dict) and isinstance(m.get("id"), str) and "content" in m for m in messages):
        return []
    return [message["id"] for message in messages]


def refer(value: dict[str, Any], rows: Mapping[str, Row]) -> tuple[str, bytes] | None:
    """The stored form, if every message is a row with this very content."""
    bare = []
    for message in value["messages"]:
        row = rows.get(message["id"])
        if row is None or row["content"] != message["content"]:
            return None
        bare.append({name: part for name, part in message.items() if name != "content"})
    try:
        return TYPE, ormsgpack.packb({**value, "messages": bare})
    except TypeError:
        return None


def referred_ids(data: bytes) -> list[str]:
    """Ids that a stored form needs."""
    return [message["id"] for message in ormsgpack.unpackb(data)["messages"]]


def restore(data: bytes, rows: Mapping[str, Row]) -> dict[str, Any]:
    """The input again. Raises `KeyError` where a message is gone."""
    value: dict[str, Any] = ormsgpack.unpackb(data)
    for message in value["messages"]:
        message["content"] = rows[message["id"]]["content"]
    return value


def rows_by_id(
    tx: ReadTx, thread_id: str, ids: list[str], columns: Sequence[str] = ("id", "content")
) -> dict[str, Row]:
    """The first row of each id."""
    where = {"conversation_id": thread_id, "id": In(ids)}
    found = tx.find(Table.MESSAGES, where, order=("-num",), columns=columns)
    return {row["id"]: row for row in found}
