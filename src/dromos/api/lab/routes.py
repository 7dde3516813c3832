"""Routes of the laboratory's protocol. The same lifecycle as `/v1`, with the words and codes of the laboratory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dromos.api import continuing, export
from dromos.api.documented import documented
from dromos.api.door import caller, door_of
from dromos.api.health import not_ready
from dromos.api.lab import decode, encode
from dromos.api.lab.stream import Follower
from dromos.api.sse import EventStream, Reader
from dromos.domain.errors import Refusal
from dromos.domain.statuses import WhenBusy
from dromos.lifecycle.contract import PostMessage
from dromos.wire import answers, lab, shapes

router = APIRouter(tags=["laboratory"])
Endpoint = Callable[[Request], Awaitable[Response]]


def in_lab_words(endpoint: Endpoint) -> Endpoint:
    """Refusals are answered with this protocol's codes."""

    @wraps(endpoint)
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refusal as error:
            return encode.refused(error)

    return answered


@router.post(
    "/api/chat",
    **documented("Send a message, or resume", {200: lab.ChatStarted}, body=lab.Chat, key=True),
)
@in_lab_words
async def chat(request: Request) -> Response:
    door, person = door_of(request), caller(request)
    wish = await decode.chat(request)
    if wish.message is not None:
        post = PostMessage(wish.message, wish.conversation_id, WhenBusy.REJECT)
        return encode.stored(
            await door.lifecycle.post_message(
                person.user_id, post, door.deps.agents.default, encode.started, wish.key
            )
        )
    assert wish.conversation_id is not None
    pending = await continuing.something_pending(door, person.user_id, wish.conversation_id)
    return encode.stored(
        await door.lifecycle.continue_run(
            person.user_id, wish.conversation_id, pending, encode.resumed, wish.key
        )
    )


@router.get(
    "/api/chat",
    **documented(
        "Follow the run of a conversation to its end",
        {200: "Events `token`, `trace`, `ping`, and one last `end` or `chat-error`."},
        query=lab.ChatQuery,
        media="text/event-stream",
    ),
)
@in_lab_words
async def follow(request: Request) -> Response:
    door, user_id = door_of(request), caller(request).user_id
    conversation_id, cursor = decode.followed(request)
    await door.lifecycle.conversation(user_id, conversation_id, 1)
    reader = Reader()
    door.feeds.enter(reader)
    follower: Follower | None = None
    try:
        inbox = await door.feeds.join(user_id, reader)
        follower = Follower(door, user_id, conversation_id, reader, inbox)
        view = await door.lifecycle.conversation(user_id, conversation_id, 1)
    except BaseException:
        follower.close() if follower is not None else door.feeds.leave(reader)
        raise
    return EventStream(reader, follower.chunks(view.last_run, cursor), follower.close)


@router.get("/api/conversations", **documented("List conversations", {200: lab.LabConversations}))
@in_lab_words
async def list_conversations(request: Request) -> Response:
    decode.nothing(request)
    items, _ = await door_of(request).lifecycle.conversations(caller(request).user_id, 200, None)
    return encode.ok({"conversations": [encode.conversation(item) for item in items]})


@router.get(
    "/api/conversations/{conversation_id}",
    **documented("Read the messages of a conversation", {200: lab.LabThread}),
)
@in_lab_words
async def read_conversation(request: Request) -> Response:
    decode.nothing(request)
    door, user_id = door_of(request), caller(request).user_id
    conversation_id = decode.conversation_id(request)
    view = await door.lifecycle.conversation(user_id, conversation_id, 1)
    status = view.last_run.status if view.last_run is not None else "idle"
    history = await export.whole_history(door, user_id, conversation_id)
    return encode.ok(
        {
            "conversation": encode.conversation(shapes.conversation_json(view.conversation, status)),
            "messages": encode.messages(history),
            "resumable": await continuing.resumable(door, view),
        }
    )


@router.get(
    "/api/conversations/{conversation_id}/export",
    **documented(
        "Download as Markdown, or JSONL with one line for each checkpoint",
        {200: "The file."},
        query=lab.LabExportQuery,
        media="text/markdown",
    ),
)
@in_lab_words
async def export_conversation(request: Request) -> Response:
    format = decode.export_format(request)
    return await export.download(
        door_of(request), caller(request).user_id, decode.conversation_id(request), format
    )


@router.get("/api/healthz", **documented("Say that the process lives", {200: answers.Health}))
async def healthz(request: Request) -> Response:
    return encode.ok({"status": "ok"})


@router.get("/api/readyz", **documented("Say whether runs can be started", {200: answers.Health}))
async def readyz(request: Request) -> Response:
    return await not_ready(door_of(request)) or encode.ok({"status": "ok"})
