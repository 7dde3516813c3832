"""The numbers of a conversation's messages, handed out under its row's lock. Knows no message."""

from __future__ import annotations

from typing import Any

from dromos.ports.store import Table, Tx


class Numbers:
    """Hands out `messages.num` of one conversation inside one transaction; locks its row at the first use."""

    def __init__(self, tx: Tx, conversation_id: str) -> None:
        self._tx = tx
        self._where = {"id": conversation_id}
        self._next: int | None = None

    def take(self) -> int:
        if self._next is None:
            row = self._tx.lock(Table.CONVERSATIONS, self._where)
            if row is None:
                raise LookupError("the conversation of this thread is gone")
            self._next = row["next_num"]
        number: int = self._next
        self._next += 1
        return number

    def save(self, **values: Any) -> None:
        """Store where the numbers stand, with other columns, if any was taken."""
        if self._next is not None:
            self._tx.set(Table.CONVERSATIONS, self._where, {"next_num": self._next, **values})
