"""The same key, the same answer: an effect and its stored answer are one transaction.

Called with the conversation locked, so that a concurrent repeat waits for the first one and then finds its row. Only
answers of effects that happened are stored: a refusal rolls everything back. `scope` is what the
route is about and ends with the conversation's id where there is one; it is kept behind the route, because a key is
the client's for that thing only, and is forgotten with the conversation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dromos.domain.errors import IdempotencyKeyReused
from dromos.lifecycle.change import Change
from dromos.lifecycle.contract import Answer, Encode, IdempotencyKey
from dromos.ports.store import Table

T = TypeVar("T")
CONSTRAINT = "pk_idempotency"
"""Two first calls at once where there is nothing to lock: the later one meets this and is made again."""


def scoped(route: str, scope: str | None) -> str:
    return f"{route} {scope}" if scope else route


def answered(
    change: Change,
    user_id: str,
    key: IdempotencyKey | None,
    scope: str | None,
    effect: Callable[[], T],
    encode: Encode,
    *,
    keep: Callable[[T], bool] = lambda value: True,
) -> Answer:
    """The stored answer of `key`, or that of `effect`, stored. Raises `IdempotencyKeyReused` for another body.

    What `keep` refuses is answered and not stored: its effect may happen again.
    """
    if key is None:
        return Answer(*encode(effect()))
    where = {"user_id": user_id, "route": scoped(key.route, scope), "key": key.key}
    row = change.tx.first(Table.IDEMPOTENCY, where)
    if row is not None:
        if row["body_sha256"] != key.body_sha256:
            raise IdempotencyKeyReused(
                "This Idempotency-Key was used for another request; take a new key for a new request."
            )
        return Answer(row["status"], row["answer"], replayed=True)
    value = effect()
    status, body = encode(value)
    if 200 <= status < 300 and keep(value):
        change.tx.put(
            Table.IDEMPOTENCY,
            {
                **where,
                "body_sha256": key.body_sha256,
                "status": status,
                "answer": body,
                "created_at": change.now,
            },
        )
    return Answer(status, body)
