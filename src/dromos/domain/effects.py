"""Outside effects: how a tool may be repeated, and the key under which one call is known for ever."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Any

NO_RESULT = "no result was reported: this call may have happened"
"""The history's result of a call whose owner went on, or vanished, without telling one."""


class ReplayClass(StrEnum):
    """`read`: call again. `keyed`: call again with the same key. `unsafe`: never again without a person's word."""

    READ = "read"
    KEYED = "keyed"
    UNSAFE = "unsafe"


def replay_class(read_only: bool | None, idempotent: bool | None, *, trusted: bool) -> ReplayClass:
    """The class of a tool by its annotations, which count only where configuration trusts the server."""
    if trusted and read_only:
        return ReplayClass.READ
    if trusted and idempotent:
        return ReplayClass.KEYED
    return ReplayClass.UNSAFE


def call_key(thread_id: str, message_id: str, position: int) -> str:
    """The idempotency key of the `position`-th call of a stored assistant message: the same across replays."""
    return _digest(f"{thread_id}\n{message_id}\n{position}")


def task_call_key(thread_id: str, task_id: str, ordinal: int = 0) -> str:
    """The key of a call that stands in no assistant message: by the engine's task, which is stable over replays."""
    return _digest(f"{thread_id}\ntask:{task_id}\n{ordinal}")


def arguments_digest(arguments: Any) -> str:
    """SHA-256 of the arguments in canonical JSON (keys sorted), hex."""
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return _digest(canonical)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
