"""From the lifecycle's values to the answers of `/v1`. Pure: same value in, same bytes out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.responses import Response

from dromos.api.json import dumps
from dromos.domain.errors import Fault, Invalid
from dromos.domain.runs import Run
from dromos.lifecycle.contract import Answer, ConversationView, Posted
from dromos.lifecycle.overview import Overview, Page
from dromos.ports.agent import AgentInfo, CheckpointSummary
from dromos.ports.store import Row
from dromos.wire import shapes

Json = dict[str, Any]
JSON = "application/json"


def ok(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(dumps(value), status, headers, JSON)


def stored(answer: Answer) -> Response:
    """What the operation answered in its own transaction, now or to an earlier request with the same key."""
    headers = {"Idempotency-Replayed": "true"} if answer.replayed else None
    return Response(answer.body.encode(), answer.status, headers, JSON)


def page(items: Iterable[Any], next_cursor: str | None = None) -> Response:
    return ok({"items": list(items), "next_cursor": next_cursor})


def slice_of(items: list[Json], limit: int, cursor: str | None) -> Response:
    """A page of a list that is read whole; the cursor is a place in it. Raises `Invalid` for any other cursor."""
    start = 0
    if cursor is not None:
        if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 9:
            raise Invalid(
                "The cursor is not one that was given out. Leave it out to begin at the first page.",
                faults=[Fault("bad_cursor", "?cursor", "use `next_cursor` of the page before")],
            )
        start = int(cursor)
    end = start + limit
    return page(items[start:end], str(end) if end < len(items) else None)


# --- encoders that run inside the operation's transaction: value → (status, JSON text)
def created_conversation(row: Row) -> tuple[int, str]:
    return 201, dumps(shapes.conversation_json(row)).decode()


def posted(result: Posted) -> tuple[int, str]:
    """201 with the run that was started, 202 with the follow-up that waits; a sent follow-up is told beside its run."""
    followup = shapes.followup_json(result.followup) if result.followup is not None else None
    if result.run is None:
        assert result.followup is not None
        return 202, dumps({"message": waiting_message(result.followup), "followup": followup}).decode()
    assert result.message is not None
    body = {"message": shapes.message_json(result.message), "run": shapes.run_json(result.run)}
    if followup is not None:
        body["followup"] = followup
    return 201, dumps(body).decode()


def waiting_message(followup: Row) -> Json:
    """A follow-up in the form of a message: it gets its id and place in the history when it is applied."""
    return {
        "id": followup["message_id"],
        "role": "user",
        "kind": "text",
        "content": followup["content"],
        "status": "pending",
        "run_id": None,
        "interrupted": False,
        "created_at": shapes.moment(followup["created_at"]),
    }


def decided(result: tuple[Row, Run]) -> tuple[int, str]:
    request, run = result
    body = {"request": shapes.request_json(request), "run": shapes.run_json(run)}
    return 200, dumps(body).decode()


def continued(run: Run) -> tuple[int, str]:
    return 201, dumps({"run": shapes.run_json(run)}).decode()


# --- reads
def conversation(row: Row, last: Run | None) -> Json:
    return shapes.conversation_json(row, last.status if last is not None else "idle")


def view(view: ConversationView, resumable: bool) -> Json:
    return {
        "conversation": conversation(view.conversation, view.last_run),
        "messages": [shapes.message_json(row) for row in view.messages],
        "next_cursor": view.before,
        "runs": [shapes.run_json(run) for run in view.runs],
        "requests": [shapes.request_json(row) for row in view.requests],
        "followups": [shapes.followup_json(row) for row in view.followups],
        "resumable": resumable,
        "seq": view.seq,
    }


def overview(found: Overview) -> Json:
    def part(page: Page) -> Json:
        return {"items": page.items, "next_cursor": page.next_cursor}

    return {
        "seq": found.seq,
        "conversations": part(found.conversations),
        "also": found.also,
        "unseen": found.unseen,
        "runs": part(found.runs),
        "requests": part(found.requests),
    }


def followup(row: Row, revisions: Iterable[Row]) -> Json:
    return shapes.followup_json(row) | {"revisions": [shapes.revision_json(one) for one in revisions]}


def checkpoint(summary: CheckpointSummary) -> Json:
    return {
        "checkpoint_id": summary.checkpoint_id,
        "step": summary.step,
        "source": summary.source,
        "next": list(summary.next),
        "run_id": summary.run_id,
        "created_at": shapes.moment(summary.created_at),
        "message_count": summary.message_count,
    }


def agent(info: AgentInfo, default: str) -> Json:
    model = info.model
    return {
        "name": info.name,
        "description": info.description,
        "kind": info.kind,
        "default": info.name == default,
        "model": None if model is None else {"name": model.name, "source": model.source, "hint": model.hint},
    }


def worker(row: Row) -> Json:
    return {
        "id": row["owner_id"],
        "kind": row["kind"],
        "host": row["host"],
        "pid": row["pid"],
        "started_at": shapes.moment(row["started_at"]),
        "seen_at": shapes.moment(row["renewed_at"]),
        "lease_until": shapes.moment(row["lease_until"]),
    }
