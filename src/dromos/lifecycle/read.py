"""The read side: each function is one consistent snapshot, and sees only what belongs to the person who asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from dromos.domain.errors import Invalid
from dromos.domain.runs import Fence, Run
from dromos.domain.statuses import LIVE, OWNED, OwnerKind, RequestStatus, RunStatus
from dromos.lifecycle.contract import ConversationView, EventPage, Figures, Policy
from dromos.lifecycle.delete import ERASED
from dromos.lifecycle.owners import is_valid, owners_json
from dromos.lifecycle.resume import continuation
from dromos.lifecycle.scope import no_such, own_conversation, own_run
from dromos.lifecycle.waiting import open_followups
from dromos.lifecycle.waiting import open_requests as requests_of
from dromos.ports.store import Gt, In, Lt, Ne, ReadTx, Row, Table
from dromos.wire.shapes import (
    conversation_json,
    followup_json,
    request_json,
    run_json,
    server_part,
)

T = TypeVar("T")
_SHOWN = {"hidden": False, "ns": "", "pending_of": None, "role": Ne("system")}


def conversation(tx: ReadTx, user_id: str, conversation_id: str, limit: int) -> ConversationView:
    row = own_conversation(tx, user_id, conversation_id)
    last = tx.load_run(row["last_run_id"]) if row["last_run_id"] else None
    page, before = _messages(tx, conversation_id, None, limit)
    live = [last] if last is not None and not last.is_final else []
    user = tx.first(Table.USERS, {"id": user_id})
    return ConversationView(
        conversation=row,
        last_run=last,
        messages=page,
        runs=live,
        requests=requests_of(tx, live[0].id) if live else [],
        followups=open_followups(tx, conversation_id),
        seq=user["last_seq"] if user else 0,
        continuation=continuation(tx, last),
        before=before,
    )


def messages(
    tx: ReadTx, user_id: str, conversation_id: str, before: str | None, limit: int
) -> tuple[list[Row], str | None]:
    own_conversation(tx, user_id, conversation_id)
    return _messages(tx, conversation_id, before, limit)


def _messages(
    tx: ReadTx, conversation_id: str, before: str | None, limit: int
) -> tuple[list[Row], str | None]:
    """The newest `limit` messages before the one with id `before`, oldest first, and the cursor of the next page."""
    where: dict[str, Any] = {"conversation_id": conversation_id, **_SHOWN}
    if before is not None:
        mark = tx.first(Table.MESSAGES, {"conversation_id": conversation_id, "id": before, "hidden": False})
        if mark is None:
            raise Invalid(
                "`before` names no message of this conversation; leave it out to start at the newest."
            )
        where["position"] = Lt(mark["position"])
    rows = tx.find(Table.MESSAGES, where, order=("-position", "-num"), limit=limit + 1)
    page = rows[:limit][::-1]
    return page, page[0]["id"] if len(rows) > limit else None


def conversations(
    tx: ReadTx, user_id: str, limit: int, cursor: str | None, *, unseen: bool = False
) -> tuple[list[dict[str, Any]], str | None]:
    """Newest change first. `unseen`: only what calls a person."""

    def find(where: Mapping[str, Any], most: int) -> list[Row]:
        return tx.find(Table.CONVERSATIONS, where, order=("-updated_at", "-id"), limit=most)

    mine: dict[str, Any] = {"user_id": user_id, "state": "open"}
    if unseen:
        mine["unseen_seq"] = Gt(0)
    if cursor is None:
        rows = find(mine, limit + 1)
    else:
        mark = tx.first(Table.CONVERSATIONS, {"user_id": user_id, "id": cursor})
        if mark is None:
            raise Invalid("This cursor names nothing of yours; leave it out to start at the newest.")
        rows = _behind(find, mine, "updated_at", mark["updated_at"], cursor, limit + 1)
    page = rows[:limit]
    return conversation_lines(tx, user_id, page), page[-1]["id"] if len(rows) > limit else None


def conversation_lines(tx: ReadTx, user_id: str, page: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows of conversations as the list shows them; their runs and questions are looked up together."""
    last_ids = [row["last_run_id"] for row in page if row["last_run_id"]]
    runs = {run.id: run for run in tx.find_runs({"id": In(last_ids)})} if last_ids else {}
    asked: dict[str, int] = {}
    for request in tx.find(
        Table.REQUESTS, {"user_id": user_id, "status": "open"}, columns=("conversation_id",)
    ):
        asked[request["conversation_id"]] = asked.get(request["conversation_id"], 0) + 1
    items = []
    for row in page:
        run = runs.get(row["last_run_id"])
        item = conversation_json(row, run.status if run else "idle")
        item["line"] = run.line if run else None
        item["open_requests"] = asked.get(row["id"], 0)
        items.append(item)
    return items


