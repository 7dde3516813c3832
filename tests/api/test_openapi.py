"""The OpenAPI document says what the doors do; requests made from it never break the server."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.errors import SchemathesisError

from dromos.wire import answers, bodies, examples, lab
from tests.api.conftest import Serving

EXPECTED = {
    ("POST", "/v1/conversations"),
    ("GET", "/v1/overview"),
    ("GET", "/v1/conversations"),
    ("GET", "/v1/conversations/{conversation_id}"),
    ("PATCH", "/v1/conversations/{conversation_id}"),
    ("DELETE", "/v1/conversations/{conversation_id}"),
    ("GET", "/v1/conversations/{conversation_id}/messages"),
    ("POST", "/v1/conversations/{conversation_id}/messages"),
    ("POST", "/v1/conversations/{conversation_id}/continue"),
    ("GET", "/v1/conversations/{conversation_id}/export"),
    ("GET", "/v1/conversations/{conversation_id}/checkpoints"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/runs/{run_id}"),
    ("GET", "/v1/runs/{run_id}/steps"),
    ("GET", "/v1/runs/{run_id}/events"),
    ("GET", "/v1/runs/{run_id}/attempts"),
    ("POST", "/v1/runs/{run_id}/cancel"),
    ("GET", "/v1/runs/{run_id}/document"),
    ("PATCH", "/v1/runs/{run_id}/document"),
    ("GET", "/schemas/run_document.v1.json"),
    ("GET", "/v1/grants"),
    ("DELETE", "/v1/grants/{grant_id}"),
    ("GET", "/v1/requests"),
    ("GET", "/v1/requests/{request_id}"),
    ("POST", "/v1/requests/{request_id}/decision"),
    ("GET", "/v1/followups/{followup_id}"),
    ("PATCH", "/v1/followups/{followup_id}"),
    ("DELETE", "/v1/followups/{followup_id}"),
    ("POST", "/v1/followups/{followup_id}/send"),
    ("POST", "/v1/adapter/claim"),
    ("POST", "/v1/adapter/runs/{run_id}/renew"),
    ("POST", "/v1/adapter/runs/{run_id}/transition"),
    ("POST", "/v1/adapter/runs/{run_id}/steps"),
    ("POST", "/v1/adapter/runs/{run_id}/effects"),
    ("POST", "/v1/adapter/runs/{run_id}/messages"),
    ("POST", "/v1/adapter/runs/{run_id}/requests"),
    ("GET", "/v1/stream"),
    ("GET", "/v1/agents"),
    ("GET", "/v1/me"),
    ("GET", "/v1/workers"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("POST", "/api/chat"),
    ("GET", "/api/chat"),
    ("GET", "/api/conversations"),
    ("GET", "/api/conversations/{conversation_id}"),
    ("GET", "/api/conversations/{conversation_id}/export"),
    ("GET", "/api/healthz"),
    ("GET", "/api/readyz"),
}


async def test_every_route_is_described(idle: Serving) -> None:
    document = (await idle.http.get("/openapi.json")).json()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == EXPECTED
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert "4XX" in operation["responses"], (method, path)
            named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}


async def test_bodies_and_answers_are_described_with_examples(idle: Serving) -> None:
    document = (await idle.http.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    assert schemas["NewMessage"]["examples"][0]["content"]
    assert schemas["NewMessage"]["additionalProperties"] is False
    for name in (
        "NewConversation",
        "NewMessage",
        "Conversation",
        "Run",
        "Message",
        "MessageStarted",
        "Problem",
    ):
        model: Any = getattr(bodies, name, None) or getattr(answers, name)
        for example in schemas[name]["examples"]:
            model.model_validate(example)
    refs = set(_refs(document))
    assert refs <= {f"#/components/schemas/{name}" for name in schemas}


async def test_every_answer_has_an_example_of_its_own_shape(idle: Serving) -> None:
    document = (await idle.http.get("/openapi.json")).json()
    shown = 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                for media, content in answer.get("content", {}).items():
                    if media == "application/problem+json" or path.endswith("/export"):
                        continue
                    assert content["example"], (method, path, status)
                    shown += 1
    assert shown > 30
    for model, example in examples.EXAMPLES.items():
        model.model_validate(example)
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        needed = {name for name, field in fields.items() if field.is_required()}
        assert needed <= set(example), model
        if model is not answers.Request:  # its model names only what every question has
            assert set(example) <= set(fields), model


async def test_examples_have_the_very_fields_of_real_answers(served: Serving) -> None:
    conversation = await served.conversation()
    run = (await served.send(conversation, "step look\ngate g"))["run"]["id"]
    followup = (await served.send(conversation, "later"))["followup"]

    async def get(path: str) -> Any:
        return (await served.http.get(path)).json()

    view = await get(f"/v1/conversations/{conversation}")
    real = {
        answers.Followup: followup,
        answers.ConversationView: view,
        answers.ConversationLine: (await get("/v1/conversations"))["items"][0],
        answers.Attempt: (await get(f"/v1/runs/{run}/attempts"))["items"][0],
        answers.Event: (await get(f"/v1/runs/{run}/events"))["items"][0],
        answers.Document: await get(f"/v1/runs/{run}/document"),
        answers.Agent: (await get("/v1/agents"))["items"][0],
        answers.Person: await get("/v1/me"),
        answers.Worker: (await get("/v1/workers"))["items"][0],
        answers.Health: await get("/readyz"),
        lab.LabConversations: await get("/api/conversations"),
        lab.LabThread: await get(f"/api/conversations/{conversation}"),
    }
    for model, answer in real.items():
        assert set(examples.EXAMPLES[model]) == set(answer), model
    assert set(examples.EXAMPLES[answers.Document]["document"]) == set(real[answers.Document]["document"])
    served.puppet.gate("g").set()


def _refs(value: Any) -> Any:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for below in value.values():
            yield from _refs(below)
    elif isinstance(value, list):
        for below in value:
            yield from _refs(below)


async def test_the_key_is_described_where_it_is_taken(idle: Serving) -> None:
    document = (await idle.http.get("/openapi.json")).json()
    taking = {
        path
        for path, methods in document["paths"].items()
        for operation in methods.values()
        for parameter in operation["parameters"]
        if parameter["name"] == "Idempotency-Key"
    }
    assert taking == {
        "/v1/conversations",
        "/v1/conversations/{conversation_id}/messages",
        "/v1/conversations/{conversation_id}/continue",
        "/v1/followups/{followup_id}/send",
        "/v1/requests/{request_id}/decision",
        "/v1/adapter/claim",
        "/v1/adapter/runs/{run_id}/renew",
        "/v1/adapter/runs/{run_id}/transition",
        "/v1/adapter/runs/{run_id}/steps",
        "/v1/adapter/runs/{run_id}/effects",
        "/v1/adapter/runs/{run_id}/messages",
        "/v1/adapter/runs/{run_id}/requests",
        "/api/chat",
    }


async def test_what_a_run_token_authorises_says_so(idle: Serving) -> None:
    document = (await idle.http.get("/openapi.json")).json()
    assert document["components"]["securitySchemes"]["runToken"]["scheme"] == "bearer"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_token = path.startswith("/v1/adapter/runs/") or (method, path[-9:]) == ("patch", "/document")
            assert ("security" in operation) == by_token, (method, path)


@pytest.mark.slow(150)
async def test_requests_made_from_the_description_never_break_the_server(served: Serving) -> None:
    """Valid and invalid ones; no answer is a 5xx, and every refusal is a problem document."""
    conversation = await served.conversation(title="known")
    run = (await served.send(conversation, "say known"))["run"]["id"]
    await served.ended(run)
    document = (await served.http.get("/openapi.json")).json()
    known = {"conversation_id": conversation, "run_id": run}
    schema = schemathesis.openapi.from_dict(document)
    loop = asyncio.get_running_loop()

    def ask(method: str, url: str, **more: Any) -> httpx.Response:
        future = asyncio.run_coroutine_threadsafe(served.http.request(method, url, **more), loop)
        return future.result(10)

    def run_all() -> int:
        asked = 0
        for result in schema.get_all_operations():
            operation = result.ok()
            if operation.path in ("/v1/stream", "/api/chat") and operation.method == "get":
                continue  # they go on for ever, and have tests of their own

            for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
                try:
                    strategy = operation.as_strategy(generation_mode=mode)
                except SchemathesisError:
                    continue

                @settings(
                    max_examples=6,
                    deadline=None,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )
                @given(case=strategy)
                def attempt(case: schemathesis.Case) -> None:
                    nonlocal asked
                    request = case.as_transport_kwargs(base_url=served.server.url)
                    kept = {k: request[k] for k in ("headers", "params", "json", "data") if request.get(k)}
                    path = request["url"].removeprefix(served.server.url)
                    for name, value in known.items():
                        placeholder = str((case.path_parameters or {}).get(name, ""))
                        if placeholder and asked % 2:
                            path = path.replace(placeholder, value)
                    url = served.server.url + path
                    data = kept.pop("data", None)
                    if isinstance(data, bytes):
                        kept["content"] = data
                    try:
                        answer = ask(request["method"], url, **kept)
                    except (
                        httpx.InvalidURL,
                        httpx.LocalProtocolError,
                        UnicodeEncodeError,
                        ValueError,
                        TypeError,
                    ):
                        return  # cannot be sent at all
                    asked += 1
                    assert answer.status_code < 500, (request, answer.text)
                    if answer.status_code >= 400 and request["method"] != "HEAD":
                        answers.Problem.model_validate(answer.json())

                try:
                    attempt()
                except Exception as error:
                    if "Unsatisfiable" not in type(error).__name__:
                        raise
        return asked

    asked = await asyncio.to_thread(run_all)
    assert asked > 150
    assert (await served.http.get("/readyz")).status_code == 200
