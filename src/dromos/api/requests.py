"""Reading a request, for every protocol: the body within its limit, query, idempotency key, ids.

Raises `Invalid`, or `RefusedByDoor`, with every fault and its place; knows no route and no operation.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from dromos.api.door import door_of
from dromos.api.json import loads, pointer
from dromos.api.problems import RefusedByDoor
from dromos.domain.errors import Fault, Invalid
from dromos.domain.ids import is_id
from dromos.domain.text import clean_text
from dromos.lifecycle.contract import IdempotencyKey

M = TypeVar("M", bound=BaseModel)

NO_ID = "00000000-0000-0000-0000-000000000000"
"""Stands for whatever cannot be an id: it is looked up like any other and found nowhere."""

MAX_KEY = 255
_DRAINED = 8  # how many times the limit is read and thrown away, so that the client hears the answer


async def raw_body(request: Request) -> bytes:
    """The bytes of the body. Raises 413 beyond the limit."""
    limit = door_of(request).deps.options.max_body
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        elif size > limit * _DRAINED:
            break
        if not message.get("more_body", False):
            break
    if size > limit:
        raise RefusedByDoor(
            413, "body_too_large", f"The body is larger than {limit} bytes. Send less in one request."
        )
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def body(request: Request, model: type[M], *, optional: bool = False) -> tuple[M, bytes]:
    """The body as `model`, and its bytes. An empty body counts as `{}` where it is `optional`."""
    raw = await raw_body(request)
    if not raw and optional:
        return validated(model, {}), raw
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise RefusedByDoor(
            415, "unsupported_media_type", "Send JSON with the header `content-type: application/json`."
        )
    return validated(model, loads(raw)), raw


def query(request: Request, model: type[M]) -> M:
    """The query string as `model`; fields that are lists may be given several times, others once."""
    values: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        name, text = clean_text(name), clean_text(text)
        field = model.model_fields.get(name)
        if field is not None and getattr(field.annotation, "__origin__", None) is list:
            values.setdefault(name, []).append(text)
        elif name in values:
            raise Invalid(
                f"`{name}` is given more than once in the query. Give it once.",
                faults=[Fault("given_twice", f"?{name}", "give it once")],
            )
        else:
            values[name] = text
    return validated(model, values, "?")


def validated(model: type[M], value: Any, root: str = "") -> M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = _faults(error, root)
        detail = "; ".join(f"{fault.path or 'the body'}: {fault.message}" for fault in faults[:3])
        more = f" (and {len(faults) - 3} more, see `errors`)" if len(faults) > 3 else ""
        raise Invalid(f"{detail}{more}.", faults=faults) from None


def _faults(error: ValidationError, root: str) -> list[Fault]:
    """One fault for each place: of a value that fits none of several forms only the first reason is told."""
    faults: dict[str, Fault] = {}
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        place = [part for part in item["loc"] if isinstance(part, int) or not _names_a_form(str(part))]
        path = root + ("/".join(str(part) for part in place) if root else pointer(*place))
        unknown = item["type"] == "extra_forbidden"
        code = "unknown_field" if unknown else item["type"]
        message = "there is no such field; leave it out" if unknown else item["msg"]
        faults.setdefault(path, Fault(code, clean_text(path), clean_text(message)))
    return list(faults.values())


def _names_a_form(part: str) -> bool:
    """pydantic puts the tried member of a union into the place: `constrained-str`, `dict[str,any]`."""
    return "[" in part or part.startswith("constrained-") or part in ("str", "int", "float", "list", "dict")


def path_id(request: Request, name: str) -> str:
    """An id from the path. What cannot be one becomes `NO_ID`, so that it is answered like an unknown one."""
    return known_form(str(request.path_params[name]))


def known_form(text: str) -> str:
    text = text.lower()
    return text if is_id(text) else NO_ID


def idempotency_key(request: Request, raw: bytes) -> IdempotencyKey | None:
    """The client's key for this method and route; the lifecycle keeps the keys of each conversation apart."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not 0 < len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
        raise Invalid(
            f"The header Idempotency-Key has to be 1 to {MAX_KEY} printable ASCII characters.",
            faults=[Fault("bad_key", "Idempotency-Key", f"1 to {MAX_KEY} printable ASCII characters")],
        )
    route: str = request.scope["route"].path
    return IdempotencyKey(f"{request.method} {route}", key, hashlib.sha256(raw).hexdigest())


def bearer(request: Request) -> str | None:
    """The token of `Authorization: Bearer …`; None where there is none."""
    scheme, _, told = request.headers.get("authorization", "").partition(" ")
    return told.strip() or None if scheme.lower() == "bearer" else None


def event_number(text: str | None, name: str) -> int | None:
    """An event number from a header or the query; None where there is none. Raises `Invalid` for anything else."""
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise Invalid(
            f"{name} has to be an event number: the `id` of an event you have seen. Leave it out to start at now.",
            faults=[Fault("bad_cursor", name, "not an event number")],
        )
    return int(text)
