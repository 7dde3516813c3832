"""Bad input of every kind: a clear 4xx that says where and what to do, and nothing half done."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from dromos.api import json as door_json
from dromos.api.problems import KINDS, kind_of
from dromos.domain import errors
from dromos.domain.errors import Invalid, StoreUnavailable
from dromos.testing.waiting import within
from dromos.wire import answers
from tests.api.conftest import USER, Serving, Start

UNKNOWN = "019ad0f2-6a5e-7c3a-9b51-6f0c2d8f4e11"


def check_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    answers.Problem.model_validate(body)
    assert (body["status"], body["code"]) == (status, code)
    assert body["title"] and body["detail"].strip().endswith((".", "`errors`.", "…"))
    return body


@pytest.mark.parametrize(
    ("body", "path", "code"),
    [
        ({"content": "x", "colour": "red"}, "/colour", "unknown_field"),
        ({"content": "x", "run": {"modle": "x"}}, "/run/modle", "unknown_field"),
        ({"content": "x", "run": {"deadline_s": "soon"}}, "/run/deadline_s", None),
        ({"content": "x", "run": {"deadline_s": -1}}, "/run/deadline_s", "greater_than"),
        ({"content": "x", "when_busy": "whenever"}, "/when_busy", "enum"),
        ({"content": ""}, "/content", None),
        ({"content": None}, "/content", None),
        ({"content": 7}, "/content", None),
        ({"content": {}}, "/content", None),
        ({}, "/content", "missing"),
        ([], "", None),
        ("text", "", None),
        (None, "", None),
    ],
)
async def test_each_fault_of_a_body_is_named_with_its_place(
    idle: Serving, body: Any, path: str, code: str | None
) -> None:
    conversation = await idle.conversation()
    answer = await idle.http.post(
        f"/v1/conversations/{conversation}/messages",
        content=json.dumps(body),
        headers={"content-type": "application/json"},
    )
    problem = check_problem(answer, 400, "validation_failed")
    assert path in [error["path"] for error in problem["errors"]]
    if code is not None:
        assert code in [error["code"] for error in problem["errors"]]
    assert (await idle.http.get("/v1/runs")).json()["items"] == []


async def test_every_fault_is_told_at_once(idle: Serving) -> None:
    conversation = await idle.conversation()
    body = {"content": 1, "when_busy": 2, "x": 3, "run": {"agent": 4}}
    answer = await idle.http.post(f"/v1/conversations/{conversation}/messages", json=body)
    problem = check_problem(answer, 400, "validation_failed")
    assert {error["path"] for error in problem["errors"]} == {"/content", "/when_busy", "/x", "/run/agent"}


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"\xff\xfe{}",
        b'{"content": "a" "b"}',
        b'{"content": "raw\x00nul"}',
        b'{"content": NaN}',
        b'{"content": {"a": [1, Infinity]}}',
        b'{"content": {"a": -Infinity}}',
        b'{"content": {"a": 1e999}}',
        b'{"content": {"a": ' + b"9" * 5000 + b"}}",
        b'{"content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"content": ' + b'{"a":' * 70 + b"1" + b"}" * 70 + b"}",
    ],
    ids=lambda body: str(body[:24]),
)
async def test_what_is_not_json_or_cannot_be_stored_is_refused(idle: Serving, body: bytes) -> None:
    conversation = await idle.conversation()
    headers = {"content-type": "application/json"}
    answer = await idle.http.post(f"/v1/conversations/{conversation}/messages", content=body, headers=headers)
    check_problem(answer, 400, "validation_failed")
    assert (await idle.http.get("/v1/runs")).json()["items"] == []


def test_nan_is_refused_with_its_place() -> None:
    with pytest.raises(Invalid) as refused:
        door_json.loads(b'{"a": [1, {"b/c": NaN}], "d": -Infinity}')
    assert [fault.path for fault in refused.value.faults] == ["/a/1/b~1c", "/d"]


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**22])
def test_a_whole_number_that_no_database_takes_is_refused_and_never_rounded(number: int) -> None:
    with pytest.raises(Invalid) as refused:
        door_json.loads(b'{"a": [%d]}' % number)
    assert [(fault.code, fault.path) for fault in refused.value.faults] == [("number_too_large", "/a/0")]
    assert door_json.loads(b'{"a": [18446744073709551615, -9223372036854775808, 0.1234567890123456789]}') == {
        "a": [2**64 - 1, -(2**63), 0.12345678901234568]
    }


def test_depth_is_counted_outside_of_strings_only() -> None:
    flat = b'{"a": "' + b"[{" * 500 + b'\\"[[", "b": [' + b"[]," * 499 + b"[]]}"
    assert len(door_json.loads(flat)["b"]) == 500
    deep = b'{"a": ' + b"[" * (door_json.MAX_DEPTH - 1) + b"]" * (door_json.MAX_DEPTH - 1) + b"}"
    door_json.loads(deep)
    with pytest.raises(Invalid):
        door_json.loads(b"[" + deep + b"]")
    mixed = b'[{"a":' * (door_json.MAX_DEPTH // 2) + b"1" + b"}]" * (door_json.MAX_DEPTH // 2)
    door_json.loads(mixed)
    with pytest.raises(Invalid):
        door_json.loads(b"[" + mixed + b"]")


def test_a_large_hostile_body_is_judged_quickly() -> None:
    hostile = b"[" + b"[],{}," * 1_000_000 + b"1]"
    began = time.monotonic()
    door_json._too_deep(hostile)
    door_json._too_deep(b'"' + b"[" * 8_000_000)
    assert time.monotonic() - began < 3


@pytest.mark.case("P130")
@pytest.mark.case("P131")
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_text_that_no_database_takes_is_cleaned_and_the_answer_shows_it(
    start: Start, database: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("postgres_url") if database == "postgres" else None
    serving = await start(address=address)
    raw = rb'{"title": "a\u0000b\ud83dc\ude00d\ud83d\ude00e \u202e \\u0000"}'
    wanted = "a\ufffdb\ufffdc\ufffdd\U0001f600e \u202e \\u0000"
    headers = {"content-type": "application/json"}
    made = await serving.http.post("/v1/conversations", content=raw, headers=headers)
    assert made.status_code == 201
    assert made.json()["title"] == wanted
    conversation = made.json()["id"]
    read = (await serving.http.get(f"/v1/conversations/{conversation}")).json()
    assert read["conversation"]["title"] == wanted

    content = rb'{"content": {"k\u0000": ["\ud800", "ok"]}}'
    sent = await serving.http.post(
        f"/v1/conversations/{conversation}/messages", content=content, headers=headers
    )
    assert sent.status_code == 201, sent.text
    assert sent.json()["message"]["content"] == {"k\ufffd": ["\ufffd", "ok"]}
    await serving.ended(sent.json()["run"]["id"])
    history = (await serving.http.get(f"/v1/conversations/{conversation}/messages")).json()["items"]
    assert history[0]["content"] == {"k\ufffd": ["\ufffd", "ok"]}
    comment = rb'{"comment": "why\u0000"}'
    stop = await serving.http.post(
        f"/v1/runs/{sent.json()['run']['id']}/cancel", content=comment, headers=headers
    )
    check_problem(stop, 409, "already_ended")


@pytest.mark.slow(60)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_two_megabytes_are_kept_whole_and_numbers_that_are_none_are_refused(
    start: Start, database: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("postgres_url") if database == "postgres" else None
    serving = await start(address=address)
    conversation = await serving.conversation()
    text = "say ü😀\u202e \\u0000 " + "0123456789abcde " * (2 * 1024 * 1024 // 16)
    run = (await serving.send(conversation, text))["run"]
    await serving.ended(run["id"])
    history = (await serving.http.get(f"/v1/conversations/{conversation}/messages")).json()["items"]
    assert history[0]["content"] == text
    exported = (await serving.http.get(f"/v1/conversations/{conversation}/export?format=json")).json()
    assert exported["messages"][0]["content"] == text

    for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999"):
        refused = await serving.http.post(
            f"/v1/conversations/{conversation}/messages",
            content=b'{"content": {"n": ' + number + b"}}",
            headers={"content-type": "application/json"},
        )
        check_problem(refused, 400, "validation_failed")


async def test_a_text_of_two_megabytes_goes_through(served: Serving) -> None:
    conversation = await served.conversation()
    text = "say " + "é" * 1_000_000
    sent = await served.send(conversation, text)
    assert sent["message"]["content"] == text
    await served.ended(sent["run"]["id"])


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_beyond_the_limit_is_refused(start: Start, declared: bool) -> None:
    serving = await start(work=False, max_body=1000)
    body = json.dumps({"title": "x" * 5000}).encode()

    async def chunks() -> Any:
        for place in range(0, len(body), 100):
            yield body[place : place + 100]

    content = body if declared else chunks()
    answer = await serving.http.post(
        "/v1/conversations", content=content, headers={"content-type": "application/json"}
    )
    problem = check_problem(answer, 413, "body_too_large")
    assert "1000 bytes" in problem["detail"]
    assert (await serving.http.get("/v1/conversations")).json()["items"] == []


async def test_another_media_type_is_refused_with_the_cure(idle: Serving) -> None:
    answer = await idle.http.post("/v1/conversations", data={"title": "x"})
    problem = check_problem(answer, 415, "unsupported_media_type")
    assert "content-type: application/json" in problem["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/conversations/{}",
        "/v1/conversations/{}/messages",
        "/v1/conversations/{}/export",
        "/v1/conversations/{}/checkpoints",
        "/v1/runs/{}",
        "/v1/runs/{}/steps",
        "/v1/runs/{}/events",
        "/v1/runs/{}/attempts",
        "/v1/runs/{}/document",
        "/v1/followups/{}",
        "/v1/requests/{}",
    ],
)
async def test_a_bad_id_is_answered_like_an_unknown_one(idle: Serving, path: str) -> None:
    unknown = await idle.http.get(path.format(UNKNOWN))
    check_problem(unknown, 404, "not_found")
    for bad in ("nonsense", "..%00", "%ED%A0%80", "9" * 300, UNKNOWN.upper()):
        answer = await idle.http.get(path.format(bad))
        assert (answer.status_code, answer.content) == (404, unknown.content)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/conversations?limit=0",
        "/v1/conversations?limit=1000",
        "/v1/conversations?limit=ten",
        "/v1/conversations?limit=1&limit=2",
        "/v1/conversations?colour=red",
        "/v1/conversations?cursor=nonsense",
        "/v1/conversations?cursor=" + "x" * 2000,
        "/v1/runs?status=sleeping",
        "/v1/runs?cursor=%00",
        "/v1/requests?status=closed",
        "/v1/requests?cursor=x",
        "/v1/agents?x=1",
        "/v1/stream?after=x",
        "/v1/stream?focus=" + "x" * 500,
    ],
)
async def test_a_bad_query_is_refused_with_the_parameter(idle: Serving, path: str) -> None:
    check_problem(await within(1, idle.http.get(path), "the refusal"), 400, "validation_failed")


async def test_an_unknown_address_and_a_wrong_method_are_problems_too(idle: Serving) -> None:
    check_problem(await idle.http.get("/v1/nowhere"), 404, "not_found")
    answer = await idle.http.put("/v1/conversations", json={})
    check_problem(answer, 405, "method_not_allowed")
    assert {"GET", "POST"} <= set(answer.headers["allow"].replace(" ", "").split(","))


@pytest.mark.case("P63")
async def test_a_store_that_is_away_is_503_with_the_cure(
    idle: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await idle.conversation()

    async def away(*arguments: Any) -> Any:
        raise StoreUnavailable("the database cannot be reached: start it")

    monkeypatch.setattr(idle.store, "write", away)
    monkeypatch.setattr(idle.store, "read", away)
    monkeypatch.setattr(idle.store, "check", away)
    for answer in (
        await idle.http.get("/v1/conversations"),
        await idle.http.post(f"/v1/conversations/{conversation}/messages", json={"content": "x"}),
        await idle.http.get("/v1/stream?after=0"),
        await idle.http.get("/metrics"),
    ):
        problem = check_problem_loose(answer, 503, "store_unavailable")
        assert "start it" in problem["detail"]
        assert answer.headers["retry-after"]
    assert (await idle.http.get("/healthz")).json()["status"] == "ok"


def check_problem_loose(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert body["code"] == code
    return body


async def test_what_nobody_expected_is_hidden_and_logged_under_a_number(
    idle: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*arguments: Any) -> Any:
        raise ZeroDivisionError("secret of the house")

    monkeypatch.setattr(idle.lifecycle, "conversations", broken)
    with capture_logs() as logs, caplog.at_level(logging.ERROR):
        answer = await idle.http.get("/v1/conversations")
    problem = check_problem_loose(answer, 500, "INTERNAL")
    assert "secret" not in answer.text and "ZeroDivision" not in answer.text
    assert problem["request_id"] in problem["detail"]
    assert [entry["request_id"] for entry in logs if entry["event"] == "request.failed"] == [
        problem["request_id"]
    ]
    assert (await idle.http.get("/healthz")).status_code == 200


def test_every_error_of_the_product_has_its_line_in_the_table() -> None:
    def tree(kind: type[errors.DromosError]) -> list[type[errors.DromosError]]:
        return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]

    refusals = [kind for kind in tree(errors.Refusal) if kind.__module__ == errors.__name__]
    assert [kind for kind in refusals if kind not in KINDS] == []
    for kind in refusals:
        assert 400 <= kind_of(kind("x")).status < 500
    for unavailable in tree(errors.Unavailable):
        assert kind_of(unavailable("x")).status == 503  # type: ignore[call-arg]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", "", "[::2]"])
async def test_a_name_the_server_does_not_go_by_is_refused(idle: Serving, host: str) -> None:
    answer = await idle.http.get("/v1/conversations", headers={"host": host})
    problem = check_problem(answer, 421, "host_not_allowed")
    assert "allowed_hosts" in problem["detail"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8321", "127.0.0.1:1", "[::1]:8321"])
async def test_loopback_names_are_its_own(idle: Serving, host: str) -> None:
    assert (await idle.http.get("/v1/conversations", headers={"host": host})).status_code == 200


async def test_configured_names_are_let_in(start: Start) -> None:
    serving = await start(work=False, hosts=frozenset({"Dromos.lan"}), origins=frozenset({"https://ui.lan"}))
    answer = await serving.http.get("/v1/me", headers={"host": "dromos.lan:80"})
    assert answer.json() == {"id": USER, "name": "You"}
    headers = {"origin": "https://ui.lan"}
    assert (await serving.http.post("/v1/conversations", json={}, headers=headers)).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
    ],
)
async def test_a_strange_page_may_change_nothing(idle: Serving, headers: dict[str, str]) -> None:
    check_problem(await idle.http.post("/v1/conversations", json={}, headers=headers), 403, "cross_origin")
    assert (await idle.http.get("/v1/conversations")).json()["items"] == []


async def test_the_server_s_own_page_may(idle: Serving) -> None:
    headers = {"origin": idle.server.url, "sec-fetch-site": "same-origin"}
    assert (await idle.http.post("/v1/conversations", json={}, headers=headers)).status_code == 201


@pytest.mark.case("P70")
async def test_a_repeat_with_the_same_key_gets_the_same_bytes_and_has_one_effect(start: Start) -> None:
    serving = await start(work=False)
    conversation = await serving.conversation()
    path = f"/v1/conversations/{conversation}/messages"
    headers = {"idempotency-key": "send-1"}

    async def post(**changes: Any) -> httpx.Response:
        return await serving.http.post(path, json={"content": "once"} | changes, headers=headers)

    twenty = await asyncio.gather(*(post() for _ in range(20)))
    assert {answer.status_code for answer in twenty} == {201}
    assert len({answer.content for answer in twenty}) == 1
    runs = (await serving.http.get("/v1/runs")).json()["items"]
    assert len(runs) == 1

    changed = await post(content="twice")
    check_problem(changed, 422, "idempotency_key_reused")

    again = await start(work=False)
    repeat = await again.http.post(path, json={"content": "once"}, headers=headers)
    assert repeat.content == twenty[0].content
    assert repeat.headers["idempotency-replayed"] == "true"

    other = await again.conversation()
    fresh = await again.http.post(
        f"/v1/conversations/{other}/messages", json={"content": "once"}, headers=headers
    )
    assert fresh.status_code == 201
    assert fresh.json()["run"]["id"] != runs[0]["id"]


@pytest.mark.case("P70")
async def test_every_post_that_creates_takes_a_key(served: Serving) -> None:
    headers = {"idempotency-key": "k"}
    made = [await served.http.post("/v1/conversations", json={}, headers=headers) for _ in range(2)]
    assert made[0].content == made[1].content
    conversation = made[0].json()["id"]
    await served.ended((await served.send(conversation, "fail AGENT_FAILURE"))["run"]["id"])
    path = f"/v1/conversations/{conversation}/continue"
    runs = [await served.http.post(path, json={}, headers=headers) for _ in range(2)]
    assert (runs[0].status_code, runs[0].content) == (201, runs[1].content)
    chats = [
        await served.http.post("/api/chat", json={"message": "say x"}, headers=headers) for _ in range(2)
    ]
    assert (chats[0].status_code, chats[0].content) == (200, chats[1].content)


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\xe9"])
async def test_a_key_has_to_be_short_and_printable(idle: Serving, key: str) -> None:
    headers = {"idempotency-key": key.encode("latin-1")}
    answer = await idle.http.post("/v1/conversations", json={}, headers=headers)
    check_problem(answer, 400, "validation_failed")


async def test_a_refusal_is_not_stored_under_its_key(served: Serving) -> None:
    conversation = await served.conversation()
    headers = {"idempotency-key": "k"}
    path = f"/v1/conversations/{conversation}/messages"
    run = (await served.send(conversation, "gate g"))["run"]
    body = {"content": "say x", "when_busy": "reject"}
    check_problem(await served.http.post(path, json=body, headers=headers), 409, "conversation_busy")
    served.puppet.gate("g").set()
    await served.ended(run["id"])
    assert (await served.http.post(path, json=body, headers=headers)).status_code == 201


async def test_a_client_that_leaves_in_the_middle_of_its_body_does_no_harm(idle: Serving) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", idle.server.port)
    writer.write(
        b"POST /v1/conversations HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"content-length: 1000\r\n\r\n{" + os.urandom(8).hex().encode()
    )
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await idle.http.get("/v1/conversations")).json()["items"] == []
    del reader
