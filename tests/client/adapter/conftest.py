"""A real server whose agents come from outside, and a person who talks to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dromos.client import Client, RunView
from dromos.client.adapter import AdapterSession
from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import within

Json = dict[str, Any]
SETTINGS = """
default_agent = "plain"

[agents.plain]
remote = true

[agents.other]
remote = true

[tools."guarded_*"]
policy = "ask"
"""


def with_agents(folder: Path) -> Path:
    """The folder, with a `dromos.toml` that names the agents."""
    (folder / "dromos.toml").write_text(SETTINGS)
    return folder


class Person:
    """Somebody with a device at the server: writes, watches the stream, stops, decides."""

    def __init__(self, url: str, *, agent: str = "plain") -> None:
        self.client = Client(url)
        self.agent = agent
        self.conversation = ""
        self.run_id = ""

    async def say(self, content: Any, **options: Any) -> Json:
        """Write into the conversation (a new one at first); `run_id` is then the run that this started, if it did."""
        if not self.conversation:
            self.conversation = (await self.client.create_conversation(agent=self.agent))["id"]
        posted = await self.client.post_message(self.conversation, content, **options)
        if "run" in posted:
            self.run_id = posted["run"]["id"]
        return posted

    async def sees(
        self, fits: Callable[[RunView], bool], *, seconds: float = 15.0, run_id: str = ""
    ) -> RunView:
        """Follow a run on the stream until it looks so."""
        run = await self.client.run(run_id or self.run_id)
        view = RunView(run)
        view.take_document(await self.client.document(run["id"]))

        async def look() -> RunView:
            if fits(view):
                return view
            async with self.client.stream(focus=self.conversation, after=0) as events:
                async for event in events:
                    view.take(event)
                    if view.stale:
                        view.take_document(await self.client.document(run["id"]))
                    if fits(view):
                        return view
            raise AssertionError("the stream ended")

        return await within(seconds, look(), f"the expected state of run {run['id']}")

    async def end(self, *, seconds: float = 20.0, run_id: str = "") -> Json:
        """The run as it ended."""
        return (await self.sees(lambda view: view.ended, seconds=seconds, run_id=run_id)).run

    async def said(self) -> list[tuple[str, Any]]:
        """(role, content) of the history, anchors left out."""
        items = (await self.client.messages(self.conversation))["items"]
        return [(one["role"], one["content"]) for one in items if one["kind"] != "run"]

    async def document(self) -> Json:
        document: Json = (await self.client.document(self.run_id))["document"]
        return document

    async def decide(self, **decision: Any) -> None:
        """Answer the one open question of the conversation."""
        (request,) = (await self.client.conversation(self.conversation))["requests"]
        body = {"request_version": request["version"], "arguments_sha256": request["arguments_sha256"]}
        await self.client.connection.json(
            "POST", f"/v1/requests/{request['id']}/decision", body={**body, **decision}
        )


@asynccontextmanager
async def person_at(url: str, **options: Any) -> AsyncIterator[Person]:
    person = Person(url, **options)
    yield person
    await person.client.aclose()


@asynccontextmanager
async def serving(url: str, handler: Any, **options: Any) -> AsyncIterator[AdapterSession]:
    """A session that serves `plain` with the handler, for as long as the context lasts."""
    options = {"agents": ["plain"], "close_s": 1.0, **options}
    async with AdapterSession(url, **options) as session:
        task = asyncio.create_task(session.serve(handler))
        yield session
        session.stop_claiming()
        await within(5, task, "the end of claiming")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Address of a server with the remote agents `plain` and `other`."""
    folder = with_agents(tmp_path_factory.mktemp("adapters"))
    async with ServeProcess(folder / "data") as server:
        yield server.url


@pytest.fixture
async def person(url: str) -> AsyncIterator[Person]:
    async with person_at(url) as person:
        yield person
