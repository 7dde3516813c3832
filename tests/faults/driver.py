"""A client for fault tests: plain HTTP and the stream, nothing of the product's own code in between."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx

from dromos.testing.processes import ServeProcess
from dromos.testing.waiting import within

FINAL = {"completed", "failed", "cancelled", "interrupted", "expired"}
Json = dict[str, Any]


class Person:
    """Somebody with a browser: sends, watches, stops."""

    def __init__(self, server: ServeProcess) -> None:
        self.server = server
        self.http = httpx.AsyncClient(base_url=server.url, timeout=20, trust_env=False)

    async def __aenter__(self) -> Person:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def ask(self, method: str, path: str, expect: int = 200, **options: Any) -> Json:
        answer = await self.http.request(method, path, **options)
        assert answer.status_code == expect, (
            f"{method} {path}: {answer.status_code} {answer.text}\n{self.server.logs_tail()}"
        )
        return answer.json() if answer.content else {}

    async def conversation(self) -> str:
        return (await self.ask("POST", "/v1/conversations", 201, json={}))["id"]

    async def say(self, conversation: str, content: str, expect: int = 201, **options: Any) -> Json:
        path = f"/v1/conversations/{conversation}/messages"
        return await self.ask("POST", path, expect, json={"content": content, **options})

    async def run(self, run_id: str) -> Json:
        return await self.ask("GET", f"/v1/runs/{run_id}")

    async def history(self, conversation: str) -> list[Json]:
        return (await self.ask("GET", f"/v1/conversations/{conversation}"))["messages"]

    async def events(self, after: int = 0, focus: str | None = None) -> AsyncIterator[Json]:
        """Events and frames of the stream as they come: `{"event", "id", "data"}`; ends with the stream."""
        query = {"after": str(after)} | ({"focus": focus} if focus else {})
        async with self.http.stream("GET", "/v1/stream", params=query, timeout=httpx.Timeout(20)) as answer:
            assert answer.status_code == 200, await answer.aread()
            one: Json = {}
            async for line in answer.aiter_lines():
                if line.startswith(":"):
                    continue
                if not line:
                    if one:
                        yield one
                    one = {}
                    continue
                name, _, value = line.partition(":")
                one[name] = json.loads(value) if name == "data" else value.strip()

    async def seen(
        self, fits: Callable[[Json], bool], *, after: int = 0, focus: str | None = None, seconds: float = 15.0
    ) -> Json:
        """The first event or frame that fits."""

        async def look() -> Json:
            async for one in self.events(after, focus):
                if fits(one):
                    return one
            raise AssertionError("the stream ended before it came")

        try:
            return await within(seconds, look(), "the event")
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.server.logs_tail()}") from None

    async def status_event(self, run_id: str, *statuses: str, seconds: float = 15.0) -> Json:
        """The run as told by its first `run.status` event with one of these statuses."""

        def fits(one: Json) -> bool:
            data = one.get("data") or {}
            return (
                one.get("event") == "run.status"
                and data["run_id"] == run_id
                and data["payload"]["run"]["status"] in statuses
            )

        return (await self.seen(fits, seconds=seconds))["data"]["payload"]["run"]

    async def end(self, run_id: str, seconds: float = 20.0) -> Json:
        """The run as its end event told it."""
        return await self.status_event(run_id, *FINAL, seconds=seconds)


TRUST = {"DROMOS_APPROVALS_TRUSTED_SERVERS": "t"}
"""What the counting tools say of themselves is believed: those that only read are called again after a kill."""


def tools(folder: Path) -> dict[str, str]:
    """Writes an mcp.json with the counting tools as server `t`; returns the environment in which they are believed."""
    effects = folder / "effects"
    (folder / "mcp.json").write_text(
        json.dumps(
            {
                "mcpServers": {
                    "t": {
                        "command": sys.executable,
                        "args": ["-m", "dromos.testing.tools_server"],
                        "env": {"CT_FILE": str(effects)},
                    }
                }
            }
        )
    )
    return TRUST


def effects(folder: Path) -> list[Json]:
    """What the counting tools did, in order."""
    file = folder / "effects"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def open_gate(folder: Path, name: str) -> None:
    (folder / f"effects.{name}").touch()


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def gather(*awaitables: Any) -> list[Any]:
    return list(await asyncio.gather(*awaitables))
