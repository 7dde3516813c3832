"""Leave that was given for good over HTTP: given with an approval, listed, taken back, and nobody else's."""

from __future__ import annotations

from typing import Any

import pytest

from dromos.api.auth import single_user
from dromos.wire import answers
from tests.api.conftest import Serving, Start
from tests.api.test_questions import CALL, decide, parked, saying

LEAVE = {**CALL, "call_key": "key", "grants": ["call", "tool"]}


async def given(serving: Serving, grant: str) -> dict[str, Any]:
    """Leave given with the approval of a call of a new conversation; → the approval."""
    (request,) = await parked(serving, LEAVE)
    await approve(serving, request, grant)
    return request


async def approve(serving: Serving, request: dict[str, Any], grant: str) -> None:
    answer = await decide(serving, request, saying(request, "approve", grant=grant))
    assert answer.status_code == 200, answer.text
    assert answer.json()["request"]["decision"]["grant"] == grant


async def listed(serving: Serving, **query: Any) -> list[dict[str, Any]]:
    answer = await serving.http.get("/v1/grants", params=query)
    assert answer.status_code == 200, answer.text
    return [answers.Grant.model_validate(one).model_dump() for one in answer.json()["items"]]


async def test_leave_is_listed_newest_first_by_conversation_and_page(idle: Serving) -> None:
    (first,), (second,) = await parked(idle, LEAVE), await parked(idle, LEAVE)
    await approve(idle, first, "call")
    await approve(idle, second, "tool")
    found = await listed(idle)
    assert [(one["request_id"], one["tool"], one["arguments"]) for one in found] == [
        (second["id"], "mail__send", None),
        (first["id"], "mail__send", {"to": "bob"}),
    ]
    (mine,) = await listed(idle, conversation_id=first["conversation_id"])
    assert mine == found[1]
    page = (await idle.http.get("/v1/grants", params={"limit": 1})).json()
    assert page["items"] == found[:1]
    rest = (await idle.http.get("/v1/grants", params={"limit": 1, "cursor": page["next_cursor"]})).json()
    assert (rest["items"], rest["next_cursor"]) == (found[1:], None)
    assert (await idle.http.get("/v1/grants", params={"cursor": "no-such"})).status_code == 400


async def test_leave_that_was_taken_back_is_gone_and_taking_it_back_again_changes_nothing(
    idle: Serving,
) -> None:
    await given(idle, "tool")
    (grant,) = await listed(idle)
    for _ in range(2):
        assert (await idle.http.delete(f"/v1/grants/{grant['id']}")).status_code == 204
    assert await listed(idle) == []
    told = [event["payload"] for event in (await idle.lifecycle.events_after("local", 0, 100)).events]
    changes = [one["grant"] | {"over": one["revoked_at"] is not None} for one in told if "grant" in one]
    assert changes == [grant | {"over": False}, grant | {"over": True}], "each device hears of both, once"
    unknown = await idle.http.delete(f"/v1/grants/{grant['conversation_id']}")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


async def test_leave_goes_with_its_conversation(idle: Serving) -> None:
    request = await given(idle, "tool")
    assert (await idle.http.delete(f"/v1/conversations/{request['conversation_id']}")).status_code == 204
    assert await listed(idle) == []


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        ({"grants": None}, {"decision": "approve", "grant": "tool"}),
        ({"grants": ["call"]}, {"decision": "approve", "grant": "tool"}),
        ({}, {"decision": "deny", "grant": "call"}),
        ({}, {"decision": "approve", "grant": "ever"}),
    ],
)
async def test_leave_is_given_only_as_it_is_offered(idle: Serving, asked: Any, body: Any) -> None:
    (request,) = await parked(idle, {**LEAVE, **asked})
    answer = await decide(idle, request, saying(request, **body))
    assert answer.status_code == 400
    assert [error["path"] for error in answer.json()["errors"]] == ["/grant"]
    assert await listed(idle) == []


@pytest.mark.case("P56")
async def test_who_decided_is_who_the_credential_names_and_others_see_nothing(
    idle: Serving, start: Start
) -> None:
    (request,) = await parked(idle, LEAVE)
    forged = await decide(idle, request, saying(request, "approve", decided_by="somebody"))
    assert forged.status_code == 400
    assert [error["path"] for error in forged.json()["errors"]] == ["/decided_by"]
    other = await start(work=False)
    await other.lifecycle.ensure_user("other", "Other")
    object.__setattr__(other.deps, "principal", single_user("other", "Other"))
    assert (await other.http.get("/v1/requests")).json()["items"] == []
    assert (await other.http.get(f"/v1/requests/{request['id']}")).status_code == 404
    assert (await decide(other, request, saying(request, "approve"))).status_code == 404
    taken = await decide(idle, request, saying(request, "approve", grant="tool"))
    assert taken.json()["request"]["decided_by"] == "local"
    (grant,) = await listed(idle)
    assert await listed(other) == []
    assert (await other.http.delete(f"/v1/grants/{grant['id']}")).status_code == 404
    assert await listed(idle) == [grant]
