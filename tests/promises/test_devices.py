"""A device that stays open while people decide: one stream of the reference client, against fresh reads; and one whose
stream is cut at the wrong moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dromos.client import Client, EventStream, RunView
from dromos.testing.waiting import eventually, within
from tests.faults.driver import Json
from tests.promises.conftest import Tools
from tests.promises.house import House
from tests.web.lossy import LossyProxy

SETTINGS = '[tools."t__count"]\npolicy = "ask"\n[worker]\ndrain_s = 1\n'


class Device:
    """Reads the run once, then only listens."""

    def __init__(self, client: Client, stream: EventStream, run: Json) -> None:
        self.client, self.stream = client, stream
        self.view = RunView(run)
        self.patches = 0

    async def agrees(self, *, asked: int, status: str) -> Json:
        """The document as a fresh read shows it in this status, once all news of it are here; what this device shows
        at that version is the same."""
        run_id, talk = self.view.run_id, self.view.run["conversation_id"]

        async def look() -> Json:
            while True:
                fresh = await self.client.document(run_id)
                conversation = await self.client.conversation(talk)
                while self.stream.cursor < conversation["seq"] or self.view.version < fresh["version"]:
                    await self._take_one()
                here = (self.view.version, self.view.document["run_version"])
                if here == (fresh["version"], fresh["run_version"]) and self.view.run["status"] == status:
                    assert conversation["requests"] == fresh["document"]["requests"]
                    return fresh
                if self.view.run["status"] != status:
                    await self._take_one()

        fresh = await within(15, look(), f"the document of a run that is {status}")
        there = dict(fresh["document"])
        assert _of_device(self.view.document) == _of_device(there)
        assert len(there["requests"]) == asked
        assert not self.view.stale
        return there

    async def _take_one(self) -> None:
        event = await anext(self.stream)
        self.patches += event.type == "run.patch"
        self.view.take(event)


def _of_device(document: Json) -> Json:
    """All of it; of the owner who it is, for when it was last seen is told to nobody while it is seen."""
    owner = document["owner"]
    return {**document, "owner": owner and owner["kind"]}


@pytest.mark.case("P62")
async def test_a_device_that_stays_open_shows_at_each_step_what_a_fresh_read_shows(
    tmp_path: Path, tools_server: Tools
) -> None:
    script = """!say I look first
!call t__gate {"name": "open device"}
!say two to allow
!call t__count {"label": "device one"}
!call t__count {"label": "device two"}
!say a question
!call ask_person {"question": "Shall I?", "options": ["yes", "no"]}
!say one more
!call t__count {"label": "device three"}
!say never"""
    async with House(tmp_path, {"t": tools_server.url}, SETTINGS) as house, Client(house.url) as client:
        begun = tools_server.begun("gate")
        run = await house.send(script)
        talk = run["conversation_id"]
        read = await client.conversation(talk)
        async with client.stream(focus=talk, after=read["seq"]) as stream:
            device = Device(client, stream, read["runs"][0])
            device.view.take_document(await client.document(run["id"]))
            await eventually(lambda: tools_server.begun("gate") > begun, what="the call under way")
            shown = await device.agrees(status="running", asked=0)
            assert shown["current"]["name"] == "t__gate"
            tools_server.open_gate("open device")

            shown = await device.agrees(status="waiting_input", asked=2)
            one, two = shown["requests"]
            assert [request["arguments"]["label"] for request in (one, two)] == ["device one", "device two"]
            await client.post_message(talk, "!say later")
            shown = await device.agrees(status="waiting_input", asked=2)
            assert len(shown["followups"]) == 1

            await client.decide(one, "edit", arguments={"label": "device changed"})
            shown = await device.agrees(status="waiting_input", asked=1)
            assert shown["requests"] == [two]
            await client.decide(two, "deny", comment="not that")
            shown = await device.agrees(status="waiting_input", asked=1)
            (question,) = shown["requests"]
            assert question["options"] == ["yes", "no"]
            await client.decide(question, "answer", answer="yes")
            shown = await device.agrees(status="waiting_input", asked=1)
            (last,) = shown["requests"]
            assert last["arguments"] == {"label": "device three"}
            await client.cancel(run["id"])
            await device.agrees(status="cancelled", asked=0)
            assert device.patches > 0
        held = (await client.conversation(talk))["followups"]
        await client.discard_followup(held[0]["id"], held[0]["version"])
    assert [one["label"] for one in tools_server.effects("device changed", "device one", "device two")] == [
        "device changed"
    ]


@pytest.mark.case("P61")
async def test_who_answers_while_cut_off_finds_the_same_run_again_and_sees_its_end(
    tmp_path: Path, tools_server: Tools
) -> None:
    """The first answer is sent while nothing gets through; the second one gets through, and only its news are lost."""
    script = """!call t__count {"label": "cut one"}
!say the first one is done
!call t__count {"label": "cut two"}
!say seen again"""
    ends: list[str] = []
    links: asyncio.Queue[str] = asyncio.Queue()

    async def follow(client: Client, stream: EventStream, view: RunView) -> None:
        async for event in stream:
            view.take(event)
            if event.type in ("hello", "reset") or view.stale:
                view.take_document(await client.document(view.run_id))
            if event.type == "run.status" and event.data["payload"]["run"]["finished_at"] is not None:
                ends.append(event.data["run_id"])
                return

    async def down() -> None:
        while await links.get() != "down":
            pass

    def shown(view: RunView) -> list[str]:
        return [request["id"] for request in view.document.get("requests", ())]

    async with (
        House(tmp_path, {"t": tools_server.url}, SETTINGS) as house,
        LossyProxy(int(house.url.rsplit(":", 1)[1])) as line,
        Client(line.url) as client,
        Client(house.url) as beside,
    ):
        run = await house.send(script)
        (first,) = await house.asked(run["id"])
        read = await client.conversation(run["conversation_id"])
        async with client.stream(
            focus=run["conversation_id"], after=read["seq"], on_link=links.put_nowait
        ) as stream:
            view = RunView(read["runs"][0])
            following = asyncio.create_task(follow(client, stream, view))
            try:
                await eventually(lambda: shown(view) == [first["id"]], what="the question on the device")
                line.cut()
                await within(10, down(), "the cut")
                answering = asyncio.create_task(client.decide(first, "approve"))
                await within(10, down(), "an attempt to come back")
                assert not answering.done()
                line.restore()
                assert (await within(10, answering, "the answer"))["request"]["status"] == "decided"
                (second,) = await house.asked(run["id"])
                await eventually(lambda: shown(view) == [second["id"]], what="the next one on the device")
                line.cut()
                await within(10, down(), "the second cut")
                await beside.decide(second, "approve")
                ended = await house.ended(run["id"])
                assert not view.ended and not following.done()
                line.restore()
                await within(10, following, "the end of the run, as this device sees it")
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
        assert stream.connects >= 3
        assert (ended["status"], ended["line"], ended["attempt"]) == ("completed", "seen again", 3)
        assert view.run == ended and ends == [run["id"]]
        fresh = await beside.document(run["id"])
        assert (view.version, view.document) == (fresh["version"], fresh["document"])
        runs = [each["id"] async for each in beside.runs(conversation_id=run["conversation_id"])]
        assert runs == [run["id"]], "nothing else was started"
        events = (await house.person.ask("GET", f"/v1/runs/{run['id']}/events"))["items"]
        resumed = [
            one for one in events if one["payload"].get("run", {}).get("reason") == "decision_recorded"
        ]
        assert len(resumed) == 2, "one for each answer"
    assert [one["label"] for one in tools_server.effects("cut one", "cut two")] == ["cut one", "cut two"]
