"""`/v1/adapter` over a real socket: an adapter in plain HTTP, and everything a wrong one may send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest

from dromos.api.auth import Principal
from dromos.ports.store import Table, Tx
from dromos.ports.wakeup import WORK
from dromos.testing.waiting import within
from dromos.wire import adapter
from dromos.wire.adapter_examples import ADAPTER_EXAMPLES
from tests.api.conftest import USER, Serving, Start
from tests.api.test_problems import check_problem

Json = dict[str, Any]
AGENT = "researcher"
RUN_CALLS: dict[str, Json] = {
    "renew": {},
    "transition": {"to": "completed"},
    "steps": {"steps": [{"id": "s1", "kind": "step", "name": "s", "status": "done"}]},
    "messages": {"messages": [{"role": "assistant", "content": "late"}]},
    "requests": {"requests": [{"kind": "question", "prompt": "which?"}]},
}


class Adapter:
    """An adapter that knows nothing but HTTP."""

    def __init__(self, serving: Serving, session: str = "session-1") -> None:
        self.serving, self.session = serving, session

    async def ask(self, **more: Any) -> httpx.Response:
        headers = more.pop("headers", None)
        body = {"agents": [AGENT], "adapter_session": self.session, **more}
        return await self.serving.http.post("/v1/adapter/claim", json=body, headers=headers)

    async def claim(self, **more: Any) -> Json:
        answer = await self.ask(**more)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def call(self, claim: Json, what: str, body: Any = None, **more: Any) -> httpx.Response:
        token = more.pop("token", claim["token"])
        headers = {"authorization": f"Bearer {token}", **more.pop("headers", {})}
        run_id = more.pop("run_id", claim["run"]["id"])
        kept = {"json": RUN_CALLS[what] if body is None else body} if "content" not in more else {}
        return await self.serving.http.post(
            f"/v1/adapter/runs/{run_id}/{what}", headers=headers, **kept, **more
        )

    async def done(self, claim: Json, what: str, body: Any = None, **more: Any) -> Json:
        answer = await self.call(claim, what, body, **more)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@pytest.fixture
async def idle(start: Start) -> Serving:
    """A server that knows the remote agent; its worker is at work, which must not matter."""
    return await start(remote=(AGENT, "writer"))


async def a_message(serving: Serving, content: Any = "hello", conversation: str | None = None) -> Json:
    conversation = conversation or await serving.conversation(agent=AGENT)
    return await serving.send(conversation, content)


async def test_an_adapter_in_plain_http_works_on_a_run_from_claim_to_end(idle: Serving) -> None:
    outside = Adapter(idle)
    sent = await a_message(idle, "name a prime")
    assert sent["run"]["wait"] == {"reason": "no_worker", "until": None, "then": None}
    claim = await outside.claim()
    assert (claim["run"]["id"], claim["run"]["status"]) == (sent["run"]["id"], "running")
    assert (claim["input"], claim["history"], claim["decisions"]) == ("name a prime", [], [])
    assert claim["epoch"] == claim["run"]["epoch"]
    adapter.ClaimedRun.model_validate(claim)
    assert set(claim) == set(ADAPTER_EXAMPLES[adapter.ClaimedRun])
    renewed = await outside.done(claim, "renew", {"activity": True})
    assert renewed["lease_until"] > claim["lease_until"]
    assert await outside.done(claim, "steps") == {"steps": 1}
    said = {
        "role": "assistant",
        "content": "let me look",
        "tool_calls": [{"id": "c1", "name": "primes", "args": {"below": 10}}],
    }
    found = {"role": "tool", "tool_call_id": "c1", "content": "2 3 5 7"}
    stored = await outside.done(claim, "messages", {"messages": [said, found]})
    assert [one["role"] for one in stored["messages"]] == ["assistant", "tool"]
    ended = await outside.done(claim, "transition", {"to": "completed", "answer": "Seven.", "line": "Seven."})
    assert (ended["run"]["status"], ended["run"]["line"], ended["run"]["steps"]) == ("completed", "Seven.", 1)
    view = (await idle.http.get(f"/v1/conversations/{sent['run']['conversation_id']}")).json()
    shown = [(one["role"], one["content"]) for one in view["messages"] if one["kind"] != "run"]
    assert shown == [
        ("user", "name a prime"),
        ("assistant", "let me look"),
        ("tool", "2 3 5 7"),
        ("assistant", "Seven."),
    ]
    assert view["conversation"]["message_count"] == 4


async def test_a_remote_run_waits_while_the_worker_of_the_server_serves_its_own(idle: Serving) -> None:
    sent = await a_message(idle)
    own = await idle.send(await idle.conversation(agent="puppet"), "say mine")
    await idle.ended(own["run"]["id"])
    run = (await idle.http.get(f"/v1/runs/{sent['run']['id']}")).json()
    assert run["status"] == "queued"
    infos = (await idle.http.get("/v1/agents")).json()["items"]
    assert {one["name"]: one["kind"] for one in infos} == {
        "puppet": "langgraph",
        AGENT: "remote",
        "writer": "remote",
    }


async def test_the_box_tells_when_an_adapter_was_last_seen_and_when_it_is_taken_over(idle: Serving) -> None:
    outside = Adapter(idle)
    await a_message(idle)
    claim = await outside.claim()
    path = f"/v1/runs/{claim['run']['id']}/document"

    async def owner() -> Json:
        told: Json = (await idle.http.get(path)).json()["document"]["owner"]
        (line,) = (await idle.http.get("/v1/runs", params={"status": "running"})).json()["items"]
        assert line["owner"] == told
        return told

    alive = await owner()
    assert (alive["kind"], alive["takeover_at"]) == ("adapter", None)

    def silent(tx: Tx) -> None:
        then = tx.now() - timedelta(seconds=21)
        tx.change(Table.RUNS, {"id": claim["run"]["id"]}, {"renewed_at": then})
        tx.change(Table.LEASES, {}, {"started_at": then})

    await idle.store.write(silent)
    told = await owner()
    assert told["seen_at"] < alive["seen_at"]
    assert told["seen_at"] < told["takeover_at"] < claim["lease_until"]
    renewed = await outside.done(claim, "renew")
    assert (await owner())["takeover_at"] is None
    assert renewed["lease_until"] > claim["lease_until"]


async def test_a_renewal_that_says_that_the_agent_moved_shows_it_to_whoever_looks(idle: Serving) -> None:
    outside = Adapter(idle)
    await a_message(idle)
    claim = await outside.claim()
    known = (await outside.done(claim, "renew"))["document_version"]
    async with idle.listen(focus=claim["run"]["conversation_id"]) as stream:
        await stream.next("run.document")
        sign = {"activity": True, "document_version": known}
        assert (await outside.done(claim, "renew", sign))["document_version"] == known + 1
        patch = (await stream.next("run.patch")).data
    assert (patch["base_version"], patch["version"]) == (known, known + 1)
    assert [operation["path"] for operation in patch["patch"]] == ["/activity_at"]
    headers = {"authorization": f"Bearer {claim['token']}"}
    operations = [{"op": "replace", "path": "/line", "value": "reading"}]
    body = {"base_version": known + 1, "patch": operations}
    patched = await idle.http.patch(f"/v1/runs/{claim['run']['id']}/document", json=body, headers=headers)
    assert (patched.status_code, patched.json()["version"]) == (200, known + 2)


# --- waiting for a run


@dataclass
class Waiting:
    """A long poll that has found nothing and waits. `left` is set when the server has let go of it."""

    answer: asyncio.Task[httpx.Response]
    left: asyncio.Event


@asynccontextmanager
async def a_waiting_claim(idle: Serving, **more: Any) -> AsyncIterator[Waiting]:
    listens, left = asyncio.Event(), asyncio.Event()
    listen = idle.wakeup.listen

    def listening(topic: str, callback: Any) -> Any:
        stop = listen(topic, callback)
        if topic != WORK:
            return stop

        def leave() -> None:
            stop()
            left.set()

        listens.set()
        return leave

    idle.wakeup.listen = listening  # type: ignore[method-assign]
    task = asyncio.create_task(Adapter(idle).ask(wait_s=more.pop("wait_s", 8), **more))
    await within(5, listens.wait(), "the claim to listen")
    idle.wakeup.listen = listen  # type: ignore[method-assign]
    try:
        yield Waiting(task, left)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_claim_waits_for_a_run_and_gets_it_as_soon_as_it_is_there(start: Start) -> None:
    idle = await start(remote=(AGENT,), reread=60.0)
    async with a_waiting_claim(idle) as waiting:
        sent = await a_message(idle)
        answer = await within(4, waiting.answer, "the claim")
    assert answer.status_code == 200
    assert answer.json()["run"]["id"] == sent["run"]["id"]
    assert answer.headers["cache-control"] == "no-store"


async def test_a_claim_that_waits_finds_a_run_whose_time_came_without_being_woken(start: Start) -> None:
    idle = await start(work=False, remote=(AGENT,), reread=0.05)
    sent = await a_message(idle)

    def soon(tx: Tx) -> None:
        tx.change(Table.RUNS, {}, {"not_before": tx.now() + timedelta(seconds=0.3)})

    await idle.store.write(soon)
    answer = await Adapter(idle).ask(wait_s=5)
    assert answer.status_code == 200
    assert answer.json()["run"]["id"] == sent["run"]["id"]


async def test_a_claim_without_a_run_is_answered_with_nothing_when_its_time_is_over(idle: Serving) -> None:
    answer = await Adapter(idle).ask()
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await Adapter(idle).ask(wait_s=0.01)).status_code == 204


async def test_a_claim_that_waits_ends_when_the_server_does(start: Start) -> None:
    idle = await start(remote=(AGENT,), reread=60.0)
    async with a_waiting_claim(idle, wait_s=60) as waiting:
        idle.closing.set()
        assert (await within(2, waiting.answer, "the claim")).status_code == 204


async def test_a_claim_whose_caller_has_hung_up_takes_no_run(start: Start) -> None:
    idle = await start(work=False, remote=(AGENT,), reread=60.0)
    async with a_waiting_claim(idle, wait_s=60) as waiting:
        waiting.answer.cancel()
        await asyncio.gather(waiting.answer, return_exceptions=True)
        sent = await a_message(idle)  # wakes the one that nobody hears any more
        await within(5, waiting.left.wait(), "the server to let go of the claim")
    claim = await Adapter(idle, "another").claim()
    assert (claim["run"]["id"], claim["run"]["attempt"]) == (sent["run"]["id"], 1)


async def test_of_many_claims_that_wait_one_gets_the_run_and_the_others_go_on_waiting(start: Start) -> None:
    idle = await start(remote=(AGENT,))
    tasks = [asyncio.create_task(Adapter(idle, f"s{number}").ask(wait_s=1.5)) for number in range(5)]
    await a_message(idle)
    codes = sorted(answer.status_code for answer in await within(10, asyncio.gather(*tasks), "all claims"))
    assert codes == [200, 204, 204, 204, 204]


@pytest.mark.case("P70")
async def test_a_claim_made_again_with_its_key_gets_the_same_run_and_token(idle: Serving) -> None:
    outside = Adapter(idle)
    await a_message(idle, "one")
    await a_message(idle, "two")
    key = {"idempotency-key": "6f9c2f0e"}
    first = await outside.claim(headers=key)
    again = await outside.claim(headers=key)
    assert (again["run"]["id"], again["token"]) == (first["run"]["id"], first["token"])
    check_problem(await outside.ask(headers=key, wait_s=1), 422, "idempotency_key_reused")
    assert (await outside.claim(headers={"idempotency-key": "another"}))["input"] == "two"


@pytest.mark.parametrize(
    ("body", "path", "code"),
    [
        ({"agents": [], "adapter_session": "s"}, "/agents", "too_short"),
        ({"agents": ["nobody"], "adapter_session": "s"}, "/agents/0", "agent_not_remote"),
        ({"agents": [AGENT, "puppet"], "adapter_session": "s"}, "/agents/1", "agent_not_remote"),
        ({"agents": [AGENT]}, "/adapter_session", "missing"),
        ({"agents": [AGENT], "adapter_session": ""}, "/adapter_session", "string_pattern_mismatch"),
        ({"agents": [AGENT], "adapter_session": "two words"}, "/adapter_session", "string_pattern_mismatch"),
        ({"agents": [AGENT], "adapter_session": "s", "wait_s": 61}, "/wait_s", "less_than_equal"),
        ({"agents": [AGENT], "adapter_session": "s", "wait_s": "5"}, "/wait_s", None),
        ({"agents": [AGENT], "adapter_session": "s", "colour": 1}, "/colour", "unknown_field"),
        ({"agents": "all", "adapter_session": "s"}, "/agents", None),
        ([], "", None),
    ],
)
async def test_each_fault_of_a_claim_is_named(idle: Serving, body: Any, path: str, code: str | None) -> None:
    answer = await idle.http.post("/v1/adapter/claim", json=body)
    (fault,) = check_problem(answer, 400, "validation_failed")["errors"]
    assert fault["path"] == path
    assert code is None or fault["code"] == code


async def test_a_claim_for_an_agent_of_the_servers_own_says_what_to_write_where(idle: Serving) -> None:
    answer = await Adapter(idle).ask(agents=["puppet"])
    problem = check_problem(answer, 400, "validation_failed")
    assert "[agents.puppet] remote = true" in problem["detail"]
    assert f"{AGENT}, writer" in problem["detail"]


async def test_another_persons_runs_are_not_claimed(start: Start) -> None:
    idle = await start(work=False, remote=(AGENT,))
    await idle.lifecycle.ensure_user("bob", "Bob")
    await a_message(idle)

    def move(tx: Tx) -> None:
        tx.change(Table.RUNS, {}, {"user_id": "bob"})

    await idle.store.write(move)
    assert (await Adapter(idle).ask()).status_code == 204
    assert Principal(USER, "You").user_id != "bob"


# --- tokens


@pytest.mark.parametrize("what", RUN_CALLS)
async def test_every_call_for_a_run_needs_its_own_living_token(idle: Serving, what: str) -> None:
    outside = Adapter(idle)
    await a_message(idle, "one")
    await a_message(idle, "two")
    mine, other = await outside.claim(), await outside.claim()
    nothing = await idle.http.post(f"/v1/adapter/runs/{mine['run']['id']}/{what}", json=RUN_CALLS[what])
    check_problem(nothing, 401, "unknown_token")
    assert nothing.headers["www-authenticate"].startswith("Bearer")
    for token in ("drt_guess", "x" * 5000, mine["token"][:-1], mine["token"].upper()):
        check_problem(await outside.call(mine, what, token=token), 401, "unknown_token")
    basic = {"authorization": f"Basic {mine['token']}"}
    check_problem(await outside.call(mine, what, headers=basic), 401, "unknown_token")
    check_problem(await outside.call(mine, what, token=other["token"]), 403, "other_run")
    for run_id in ("019ad0f2-6a5e-7c3a-9b51-6f0c2d8f4e11", "nonsense", "%00", "a" * 300):
        check_problem(await outside.call(mine, what, run_id=run_id), 403, "other_run")
    await outside.done(other, "requests")
    check_problem(await outside.call(other, what), 403, "lease_lost")
    await outside.done(mine, "transition")
    problem = check_problem(await outside.call(mine, what), 409, "run_not_active")
    assert problem["run"]["status"] == "completed"
    check_problem(await outside.call(mine, what, token=other["token"]), 403, "other_run")
    conversation = mine["run"]["conversation_id"]
    assert (await idle.http.delete(f"/v1/conversations/{conversation}")).status_code == 204
    check_problem(await outside.call(mine, what), 401, "unknown_token")


@pytest.mark.parametrize("what", RUN_CALLS)
async def test_what_is_wrong_with_a_body_is_told_only_to_who_may_write(idle: Serving, what: str) -> None:
    outside = Adapter(idle)
    await a_message(idle)
    claim = await outside.claim()
    for content in (b"{", b'{"colour": 1}', b"[]", b"\xff\xfe", b'{"a":' * 200 + b"1" + b"}" * 200):
        check_problem(await outside.call(claim, what, content=content, token="drt_x"), 401, "unknown_token")
        problem = check_problem(await outside.call(claim, what, content=content), 400, "validation_failed")
        assert problem["errors"], content
    huge = b'{"colour": "' + b"x" * (8 * 1024 * 1024) + b'"}'
    check_problem(await outside.call(claim, what, content=huge), 413, "body_too_large")
    text = {"content-type": "text/plain"}
    check_problem(await outside.call(claim, what, content=b"x", headers=text), 415, "unsupported_media_type")
    strange = await outside.call(claim, what, params={"colour": "red"})
    check_problem(strange, 400, "validation_failed")
    assert (await outside.done(claim, "transition"))["run"]["status"] == "completed", "and did no harm"


async def test_a_run_whose_conversation_is_deleted_hears_of_the_stop_and_ends(idle: Serving) -> None:
    outside = Adapter(idle)
    await a_message(idle)
    claim = await outside.claim()
    conversation = claim["run"]["conversation_id"]
    deleting = asyncio.create_task(idle.http.delete(f"/v1/conversations/{conversation}"))
    async with idle.listen(after=0) as stream:
        await stream.status("cancelling", claim["run"]["id"])
    assert (await outside.done(claim, "renew"))["stop"]["by"] == "user"
    assert (await outside.done(claim, "transition", {"to": "cancelled"}))["run"]["status"] == "cancelled"
    assert (await within(10, deleting, "the erasure")).status_code == 204
    check_problem(await outside.call(claim, "renew"), 401, "unknown_token")


# --- stops, questions, repeats


async def test_a_stop_reaches_the_adapter_with_its_next_renewal(idle: Serving) -> None:
    outside = Adapter(idle)
    await a_message(idle)
    claim = await outside.claim()
    stopped = await idle.http.post(f"/v1/runs/{claim['run']['id']}/cancel", json={})
    assert stopped.json()["run"]["status"] == "cancelling"
    problem = check_problem(await outside.call(claim, "requests"), 409, "invalid_transition")
    assert problem["run"]["status"] == "cancelling"
    stop = (await outside.done(claim, "renew"))["stop"]
    assert (stop["cause"], stop["by"]) == ("cancel_requested", "user")
    assert 0 < stop["deadline_s"] <= 2
    ended = await outside.done(claim, "transition", {"to": "cancelled"})
    assert (ended["run"]["status"], ended["run"]["stop"]["outcome"]) == ("cancelled", "acknowledged")


async def test_cancelled_without_a_stop_is_refused_with_the_run_as_it_is(idle: Serving) -> None:
    outside = Adapter(idle)
    await a_message(idle)
    claim = await outside.claim()
    answer = await outside.call(claim, "transition", {"to": "cancelled"})
    assert check_problem(answer, 409, "invalid_transition")["run"]["status"] == "running"


async def test_a_question_goes_to_the_person_and_the_decision_comes_with_the_next_claim(
    idle: Serving,
) -> None:
    outside = Adapter(idle)
    await a_message(idle)
    claim = await outside.claim()
    parked = await outside.done(
        claim, "requests", {"requests": [{"kind": "question", "prompt": "which?", "options": ["a", "b"]}]}
    )
    adapter.ParkedRun.model_validate(parked)
    assert parked["run"]["status"] == "waiting_input"
    (open_one,) = (await idle.http.get("/v1/requests")).json()["items"]
    assert open_one == parked["requests"][0]
    said = {
        "decision": "answer",
        "answer": "b",
        "request_version": open_one["version"],
        "arguments_sha256": open_one["arguments_sha256"],
    }
    decided = await idle.http.post(f"/v1/requests/{open_one['id']}/decision", json=said)
    assert decided.status_code == 200, decided.text
    again = await outside.claim(wait_s=5, prefer_own=True)
    (told,) = again["decisions"]
    assert (told["request_id"], told["decision"]["answer"]) == (open_one["id"], "b")
    await outside.done(again, "transition", {"to": "completed", "answer": "b it is"})


@pytest.mark.parametrize(
    ("what", "body", "path"),
    [
        ("transition", {"to": "interrupted"}, "/to"),
        ("transition", {"to": "completed", "error_code": "X"}, ""),
        ("transition", {"to": "failed", "answer": "x"}, ""),
        ("steps", {"steps": []}, "/steps"),
        ("steps", {"steps": [{"id": "s", "kind": "step", "name": "s", "status": "gone"}]}, "/steps/0/status"),
        *(
            (
                "steps",
                {"steps": [{"id": "s", "kind": "step", "name": "s", "status": "done", "started_at": when}]},
                "/steps/0/started_at",
            )
            for when in (
                5,
                "5",
                True,
                "2026-01-01T00:00:00",
                "0001-01-01T00:00:00+14:00",
                "9999-12-31T23:59:59-14:00",
            )
        ),
        ("messages", {"messages": [{"role": "user", "content": "x"}]}, "/messages/0/role"),
        ("messages", {"messages": [{"role": "tool", "content": "x"}]}, "/messages/0"),
        ("messages", {"messages": [{"role": "assistant"}]}, "/messages/0"),
        (
            "messages",
            {"messages": [{"role": "tool", "content": "x", "tool_call_id": "c9"}]},
            "/messages/0/tool_call_id",
        ),
        ("requests", {"requests": [{"kind": "riddle", "prompt": "x"}]}, "/requests/0/kind"),
        ("requests", {"requests": [{"kind": "question"}]}, "/requests/0/prompt"),
        (
            "requests",
            {"requests": [{"kind": "question", "prompt": "x", "on_timeout": "deny"}]},
            "/requests/0/on_timeout",
        ),
        ("renew", {"activity": "yes"}, "/activity"),
    ],
)
async def test_each_fault_of_a_report_is_named_with_its_place(
    idle: Serving, what: str, body: Json, path: str
) -> None:
    outside = Adapter(idle)
    await a_message(idle)
    claim = await outside.claim()
    problem = check_problem(await outside.call(claim, what, body), 400, "validation_failed")
    assert path in [fault["path"] for fault in problem["errors"]]
    await outside.done(claim, "renew")


@pytest.mark.parametrize("what", ["transition", "steps", "messages", "requests"])
async def test_a_report_repeated_with_its_key_gets_the_same_bytes_and_happens_once(
    idle: Serving, what: str
) -> None:
    outside = Adapter(idle)
    await a_message(idle)
    claim = await outside.claim()
    key = {"idempotency-key": "r-1"}
    first = await outside.call(claim, what, headers=key)
    again = await outside.call(claim, what, headers=key)
    assert (first.status_code, again.content) == (200, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    other = await outside.call(claim, what, {**RUN_CALLS[what], "colour": 1}, headers=key)
    assert other.status_code in (400, 403, 409)


async def test_reports_survive_strange_text_the_same_way_everywhere(idle: Serving) -> None:
    outside = Adapter(idle)
    await a_message(idle)
    claim = await outside.claim()
    body = b'{"messages": [{"role": "assistant", "content": "nul \\u0000 half \\ud800 \xf0\x9f\x98\x80"}]}'
    stored = await outside.done(claim, "messages", content=body)
    assert stored["messages"][0]["content"] == "nul \ufffd half \ufffd 😀"
    nan = await outside.call(
        claim, "messages", content=b'{"messages": [{"role": "assistant", "content": NaN}]}'
    )
    assert nan.status_code == 400
