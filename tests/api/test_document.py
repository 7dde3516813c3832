"""The live document over HTTP: its schema, patches from outside with every answer, text beside them, who sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import jsonschema
import orjson
import pytest

from dromos.domain import patches
from dromos.domain.document import MAX_TEXT, first_version
from dromos.domain.text import utf16_length
from dromos.ports.store import Table, Tx
from dromos.testing.waiting import eventually, within
from dromos.wire import answers
from tests.api.conftest import Listening, Serving, Start
from tests.api.test_adapter import AGENT, Adapter, a_message
from tests.api.test_problems import check_problem

Json = dict[str, Any]
DATABASES = pytest.mark.parametrize("database", ["sqlite", "postgres"])


def op(kind: str, path: str, *value: Any) -> Json:
    return {"op": kind, "path": path, **({"value": value[0]} if value else {})}


LINE = op("add", "/line", "at work")


class Owner:
    """An adapter that owns one run."""

    def __init__(self, serving: Serving, claim: Json) -> None:
        self.serving, self.run, self.token = serving, claim["run"]["id"], claim["token"]
        self.conversation = claim["run"]["conversation_id"]
        self.version = first_version(claim["epoch"])
        self.claim = claim

    async def patch(self, *operations: Json, **more: Any) -> httpx.Response:
        serving = more.pop("serving", self.serving)
        headers = {"authorization": f"Bearer {more.pop('token', self.token)}"}
        run = more.pop("run", self.run)
        body = {"base_version": self.version, "patch": list(operations), **more}
        answer: httpx.Response = await serving.http.patch(
            f"/v1/runs/{run}/document", json=body, headers=headers
        )
        if answer.status_code == 200:
            self.version = answer.json()["version"]
        return answer

    async def taken(self, *operations: Json, **more: Any) -> int:
        answer = await self.patch(*operations, **more)
        assert answer.status_code == 200, answer.text
        assert set(answer.json()) == {"version"}
        return self.version

    async def say(self, message: str, offset: int, text: str, **more: Any) -> httpx.Response:
        return await self.patch(text={"message_id": message, "offset": offset, "append": text}, **more)

    async def document(self, serving: Serving | None = None) -> Json:
        answer = await (serving or self.serving).http.get(f"/v1/runs/{self.run}/document")
        assert answer.status_code == 200
        return dict(answer.json())


@pytest.fixture
async def outside(start: Start) -> Serving:
    return await start(remote=(AGENT,))


async def owner_of(serving: Serving, session: str = "session-1") -> Owner:
    await a_message(serving)
    return Owner(serving, await Adapter(serving, session).claim())


# --- reading


async def test_the_schema_is_published_and_every_document_fits_it(outside: Serving) -> None:
    answer = await outside.http.get("/schemas/run_document.v1.json")
    assert answer.headers["content-type"] == "application/schema+json"
    assert "max-age" in answer.headers["cache-control"]
    schema = jsonschema.Draft202012Validator(answer.json())
    again = await outside.http.get(
        "/schemas/run_document.v1.json", headers={"if-none-match": answer.headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")
    conversation = await outside.conversation()
    run = (await outside.send(conversation, "say words\nstep look\ngate g"))["run"]["id"]
    await outside.puppet.at("g")
    schema.validate((await outside.http.get(f"/v1/runs/{run}/document")).json()["document"])
    outside.puppet.gate("g").set()
    await outside.ended(run)
    schema.validate((await outside.http.get(f"/v1/runs/{run}/document")).json()["document"])
    queued = (await a_message(outside))["run"]["id"]
    schema.validate((await outside.http.get(f"/v1/runs/{queued}/document")).json()["document"])


async def test_a_document_that_is_known_is_not_sent_again(outside: Serving) -> None:
    owner = await owner_of(outside)
    path = f"/v1/runs/{owner.run}/document"

    async def ask(tag: str) -> httpx.Response:
        return await outside.http.get(path, headers={"if-none-match": tag})

    tag = (await outside.http.get(path)).headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        assert (await ask(known)).status_code == 304
    assert (await ask('"other"')).status_code == 200
    await owner.taken(LINE)
    patched = await ask(tag)
    assert patched.status_code == 200
    assert (await owner.say("m", 0, "five!")).status_code == 200
    said = await ask(patched.headers["etag"])
    assert said.status_code == 200
    assert (await owner.say("n", 0, "other")).status_code == 200, "as long as the one before"
    other = await ask(said.headers["etag"])
    assert other.status_code == 200
    await outside.send(owner.conversation, "one more thing")
    assert (await ask(other.headers["etag"])).status_code == 200


# --- patching


async def test_an_owner_outside_finds_its_first_version_and_goes_on_from_there(outside: Serving) -> None:
    owner = await owner_of(outside)
    assert (await owner.document())["version"] == owner.version == first_version(owner.claim["epoch"])
    assert await owner.taken(LINE, op("replace", "/usage/input", 7)) == owner.version
    assert await owner.taken(op("test", "/line", "at work")) == owner.version, "nothing changed"
    shown = await owner.document()
    answers.Document.model_validate(shown)
    assert shown["version"] == owner.version == first_version(owner.claim["epoch"]) + 1
    assert (shown["document"]["line"], shown["document"]["usage"]["input"]) == ("at work", 7)
    run = (await outside.http.get(f"/v1/runs/{owner.run}")).json()
    assert (run["document_version"], run["usage"]["input"]) == (owner.version, 7)
    assert run["version"] == owner.claim["run"]["version"], "a patch does not move the run"


async def test_the_checks_come_in_their_order(outside: Serving) -> None:
    """Each request has every fault of those behind it; the first one is told."""
    owner, other = await owner_of(outside), await owner_of(outside, "session-2")
    bad = op("replace", "/status", "completed")

    async def refused(status: int, code: str, **more: Any) -> Json:
        answer = await owner.patch(bad, base_version=1, **more)
        check_problem(answer, status, code)
        return dict(answer.json())

    await refused(401, "unknown_token", token="drt_never")
    for scheme in ("", "Basic eDp5", "Bearer", f"Token {owner.token}"):
        answer = await outside.http.patch(
            f"/v1/runs/{owner.run}/document", json={"base_version": 1}, headers={"authorization": scheme}
        )
        check_problem(answer, 401, "unknown_token")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    await refused(403, "other_run", run=other.run)
    await refused(403, "other_run", run="019ad0f2-6a5e-7c3a-9b51-6f0c2d8f4e11")
    conflict = await refused(409, "version_conflict")
    assert conflict["version"] == owner.version
    assert conflict["document"] == (await owner.document())["document"]
    answer = await owner.patch(bad)
    check_problem(answer, 400, "validation_failed")
    assert [(e["code"], e["path"]) for e in answer.json()["errors"]] == [("patch_path_forbidden", "/status")]
    assert "operation 1" in answer.json()["errors"][0]["message"]
    await Adapter(outside).done(owner.claim, "transition", {"to": "completed", "answer": "done"})
    ended = await refused(409, "run_not_active")
    assert ended["run"]["status"] == "completed"
    parked = await Adapter(outside, "session-2").call(other.claim, "requests")
    assert parked.status_code == 200
    late = await other.patch(bad, base_version=1)
    check_problem(late, 403, "lease_lost")
    metrics = (await outside.http.get("/metrics")).text
    assert "dromos_late_writes_total 2.0" in metrics


async def test_a_body_that_is_no_patch_is_refused_behind_the_token(outside: Serving) -> None:
    owner = await owner_of(outside)
    path = f"/v1/runs/{owner.run}/document"
    bodies: list[tuple[bytes, str]] = [
        (b"{", ""),
        (b"[]", ""),
        (b"{}", "/base_version"),
        (b'{"base_version": "1"}', "/base_version"),
        (b'{"base_version": 1, "patch": {}}', "/patch"),
        (b'{"base_version": 1, "extra": 1}', "/extra"),
        (b'{"base_version": 1, "text": {"message_id": "", "offset": 0, "append": "x"}}', "/text/message_id"),
        (b'{"base_version": 1, "text": {"message_id": "m", "offset": -1, "append": "x"}}', "/text/offset"),
        (b'{"base_version": 1, "text": {"message_id": "m", "offset": 0}}', "/text/append"),
        (b'{"base_version": NaN}', "/base_version"),
        (b'{"base_version": 1, "patch": ' + b"[" * 70 + b"]" * 70 + b"}", ""),
    ]
    for body, place in bodies:
        for token, status in ((owner.token, 400), ("drt_never", 401)):
            headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
            answer = await outside.http.patch(path, content=body, headers=headers)
            assert answer.status_code == status, (body, answer.text)
            if status == 400:
                assert place in {fault["path"] for fault in answer.json()["errors"]}
    assert (await owner.document())["version"] == owner.version


async def test_every_fault_is_told_and_nothing_of_a_refused_patch_is_kept(outside: Serving) -> None:
    owner = await owner_of(outside)
    answer = await owner.patch(
        LINE,
        op("replace", "/run_version", 9),
        op("copy", "/model", None),
        op("replace", "/plan/3/status", "done"),
        op("add", "/steps/-", {"id": "s", "kind": "tool", "name": "x", "status": "asleep"}),
        op("add", "/workflows/w", {"x": "y" * 9000}),
        text={"message_id": "m", "offset": 0, "append": "words"},
    )
    check_problem(answer, 400, "validation_failed")
    assert [(e["code"], e["path"]) for e in answer.json()["errors"]] == [
        ("patch_path_forbidden", "/run_version"),
        ("patch_op_forbidden", "/model"),
        ("patch_invalid", "/plan/3/status"),
        ("schema_violation", "/steps/-/status"),
        ("document_too_large", "/workflows/w/x"),
    ]
    shown = (await owner.document())["document"]
    assert (shown["line"], shown["text"]["message_id"], shown["steps"]) == (None, None, [])


async def test_text_goes_on_exactly_where_it_ends(outside: Serving) -> None:
    owner = await owner_of(outside)
    version = owner.version
    check_problem(await owner.say("m", 1, "x"), 409, "version_conflict")
    assert (await owner.say("m", 0, "a😀")).status_code == 200
    for offset in (0, 2, 4):
        conflict = await owner.say("m", offset, "again")
        check_problem(conflict, 409, "version_conflict")
        assert conflict.json()["document"]["text"] == {"message_id": "m", "length": 3, "content": "a😀"}
    assert (await owner.say("m", 3, "b\x00")).status_code == 200
    assert owner.version == version, "text raises no version"
    assert (await owner.document())["document"]["text"] == {
        "message_id": "m",
        "length": 5,
        "content": "a😀b\ufffd",
    }
    check_problem(await owner.say("n", 5, "x"), 409, "version_conflict")
    assert (await owner.say("n", 0, "a new message")).status_code == 200
    assert (await owner.document())["document"]["text"]["content"] == "a new message"
    half = b'{"base_version": %d, "text": {"message_id": "h", "offset": 0, "append": "\\ud83d"}}' % version
    headers = {"authorization": f"Bearer {owner.token}", "content-type": "application/json"}
    answer = await outside.http.patch(f"/v1/runs/{owner.run}/document", content=half, headers=headers)
    assert answer.status_code == 200
    assert (await owner.document())["document"]["text"] == {
        "message_id": "h",
        "length": 1,
        "content": "\ufffd",
    }


async def test_a_message_shows_at_most_a_mebibyte(outside: Serving) -> None:
    owner = await owner_of(outside)
    assert (await owner.say("m", 0, "é" * (MAX_TEXT // 2))).status_code == 200
    answer = await owner.say("m", MAX_TEXT // 2, "x")
    check_problem(answer, 400, "validation_failed")
    assert answer.json()["errors"][0] | {"message": ""} == {
        "code": "document_too_large",
        "path": "/text/append",
        "message": "",
    }


@DATABASES
async def test_of_two_patches_for_one_version_one_is_taken(
    start: Start, database: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("postgres_url") if database == "postgres" else None
    serving = await start(remote=(AGENT,), address=address)
    owner = await owner_of(serving)
    base = owner.version
    for round_number in range(5):
        tries = [
            owner.patch(op("add", f"/background/{n}-{round_number}", {}), base_version=base) for n in range(6)
        ]
        statuses = sorted(answer.status_code for answer in await asyncio.gather(*tries))
        assert statuses == [200, 409, 409, 409, 409, 409]
        base += 1
    shown = await owner.document()
    assert shown["version"] == base
    assert len(shown["document"]["background"]) == 5


async def test_a_stopping_run_still_takes_patches(outside: Serving) -> None:
    owner = await owner_of(outside)
    assert (await outside.http.post(f"/v1/runs/{owner.run}/cancel")).status_code == 202
    await owner.taken(op("add", "/line", "tidying up"))
    shown = await owner.document()
    assert (shown["document"]["status"], shown["document"]["line"]) == ("cancelling", "tidying up")


@pytest.mark.slow(60)
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_whoever_looks_sees_that_a_stop_reached_an_owner_outside(
    start: Start, postgres_url: str, elsewhere: bool
) -> None:
    serving = await start(remote=(AGENT,), address=postgres_url if elsewhere else None)
    other = await start(address=postgres_url, work=False) if elsewhere else serving
    owner = await owner_of(serving)
    async with looking(other, owner.conversation) as device:
        assert await device.hear() == "run.document"
        await serving.http.post(f"/v1/runs/{owner.run}/cancel")
        while device.status != "cancelling":
            await device.hear()
        await Adapter(serving).done(owner.claim, "renew")
        while not (device.document["stop"] or {}).get("delivered_at"):
            await device.hear()


async def test_the_next_owner_goes_on_from_the_document_without_what_was_under_way(outside: Serving) -> None:
    owner = await owner_of(outside)
    await owner.taken(LINE, op("add", "/current", {"kind": "tool", "name": "dig"}))
    await owner.say("m", 0, "half a sen")

    def lose(tx: Tx) -> None:
        then = tx.now() - timedelta(minutes=5)
        tx.change(Table.RUNS, {"id": owner.run}, {"renewed_at": then})
        tx.change(Table.LEASES, {}, {"started_at": then - timedelta(hours=1)})

    await outside.store.write(lose)
    await outside.lifecycle.sweep()
    next_owner = Owner(outside, await Adapter(outside, "session-2").claim())
    assert next_owner.run == owner.run
    shown = await next_owner.document()
    assert shown["version"] == next_owner.version > owner.version
    document = shown["document"]
    assert (document["line"], document["current"], document["text"]["message_id"]) == ("at work", None, None)
    check_problem(await owner.patch(LINE), 403, "lease_lost")
    await next_owner.taken(op("add", "/line", "taken over"))
    assert (await next_owner.document())["document"]["line"] == "taken over"


async def test_no_patch_makes_a_durable_event(outside: Serving) -> None:
    owner = await owner_of(outside)
    seq = (await outside.http.get(f"/v1/conversations/{owner.conversation}")).json()["seq"]
    for number in range(20):
        await owner.taken(op("replace", "/usage/input", number))
    after = (await outside.http.get(f"/v1/conversations/{owner.conversation}")).json()["seq"]
    assert after == seq


# --- who looks


class Device:
    """A reader that applies what it hears; it never reads by itself."""

    def __init__(self, stream: Listening) -> None:
        self.stream = stream
        self.version = -1
        self.document: Json = {}
        self.documents = self.patches = self.texts = 0
        self.order: list[str] = []
        self.status = ""

    async def hear(self, seconds: float = 5) -> str:
        heard = await self.stream.next(seconds=seconds)
        self.order.append(heard.event)
        data = heard.data
        if heard.event == "run.status":
            self.status = data["payload"]["run"]["status"]
        elif heard.event == "run.document":
            self.documents += 1
            self.version, self.document = data["version"], data["document"]
        elif heard.event == "run.patch":
            self.patches += 1
            assert data["base_version"] == self.version
            self.version = data["version"]
            patches.apply(self.document, data["patch"])
        elif heard.event == "run.text":
            self.texts += 1
            text = self.document["text"]
            if data["message_id"] != text["message_id"]:
                text = self.document["text"] = {"message_id": data["message_id"], "length": 0, "content": ""}
            assert data["offset"] == text["length"]
            text["content"] += data["text"]
            text["length"] += utf16_length(data["text"])
        return heard.event

    async def until(self, version: int, length: int = 0) -> None:
        async def arrived() -> None:
            while self.version < version or self.document["text"]["length"] < length:
                await self.hear()

        await within(10, arrived(), f"version {version}")

    def has(self, shown: Json) -> bool:
        theirs = {name: shown["document"][name] for name in self.document if name != "owner"}
        ours = {name: value for name, value in self.document.items() if name != "owner"}
        return orjson.dumps(ours, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
            theirs, option=orjson.OPT_SORT_KEYS
        )


@asynccontextmanager
async def looking(serving: Serving, conversation: str, **query: Any) -> AsyncIterator[Device]:
    async with serving.listen(focus=conversation, **query) as stream:
        await stream.next("hello")
        yield Device(stream)


async def test_who_looks_gets_the_document_once_and_then_only_what_changed(outside: Serving) -> None:
    owner = await owner_of(outside)
    await owner.taken(LINE)
    async with looking(outside, owner.conversation) as device:
        assert await device.hear() == "run.document"
        for number in range(30):
            await owner.taken(op("replace", "/usage/input", number))
            await owner.say("m", number, "x")
        await device.until(owner.version, 30)
        assert device.has(await owner.document())
        assert device.documents == 1
        assert 1 <= device.patches <= 30


async def test_the_last_frame_comes_before_the_end(outside: Serving) -> None:
    for _ in range(5):
        owner = await owner_of(outside)
        async with looking(outside, owner.conversation) as device:
            assert await device.hear() == "run.document"
            await owner.taken(op("add", "/line", "first"))
            await owner.say("m", 0, "Seven.")
            await owner.taken(op("add", "/line", "last"))
            await Adapter(outside).done(owner.claim, "transition", {"to": "completed", "answer": "Seven."})
            while await device.hear() != "run.status":
                pass
            assert device.document["line"] == "last"
            assert device.document["text"]["content"] == "Seven."


async def test_an_in_process_run_tells_its_last_frame_before_its_end(outside: Serving) -> None:
    for gate in "abcde":
        conversation = await outside.conversation()
        async with looking(outside, conversation) as device:
            script = f"say one\nstep look\ngate {gate}\ntokens 50\nstep again"
            run = (await outside.send(conversation, script))["run"]["id"]
            while not device.documents:
                await device.hear()
            outside.puppet.gate(gate).set()
            await outside.ended(run)
            while device.status != "completed":
                await device.hear()
            final = (await outside.http.get(f"/v1/runs/{run}/document")).json()
            assert device.version == final["version"]
            assert device.document["text"] == final["document"]["text"]
            assert device.document["steps"] == final["document"]["steps"]


async def test_a_claim_by_an_adapter_shows_its_document_at_once(outside: Serving) -> None:
    sent = await a_message(outside)
    conversation = sent["run"]["conversation_id"]
    async with looking(outside, conversation) as device:
        assert await device.hear() == "run.document"
        assert device.document["status"] == "queued"
        owner = Owner(outside, await Adapter(outside).claim())
        while device.version < owner.version:
            await device.hear()
        assert device.document["status"] == "running"
        await owner.taken(LINE)
        await device.until(owner.version)
        assert device.has(await owner.document())


# --- several processes on one PostgreSQL


@pytest.mark.slow(60)
async def test_patches_taken_by_any_process_reach_readers_at_every_other(
    start: Start, postgres_url: str
) -> None:
    first = await start(remote=(AGENT,), address=postgres_url, work=False)
    second = await start(remote=(AGENT,), address=postgres_url, work=False)
    owner = await owner_of(first)
    async with looking(first, owner.conversation) as here, looking(second, owner.conversation) as there:
        for device in (here, there):
            assert await device.hear() == "run.document"
        for number in range(12):
            serving = (first, second)[number % 2]
            await owner.taken(op("replace", "/usage/input", number), serving=serving)
            await owner.say("m", number, "y", serving=serving)
        for device in (here, there):
            await device.until(owner.version, 12)
            assert device.has(await owner.document(second))
        await Adapter(second).done(owner.claim, "transition", {"to": "completed", "answer": "ok"})
        for device in (here, there):
            while await device.hear() != "run.status":
                pass


@pytest.mark.slow(60)
async def test_a_run_of_another_process_is_seen_as_it_is_saved(postgres_url: str, start: Start) -> None:
    reading = await start(address=postgres_url, work=False)
    working = await start(address=postgres_url)
    conversation = await reading.conversation()
    async with looking(reading, conversation) as device:
        run = (await reading.send(conversation, "say words\nstep look\ngate g\nsay  and more"))["run"]["id"]
        await working.puppet.at("g")
        await eventually(lambda: _shows(device, "words"), what="the text of the other process")
        assert device.document["steps"][0]["name"] == "look"
        working.puppet.gate("g").set()
        while device.document["text"]["content"] != "words and more":
            await device.hear()
        final = (await reading.http.get(f"/v1/runs/{run}/document")).json()
        assert final["document"]["text"]["content"] == "words and more"
        assert [event for event in device.order if event == "run.patch"] == []


async def _shows(device: Device, text: str) -> bool:
    await device.hear()
    return bool(device.document and device.document["text"]["content"] == text)
