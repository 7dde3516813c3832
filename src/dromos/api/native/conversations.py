"""Routes of conversations and their messages."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dromos.api import continuing, export, waiting
from dromos.api.documented import documented
from dromos.api.door import caller, door_of
from dromos.api.native import decode, encode
from dromos.domain.errors import NotFound
from dromos.wire import answers, bodies, shapes

router = APIRouter(tags=["conversations"])


@router.post(
    "/v1/conversations",
    **documented(
        "Make an empty conversation",
        {201: answers.Conversation},
        body=bodies.NewConversation,
        body_required=False,
        key=True,
    ),
)
async def create_conversation(request: Request) -> Response:
    door, person = door_of(request), caller(request)
    decode.nothing(request)
    body, key = await decode.new_conversation(request)
    agent = continuing.known_agent(door, body.agent, "/agent") or door.deps.agents.default
    return encode.stored(
        await door.lifecycle.create_conversation(
            person.user_id, body.title, agent, encode.created_conversation, key
        )
    )


@router.get(
    "/v1/conversations",
    **documented(
        "List conversations, newest first",
        {200: answers.Page[answers.ConversationLine]},
        query=bodies.ConversationsQuery,
    ),
)
async def list_conversations(request: Request) -> Response:
    query = decode.conversations(request)
    items, cursor = await door_of(request).lifecycle.conversations(
        caller(request).user_id, query.limit, query.cursor, unseen=query.unseen
    )
    return encode.page(items, cursor)


@router.get(
    "/v1/conversations/{conversation_id}",
    **documented("Read a conversation, consistent and with its cursor", {200: answers.ConversationView}),
)
async def read_conversation(request: Request) -> Response:
    decode.nothing(request)
    door, conversation_id = door_of(request), decode.conversation_id(request)
    view = await door.lifecycle.conversation(caller(request).user_id, conversation_id)
    return encode.ok(encode.view(view, await continuing.resumable(door, view)))


@router.patch(
    "/v1/conversations/{conversation_id}",
    **documented(
        "Change title, archived, or what was seen",
        {200: answers.Conversation},
        body=bodies.ChangeConversation,
    ),
)
async def change_conversation(request: Request) -> Response:
    decode.nothing(request)
    conversation_id = decode.conversation_id(request)
    body = await decode.conversation_change(request)
    row, run = await door_of(request).lifecycle.change_conversation(
        caller(request).user_id,
        conversation_id,
        title=body.title,
        archived=body.archived,
        seen_seq=body.seen_seq,
    )
    return encode.ok(encode.conversation(row, run))


@router.delete(
    "/v1/conversations/{conversation_id}",
    **documented("Stop what runs, then erase everything it owns", {204: "It is gone."}),
)
async def delete_conversation(request: Request) -> Response:
    decode.nothing(request)
    door, person = door_of(request), caller(request)
    conversation_id = decode.conversation_id(request)
    if await door.lifecycle.delete_conversation(person.user_id, conversation_id):
        return Response(status_code=204)

    async def erased() -> bool:
        try:
            return await door.lifecycle.delete_conversation(person.user_id, conversation_id)
        except NotFound:
            return True  # the sweep, or a repeat of this request, was first

    # It is marked, nobody finds it any more. What a worker needs longer to let go of is erased by the sweep.
    await waiting.until(door.deps, person.user_id, erased, bool, seconds=door.deps.options.stop_deadline)
    return Response(status_code=204)


@router.get(
    "/v1/conversations/{conversation_id}/messages",
    **documented(
        "Read a page of the history", {200: answers.Page[answers.Message]}, query=bodies.HistoryQuery
    ),
)
async def list_messages(request: Request) -> Response:
    query = decode.history(request)
    rows, cursor = await door_of(request).lifecycle.messages(
        caller(request).user_id, decode.conversation_id(request), query.before, query.limit
    )
    return encode.page(map(shapes.message_json, rows), cursor)


@router.post(
    "/v1/conversations/{conversation_id}/messages",
    **documented(
        "Send a message: it starts a run, or waits for the live one",
        {201: answers.MessageStarted, 202: answers.MessageWaits},
        body=bodies.NewMessage,
        key=True,
    ),
)
async def send_message(request: Request) -> Response:
    decode.nothing(request)
    door, person = door_of(request), caller(request)
    post, key = await decode.message(request)
    continuing.known_agent(door, post.options.agent, "/run/agent")
    return encode.stored(
        await door.lifecycle.post_message(person.user_id, post, door.deps.agents.default, encode.posted, key)
    )


@router.post(
    "/v1/conversations/{conversation_id}/continue",
    **documented(
        "Go on from where the last run stood",
        {201: answers.RunAnswer},
        body=bodies.ContinueRun,
        body_required=False,
        key=True,
    ),
)
async def continue_conversation(request: Request) -> Response:
    decode.nothing(request)
    door, person = door_of(request), caller(request)
    conversation_id = decode.conversation_id(request)
    options, key = await decode.continuation(request)
    continuing.known_agent(door, options.agent, "/run/agent")
    pending = await continuing.something_pending(door, person.user_id, conversation_id)
    return encode.stored(
        await door.lifecycle.continue_run(
            person.user_id, conversation_id, pending, encode.continued, key, options
        )
    )


@router.get(
    "/v1/conversations/{conversation_id}/export",
    **documented(
        "Download as Markdown, JSONL (one line for each checkpoint) or JSON",
        {200: "The file."},
        query=bodies.ExportQuery,
        media="text/markdown",
    ),
)
async def export_conversation(request: Request) -> Response:
    format = decode.export_format(request)
    return await export.download(
        door_of(request), caller(request).user_id, decode.conversation_id(request), format
    )


@router.get(
    "/v1/conversations/{conversation_id}/checkpoints",
    **documented("List the checkpoints of the thread, oldest first", {200: answers.Page[answers.Checkpoint]}),
)
async def list_checkpoints(request: Request) -> Response:
    decode.nothing(request)
    door, conversation_id = door_of(request), decode.conversation_id(request)
    view = await door.lifecycle.conversation(caller(request).user_id, conversation_id, 1)
    summaries = await export.checkpoints(door, view.conversation["agent"], conversation_id)
    return encode.page(map(encode.checkpoint, summaries))
