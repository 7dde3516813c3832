"""What a device draws its lists from: live runs with their owners, and everything a device needs after an absence.

Each function is one consistent snapshot of one person's things. It knows nothing of the device: how much it reads
does not depend on how long somebody was away, nor on how much happened meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dromos.domain.statuses import LIVE
from dromos.lifecycle import read
from dromos.lifecycle.contract import Policy
from dromos.lifecycle.owners import owners_json
from dromos.ports.store import Gt, In, ReadTx, Table
from dromos.wire.shapes import request_json, run_json

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """The first `items` of a list, ready to be sent; `next_cursor` as the list's own route takes it."""

    items: list[Json]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that stands beside the open conversation. Events behind `seq` go on from exactly here.

    `also` are the conversations of the runs and requests that the page of conversations does not hold. `unseen` counts
    the conversations in which a question was put or a run ended that no device has shown yet.
    """

    seq: int
    conversations: Page
    also: list[Json]
    unseen: int
    runs: Page
    requests: Page


def overview(tx: ReadTx, user_id: str, limit: int, policy: Policy) -> Overview:
    """The newest `limit` conversations, the newest `limit` live runs, the oldest `limit` open questions."""
    conversations = Page(*read.conversations(tx, user_id, limit, None))
    runs = Page(*listed_runs(tx, user_id, tuple(LIVE), None, limit, None, policy))
    asked, more = read.requests(tx, user_id, limit, None)
    requests = Page([request_json(row) for row in asked], more)
    named = {item["conversation_id"] for part in (runs, requests) for item in part.items}
    beside = sorted(named - {item["id"] for item in conversations.items})
    rows = tx.find(Table.CONVERSATIONS, {"id": In(beside), "state": "open"}) if beside else []
    user = tx.first(Table.USERS, {"id": user_id})
    return Overview(
        seq=user["last_seq"] if user else 0,
        conversations=conversations,
        also=read.conversation_lines(tx, user_id, rows) if rows else [],
        unseen=tx.count(Table.CONVERSATIONS, {"user_id": user_id, "state": "open", "unseen_seq": Gt(0)}),
        runs=runs,
        requests=requests,
    )


def listed_runs(
    tx: ReadTx,
    user_id: str,
    statuses: Sequence[str],
    conversation_id: str | None,
    limit: int,
    cursor: str | None,
    policy: Policy,
) -> tuple[list[Json], str | None]:
    """A page of runs as the list shows them: `owner` says who has the run now and when that one was last seen."""
    runs, more = read.runs(tx, user_id, statuses, conversation_id, limit, cursor)
    owners = owners_json(tx, policy, runs)
    return [run_json(run) | {"owner": owners.get(run.id)} for run in runs], more
