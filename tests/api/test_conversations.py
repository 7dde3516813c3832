"""Conversations and messages over HTTP."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from dromos.domain.errors import Unavailable
from dromos.ports.store import Table
from dromos.wire import answers
from tests.api.conftest import Serving, Start


async def test_a_message_starts_a_run_and_the_answer_names_both(served: Serving) -> None:
    conversation = await served.conversation(title="Primes")
    answer = await served.http.post(f"/v1/conversations/{conversation}/messages", json={"content": "say two"})
    assert answer.status_code == 201
    started = answers.MessageStarted.model_validate(answer.json())
    assert started.message.content == "say two"
    assert started.run.trigger_message_id == started.message.id
    run = await served.ended(started.run.id)
    assert (run["status"], run["reason"]) == ("completed", "finished")


async def test_the_first_read_of_a_conversation_is_whole(served: Serving) -> None:
    conversation = await served.conversation()
    sent = await served.send(conversation, "say two\ngate g")
    await served.puppet.at("g")
    view = (await served.http.get(f"/v1/conversations/{conversation}")).json()
    answers.ConversationView.model_validate(view)
    assert [run["id"] for run in view["runs"]] == [sent["run"]["id"]]
    assert view["conversation"]["status"] == "running"
    assert [message["kind"] for message in view["messages"]] == ["text", "run"]
    assert view["resumable"] is False
    served.puppet.gate("g").set()
    await served.ended(sent["run"]["id"])


async def test_conversations_are_listed_newest_first_in_pages(idle: Serving) -> None:
    made = [await idle.conversation(title=str(number)) for number in range(5)]
    seen: list[str] = []
    cursor = None
    while True:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await idle.http.get("/v1/conversations", params=query)).json()
        for item in page["items"]:
            answers.ConversationLine.model_validate(item)
            seen.append(item["id"])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == made[::-1]


async def test_history_is_read_backwards_in_pages(served: Serving) -> None:
    conversation = await served.conversation()
    for number in range(3):
        await served.ended((await served.send(conversation, f"say {number}"))["run"]["id"])
    whole = (await served.http.get(f"/v1/conversations/{conversation}/messages")).json()
    assert whole["next_cursor"] is None
    ids = [message["id"] for message in whole["items"]]
    page = (await served.http.get(f"/v1/conversations/{conversation}/messages?limit=2")).json()
    assert [message["id"] for message in page["items"]] == ids[-2:]
    older = await served.http.get(
        f"/v1/conversations/{conversation}/messages", params={"before": page["next_cursor"], "limit": 50}
    )
    assert [message["id"] for message in older.json()["items"]] == ids[:-2]


async def test_title_and_archive_change(idle: Serving) -> None:
    conversation = await idle.conversation()
    answer = await idle.http.patch(
        f"/v1/conversations/{conversation}", json={"title": "Renamed", "archived": True}
    )
    assert answer.status_code == 200
    assert (answer.json()["title"], answer.json()["archived"]) == ("Renamed", True)


async def test_a_message_while_a_run_is_live_waits_and_starts_the_next_run(served: Serving) -> None:
    conversation = await served.conversation()
    first = await served.send(conversation, "gate g")
    await served.puppet.at("g")
    answer = await served.http.post(
        f"/v1/conversations/{conversation}/messages", json={"content": "say after"}
    )
    assert answer.status_code == 202
    waits = answers.MessageWaits.model_validate(answer.json())
    assert (waits.message.id, waits.message.content) == (None, "say after")
    assert waits.followup.status == "waiting"
    read = (await served.http.get(f"/v1/followups/{waits.followup.id}")).json()
    revisions = answers.FollowupRead.model_validate(read).revisions
    assert [(one.num, one.content, one.author_id) for one in revisions] == [(1, "say after", "local")]
    assert {name: read[name] for name in read if name != "revisions"} == answer.json()["followup"]
    async with served.listen(after=0) as stream:
        served.puppet.gate("g").set()
        await stream.status("completed", first["run"]["id"])
        next_run = (await stream.status("queued")).data["payload"]["run"]
        assert next_run["reason"] == "created_from_followup"
        await stream.status("completed", next_run["id"])


async def test_a_busy_conversation_can_refuse_and_says_which_run_is_live(served: Serving) -> None:
    conversation = await served.conversation()
    first = await served.send(conversation, "gate g")
    answer = await served.http.post(
        f"/v1/conversations/{conversation}/messages", json={"content": "no", "when_busy": "reject"}
    )
    assert answer.status_code == 409
    assert answer.json()["code"] == "conversation_busy"
    assert answer.json()["run"]["id"] == first["run"]["id"]
    answers.Problem.model_validate(answer.json())


async def test_a_waiting_message_can_be_edited_and_removed(served: Serving) -> None:
    conversation = await served.conversation()
    await served.send(conversation, "gate g")
    followup = (await served.send(conversation, "say x"))["followup"]
    path = f"/v1/followups/{followup['id']}"
    edited = await served.http.patch(path, json={"version": followup["version"], "content": "say y"})
    assert (edited.status_code, edited.json()["content"]) == (200, "say y")
    stale = await served.http.patch(path, json={"version": followup["version"], "content": "say z"})
    assert (stale.status_code, stale.json()["code"]) == (409, "version_conflict")
    texts = [one["content"] for one in (await served.http.get(path)).json()["revisions"]]
    assert texts == ["say x", "say y"]
    sent = await served.http.post(f"{path}/send", json={"version": followup["version"]})
    assert (sent.status_code, sent.json()["followup"]["version"]) == (409, edited.json()["version"])
    removed = await served.http.delete(path, params={"version": edited.json()["version"]})
    assert (removed.status_code, removed.json()["status"]) == (200, "discarded")


async def test_a_held_message_is_sent_when_the_person_says_so(served: Serving) -> None:
    conversation = await served.conversation()
    run = (await served.send(conversation, "gate g"))["run"]
    await served.puppet.at("g")
    followup = (await served.send(conversation, "say later"))["followup"]
    await served.http.post(f"/v1/runs/{run['id']}/cancel?wait_s=5")
    held = (await served.http.get(f"/v1/followups/{followup['id']}")).json()
    assert held["status"] == "held"
    answer = await served.http.post(f"/v1/followups/{held['id']}/send", json={"version": held["version"]})
    assert answer.status_code == 201, answer.text
    assert answer.json()["message"]["content"] == "say later"
    await served.ended(answer.json()["run"]["id"])


@pytest.mark.case("P106")
async def test_deleting_stops_the_run_and_erases_everything(served: Serving) -> None:
    conversation = await served.conversation()
    run = (await served.send(conversation, "gate never"))["run"]
    await served.puppet.at("never")
    async with served.listen() as stream:
        answer = await served.http.delete(f"/v1/conversations/{conversation}")
        assert answer.status_code == 204
        assert answer.content == b""
        gone = await stream.next("conversation.deleted")
        assert gone.data["payload"]["id"] == conversation
    for path in (f"/v1/conversations/{conversation}", f"/v1/runs/{run['id']}"):
        assert (await served.http.get(path)).status_code == 404
    assert (await served.http.get("/v1/conversations")).json()["items"] == []
    assert (await served.http.delete(f"/v1/conversations/{conversation}")).status_code == 404


async def test_two_deletes_at_once_both_wait_for_the_end(served: Serving) -> None:
    conversation = await served.conversation()
    await served.send(conversation, "gate never")
    await served.puppet.at("never")
    paths = [f"/v1/conversations/{conversation}"] * 2
    both = await asyncio.gather(*(served.http.delete(path) for path in paths))
    assert sorted(answer.status_code for answer in both) in ([204, 204], [204, 404])


async def test_an_unknown_agent_is_refused_with_the_names_there_are(idle: Serving) -> None:
    answer = await idle.http.post("/v1/conversations", json={"agent": "nobody"})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["path"] == "/agent"
    assert "puppet" in answer.json()["detail"]


@pytest.mark.case("P14")
async def test_a_failed_run_is_continued_by_a_new_one(served: Serving) -> None:
    conversation = await served.conversation()
    failed = await served.ended((await served.send(conversation, "fail MODEL_UNAVAILABLE"))["run"]["id"])
    assert (failed["status"], failed["error_code"]) == ("failed", "MODEL_UNAVAILABLE")
    assert (await served.http.get(f"/v1/conversations/{conversation}")).json()["resumable"] is True
    answer = await served.http.post(f"/v1/conversations/{conversation}/continue", json={})
    assert answer.status_code == 201, answer.text
    again = answers.Run.model_validate(answer.json()["run"])
    assert again.retry_of == failed["id"] and again.id != failed["id"]
    assert again.error_code is None
    await served.ended(again.id)


async def test_an_agent_that_cannot_look_at_its_thread_does_not_hide_the_history(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await served.conversation()
    failed = await served.ended((await served.send(conversation, "fail AGENT_FAILURE"))["run"]["id"])
    head = {"thread_id": conversation, "checkpoint_ns": "", "checkpoint_id": "1", "run_id": failed["id"]}
    rest = {"type": "", "checkpoint": b"", "metadata": {}, "created_at": datetime.now(UTC)}
    await served.store.write(lambda tx: tx.put(Table.CHECKPOINTS, {**head, **rest}))

    async def broken(conversation_id: str) -> tuple[str, ...]:
        raise Unavailable("The graph cannot be loaded; mend graphs.py.")

    monkeypatch.setattr(served.puppet, "pending", broken)
    for path in (f"/v1/conversations/{conversation}", f"/api/conversations/{conversation}"):
        answer = await served.http.get(path)
        assert answer.status_code == 200, answer.text
        assert answer.json()["resumable"] is False
    answer = await served.http.post(f"/v1/conversations/{conversation}/continue")
    assert answer.status_code == 503 and "mend graphs.py" in answer.json()["detail"]


async def test_nothing_to_continue_is_said_with_the_last_run(served: Serving) -> None:
    conversation = await served.conversation()
    empty = await served.http.post(f"/v1/conversations/{conversation}/continue")
    assert (empty.status_code, empty.json()["code"]) == (409, "run_not_resumable")
    run = await served.ended((await served.send(conversation, "say done"))["run"]["id"])
    answer = await served.http.post(f"/v1/conversations/{conversation}/continue")
    assert answer.status_code == 409
    assert answer.json()["run"]["id"] == run["id"]


async def test_the_whole_conversation_can_be_downloaded(served: Serving) -> None:
    conversation = await served.conversation(title="Primes")
    await served.ended((await served.send(conversation, "say ```\nand more"))["run"]["id"])
    path = f"/v1/conversations/{conversation}/export"
    markdown = await served.http.get(path)
    assert markdown.headers["content-type"].startswith("text/markdown")
    assert markdown.headers["content-disposition"] == f'attachment; filename="{conversation}.md"'
    assert markdown.text.startswith("# Primes\n")
    assert "say ```" in markdown.text
    whole = (await served.http.get(path, params={"format": "json"})).json()
    assert whole["conversation"]["id"] == conversation
    assert [run["status"] for run in whole["runs"]] == ["completed"]
    assert (await served.http.get(path, params={"format": "pdf"})).status_code == 400


async def test_a_stream_that_is_dropped_changes_nothing_for_the_run(start: Start) -> None:
    served = await start()
    conversation = await served.conversation()
    run = (await served.send(conversation, "say half\ngate g"))["run"]
    await served.puppet.at("g")
    async with served.listen(focus=conversation) as stream:
        await stream.next("run.document")
    assert (await served.http.get(f"/v1/runs/{run['id']}")).json()["status"] == "running"
    stopped = await served.http.post(f"/v1/runs/{run['id']}/cancel", params={"wait_s": 5}, json={})
    assert (stopped.status_code, stopped.json()["run"]["status"]) == (200, "cancelled")
