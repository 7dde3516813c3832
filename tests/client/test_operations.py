"""Every operation of the client against the real server."""

from __future__ import annotations

import json

import pytest

from dromos.client import Client, Conflict, InvalidRequest, NotFound, RunView
from dromos.testing.waiting import within
from tests.client.played import LosesAnswers

pytestmark = pytest.mark.slow(60)


async def follow(client: Client, conversation_id: str, after: int, run: dict[str, object]) -> RunView:
    """Watch a run to its end."""
    view = RunView(run)
    async with client.stream(focus=conversation_id, after=after) as events:

        async def ended() -> None:
            async for event in events:
                view.take(event)
                if view.ended:
                    return

        await within(20, ended(), "the end of the run")
    view.take_document(await client.document(str(run["id"])))  # it may have ended before anybody looked
    return view


async def start(client: Client, text: str) -> tuple[str, int, dict[str, object]]:
    conversation = await client.create_conversation(title="a test")
    seq = (await client.conversation(conversation["id"]))["seq"]
    posted = await client.post_message(conversation["id"], text)
    return conversation["id"], seq, posted["run"]


async def test_a_message_is_answered_and_the_stream_tells_it_all(client: Client) -> None:
    conversation_id, seq, run = await start(client, "!tokens 30 60")
    view = await follow(client, conversation_id, seq, run)
    messages = (await client.messages(conversation_id))["items"]
    answer = next(message for message in messages if message["role"] == "assistant")
    assert view.run["status"] == "completed"
    assert view.text == answer["content"]
    assert len(view.text.split()) == 30
    assert (await client.run(view.run_id))["status"] == "completed"
    assert (await client.document(view.run_id))["document"]["text"]["content"] == view.text


async def test_a_message_whose_answer_was_lost_is_taken_once(server_url: str) -> None:
    async with Client(server_url) as client:
        conversation = await client.create_conversation()
    async with Client(server_url, transport=LosesAnswers(2)) as client:
        posted = await client.post_message(conversation["id"], "once")
        assert posted["message"]["content"] == "once"
        messages = (await client.messages(conversation["id"]))["items"]
    assert [message["content"] for message in messages if message["role"] == "user"] == ["once"]


async def test_a_stop_is_waited_for_and_a_second_one_is_no_error(client: Client) -> None:
    _, _, run = await start(client, "!tokens 5000 20")
    stopped = (await client.cancel(str(run["id"]), comment="enough", wait_s=10))["run"]
    assert (stopped["status"], stopped["stop"]["comment"]) == ("cancelled", "enough")
    assert (await client.cancel(str(run["id"])))["run"]["status"] == "cancelled"


async def test_a_stop_that_comes_too_late_says_how_the_run_ended(client: Client) -> None:
    conversation_id, seq, run = await start(client, "hello")
    await follow(client, conversation_id, seq, run)
    with pytest.raises(Conflict) as caught:
        await client.cancel(str(run["id"]))
    assert caught.value.code == "already_ended"
    assert caught.value.current["run"]["status"] == "completed"


async def test_a_failed_run_is_continued_and_a_done_one_is_not(client: Client) -> None:
    conversation_id, seq, run = await start(client, "!error 401 x1\n!say better now")
    failed = await follow(client, conversation_id, seq, run)
    assert (failed.run["status"], failed.run["error_code"]) == ("failed", "MODEL_AUTH")
    seq = (await client.conversation(conversation_id))["seq"]
    resumed = (await client.continue_run(conversation_id))["run"]
    assert run["id"] in (resumed["resume_of"], resumed["retry_of"])
    assert (await follow(client, conversation_id, seq, resumed)).text == "better now"
    with pytest.raises(Conflict, match=r"\w") as caught:
        await client.continue_run(conversation_id)
    assert caught.value.code == "run_not_resumable"


