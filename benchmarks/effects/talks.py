"""What people and adapters do between two deaths of the server: conversations that reach the commit boundaries.

Each is named, so that what it did outside can be told from what others did. A person here looks at the tool's own
record before saying what became of a call. It must not know when the server dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from benchmarks.effects.stage import FINAL, PATIENCE, Client, Json
from dromos.client import Client as Dromos
from dromos.client import RunView
from dromos.ports.store import ReadTx, Table
from dromos.testing.waiting import NotSeenInTimeError, eventually

Asked = Callable[[Json], Awaitable[None]]
LOOK = 0.05

FIRST = """!error 503 x1
!say I look first
{look}
!say then I count
!call t__count_keyed {{"label": "keyed {name}"}}
!call t__count {{"label": "unsafe {name}"}}
!say and with leave
!call a__count {{"label": "allowed {name}"}}
!say done"""
LOOK_FIRST = '!call t__sleep {"s": 0}'
LOOK_LONG = '!call t__gate {{"name": "long {name}"}}'
HELD = '!call a__gate {{"name": "held {name}"}}\n!say never said'
LAST = """!call t__sleep {"s": 1.2}
!call ask_person {"question": "Was it good?"}
!say thanks"""


async def follow(client: Client, run_id: str, asked: Asked | None = None) -> Json:
    """The run at its end; what it asks a person on the way is answered."""
    clock = asyncio.get_running_loop()
    until = clock.time() + 2 * PATIENCE
    while True:
        run = await client.get(f"/v1/runs/{run_id}")
        if run["status"] in FINAL:
            return run
        if clock.time() > until:
            raise NotSeenInTimeError(f"the end of {run}\n{client.hall.server.logs_tail()}")
        if run["status"] == "waiting_input":
            await answer(client, run_id, asked)
        await asyncio.sleep(LOOK)


async def answer(client: Client, run_id: str, asked: Asked | None = None) -> None:
    """Every open question of the run, as a careful person would answer it."""
    for request in (await client.get("/v1/requests", status="open"))["items"]:
        if request["run_id"] != run_id:
            continue
        if asked is not None:
            await asked(request)
        word: Json = {"decision": "approve"} | ({"grant": "tool"} if request.get("grants") else {})
        if request["kind"] == "question":
            word = {"decision": "answer", "answer": "very"}
        elif request["kind"] == "tool_outcome_unknown":
            happened = client.hall.counted()[(request["arguments"] or {}).get("label")]
            word = {"decision": "mark_done", "answer": "counted"} if happened else {"decision": "retry"}
        seen = {name: request[name] for name in ("arguments_sha256",)} | {
            "request_version": request["version"]
        }
        await client.post(f"/v1/requests/{request['id']}/decision", {**word, **seen}, also=[409])


async def newest_run(client: Client, conversation: str, besides: set[str]) -> Json:
    async def look() -> Json | None:
        runs = (await client.get("/v1/runs", conversation_id=conversation))["items"]
        return next((run for run in runs if run["id"] not in besides), None)

    found = await eventually(look, seconds=PATIENCE, what="the next run", every=LOOK)
    assert found is not None
    return found


async def talk(
    client: Client,
    name: str,
    *,
    meanwhile: Callable[[], None] | None = None,
    within: Callable[[], None] | None = None,
) -> list[str]:
    """A model call, a read, keyed, unsafe and allowed call; messages meanwhile; a stop; Continue; a question.

    Returns what is not as it should be. `meanwhile` is done once, while the first run waits for a person; `within` once
    it is on disk that the first run's read is under way, which then takes until that was done.
    """
    conversation = (await client.create("/v1/conversations", {}))["id"]
    here = f"/v1/conversations/{conversation}"
    async with Viewer(client, conversation) as viewer:
        found = await _talk(client, conversation, here, name, meanwhile, within)
        found += await viewer.compared()
    aside = (await client.create("/v1/conversations", {}, keep=False))["id"]  # erased, its key with it
    await client.ask("DELETE", f"/v1/conversations/{aside}", also=[404])
    return found


async def _talk(
    client: Client,
    conversation: str,
    here: str,
    name: str,
    meanwhile: Callable[[], None] | None,
    within: Callable[[], None] | None,
) -> list[str]:
    look = LOOK_FIRST if within is None else LOOK_LONG.format(name=name)
    posted = await client.create(f"{here}/messages", {"content": FIRST.format(name=name, look=look)})
    first, sent_meanwhile = posted["run"]["id"], False
    if within is not None:
        await _stored_as_open(client, first, "t__gate")
        within()
        client.hall.open(f"long {name}")

    async def asked(request: Json) -> None:
        nonlocal sent_meanwhile
        if sent_meanwhile or request["kind"] != "approval":
            return
        sent_meanwhile = True
        await _send_meanwhile(client, here, name)
        if meanwhile is not None:
            meanwhile()

    found = []
    ended = await follow(client, first, asked)
    if ended["status"] != "completed":
        return [f"the first run is {ended['status']}: {ended['error_message']}"]  # what waits is held then
    counted = client.hall.counted()
    for label in (f"keyed {name}", f"unsafe {name}", f"allowed {name}"):
        if counted[label] != 1:
            found.append(f"I10: {label} happened {counted[label]} times")
    if found:
        return found  # the rest rests on it

    second = (await newest_run(client, conversation, {first}))["id"]
    await _under_way(client, second, "a__gate")
    held = await client.create(f"{here}/messages", {"content": "!say was held"})
    stopped = await client.ask("POST", f"/v1/runs/{second}/cancel", {}, also=[409])
    client.hall.open(f"held {name}")
    ended = await follow(client, second)
    if stopped.is_success and ended["status"] != "cancelled":
        found.append(f"I5: the stop of {second} was accepted, it is {ended['status']}")
    goes_on = await client.post(f"{here}/continue", {}, also=[409])
    if goes_on.is_success:
        await follow(client, goes_on.json()["run"]["id"])
    sent = await client.post(
        f"/v1/followups/{held['followup']['id']}/send",
        {"version": (await client.get(f"/v1/followups/{held['followup']['id']}"))["version"]},
        also=[409],
    )
    if sent.is_success and "run" in sent.json():
        await follow(client, sent.json()["run"]["id"])
    last = await client.create(f"{here}/messages", {"content": LAST})
    ended = await follow(client, (last.get("run") or await _run_of(client, conversation, last))["id"])
    if (ended["status"], ended["line"]) != ("completed", "thanks"):
        found.append(f"the last run is {ended['status']} and says {ended['line']!r}")
    await client.ask("PATCH", here, {"title": f"talk {name}"})
    for grant in (await client.get("/v1/grants", conversation_id=conversation))["items"]:
        await client.ask("DELETE", f"/v1/grants/{grant['id']}", also=[404])
    view = await client.get(here)
    said = [message["content"] for message in view["messages"] if message["role"] == "user"]
    waits = [one["content"] for one in view["followups"] if one["status"] in ("waiting", "held")]
    for text in ("!say steered", HELD.format(name=name)):  # one to steer by that came too late acts as queue
        if said.count(text) + waits.count(text) != 1:
            found.append(
                f"I9: {text!r} was said {said.count(text)} times and waits {waits.count(text)} times"
            )
    return found


async def _run_of(client: Client, conversation: str, posted: Json) -> Json:
    """The run of a message that had to wait."""
    followup = posted["followup"]["id"]

    async def look() -> str | None:
        return (await client.get(f"/v1/followups/{followup}")).get("message_id")

    message_id = await eventually(look, seconds=PATIENCE, what="the message's turn", every=LOOK)
    runs = (await client.get("/v1/runs", conversation_id=conversation))["items"]
    return next(run for run in runs if run["trigger_message_id"] == message_id)  # type: ignore[no-any-return]


async def _send_meanwhile(client: Client, here: str, name: str) -> None:
    """One to be edited and to run next, one to be taken back, one to steer by."""
    waits = (await client.create(f"{here}/messages", {"content": "draft"}))["followup"]
    gone = (await client.create(f"{here}/messages", {"content": "never"}))["followup"]
    await client.create(f"{here}/messages", {"content": "!say steered", "when_busy": "steer"})
    text = {"version": waits["version"], "content": HELD.format(name=name)}
    await client.ask("PATCH", f"/v1/followups/{waits['id']}", text, also=[409])
    await client.ask(
        "DELETE", f"/v1/followups/{gone['id']}", query={"version": gone["version"]}, also=[404, 409]
    )


async def _under_way(client: Client, run_id: str, tool: str) -> None:
    """The call is being made, or a person is asked what became of it."""

    async def look() -> bool:
        told = await client.get(f"/v1/runs/{run_id}/document")
        current = told["document"]["current"] or {}
        return current.get("name") == tool or told["document"]["status"] == "waiting_input"

    await eventually(look, seconds=PATIENCE, what=f"{tool} under way", every=LOOK)


async def _stored_as_open(client: Client, run_id: str, tool: str) -> None:
    """The document on disk shows the step of this call as under way."""
    async with client.hall.store() as store:

        def is_open(tx: ReadTx) -> bool:
            row = tx.first(Table.RUN_DOCUMENTS, {"run_id": run_id})
            steps = (row["content"].get("steps") or []) if row is not None else []
            return any((step["name"], step["status"]) == (tool, "running") for step in steps)

        async def look() -> bool:
            return await store.read(is_open)

        await eventually(look, seconds=PATIENCE, what=f"{tool} on disk", every=LOOK)


async def session(client: Client, name: str) -> list[str]:
    """An adapter outside takes a run, shows its work, asks, and ends it; whoever loses the run claims it again."""
    conversation = (await client.create("/v1/conversations", {"agent": "far"}))["id"]
    posted = await client.create(f"/v1/conversations/{conversation}/messages", {"content": "work"})
    run_id, asked = posted["run"]["id"], False
    while True:
        run = await client.get(f"/v1/runs/{run_id}")
        if run["status"] in FINAL:
            break
        if run["status"] == "waiting_input":
            await answer(client, run_id)
        elif run["status"] == "queued":
            claimed = await client.post(
                "/v1/adapter/claim", {"agents": ["far"], "adapter_session": name, "wait_s": 2}, keep=False
            )
            if claimed.status_code == 200 and claimed.json()["run"]["id"] == run_id:
                asked = bool(claimed.json()["decisions"] or claimed.json()["applied"]) or asked
                asked = await _work(client, claimed.json(), asked)
        else:
            await asyncio.sleep(LOOK)
    said = [
        m["content"]
        for m in (await client.get(f"/v1/conversations/{conversation}"))["messages"]
        if m["role"] == "assistant"
    ]
    wrong = [] if run["status"] == "completed" else [f"the adapter's run is {run['status']}"]
    return wrong + ([] if said == ["I look", "found"] else [f"the adapter's history is {said}"])


async def _work(client: Client, claim: Json, asked: bool) -> bool:
    """One ownership; returns whether the question was asked in it or before."""
    run, token = claim["run"], claim["token"]
    here, lost = f"/v1/adapter/runs/{run['id']}", [403, 409]
    auth = {"Authorization": f"Bearer {token}"}
    renewed = await client.post(f"{here}/renew", {"activity": True}, token=token, also=lost, keep=False)
    if not renewed.is_success:
        return asked
    call = {"id": "c1", "name": "look", "args": {}}
    told: list[tuple[str, Json]] = [
        ("steps", {"steps": [{"id": "s1", "kind": "tool", "name": "look", "status": "done", "ms": 1}]}),
        (
            "messages",
            {
                "messages": [
                    {"id": f"m1-{run['id']}", "role": "assistant", "content": "I look", "tool_calls": [call]},
                    {"id": f"m2-{run['id']}", "role": "tool", "tool_call_id": "c1", "content": "it"},
                ]
            },
        ),
    ]
    for what, body in told:
        if claim["progress"] and what == "messages":
            continue
        if not (await client.post(f"{here}/{what}", body, token=token, also=lost)).is_success:
            return asked
    document = await client.get(f"/v1/runs/{run['id']}/document")
    patch = [{"op": "replace", "path": "/line", "value": "looking"}]
    body = {"base_version": document["version"], "patch": patch}
    await client.ask("PATCH", f"/v1/runs/{run['id']}/document", body, headers=auth, also=lost)
    if not asked:
        question = {"requests": [{"kind": "question", "prompt": "Go on?"}]}
        return (await client.post(f"{here}/requests", question, token=token, also=lost)).is_success
    await client.post(f"{here}/transition", {"to": "completed", "answer": "found"}, token=token, also=lost)
    return asked


class Viewer:
    """I11: somebody who looks at the conversation all the time, and in the end has what the server has."""

    def __init__(self, client: Client, conversation: str) -> None:
        self._dromos = Dromos(client.hall.server.url, patience=PATIENCE)
        self._conversation = conversation
        self._views: dict[str, RunView] = {}
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Viewer:
        self._looking = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._looking is not None
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)
        await self._dromos.aclose()

    async def compared(self) -> list[str]:
        """What is shown here and not there, once no news is under way."""
        assert self._looking is not None
        found: list[str] = []
        runs = [run async for run in self._dromos.runs(conversation_id=self._conversation)]
        for run_id in (run["id"] for run in runs):
            there = await self._dromos.document(run_id)

            def same(run_id: str = run_id, there: Json = there) -> bool:
                view = self._views.get(run_id)
                return view is not None and view.ended and _differ(view, there["document"]) == []

            try:
                await eventually(same, seconds=PATIENCE, what="the document", every=LOOK)
            except NotSeenInTimeError:
                view = self._views.get(run_id)
                here = "is not seen" if view is None else f"differs in {_differ(view, there['document'])}"
                found.append(f"I11: {run_id} {here}")
        if self._looking.done() and self._looking.exception() is not None:
            found.append(f"I11: the stream ended: {self._looking.exception()!r}")
        return found

    async def _look(self) -> None:
        async with self._dromos.stream(focus=self._conversation, after=0, patience=PATIENCE) as stream:
            async for event in stream:
                data = event.data
                if event.type in ("hello", "reset"):  # what was missed is read again
                    for view in self._views.values():
                        view.take_document(await self._dromos.document(view.run_id))
                if event.type == "run.status" and data["conversation_id"] == self._conversation:
                    run = data["payload"]["run"]
                    if run["id"] not in self._views:
                        self._views[run["id"]] = RunView(run)
                        self._views[run["id"]].take_document(await self._dromos.document(run["id"]))
                for view in self._views.values():
                    view.take(event)
                    if view.stale:
                        view.take_document(await self._dromos.document(view.run_id))


def _differ(view: RunView, there: Json) -> list[str]:
    """What a reader of a run that has ended shows otherwise than the server."""
    return sorted(name for name in there if view.document.get(name) != there[name])
