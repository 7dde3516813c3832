"""Runs over HTTP: reading, stopping, documents, ends; health and figures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dromos.domain.errors import StoreUnavailable
from dromos.domain.reasons import ErrorCode
from dromos.domain.statuses import FINAL
from dromos.lifecycle.contract import Policy
from dromos.testing.waiting import within
from dromos.wire import answers, shapes
from tests.api.conftest import Serving, Start


async def test_runs_are_listed_and_filtered(served: Serving) -> None:
    conversation = await served.conversation()
    done = await served.ended((await served.send(conversation, "say x"))["run"]["id"])
    other = await served.conversation()
    live = (await served.send(other, "gate g"))["run"]
    await served.puppet.at("g")

    async def ids(**query: Any) -> list[str]:
        page = (await served.http.get("/v1/runs", params=query)).json()
        return [answers.Run.model_validate(run).id for run in page["items"]]

    assert await ids() == [live["id"], done["id"]]
    assert await ids(status="running") == [live["id"]]
    assert await ids(status=["running", "completed"]) == [live["id"], done["id"]]
    assert await ids(conversation_id=conversation) == [done["id"]]
    assert await ids(limit=1) == [live["id"]]
    served.puppet.gate("g").set()


async def test_a_run_tells_its_steps_events_and_attempts(served: Serving) -> None:
    conversation = await served.conversation()
    run = await served.ended((await served.send(conversation, "step look\nsay x"))["run"]["id"])
    base = f"/v1/runs/{run['id']}"
    assert answers.Run.model_validate((await served.http.get(base)).json()).id == run["id"]
    events = (await served.http.get(f"{base}/events")).json()["items"]
    statuses = [e["payload"]["run"]["status"] for e in events if e["type"] == "run.status"]
    assert statuses == ["queued", "running", "completed"]
    assert all("document" in e["payload"] for e in events if e["type"] == "run.status")
    attempts = (await served.http.get(f"{base}/attempts")).json()["items"]
    assert [answers.Attempt.model_validate(a).attempt for a in attempts] == [1]
    assert (await served.http.get(f"{base}/steps")).json() == {"items": [], "next_cursor": None}


async def test_steps_are_read_in_pages(idle: Serving) -> None:
    conversation = await idle.conversation()
    run = (await idle.send(conversation, "x"))["run"]["id"]

    def write(tx: Any) -> None:
        for number in range(5):
            tx.put(
                "run_steps",
                {
                    "run_id": run,
                    "id": f"s{number}",
                    "conversation_id": conversation,
                    "num": number,
                    "attempt": 1,
                    "kind": "tool",
                    "name": f"look {number}",
                    "status": "done",
                    "summary": None,
                    "checkpoint_id": None,
                    "started_at": tx.now(),
                    "ms": 1,
                },
            )

    await idle.store.write(write)
    names: list[str] = []
    cursor = None
    while True:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = (await idle.http.get(f"/v1/runs/{run}/steps", params=query)).json()
        names += [answers.Step.model_validate(step).name for step in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == [f"look {number}" for number in range(5)]


async def test_a_stop_is_accepted_at_once_and_its_end_can_be_waited_for(served: Serving) -> None:
    conversation = await served.conversation()
    run = (await served.send(conversation, "say half\ngate never"))["run"]
    await served.puppet.at("never")
    answer = await served.http.post(
        f"/v1/runs/{run['id']}/cancel", params={"wait_s": 5}, json={"comment": "wrong question"}
    )
    assert answer.status_code == 200
    stopped = answers.Run.model_validate(answer.json()["run"])
    assert stopped.status == "cancelled"
    assert stopped.stop is not None and stopped.stop.comment == "wrong question"
    repeat = await served.http.post(f"/v1/runs/{run['id']}/cancel")
    assert (repeat.status_code, repeat.json()["run"]["status"]) == (200, "cancelled")
    history = (await served.http.get(f"/v1/conversations/{conversation}/messages")).json()["items"]
    assert [(m["content"], m["interrupted"]) for m in history if m["role"] == "assistant"] == [("half", True)]


async def test_a_stop_of_a_waiting_run_is_accepted_and_ends_it(idle: Serving) -> None:
    conversation = await idle.conversation()
    run = (await idle.send(conversation, "x"))["run"]
    answer = await idle.http.post(f"/v1/runs/{run['id']}/cancel")
    assert (answer.status_code, answer.json()["run"]["status"]) == (202, "cancelled")


async def test_waiting_for_an_end_that_does_not_come_is_never_200(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await served.conversation()
    run = (await served.send(conversation, "gate never"))["run"]
    await served.puppet.at("never")
    assert served.worker is not None
    monkeypatch.setattr(served.worker, "_work", asyncio.Event())
    # The owner does not hear of the stop: its wake-up is lost, and it looks by itself only every few seconds.
    monkeypatch.setattr(served.wakeup, "notify", lambda topic, news=(): None)
    answer = await within(
        2, served.http.post(f"/v1/runs/{run['id']}/cancel", params={"wait_s": 0.2}), "the answer"
    )
    assert (answer.status_code, answer.json()["run"]["status"]) == (202, "cancelling")


async def test_a_stop_after_another_end_says_how_it_ended(served: Serving) -> None:
    conversation = await served.conversation()
    run = await served.ended((await served.send(conversation, "say x"))["run"]["id"])
    answer = await served.http.post(f"/v1/runs/{run['id']}/cancel", json={})
    assert answer.status_code == 409
    assert answer.json()["code"] == "already_ended"
    assert answer.json()["run"] == run


async def test_the_document_is_fetched_once_for_each_version(served: Serving) -> None:
    conversation = await served.conversation()
    run = (await served.send(conversation, "say one\ngate g\nsay  two\ngate h"))["run"]
    await served.puppet.at("g")
    path = f"/v1/runs/{run['id']}/document"
    first = await served.http.get(path)
    answers.Document.model_validate(first.json())
    assert first.json()["document"]["text"]["content"] == "one"
    same = await served.http.get(path, headers={"if-none-match": first.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    served.puppet.gate("g").set()
    await served.puppet.at("h")
    fresh = await served.http.get(path, headers={"if-none-match": first.headers["etag"]})
    assert fresh.status_code == 200
    assert fresh.json()["document"]["text"]["content"] == "one two"
    served.puppet.gate("h").set()


async def test_a_run_nobody_has_worked_on_has_an_empty_document(idle: Serving) -> None:
    conversation = await idle.conversation()
    run = (await idle.send(conversation, "x"))["run"]
    document = (await idle.http.get(f"/v1/runs/{run['id']}/document")).json()
    assert document["document"]["status"] == "queued"
    assert document["document"]["text"] == {"message_id": None, "length": 0, "content": ""}
    assert document["document"]["steps"] == []


async def test_questions_are_a_list_even_where_there_are_none(idle: Serving) -> None:
    assert (await idle.http.get("/v1/requests?status=open")).json() == {"items": [], "next_cursor": None}


DIRECTIVES = st.sampled_from(
    [
        *("say word", "tokens 20", "step look", "raise", "fail MODEL_UNAVAILABLE", "fail TOOL_FAILED"),
        *(f"fail {code}" for code in (ErrorCode.RECURSION_LIMIT, ErrorCode.INTERNAL)),
    ]
)


@pytest.mark.case("P85")
@pytest.mark.case("P86")
@pytest.mark.slow(90)
async def test_every_run_ends_exactly_once_and_says_nothing_after(served: Serving) -> None:
    """Over scripts that fail anywhere, or are stopped: one final status, last; both surfaces agree with the row."""
    loop = asyncio.get_running_loop()

    async def play(script: list[str], stop: bool) -> None:
        started = (
            await served.http.post("/api/chat", json={"message": "\n".join(["gate go", *script])})
        ).json()
        gate = served.puppet.gates["go"] = asyncio.Event()
        served.puppet.reached["go"] = asyncio.Event()
        conversation, run_id = started["conversation"], started["run"]
        seq = (await served.http.get(f"/v1/conversations/{conversation}")).json()["seq"]
        async with (
            served.listen("/api/chat", conversation=conversation) as lab,
            served.listen(after=0, focus=conversation) as native,
        ):
            if stop:
                await served.http.post(f"/v1/runs/{run_id}/cancel")
            gate.set()
            told = await lab.rest()
            seen: list[str] = []
            while not seen or seen[-1] not in FINAL:
                heard = await native.next("run.status")
                if heard.data["run_id"] == run_id:
                    seen.append(heard.data["payload"]["run"]["status"])
            # Whatever comes after the end of this run must not be its own.
            await served.http.patch(f"/v1/conversations/{conversation}", json={"title": "after"})
            after = await native.next("conversation.changed")
            assert after.data["run_id"] is None and int(after.id or 0) > seq
        run = (await served.http.get(f"/v1/runs/{run_id}")).json()
        ends = [each.event for each in told if each.event in ("end", "chat-error")]
        assert ends == ["chat-error" if run["status"] == "failed" else "end"]
        assert told[-1].event == ends[0] and told[-1].data["status"] == run["status"]
        assert [status for status in seen if status in FINAL] == [run["status"]]
        assert (run["error_code"] is not None) == (run["status"] == "failed")
        events = (await served.http.get(f"/v1/runs/{run_id}/events")).json()["items"]
        assert events[-1]["type"] == "run.status"
        assert events[-1]["payload"]["run"] == run

    @settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(script=st.lists(DIRECTIVES, max_size=4), stop=st.booleans())
    def attempt(script: list[str], stop: bool) -> None:
        asyncio.run_coroutine_threadsafe(play(script, stop), loop).result(20)

    await asyncio.to_thread(attempt)


async def test_health_says_alive_and_ready(served: Serving) -> None:
    assert (await served.http.get("/healthz")).json() == {"status": "ok", "version": "test"}
    assert (await served.http.get("/readyz")).json() == {"status": "ok", "version": "test"}


@pytest.mark.case("P63")
@pytest.mark.parametrize("path", ["/readyz", "/api/readyz"])
async def test_not_ready_says_what_is_missing(
    idle: Serving, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async def away() -> None:
        raise StoreUnavailable("the database cannot be reached: start it")

    monkeypatch.setattr(idle.store, "check", away)
    object.__setattr__(idle.deps, "check", away)
    answer = await idle.http.get(path)
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert "start it" in answer.json()["detail"]
    assert (await idle.http.get("/healthz")).status_code == 200


async def test_a_server_that_is_going_is_not_ready(idle: Serving) -> None:
    idle.closing.set()
    assert (await idle.http.get("/readyz")).status_code == 503


def samples_in(text: str) -> dict[tuple[Any, ...], float]:
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_figures_count_ends_late_writes_events_and_what_the_store_did(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await served.conversation()
    for script in ("say fine", "fail MODEL_AUTH"):
        await served.ended((await served.send(conversation, script))["run"]["id"])
    late = (await served.send(conversation, "gate g\nwrite"))["run"]
    await served.puppet.at("g")
    notify = served.wakeup.notify  # the worker hears of the stop by its refused write
    monkeypatch.setattr(
        served.wakeup, "notify", lambda topic, news=(): topic.startswith("user:") and notify(topic)
    )
    await served.http.post(f"/v1/runs/{late['id']}/cancel")
    served.puppet.gate("g").set()
    await served.ended(late["id"])

    samples = samples_in((await served.http.get("/metrics")).text)

    ended = "dromos_runs_ended_total"
    assert samples[ended, ("error_code", ""), ("status", "completed")] == 1
    assert samples[ended, ("error_code", "MODEL_AUTH"), ("status", "failed")] == 1
    assert samples[ended, ("error_code", ""), ("status", "cancelled")] == 1
    assert samples[("dromos_late_writes_total",)] == 1
    seq = (await served.http.get(f"/v1/conversations/{conversation}")).json()["seq"]
    assert samples[("dromos_events",)] == seq
    figures = served.store.statistics.figures()
    assert 0 < samples[("dromos_store_commits_total",)] <= figures.commits
    assert samples[("dromos_store_writes_total",)] >= samples[("dromos_store_commits_total",)]
    assert samples[("dromos_store_largest_group",)] >= 1
    assert samples[("dromos_store_failures_total",)] == 0


async def test_figures_show_runs_workers_streams_and_requests(served: Serving) -> None:
    conversation = await served.conversation()
    await served.send(conversation, "gate g")
    await served.puppet.at("g")
    async with served.listen() as stream:
        await stream.next("hello")
        text = (await served.http.get("/metrics")).text
    samples = samples_in(text)
    assert samples["dromos_runs_live", ("status", "running")] == 1
    assert samples["dromos_runs_live", ("status", "queued")] == 0
    assert samples[("dromos_workers",)] == 1
    assert samples[("dromos_queue_age_seconds",)] == 0
    assert samples[("dromos_streams_open",)] == 1
    route = "POST /v1/conversations/{conversation_id}/messages"
    assert samples["dromos_http_requests_total", ("route", route), ("status", "201")] == 1
    assert conversation not in text
    served.puppet.gate("g").set()


async def test_agents_me_and_workers(served: Serving) -> None:
    agents = (await served.http.get("/v1/agents")).json()
    assert agents["items"] == [
        {
            "name": "puppet",
            "description": "does as it is told",
            "kind": "langgraph",
            "default": True,
            "model": {"name": "scripted", "source": "test", "hint": "It does what the message says."},
        }
    ]
    assert (await served.http.get("/v1/me")).json() == {"id": "local", "name": "You"}
    workers = (await served.http.get("/v1/workers")).json()["items"]
    assert served.worker is not None
    assert [answers.Worker.model_validate(w).id for w in workers] == [served.worker.owner_id]


async def test_the_answer_shapes_are_the_declared_ones(served: Serving) -> None:
    """`wire.answers` documents what `wire.shapes` builds: no field is missing and none is unknown."""
    conversation = await served.conversation()
    run = (await served.send(conversation, "gate g"))["run"]
    followup = (await served.send(conversation, "later"))["followup"]
    view = (await served.http.get(f"/v1/conversations/{conversation}")).json()
    lines = (await served.http.get("/v1/conversations")).json()["items"]
    for model, value in (
        (answers.Run, run),
        (answers.Followup, followup),
        (answers.Conversation, view["conversation"]),
        (answers.Message, view["messages"][0]),
        (answers.ConversationView, view),
        (answers.ConversationLine, lines[0]),
    ):
        optional = {name for name, field in model.model_fields.items() if not field.is_required()}
        assert set(value) - optional <= set(model.model_fields), model
        assert set(model.model_fields) - optional <= set(value), model
    assert set(shapes.run_json(await served.lifecycle.run("local", run["id"]))) == set(run)
    served.puppet.gate("g").set()


async def test_a_run_that_waits_for_no_worker_shows_its_age(start: Start) -> None:
    idle = await start(work=False)
    assert isinstance(idle.lifecycle.policy, Policy)
    conversation = await idle.conversation()
    await idle.send(conversation, "x")
    text = (await idle.http.get("/metrics")).text
    age = next(line for line in text.splitlines() if line.startswith("dromos_queue_age_seconds "))
    assert float(age.split()[1]) >= 0
    assert 'dromos_runs_live{status="queued"} 1.0' in text


async def test_a_stop_between_claim_and_input_ends_the_run_at_once(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An agent that fails while the claim makes its input is asked again by its own attempt. The stop comes in between.
    compose, attempts = served.puppet.compose, iter(range(9))

    def fails_at_first(messages: Any) -> Any:
        if next(attempts) == 0:
            raise RuntimeError("not yet")
        return compose(messages)

    original = served.lifecycle.compose_input

    async def after_a_stop(fence: Any, compose: Any) -> Any:
        await served.lifecycle.request_cancel("local", fence.run_id)
        stopped.append(fence.run_id)
        return await original(fence, compose)

    stopped: list[str] = []
    monkeypatch.setattr(served.puppet, "compose", fails_at_first)
    monkeypatch.setattr(served.lifecycle, "compose_input", after_a_stop)
    conversation = await served.conversation()
    run = await within(2, served.ended((await served.send(conversation, "say x"))["run"]["id"]), "the end")
    assert (run["status"], run["stop"]["outcome"]) == ("cancelled", "acknowledged")
    assert stopped == [run["id"]] and next(attempts) == 1, "no input was made once the stop was there"


async def test_an_agent_that_hears_of_the_stop_by_a_refused_write_ends_as_stopped(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await served.conversation()
    run = (await served.send(conversation, "say half\ngate g\nwrite"))["run"]
    await served.puppet.at("g")
    notify = served.wakeup.notify
    # The worker's own hint is lost; only what people are told gets through.
    monkeypatch.setattr(
        served.wakeup, "notify", lambda topic, news=(): topic.startswith("user:") and notify(topic)
    )
    await served.http.post(f"/v1/runs/{run['id']}/cancel")
    served.puppet.gate("g").set()
    ended = await within(2, served.ended(run["id"]), "the end")
    assert (ended["status"], ended["stop"]["outcome"]) == ("cancelled", "acknowledged")