async def test_a_message_during_a_run_waits_and_can_be_taken_back(client: Client) -> None:
    conversation_id, _, run = await start(client, "!tokens 5000 20")
    followup = (await client.post_message(conversation_id, "and then"))["followup"]
    assert followup["status"] == "waiting"
    with pytest.raises(Conflict):
        await client.post_message(conversation_id, "now or never", when_busy="reject")
    await client.discard_followup(followup["id"], followup["version"])
    await client.cancel(str(run["id"]), wait_s=10)
    assert (await client.conversation(conversation_id))["followups"] == []


async def test_what_waits_is_edited_moved_and_held_and_sent_and_its_texts_are_kept(client: Client) -> None:
    conversation_id, _, run = await start(client, "!tokens 5000 20")
    one, two = [
        (await client.post_message(conversation_id, text))["followup"] for text in ("!say one", "!say two")
    ]
    edited = await client.edit_followup(one["id"], one["version"], "!say first")
    with pytest.raises(Conflict) as caught:
        await client.move_followup(one["id"], one["version"], 1)
    assert caught.value.current["followup"]["version"] == edited["version"]
    await client.move_followup(one["id"], edited["version"], 1)
    assert [each["id"] for each in (await client.conversation(conversation_id))["followups"]] == [
        two["id"],
        one["id"],
    ]
    await client.cancel(str(run["id"]), wait_s=10)
    held = await client.followup(one["id"])
    assert held["status"] == "held"
    assert [each["content"] for each in held["revisions"]] == ["!say one", "!say first"]
    sent = await client.send_followup(one["id"], held["version"])
    assert (sent["message"]["content"], sent["followup"]["status"]) == ("!say first", "applied")


async def test_runs_steps_attempts_and_checkpoints_can_be_read(client: Client) -> None:
    conversation_id, seq, run = await start(client, "hello")
    await follow(client, conversation_id, seq, run)
    assert [each["id"] async for each in client.runs(conversation_id=conversation_id)] == [run["id"]]
    assert run["id"] in [each["id"] async for each in client.runs(status="completed", limit=500)]
    assert [each["attempt"] for each in await client.attempts(str(run["id"]))] == [1]
    assert [step["status"] async for step in client.steps(str(run["id"]))].count("done") >= 1
    checkpoints = await client.checkpoints(conversation_id)
    assert {each["run_id"] for each in checkpoints} == {run["id"]}


async def test_an_export_is_the_file_s_bytes(client: Client) -> None:
    conversation_id, seq, run = await start(client, "Grüße 🌊")
    await follow(client, conversation_id, seq, run)
    assert "Grüße 🌊" in (await client.export(conversation_id)).decode()
    lines = (await client.export(conversation_id, "jsonl")).decode().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [
        c["step"] for c in await client.checkpoints(conversation_id)
    ]
    assert json.loads(await client.export(conversation_id, "json"))["conversation"]["id"] == conversation_id


async def test_a_conversation_is_changed_listed_and_erased(client: Client) -> None:
    conversation = await client.create_conversation(title="before")
    changed = await client.change_conversation(conversation["id"], title="after")
    assert changed["title"] == "after"
    assert conversation["id"] in [each["id"] async for each in client.conversations()]
    await client.delete_conversation(conversation["id"])
    with pytest.raises(NotFound):
        await client.conversation(conversation["id"])


async def test_the_agents_are_listed_with_the_model_that_answers(client: Client) -> None:
    agents = await client.agents()
    assistant = next(agent for agent in agents if agent["name"] == "assistant")
    assert assistant["default"] and assistant["model"]["name"] == "scripted"


async def test_what_is_wrong_with_a_request_is_told_by_its_path(client: Client) -> None:
    conversation = await client.create_conversation()
    with pytest.raises(InvalidRequest) as caught:
        await client.post_message(conversation["id"], "x", run={"agent": 7})
    assert caught.value.errors[0]["path"].startswith("/run/agent")
    with pytest.raises(InvalidRequest):
        async with client.stream(after=10**9) as events:
            await within(5, anext(events), "an answer to a wrong cursor")
