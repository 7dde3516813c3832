"""From requests of `/api` to what the lifecycle takes. Here an id that cannot be one is the client's mistake: 400."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from dromos.api import requests
from dromos.domain.errors import Fault, Invalid
from dromos.domain.ids import is_id
from dromos.lifecycle.contract import IdempotencyKey
from dromos.wire import lab
from dromos.wire.bodies import NoQuery


@dataclass(frozen=True, slots=True)
class Chat:
    """A message (`message` is text), or a continuation (`message` is None and `conversation_id` is known)."""

    message: str | None
    conversation_id: str | None
    key: IdempotencyKey | None


async def chat(request: Request) -> Chat:
    nothing(request)
    body, raw = await requests.body(request, lab.Chat)
    conversation_id = _id(body.conversation, "/conversation") if body.conversation is not None else None
    key = requests.idempotency_key(request, raw)
    if body.resume:
        if conversation_id is None:
            raise _missing("/conversation", "say which conversation to resume")
        if body.message is not None:
            raise _missing("/message", "a resume takes no message; leave out one of the two")
        return Chat(None, conversation_id, key)
    if body.message is None:
        raise _missing("/message", "a message is required, unless `resume` is true")
    return Chat(body.message, conversation_id, key)


def followed(request: Request) -> tuple[str, int | None]:
    """The conversation to follow, and the number of the last event that was seen."""
    query = requests.query(request, lab.ChatQuery)
    cursor = requests.event_number(request.headers.get("last-event-id"), "Last-Event-ID")
    return _id(query.conversation, "?conversation"), cursor


def conversation_id(request: Request) -> str:
    return _id(request.path_params["conversation_id"], "conversation")


def export_format(request: Request) -> str:
    return requests.query(request, lab.LabExportQuery).format


def nothing(request: Request) -> None:
    requests.query(request, NoQuery)


def _id(text: str, place: str) -> str:
    if not is_id(text.lower()):
        raise _missing(place, "a conversation's id is a UUID")
    return text.lower()


def _missing(place: str, message: str) -> Invalid:
    return Invalid(f"{place}: {message}.", faults=[Fault("invalid", place, message)])
