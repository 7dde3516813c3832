"""Routes of the live document: read it, patch it from outside with the run's token, and the schema of both."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dromos.api.documented import documented
from dromos.api.door import caller, door_of
from dromos.api.json import dumps
from dromos.api.native import decode, encode
from dromos.domain.document import json_schema
from dromos.domain.errors import Invalid
from dromos.wire import answers, bodies

router = APIRouter(tags=["documents"])

SCHEMA = dumps(json_schema())
_SCHEMA_TAG = f'"{hashlib.sha256(SCHEMA).hexdigest()[:16]}"'
_SCHEMA_HEADERS = {"etag": _SCHEMA_TAG, "cache-control": "public, max-age=3600"}


@router.get(
    "/v1/runs/{run_id}/document",
    **documented(
        "Read the run's live document, the text so far included",
        {200: answers.Document, 304: "It is as the `If-None-Match` you sent knows it."},
    ),
)
async def read_document(request: Request) -> Response:
    decode.nothing(request)
    door, run_id = door_of(request), decode.run_id(request)
    document = await door.documents.read(caller(request).user_id, run_id)
    headers = {"etag": _tag(document), "cache-control": "no-cache"}
    if _is_known(request, headers["etag"]):
        return Response(status_code=304, headers=headers)
    return encode.ok(document, headers=headers)


@router.patch(
    "/v1/runs/{run_id}/document",
    **documented(
        "Change the document of a run you own, and append to its text",
        {200: answers.DocumentVersion},
        body=bodies.PatchDocument,
        token=True,
    ),
)
async def patch_document(request: Request) -> Response:
    decode.nothing(request)
    door, run_id, token = door_of(request), decode.run_id(request), decode.run_token(request)
    try:
        ask = await decode.document_patch(request)
    except Invalid:
        # What is wrong with a patch is told only to whoever may write for the run.
        await door.lifecycle.outside.look(run_id, token)
        raise
    patched = await door.lifecycle.outside.patch_document(run_id, token, ask)
    door.deps.live.relay(patched)
    return encode.ok({"version": patched.version})


@router.get(
    "/schemas/run_document.v1.json",
    **documented(
        "Read the JSON Schema of the live document",
        {200: "JSON Schema 2020-12; `x-part` says who changes a member."},
        media="application/schema+json",
    ),
)
async def read_schema(request: Request) -> Response:
    decode.nothing(request)
    if _is_known(request, _SCHEMA_TAG):
        return Response(status_code=304, headers=_SCHEMA_HEADERS)
    return Response(SCHEMA, 200, _SCHEMA_HEADERS, "application/schema+json")


def _tag(snapshot: encode.Json) -> str:
    """Version, run version and length of the text; and a sum over what changes without any of them."""
    document: Mapping[str, object] = snapshot["document"]
    text = snapshot["document"]["text"]
    beside = [text["message_id"], *(document[name] for name in ("requests", "followups", "cost", "stop"))]
    sum_of_the_rest = zlib.crc32(dumps(beside))
    return f'"{snapshot["version"]}.{snapshot["run_version"]}.{text["length"]}.{sum_of_the_rest:x}"'


def _is_known(request: Request, tag: str) -> bool:
    """`If-None-Match`, compared weakly: one tag of the list, or `*`."""
    asked = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    return tag in asked or "*" in asked
