"""Rows and runs for tests: the fewest values that the tables take. The time is fixed, so that nothing depends on it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dromos.domain.events import EventDraft, EventType
from dromos.domain.runs import Run
from dromos.ports.store import Row, Store, Table

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def user(user_id: str = "ada", **more: Any) -> Row:
    return {"id": user_id, "name": user_id.title(), "created_at": NOON, **more}


def conversation(conversation_id: str = "c1", **more: Any) -> Row:
    return {
        "id": conversation_id,
        "user_id": "ada",
        "title": "A title",
        "agent": "assistant",
        "created_at": NOON,
        "updated_at": NOON,
        **more,
    }


def message(conversation_id: str, num: int, **more: Any) -> Row:
    return {
        "conversation_id": conversation_id,
        "num": num,
        "id": f"m{num}",
        "position": num,
        "role": "user",
        "kind": "text",
        "content": f"message {num}",
        "created_at": NOON,
        **more,
    }


def checkpoint(thread_id: str, checkpoint_id: str, **more: Any) -> Row:
    return {
        "thread_id": thread_id,
        "checkpoint_ns": "",
        "checkpoint_id": checkpoint_id,
        "type": "msgpack",
        "checkpoint": b"\x00\xff binary",
        "metadata": {},
        "created_at": NOON,
        **more,
    }


def lease(owner_id: str, **more: Any) -> Row:
    return {
        "owner_id": owner_id,
        "kind": "worker",
        "host": "here",
        "pid": 1,
        "started_at": NOON,
        "renewed_at": NOON,
        "lease_until": None,
        **more,
    }


def attempt_of(run_id: str, attempt: int, owner_id: str) -> Row:
    return {
        "run_id": run_id,
        "attempt": attempt,
        "conversation_id": f"c of {run_id}",
        "owner_id": owner_id,
        "epoch": attempt,
        "started_at": NOON,
    }


def run(run_id: str = "r1", conversation_id: str = "c1", **more: Any) -> Run:
    values: dict[str, Any] = {"user_id": "ada", "agent": "assistant", "created_at": NOON, **more}
    return Run(id=run_id, conversation_id=conversation_id, **values)


def event(text: str = "", conversation_id: str = "c1") -> EventDraft:
    return EventDraft(EventType.CONVERSATION_CHANGED, conversation_id, {"text": text})


async def put(store: Store, table: Table, *rows: Row) -> None:
    """Put rows in one operation."""
    await store.write(lambda tx: tx.put_many(table, rows))


async def a_user_with(store: Store, *conversations: str) -> None:
    """The user `ada`, and conversations of hers."""
    await put(store, Table.USERS, user())
    await put(store, Table.CONVERSATIONS, *(conversation(name) for name in conversations))
