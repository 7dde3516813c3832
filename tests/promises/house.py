"""A whole server in this process, as `serve` assembles it, over HTTP: left and entered again it is a restart."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from dromos.bootstrap.assembling import System, assemble
from dromos.settings import load
from dromos.testing.invariants import violations
from dromos.testing.local_http import LocalHTTP
from dromos.testing.waiting import eventually
from tests.faults.driver import Json, Person

USER = "local"


class House:
    """`settings` is its `dromos.toml`, `servers` are the tool servers' addresses by name; both may change between
    leaving and entering. `person` speaks to it."""

    def __init__(
        self, folder: Path, servers: dict[str, str], settings: str = "", database: str | None = None
    ) -> None:
        self.folder, self.servers, self.settings, self.database = folder, servers, settings, database
        self.system: System
        self.person: Person
        self.url = ""

    def logs_tail(self) -> str:
        return ""

    async def __aenter__(self) -> Self:
        entries = {name: {"url": url} for name, url in self.servers.items()}
        (self.folder / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
        (self.folder / "dromos.toml").write_text(self.settings)
        environment = {"DROMOS_MODEL": "scripted"}
        flags = {"data": self.folder / "data", "database": self.database}
        settings = load(flags, environment=environment, directory=self.folder)
        self.stack = AsyncExitStack()
        self.system = await self.stack.enter_async_context(assemble(settings))
        http = await self.stack.enter_async_context(LocalHTTP(self.system.app))
        self.url = http.url
        self.person = await self.stack.enter_async_context(Person(self))
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            assert await violations(self.system.store, USER) == []
        finally:
            self.system.closing.set()
            await self.stack.aclose()

    async def restart(self, settings: str | None = None, **servers: str) -> None:
        """Leave, change what is given, enter again."""
        await self.__aexit__()
        self.settings = self.settings if settings is None else settings
        self.servers |= servers
        await self.__aenter__()

    # --- what tests say often
    async def send(self, script: str, conversation: str | None = None) -> Json:
        """The run of a message, in a new conversation unless one is given."""
        where = conversation or await self.person.conversation()
        return (await self.person.say(where, script))["run"]

    async def asked(
        self, run_id: str, count: int = 1, *, beside: tuple[str, ...] = (), seconds: float = 20.0
    ) -> list[Json]:
        """The run's open questions but those `beside`, once there are so many, in the order of their arguments."""

        async def look() -> list[Json]:
            items = (await self.person.ask("GET", "/v1/requests?limit=200"))["items"]
            found = [one for one in items if one["run_id"] == run_id and one["id"] not in beside]
            return found if len(found) == count else []

        found = await eventually(look, seconds=seconds, what=f"{count} open questions")
        return sorted(found, key=lambda one: json.dumps(one["arguments"], sort_keys=True))

    async def decide(self, request: Json, decision: str, expect: int = 200, **more: Any) -> Json:
        body = {
            "decision": decision,
            "request_version": request["version"],
            "arguments_sha256": request["arguments_sha256"],
            **more,
        }
        return await self.person.ask("POST", f"/v1/requests/{request['id']}/decision", expect, json=body)

    async def request(self, request: Json) -> Json:
        return await self.person.ask("GET", f"/v1/requests/{request['id']}")

    async def results(self, conversation: str) -> list[str]:
        """What the agent read of its calls, in order."""
        return [
            str(one["content"]) for one in await self.person.history(conversation) if one["role"] == "tool"
        ]

    async def ended(self, run_id: str) -> Json:
        async def look() -> Json | None:
            run = await self.person.run(run_id)
            return run if run["finished_at"] is not None else None

        return await eventually(look, seconds=20, what="the end of the run")
