"""The laboratory's surface: its paths, bodies, codes and events, on the same runs as `/v1`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from dromos.api.lab.encode import position
from dromos.ports.agent import CheckpointSummary
from dromos.testing.waiting import within
from tests.api.conftest import Heard, Serving, Start

UNKNOWN = "019ad0f2-6a5e-7c3a-9b51-6f0c2d8f4e11"


async def chat(serving: Serving, **body: Any) -> dict[str, Any]:
    answer = await serving.http.post("/api/chat", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def follow(serving: Serving, conversation: str, last: Any = None, seconds: float = 5) -> list[Heard]:
    async with serving.listen("/api/chat", last=last, conversation=conversation) as stream:
        return await stream.rest(seconds)


def text_of(heard: list[Heard]) -> str:
    return "".join(each.data for each in heard if each.event == "token")


def terminals(heard: list[Heard]) -> list[str]:
    return [each.event for each in heard if each.event in ("end", "chat-error")]


@pytest.mark.promise("S8")
async def test_a_message_opens_a_conversation_and_its_run_is_followed_to_the_end(served: Serving) -> None:
    started = await chat(served, message="say two\ngate g\nstep look\nsay  and three")
    async with served.listen("/api/chat", conversation=started["conversation"]) as stream:
        await served.puppet.at("g")
        served.puppet.gate("g").set()
        heard = await stream.rest()
    assert text_of(heard) == "two and three"
    notes = [each.data for each in heard if each.event == "trace"]
    assert [(note["name"], note["event"]) for note in notes][-1] == ("look", "result")
    assert terminals(heard) == ["end"]
    assert heard[-1].data == {**started, "status": "completed"}
    assert all(each.id is not None and each.id.isdigit() for each in heard if each.event in ("token", "end"))

    thread = (await served.http.get(f"/api/conversations/{started['conversation']}")).json()
    assert thread["messages"][0]["role"] == "user"
    assert thread["resumable"] is False
    assert thread["conversation"]["status"] == "completed"
    assert started["run"] not in [message["id"] for message in thread["messages"]]
    run = (await served.http.get(f"/v1/runs/{started['run']}")).json()
    assert run["conversation_id"] == started["conversation"]


@pytest.mark.promise("S8")
async def test_a_failed_run_ends_with_its_code_and_can_be_resumed(served: Serving) -> None:
    started = await chat(served, message="gate g\nfail MODEL_UNAVAILABLE")
    conversation = started["conversation"]
    async with served.listen("/api/chat", conversation=conversation) as stream:
        served.puppet.gate("g").set()
        heard = await stream.rest()
    assert terminals(heard) == ["chat-error"]
    assert heard[-1].data["code"] == "MODEL_UNAVAILABLE"
    assert heard[-1].data["conversation"] == conversation
    again = await follow(served, conversation)
    assert [each.event for each in again] == ["chat-error"]
    assert (await served.http.get(f"/api/conversations/{conversation}")).json()["resumable"] is True
    resumed = await chat(served, resume=True, conversation=conversation)
    assert resumed["run"] != started["run"]
    assert terminals(await follow(served, conversation))[0] in ("end", "chat-error")


async def test_where_nothing_is_active_there_is_one_end(served: Serving) -> None:
    conversation = await served.conversation()
    heard = await within(1, follow(served, conversation), "the end")
    assert [(each.event, each.data["status"]) for each in heard] == [("end", None)]
    started = await chat(served, message="say x", conversation=conversation)
    await served.ended(started["run"])
    heard = await within(1, follow(served, conversation), "the end")
    assert [(each.event, each.data["status"]) for each in heard] == [("end", "completed")]


@pytest.mark.case("P81")
async def test_rejoining_a_finished_run_with_any_cursor_ends_at_once(start: Start) -> None:
    first = await start()
    started = await chat(first, message="say hello\ngate g\nsay  world")
    async with first.listen("/api/chat", conversation=started["conversation"]) as stream:
        await stream.next("token")
        first.puppet.gate("g").set()
        heard = await stream.rest()
    other = await chat(first, message="say other")
    heard_other = await follow(first, other["conversation"])
    await first.ended(other["run"])
    last = int(heard[-1].id or 0)
    token = int(next(each.id for each in heard if each.event == "token" and each.id) or 0)
    strangers = [each.id for each in heard_other if each.id] or [str(last - 1)]
    cursors = [None, 0, token, token + 1000, last, last + 1000, *strangers]
    assert first.worker is not None
    await first.worker.drain()
    first.worker = None

    second = await start()
    for cursor in cursors:
        again = await within(1, follow(second, started["conversation"], cursor), f"the end after {cursor}")
        assert terminals(again) == ["end"]
        assert again[-1].data["status"] == "completed"
    for garbage in ("garbage", started["run"], "-1"):
        headers = {"last-event-id": garbage}
        path = f"/api/chat?conversation={started['conversation']}"
        answer = await within(1, second.http.get(path, headers=headers), "the refusal")
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")


async def test_a_reader_that_comes_back_gets_what_it_missed_and_nothing_twice(served: Serving) -> None:
    started = await chat(served, message="say αβγ😀\ngate g\nsay δε\ngate h\nsay ζ")
    await served.puppet.at("g")
    async with served.listen("/api/chat", conversation=started["conversation"]) as stream:
        seen = await stream.next("token")
        assert seen.data == "αβγ😀"
    served.puppet.gate("g").set()
    await served.puppet.at("h")
    async with served.listen("/api/chat", last=seen.id, conversation=started["conversation"]) as stream:
        missed = await stream.next("token")
        assert missed.data == "δε"
        served.puppet.gate("h").set()
        assert text_of(await stream.rest()) == "ζ"


async def test_two_readers_of_one_run_see_the_same_text(served: Serving) -> None:
    started = await chat(served, message="gate g\ntokens 400")
    one = served.listen("/api/chat", conversation=started["conversation"])
    two = served.listen("/api/chat", conversation=started["conversation"])
    async with one as first, two as second:
        served.puppet.gate("g").set()
        texts = {text_of(await first.rest()), text_of(await second.rest())}
    assert texts == {"".join(f"word{number} " for number in range(400))}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "BAD_REQUEST"),
        ({"message": "   "}, 400, "BAD_REQUEST"),
        ({"message": 5}, 400, "BAD_REQUEST"),
        ({"message": "x", "colour": "red"}, 400, "BAD_REQUEST"),
        ({"message": "x", "conversation": "nonsense"}, 400, "BAD_REQUEST"),
        ({"message": "x", "conversation": UNKNOWN}, 404, "NOT_FOUND"),
        ({"resume": True}, 400, "BAD_REQUEST"),
        ({"resume": True, "message": "x", "conversation": UNKNOWN}, 400, "BAD_REQUEST"),
        ({"resume": True, "conversation": UNKNOWN}, 404, "NOT_FOUND"),
    ],
)
async def test_a_bad_request_has_the_laboratory_s_codes(
    idle: Serving, body: Any, status: int, code: str
) -> None:
    answer = await idle.http.post("/api/chat", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.json()["error"] == {"code": code, "message": answer.json()["detail"]}


async def test_only_one_run_at_a_time_and_nothing_to_resume_are_conflicts(served: Serving) -> None:
    started = await chat(served, message="gate g")
    conversation = started["conversation"]
    busy = await served.http.post("/api/chat", json={"message": "x", "conversation": conversation})
    assert (busy.status_code, busy.json()["code"]) == (409, "SESSION_IN_PROGRESS")
    busy = await served.http.post("/api/chat", json={"resume": True, "conversation": conversation})
    assert (busy.status_code, busy.json()["code"]) == (409, "SESSION_IN_PROGRESS")
    served.puppet.gate("g").set()
    await served.ended(started["run"])
    nothing = await served.http.post("/api/chat", json={"resume": True, "conversation": conversation})
    assert (nothing.status_code, nothing.json()["code"]) == (409, "RUN_NOT_RESUMABLE")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/chat", 400),
        ("/api/chat?conversation=nonsense", 400),
        (f"/api/chat?conversation={UNKNOWN}", 404),
        ("/api/conversations/nonsense", 400),
        (f"/api/conversations/{UNKNOWN}", 404),
        (f"/api/conversations/{UNKNOWN}/export", 404),
        ("/api/conversations/nonsense/export?format=jsonl", 400),
        (f"/api/conversations/{UNKNOWN}/export?format=pdf", 400),
    ],
)
async def test_a_bad_path_is_refused_at_once(idle: Serving, path: str, status: int) -> None:
    answer: httpx.Response = await within(1, idle.http.get(path), "the refusal")
    assert answer.status_code == status


async def test_conversations_are_listed_in_the_laboratory_s_words(served: Serving) -> None:
    started = await chat(served, message="say two")
    await served.ended(started["run"])
    listed = (await served.http.get("/api/conversations")).json()["conversations"]
    assert [item["id"] for item in listed] == [started["conversation"]]
    assert {"title", "createdAt", "updatedAt", "messageCount", "status"} <= set(listed[0])
    assert listed[0]["status"] == "completed"


@pytest.mark.promise("S7")
async def test_the_export_has_one_line_for_each_checkpoint(served: Serving) -> None:
    started = await chat(served, message="say two")
    await served.ended(started["run"])
    moment = datetime(2026, 11, 29, 13, 46, tzinfo=UTC)
    last = {"id": "m1", "role": "user", "content": "say two"}
    served.puppet.summaries = [
        CheckpointSummary("c1", -1, "input", ("__start__",), started["run"], moment, 0),
        CheckpointSummary("c2", 0, "loop", ("agent",), started["run"], moment, 1, last),
    ]
    path = f"/api/conversations/{started['conversation']}/export"
    lines = (await served.http.get(path, params={"format": "jsonl"})).text.splitlines()
    parsed = [json.loads(line) for line in lines]
    assert [(p["step"], p["source"], p["next"], p["message_count"]) for p in parsed] == [
        (-1, "input", ["__start__"], 0),
        (0, "loop", ["agent"], 1),
    ]
    assert [p["run_id"] for p in parsed] == [started["run"]] * 2
    assert parsed[1]["last_message"]["role"] == "user"
    assert (await served.http.get(path)).text.startswith("# say two")
    native = f"/v1/conversations/{started['conversation']}/checkpoints"
    items = (await served.http.get(native)).json()["items"]
    assert [item["checkpoint_id"] for item in items] == ["c1", "c2"]


async def test_a_ping_comes_while_nothing_happens(start: Start) -> None:
    serving = await start(heartbeat=0.05)
    started = await chat(serving, message="gate g")
    async with serving.listen("/api/chat", conversation=started["conversation"]) as stream:
        for _ in range(3):
            ping = await stream.next("ping")
            assert ping.id is None
        serving.puppet.gate("g").set()
        assert terminals(await stream.rest()) == ["end"]


@pytest.mark.case("P138")
async def test_the_laboratory_s_streams_end_at_shutdown(start: Start) -> None:
    serving = await start()
    started = await chat(serving, message="gate never")
    async with serving.listen("/api/chat", conversation=started["conversation"]) as stream:
        await stream.next("ping")
        serving.closing.set()
        assert terminals(await stream.rest(seconds=1)) == []


async def test_a_deleted_conversation_ends_its_streams(served: Serving) -> None:
    started = await chat(served, message="gate never")
    await served.puppet.at("never")
    async with served.listen("/api/chat", conversation=started["conversation"]) as stream:
        await served.http.delete(f"/v1/conversations/{started['conversation']}")
        assert len(terminals(await stream.rest(seconds=2))) == 1


async def test_health(served: Serving) -> None:
    assert (await served.http.get("/api/healthz")).json() == {"status": "ok"}
    assert (await served.http.get("/api/readyz")).json() == {"status": "ok"}


def test_positions_are_exact_in_javascript_and_grow_within_a_message() -> None:
    places = [position("some message", offset) for offset in (0, 1, 2**20)]
    assert places == sorted(places)
    assert all(place < 2**53 for place in places)
