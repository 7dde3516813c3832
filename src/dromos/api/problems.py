"""One table from errors to HTTP: every refusal leaves here as an RFC 9457 problem document.

Bad input is never a 5xx, and what went wrong inside is never shown: an unexpected error is logged under a number,
and the client gets the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dromos.api.json import dumps
from dromos.domain import errors
from dromos.domain.errors import DromosError, Fault, Refusal
from dromos.ports.clock import Ids

log = structlog.get_logger("dromos.api")

MEDIA_TYPE = "application/problem+json"


class RefusedByDoor(Refusal):
    """The request itself is at fault, before any rule of the product was asked."""

    def __init__(self, status: int, code: str, detail: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(detail, code=code, faults=faults)
        self.status = status


@dataclass(frozen=True, slots=True)
class Kind:
    status: int
    title: str


KINDS: dict[type[DromosError], Kind] = {
    errors.NotFound: Kind(404, "Not found"),
    errors.Invalid: Kind(400, "The request is not valid"),
    errors.UnknownToken: Kind(401, "The run token is not known"),
    errors.OtherRun: Kind(403, "The token belongs to another run"),
    errors.OwnershipLost: Kind(403, "The run has another owner"),
    errors.RunNotActive: Kind(409, "The run has ended"),
    errors.IdempotencyKeyReused: Kind(422, "The idempotency key was used for another request"),
    errors.InvalidTransition: Kind(409, "The run cannot go there from where it is"),
    errors.AlreadyEnded: Kind(409, "The run has ended"),
    errors.NotResumable: Kind(409, "There is nothing to continue"),
    errors.ConversationBusy: Kind(409, "The conversation is busy"),
    errors.TooManyWaiting: Kind(409, "Too many messages wait"),
    errors.VersionConflict: Kind(409, "It was changed meanwhile"),
    errors.AlreadyDecided: Kind(409, "It was decided already"),
    errors.RequestClosed: Kind(409, "The question is no longer open"),
    errors.Refusal: Kind(409, "Refused"),
    errors.LostRace: Kind(409, "It was changed at the same moment"),
    errors.Duplicate: Kind(409, "It exists already"),
    errors.Unavailable: Kind(503, "Something the server needs is missing"),
    errors.StoreUnavailable: Kind(503, "The database cannot be used"),
    errors.SchemaMismatch: Kind(503, "The database is of another version"),
}
"""The nearest class in an error's ancestry decides."""

TITLES = {
    400: "The request is not valid",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    413: "The body is too large",
    415: "Not JSON",
    421: "Not this server's name",
}

_RACE = "Somebody else changed this at the same moment. Read it again and repeat."
_CODES = {404: "not_found", 405: "method_not_allowed", 400: "validation_failed", 413: "body_too_large"}
_DETAILS = {
    404: "There is nothing at this address. The addresses are listed at /openapi.json.",
    405: "This address does not take that method. The methods it takes are in the Allow header.",
}


def kind_of(error: DromosError) -> Kind:
    if isinstance(error, RefusedByDoor):
        return Kind(error.status, TITLES[error.status])
    for ancestor in type(error).__mro__:
        if ancestor in KINDS:
            return KINDS[ancestor]
    return Kind(500, "Internal error")


def document(status: int, code: str, title: str, detail: str, **more: Any) -> dict[str, Any]:
    """The problem document; `more` are further members, absent where None."""
    body = {
        "type": f"urn:dromos:problem:{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
    }
    body.update({name: value for name, value in more.items() if value is not None})
    return body


def faults_json(faults: Sequence[Fault]) -> list[dict[str, str]] | None:
    return [{"code": f.code, "path": f.path, "message": f.message} for f in faults] or None


def answer(body: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(dumps(body), body["status"], headers, MEDIA_TYPE)


def refused(error: DromosError) -> dict[str, Any]:
    """The problem document of an error of ours."""
    kind = kind_of(error)
    if isinstance(error, Refusal):
        return document(
            kind.status,
            error.code,
            kind.title,
            error.detail,
            errors=faults_json(error.faults),
            **error.current,
        )
    if isinstance(error, errors.Unavailable):
        return document(kind.status, error.code, kind.title, error.detail)
    return document(kind.status, "conflict", kind.title, _RACE)


def of_framework(error: HTTPException) -> Response:
    """What the router itself refuses: an unknown address, a wrong method."""
    status = error.status_code
    headers = dict(error.headers or {})
    code = _CODES.get(status, f"http_{status}")
    body = document(status, code, TITLES.get(status, "Refused"), _DETAILS.get(status, str(error.detail)))
    return answer(body, headers)


def of_validation(error: RequestValidationError) -> Response:
    """What the framework's own validation refuses."""
    faults = [
        Fault(str(e["type"]), "/" + "/".join(str(part) for part in e["loc"]), str(e["msg"]))
        for e in error.errors()
    ]
    detail = "The request does not have the form that is asked for; see `errors`."
    return answer(document(400, "validation_failed", TITLES[400], detail, errors=faults_json(faults)))


def answer_to(error: Exception) -> Response | None:
    """The answer to an error that is known by name; None for one that nobody expected."""
    if isinstance(error, DromosError):
        body = refused(error)
        return None if body["status"] == 500 else answer(body, _headers(body["status"]))
    if isinstance(error, HTTPException):
        return of_framework(error)
    if isinstance(error, RequestValidationError):
        return of_validation(error)
    return None


def _headers(status: int) -> dict[str, str] | None:
    if status == 401:
        return {"WWW-Authenticate": 'Bearer realm="run"'}
    return {"Retry-After": "3"} if status == 503 else None


class Problems:
    """Outermost ASGI wrapper: whatever is raised inside becomes a problem document, or ends the stream."""

    def __init__(self, app: ASGIApp, ids: Ids) -> None:
        self.app, self.ids = app, ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except ClientDisconnect:
            return
        except Exception as error:
            response = answer_to(error)
            if response is None:
                number = self.ids.new()
                log.exception("request.failed", request_id=number, method=scope["method"], path=scope["path"])
                detail = f"An error of the server. Its log has the details under the number {number}."
                body = document(500, "INTERNAL", "Internal error", detail, request_id=number)
                response = answer(body)
            if started:
                # The head is sent: all that is left is to cut the connection, so that the client notices.
                raise
            await response(scope, receive, send)
