"""From requests of `/v1` to what the lifecycle takes. Pure but for reading the body; decides nothing."""

from __future__ import annotations

from starlette.requests import Request

from dromos.api import requests
from dromos.domain.requests import Decision
from dromos.lifecycle.contract import IdempotencyKey, PostMessage, RunOptions
from dromos.lifecycle.patching import PatchAsk
from dromos.ports.live import TextAppended
from dromos.wire import bodies


def conversation_id(request: Request) -> str:
    return requests.path_id(request, "conversation_id")


def run_id(request: Request) -> str:
    return requests.path_id(request, "run_id")


def followup_id(request: Request) -> str:
    return requests.path_id(request, "followup_id")


def request_id(request: Request) -> str:
    return requests.path_id(request, "request_id")


async def new_conversation(request: Request) -> tuple[bodies.NewConversation, IdempotencyKey | None]:
    body, raw = await requests.body(request, bodies.NewConversation, optional=True)
    return body, requests.idempotency_key(request, raw)


async def conversation_change(request: Request) -> bodies.ChangeConversation:
    body, _ = await requests.body(request, bodies.ChangeConversation)
    return body


async def message(request: Request) -> tuple[PostMessage, IdempotencyKey | None]:
    body, raw = await requests.body(request, bodies.NewMessage)
    post = PostMessage(body.content, conversation_id(request), body.when_busy, run_options(body.run))
    return post, requests.idempotency_key(request, raw)


async def continuation(request: Request) -> tuple[RunOptions, IdempotencyKey | None]:
    body, raw = await requests.body(request, bodies.ContinueRun, optional=True)
    return run_options(body.run), requests.idempotency_key(request, raw)


async def cancel(request: Request) -> tuple[str | None, float]:
    """The comment, and how many seconds to wait for the end."""
    wait = requests.query(request, bodies.CancelQuery).wait_s
    body, _ = await requests.body(request, bodies.CancelRun, optional=True)
    return body.comment, wait or 0.0


async def followup_change(request: Request) -> bodies.ChangeFollowup:
    body, _ = await requests.body(request, bodies.ChangeFollowup)
    return body


async def followup_sending(request: Request) -> tuple[int | None, IdempotencyKey | None]:
    body, raw = await requests.body(request, bodies.SendFollowup, optional=True)
    return body.version, requests.idempotency_key(request, raw)


def followup_version(request: Request) -> int | None:
    return requests.query(request, bodies.FollowupQuery).version


def page(request: Request) -> bodies.PageQuery:
    return requests.query(request, bodies.PageQuery)


def conversations(request: Request) -> bodies.ConversationsQuery:
    return requests.query(request, bodies.ConversationsQuery)


def overview(request: Request) -> int:
    return requests.query(request, bodies.OverviewQuery).limit


def history(request: Request) -> bodies.HistoryQuery:
    return requests.query(request, bodies.HistoryQuery)


def runs(request: Request) -> bodies.RunsQuery:
    query = requests.query(request, bodies.RunsQuery)
    if query.conversation_id is not None:
        query.conversation_id = requests.known_form(query.conversation_id)
    return query


async def decision(request: Request) -> tuple[Decision, IdempotencyKey | None]:
    body, raw = await requests.body(request, bodies.DecideRequest)
    said = Decision(
        body.decision,
        body.request_version,
        body.arguments_sha256,
        body.answer,
        body.comment,
        body.arguments,
        body.grant,
    )
    return said, requests.idempotency_key(request, raw)


def open_requests(request: Request) -> bodies.RequestsQuery:
    return requests.query(request, bodies.RequestsQuery)


def grants(request: Request) -> bodies.GrantsQuery:
    query = requests.query(request, bodies.GrantsQuery)
    if query.conversation_id is not None:
        query.conversation_id = requests.known_form(query.conversation_id)
    return query


def grant_id(request: Request) -> str:
    return requests.path_id(request, "grant_id")


def export_format(request: Request) -> str:
    return requests.query(request, bodies.ExportQuery).format


def nothing(request: Request) -> None:
    """Refuse whatever the query holds."""
    requests.query(request, bodies.NoQuery)


def run_token(request: Request) -> str | None:
    return requests.bearer(request)


async def document_patch(request: Request) -> PatchAsk:
    body, _ = await requests.body(request, bodies.PatchDocument)
    text = None
    if body.text is not None:
        text = TextAppended(body.text.message_id, body.text.offset, body.text.append)
    return PatchAsk(body.base_version, body.patch, text)


def stream(request: Request) -> tuple[str | None, int | None]:
    """The conversation in focus, and the cursor: `Last-Event-ID` wins over `?after=`."""
    query = requests.query(request, bodies.StreamQuery)
    header = request.headers.get("last-event-id")
    if header:
        cursor = requests.event_number(header, "Last-Event-ID")
    else:
        cursor = requests.event_number(query.after, "?after")
    return query.focus, cursor


def run_options(run: bodies.RunRequest | None) -> RunOptions:
    if run is None:
        return RunOptions()
    policy = run.backend_policy.model_dump(exclude_none=True) if run.backend_policy is not None else None
    return RunOptions(run.agent, run.model, run.budget, run.deadline_s, policy)