def _behind(
    find: Callable[[Mapping[str, Any], int], list[T]],
    where: Mapping[str, Any],
    time: str,
    mark: Any,
    cursor: str,
    most: int,
) -> list[T]:
    """Up to `most` of what `find` gives, newest `time` first, behind the one with id `cursor` and time `mark`."""
    found = find({**where, time: mark, "id": Lt(cursor)}, most)
    if len(found) < most:
        found += find({**where, time: Lt(mark)}, most - len(found))
    return found


def _being_deleted(tx: ReadTx, user_id: str) -> set[str]:
    rows = tx.find(Table.CONVERSATIONS, {"user_id": user_id, "state": "deleting"}, columns=("id",))
    return {row["id"] for row in rows}


def runs(
    tx: ReadTx,
    user_id: str,
    statuses: Sequence[str],
    conversation_id: str | None,
    limit: int,
    cursor: str | None,
) -> tuple[list[Run], str | None]:
    """Newest first; runs of conversations that are being deleted are left out."""

    def find(where: Mapping[str, Any], most: int) -> list[Run]:
        return tx.find_runs(where, order=("-created_at", "-id"), limit=most)

    where: dict[str, Any] = {"user_id": user_id}
    if statuses:
        where["status"] = In(list(statuses))
    if conversation_id is not None:
        own_conversation(tx, user_id, conversation_id)
        where["conversation_id"] = conversation_id
    if cursor is None:
        found = find(where, limit + 1)
    else:
        mark = tx.load_run(cursor)
        if mark is None or mark.user_id != user_id:
            raise Invalid("This cursor names none of your runs; leave it out to start at the newest.")
        found = _behind(find, where, "created_at", mark.created_at, cursor, limit + 1)
    page = found[:limit]
    gone = _being_deleted(tx, user_id)
    next_cursor = page[-1].id if len(found) > limit else None
    return [run for run in page if run.conversation_id not in gone], next_cursor


def run_steps(tx: ReadTx, user_id: str, run_id: str) -> list[Row]:
    own_run(tx, user_id, run_id)
    return tx.find(Table.RUN_STEPS, {"run_id": run_id}, order=("num", "id"))


def run_attempts(tx: ReadTx, user_id: str, run_id: str) -> list[Row]:
    own_run(tx, user_id, run_id)
    return tx.find(Table.RUN_ATTEMPTS, {"run_id": run_id}, order=("attempt",))


def run_events(tx: ReadTx, user_id: str, run_id: str) -> list[Row]:
    own_run(tx, user_id, run_id)
    return tx.find(Table.EVENTS, {"run_id": run_id, "user_id": user_id}, order=("seq",))


def document(tx: ReadTx, user_id: str, run_id: str, policy: Policy) -> tuple[Run, dict[str, Any], Row | None]:
    run = own_run(tx, user_id, run_id)
    return run, server_part_of(tx, run, policy), tx.first(Table.RUN_DOCUMENTS, {"run_id": run_id})


def server_part_of(tx: ReadTx, run: Run, policy: Policy) -> dict[str, Any]:
    """The server part of the run's document, composed from its rows."""
    requests = [request_json(row) for row in requests_of(tx, run.id)]
    followups = [followup_json(row) for row in open_followups(tx, run.conversation_id)]
    return server_part(run_json(run), requests, followups, owners_json(tx, policy, [run]).get(run.id))


def events_after(tx: ReadTx, user_id: str, cursor: int | None, limit: int) -> EventPage:
    """Events behind `cursor`, in order. None starts at the head. Raises `Invalid` beyond the head."""
    user = tx.first(Table.USERS, {"id": user_id}) or {"first_seq": 1, "last_seq": 0}
    first, head = user["first_seq"], user["last_seq"]
    if cursor is None:
        return EventPage([], head, first)
    if cursor > head or cursor < 0:
        raise Invalid(f"Event {cursor} does not exist; the newest is {head}. Connect without a cursor.")
    if cursor < first - 1:
        return EventPage([], head, first, reset=True)
    where = {"user_id": user_id, "seq": Gt(cursor), "type": Ne(ERASED)}
    return EventPage(tx.find(Table.EVENTS, where, order=("seq",), limit=limit), head, first)


