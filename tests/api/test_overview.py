"""The one read that brings a device up to date."""

from __future__ import annotations

import pytest

from dromos.wire import answers
from tests.api.conftest import Serving


async def test_a_device_reads_once_and_streams_on_from_there_without_a_hole(served: Serving) -> None:
    done = await served.conversation(title="done")
    await served.ended((await served.send(done, "say two"))["run"]["id"])
    busy = await served.conversation(title="busy")
    sent = await served.send(busy, "gate g")
    await served.puppet.at("g")

    answer = await served.http.get("/v1/overview")
    assert answer.status_code == 200
    found = answers.Overview.model_validate(answer.json())
    assert {item.title: item.unseen for item in found.conversations.items} == {"done": True, "busy": False}
    assert found.unseen == 1
    (run,) = found.runs.items
    assert run.id == sent["run"]["id"]
    assert run.owner is not None
    assert run.owner.kind == "worker"
    assert run.owner.seen_at is not None

    served.puppet.gate("g").set()
    await served.ended(run.id)
    await served.http.patch(f"/v1/conversations/{done}", json={"seen_seq": found.seq})
    async with served.listen(after=found.seq) as stream:
        assert (await stream.next("hello")).data["seq"] > found.seq
        end = await stream.status("completed", run.id)
        assert end.data["payload"]["conversation"]["unseen"] is True
        looked = await stream.next("conversation.changed")
        assert (looked.data["conversation_id"], looked.data["payload"]["conversation"]["unseen"]) == (
            done,
            False,
        )
    (left,) = (await served.http.get("/v1/conversations?unseen=true")).json()["items"]
    assert left["id"] == busy


async def test_a_list_of_runs_names_who_has_each(served: Serving) -> None:
    conversation = await served.conversation()
    ended = await served.ended((await served.send(conversation, "say two"))["run"]["id"])
    await served.send(conversation, "gate g")
    await served.puppet.at("g")
    live, past = (await served.http.get("/v1/runs")).json()["items"]
    assert (live["owner"]["kind"], past["owner"]) == ("worker", None)
    assert past == ended | {"owner": None}
    served.puppet.gate("g").set()
    await served.ended(live["id"])


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "after=3", "limit=1&limit=2"])
async def test_a_wrong_query_is_refused_with_its_place(idle: Serving, query: str) -> None:
    answer = await idle.http.get(f"/v1/overview?{query}")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["path"].startswith("?")
