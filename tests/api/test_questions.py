"""Questions over HTTP: the list, the one, the decision with all its refusals, and what devices are told."""

from __future__ import annotations

from typing import Any

import pytest

from dromos.domain.reasons import Reason
from dromos.ports.agent import Parked
from dromos.wire import answers
from tests.api.conftest import Serving

CALL = {
    "kind": "approval",
    "tool": "mail__send",
    "tool_call_id": "c1",
    "arguments": {"to": "bob"},
    "prompt": "Send it?",
}
WHICH = {"kind": "question", "prompt": "Which account?", "options": ["savings", "current"]}


async def parked(serving: Serving, *asked: dict[str, Any]) -> list[dict[str, Any]]:
    """A run of a new conversation waits for these; → the questions as the list shows them."""
    run = (await serving.send(await serving.conversation(), "go"))["run"]
    await serving.lifecycle.register_owner(f"owner-{run['id']}", "worker", "here", 1, None)
    (claimed,) = await serving.lifecycle.claim(f"owner-{run['id']}", None, 1)
    outcome = Parked(Reason.QUESTION_ASKED, asked or (WHICH,))
    await serving.lifecycle.end_attempt(claimed.fence, outcome, None)
    items = (await serving.http.get("/v1/requests", params={"limit": 200})).json()["items"]
    return [one for one in items if one["run_id"] == run["id"]]


def saying(request: dict[str, Any], decision: str, **more: Any) -> dict[str, Any]:
    seen = {"request_version": request["version"], "arguments_sha256": request["arguments_sha256"]}
    return {"decision": decision, **seen, **more}


async def decide(serving: Serving, request: dict[str, Any], body: Any, **headers: str) -> Any:
    return await serving.http.post(f"/v1/requests/{request['id']}/decision", json=body, headers=headers)


async def test_a_decision_answers_with_the_question_and_the_run_and_devices_are_told(idle: Serving) -> None:
    call, which = await parked(idle, CALL, WHICH)
    async with idle.listen(after=0) as stream:
        await stream.status("waiting_input")
        answer = await decide(idle, call, saying(call, "deny", comment="not him"))
        assert answer.status_code == 200
        told = answers.RequestDecided.model_validate(answer.json())
        assert (told.request.status, told.request.comment) == ("decided", "not him")
        assert told.run.status == "waiting_input"
        closed = (await stream.next("request.closed")).data["payload"]["request"]
        assert closed == answer.json()["request"]
        part = (await stream.next("run.status")).data["payload"]["document"]
        document = (await idle.http.get(f"/v1/runs/{call['run_id']}/document")).json()
        assert part["run_version"] == document["run_version"] == answer.json()["run"]["version"]
        assert part["requests"] == document["document"]["requests"] == [which]

        last = (await decide(idle, which, saying(which, "answer", answer="savings"))).json()
        assert (last["run"]["status"], last["run"]["reason"]) == ("queued", "decision_recorded")
        await stream.status("queued")
    assert (await idle.http.get("/v1/requests")).json() == {"items": [], "next_cursor": None}
    kept = (await idle.http.get(f"/v1/requests/{which['id']}")).json()
    assert kept["decision"] == {"decision": "answer", "answer": "savings", "comment": None}


@pytest.mark.parametrize(
    ("change", "status", "code", "path"),
    [
        ({"decision": "shrug"}, 400, "validation_failed", "/decision"),
        ({"decision": "approve"}, 400, "validation_failed", "/decision"),
        ({"answer": "none of them"}, 400, "validation_failed", "/answer"),
        ({"answer": None}, 400, "validation_failed", "/answer"),
        ({"request_version": "1"}, 400, "validation_failed", "/request_version"),
        ({"request_version": None}, 400, "validation_failed", "/request_version"),
        ({"decided_by": "somebody else"}, 400, "validation_failed", "/decided_by"),
        ({"comment": "x" * 9000}, 400, "validation_failed", "/comment"),
        ({"request_version": 2}, 409, "version_conflict", None),
        ({"arguments_sha256": "0" * 64}, 409, "version_conflict", None),
    ],
    ids=str,
)
async def test_a_decision_that_does_not_fit_changes_nothing_and_is_told_why(
    idle: Serving, change: dict[str, Any], status: int, code: str, path: str | None
) -> None:
    (which,) = await parked(idle)
    body = saying(which, "answer", answer="savings") | change
    answer = await decide(idle, which, body)
    problem = answers.Problem.model_validate(answer.json())
    assert (answer.status_code, problem.code) == (status, code)
    if path is None:
        assert problem.request is not None and problem.request.version == 1
        assert problem.run is not None and problem.run.status == "waiting_input"
    else:
        assert [error.path for error in problem.errors or ()] == [path]
    assert (await idle.http.get(f"/v1/requests/{which['id']}")).json() == which


async def test_who_comes_second_is_told_who_was_first_and_a_lost_answer_is_told_again(idle: Serving) -> None:
    (which,) = await parked(idle)
    body = saying(which, "answer", answer="savings")
    key = {"idempotency-key": "k1"}
    first = await decide(idle, which, body, **key)
    again = await decide(idle, which, body, **key)
    assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")
    assert (await decide(idle, which, body)).status_code == 200, "the same word is no second one"
    assert (await decide(idle, which, saying(which, "deny"), **key)).status_code == 422
    refused = (await decide(idle, which, saying(which, "deny"))).json()
    assert refused["code"] == "already_decided"
    assert "local answered this at" in refused["detail"]
    assert refused["request"]["decision"]["answer"] == "savings"


async def test_open_questions_are_listed_over_all_conversations_in_pages(idle: Serving) -> None:
    asked = [(await parked(idle))[0]["id"] for _ in range(5)]
    seen: list[str] = []
    query: dict[str, Any] = {"status": "open", "limit": 2}
    while True:
        page = (await idle.http.get("/v1/requests", params=query)).json()
        seen += [answers.Request.model_validate(one).id for one in page["items"]]
        if len(seen) == 2:
            first = page["items"][0]
            await decide(idle, first, saying(first, "deny"))
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == asked, "what is decided meanwhile shifts nothing"
    for wrong in ({"cursor": "no such"}, {"status": "decided"}, {"limit": 0}, {"more": 1}):
        assert (await idle.http.get("/v1/requests", params=wrong)).status_code == 400


async def test_an_unknown_question_is_not_found(idle: Serving) -> None:
    (which,) = await parked(idle)
    for unknown in ("019ad0f2-7c11-7b3e-a5d0-4471f0f7c8de", "no-id", "%00"):
        assert (await idle.http.get(f"/v1/requests/{unknown}")).status_code == 404
        answer = await decide(idle, which | {"id": unknown}, saying(which, "deny"))
        assert answer.status_code == 404