def followup(tx: ReadTx, user_id: str, followup_id: str) -> tuple[Row, list[Row]]:
    """The follow-up and the revisions of its text, oldest first."""
    row = _own_row(tx, user_id, tx.first(Table.RUN_FOLLOWUPS, {"id": followup_id}), "follow-up")
    return row, tx.find(Table.MESSAGE_REVISIONS, {"followup_id": followup_id}, order=("num",))


def request(tx: ReadTx, user_id: str, request_id: str) -> Row:
    row = tx.first(Table.REQUESTS, {"id": request_id})
    return _own_row(tx, user_id, row, "question")


def requests(tx: ReadTx, user_id: str, limit: int, cursor: str | None) -> tuple[list[Row], str | None]:
    """The person's open questions over all conversations, oldest first."""
    where: dict[str, Any] = {"user_id": user_id, "status": RequestStatus.OPEN.value}
    if cursor is None:
        found = tx.find(Table.REQUESTS, where, order=("opened_at", "id"), limit=limit + 1)
    else:
        mark = tx.first(Table.REQUESTS, {"user_id": user_id, "id": cursor})
        if mark is None:
            raise Invalid("This cursor names none of your questions; leave it out to start at the oldest.")
        alike = {**where, "opened_at": mark["opened_at"], "id": Gt(cursor)}
        found = tx.find(Table.REQUESTS, alike, order=("id",), limit=limit + 1)
        later = {**where, "opened_at": Gt(mark["opened_at"])}
        found += tx.find(Table.REQUESTS, later, order=("opened_at", "id"), limit=limit + 1)
    return found[:limit], found[limit - 1]["id"] if len(found) > limit else None


def _own_row(tx: ReadTx, user_id: str, row: Row | None, thing: str) -> Row:
    if row is None or row["user_id"] != user_id:
        raise no_such(thing)
    conversation = tx.first(Table.CONVERSATIONS, {"id": row["conversation_id"]})
    if conversation is None or conversation["state"] != "open":
        raise no_such(thing)
    return row


def owners(tx: ReadTx) -> list[Row]:
    """Leases that are valid now, by the database's clock, oldest incarnation first."""
    now = tx.now()
    rows = tx.find(Table.LEASES, {}, order=("started_at", "owner_id"))
    return [row for row in rows if is_valid(row, now)]


def status_under(tx: ReadTx, fence: Fence) -> RunStatus | None:
    """The run's status while `fence` holds; None once it does not."""
    rows = tx.find(Table.RUNS, {"id": fence.run_id}, columns=("status", "epoch"))
    return RunStatus(rows[0]["status"]) if rows and rows[0]["epoch"] == fence.epoch else None


def tries_under(tx: ReadTx, fence: Fence) -> Mapping[str, int]:
    run = tx.load_run(fence.run_id)
    return {} if run is None or run.epoch != fence.epoch else run.tries


def owned_by(tx: ReadTx, owner_id: str) -> dict[Fence, RunStatus]:
    """What the rows call this worker's work."""
    where = {"owner_id": owner_id, "owner_kind": OwnerKind.WORKER.value, "status": In(tuple(OWNED))}
    rows = tx.find(Table.RUNS, where, columns=("id", "epoch", "status"))
    return {Fence(row["id"], row["epoch"]): RunStatus(row["status"]) for row in rows}


def figures(tx: ReadTx) -> Figures:
    now = tx.now()
    live = {status: tx.count(Table.RUNS, {"status": status.value}) for status in LIVE}
    oldest = tx.find(
        Table.RUNS,
        {"status": "queued"},
        order=("created_at",),
        limit=200,
        columns=("created_at", "not_before"),
    )
    due = [row["not_before"] or row["created_at"] for row in oldest]
    waited = max(((now - since).total_seconds() for since in due), default=0.0)
    events = sum(row["last_seq"] for row in tx.find(Table.USERS, {}, columns=("last_seq",)))
    return Figures(live, len(owners(tx)), max(waited, 0.0), events)
