"""How routes are written down for OpenAPI.

A route reads its own request; what it takes and answers is declared beside it with `documented`, from the models
in `wire`. `complete` then adds what follows from the declarations: body schemas, path parameters, error answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from dromos.wire import adapter, bodies, examples, lab
from dromos.wire.answers import Problem
from dromos.wire.bodies import NoQuery

_REF = "#/components/schemas/{model}"
_BODIES = {name: model for module in (bodies, lab, adapter) for name, model in vars(module).items()}
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A repeat with the same key and body has no further effect and gets the same answer.",
    "schema": {"type": "string", "maxLength": 255, "pattern": "^[ -~]+$"},
    "example": "6f9c2f0e-send-1",
}
RUN_TOKEN = "runToken"
_SCHEMES = {
    RUN_TOKEN: {
        "type": "http",
        "scheme": "bearer",
        "description": "The token that the claim answered. It writes for that run only, until its epoch ends.",
    }
}
_EXAMPLE_ID = "019ad0f2-6a5e-7c3a-9b51-6f0c2d8f4e11"


def documented(
    summary: str,
    answers: Mapping[int, Any],
    *,
    body: type[BaseModel] | None = None,
    body_required: bool = True,
    query: type[BaseModel] = NoQuery,
    key: bool = False,
    token: bool = False,
    media: str | None = None,
) -> dict[str, Any]:
    """Keyword arguments for a router's decorator.

    `answers` maps a status to a model, or to a sentence where the answer has no JSON body. `media` is the type of
    answers that are not JSON. `token`: the request is authorised by a run token.
    """
    responses: dict[int | str, dict[str, Any]] = {}
    for status, answer in answers.items():
        if isinstance(answer, str):
            responses[status] = {"description": answer}
            if media is not None:
                content: dict[str, Any] = {"schema": {"type": "string"}}
                if media in examples.STREAMS:
                    content["example"] = examples.STREAMS[media]
                responses[status]["content"] = {media: content}
        else:
            responses[status] = {
                "model": answer,
                "description": (answer.__doc__ or "").strip().split("\n")[0],
                "content": {"application/json": {"example": examples.example_of(answer)}},
            }
    responses["4XX"] = {"description": "The request was refused.", "content": _PROBLEM}
    responses["503"] = {
        "description": "The database cannot be used; nothing was changed.",
        "content": _PROBLEM,
    }
    extra: dict[str, Any] = {"parameters": _query_parameters(query) + ([_KEY] if key else [])}
    if token:
        extra["security"] = [{RUN_TOKEN: []}]
    if body is not None:
        schema = {"$ref": _REF.format(model=body.__name__)}
        extra["requestBody"] = {
            "required": body_required,
            "content": {"application/json": {"schema": schema}},
        }
    return {
        "summary": summary,
        "status_code": min(answers),
        "responses": responses,
        "openapi_extra": extra,
        "response_model": None,
    }


def _query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    schema = model.model_json_schema(ref_template=_REF)
    required = schema.get("required", [])
    out = []
    for name, shape in schema.get("properties", {}).items():
        shape = _without_refs(shape, schema.get("$defs", {}))
        shape.pop("title", None)
        if shape.get("default", 0) is None:
            del shape["default"]
        out.append(
            {
                "name": name,
                "in": "query",
                "required": name in required,
                "description": shape.pop("description", ""),
                "schema": _without_null(shape),
            }
        )
    return out


def _without_null(shape: dict[str, Any]) -> dict[str, Any]:
    """A query cannot carry null: an optional parameter is one that may be left out."""
    forms = [form for form in shape.get("anyOf", ()) if form.get("type") != "null"]
    return {**{k: v for k, v in shape.items() if k != "anyOf"}, **forms[0]} if len(forms) == 1 else shape


def _without_refs(shape: Any, defs: Mapping[str, Any]) -> Any:
    if isinstance(shape, dict):
        if "$ref" in shape:
            return _without_refs(defs[shape["$ref"].rsplit("/", 1)[1]], defs)
        return {key: _without_refs(value, defs) for key, value in shape.items()}
    if isinstance(shape, list):
        return [_without_refs(item, defs) for item in shape]
    return shape


def complete(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of the application."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    received: set[type[BaseModel]] = set()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if "requestBody" in operation:
                ref = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                received.add(_BODIES[ref.rsplit("/", 1)[1]])
            operation["parameters"] = _path_parameters(path) + operation.get("parameters", [])
            operation["responses"].pop("422", None)
            for answer in operation["responses"].values():
                _only_what_is_said(answer)
    # Answers once more: the framework leaves every null out of their examples.
    sent = {answer["model"] for route in app.routes for answer in _answers(route) if "model" in answer} | {
        Problem
    }
    _, schemas = models_json_schema(
        [(model, "validation") for model in received] + [(model, "serialization") for model in sent],
        ref_template=_REF,
    )
    document.setdefault("components", {}).setdefault("schemas", {}).update(schemas["$defs"])
    document["components"]["securitySchemes"] = _SCHEMES
    return document


def _only_what_is_said(answer: dict[str, Any]) -> None:
    """Take out the empty JSON body that the framework adds to every answer."""
    said = {media: content for media, content in answer.get("content", {}).items() if content.get("schema")}
    if said:
        answer["content"] = said
    else:
        answer.pop("content", None)


def _answers(route: object) -> list[dict[str, Any]]:
    return list(getattr(route, "responses", {}).values())


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": part[1:-1],
            "in": "path",
            "required": True,
            "schema": {"type": "string", "format": "uuid"},
            "example": _EXAMPLE_ID,
        }
        for part in path.split("/")
        if part.startswith("{")
    ]
