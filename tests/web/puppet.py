"""A run led by the test's own hand: an adapter in plain HTTP that shows in the box exactly what the test wants seen."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import httpx

AGENT = "puppet"
"""Name of the agent that the tests' servers call `remote = true`."""

Json = dict[str, Any]


class Puppet:
    """One claimed run. It keeps the version of the document and the length of the text."""

    def __init__(self, client: httpx.AsyncClient, claim: Json) -> None:
        self._client = client
        self._headers = {"authorization": f"Bearer {claim['token']}"}
        self.run: str = claim["run"]["id"]
        self.conversation: str = claim["run"]["conversation_id"]
        self.decisions: list[Json] = claim["decisions"]
        self._version: int = claim["epoch"] << 32
        self._said: dict[str, int] = {}

    async def show(self, **content: Any) -> None:
        """Put these members of the content part: `show(plan=[…], current={…})`."""
        await self.patch(
            *({"op": "replace", "path": f"/{name}", "value": value} for name, value in content.items())
        )

    async def patch(self, *operations: Json) -> None:
        await self._document({"patch": list(operations)})

    async def say(self, message: str, text: str) -> None:
        """Append to the text being written."""
        offset = self._said.get(message, 0)
        await self._document({"patch": [], "text": {"message_id": message, "offset": offset, "append": text}})
        self._said[message] = offset + len(text.encode("utf-16-le")) // 2

    async def renew(self) -> Json:
        return await self._call("renew", {"activity": True})

    async def steps(self, *steps: Json) -> None:
        await self._call("steps", {"steps": list(steps)})

    async def messages(self, *messages: Json) -> None:
        await self._call("messages", {"messages": list(messages)})

    async def ask(self, *requests: Json) -> None:
        """Park the run on these questions; somebody has to claim it again."""
        await self._call("requests", {"requests": list(requests)})

    async def end(self, to: str = "completed", **more: Any) -> None:
        await self._call("transition", {"to": to, **more})

    async def _document(self, body: Json) -> None:
        for _ in range(2):
            answer = await self._client.patch(
                f"/v1/runs/{self.run}/document",
                json={"base_version": self._version, **body},
                headers=self._headers,
            )
            if answer.status_code != 409:
                break
            self._version = answer.json()["version"]  # a renewal has noted that the run moved
        assert answer.is_success, answer.text[:400]
        self._version = answer.json()["version"]

    async def _call(self, what: str, body: Json) -> Json:
        answer = await self._client.post(
            f"/v1/adapter/runs/{self.run}/{what}", json=body, headers=self._headers
        )
        assert answer.is_success, answer.text[:400]
        return dict(answer.json())


class Stage:
    """Where puppets come from: starts runs on a server and claims them, under one session."""

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=20, trust_env=False)
        self._session = f"stage-{uuid4()}"

    async def conversation(self, title: str) -> str:
        answer = await self._client.post("/v1/conversations", json={"title": title, "agent": AGENT})
        assert answer.is_success, answer.text[:400]
        return str(answer.json()["id"])

    async def send(self, conversation: str, content: str, **more: Any) -> Json:
        answer = await self._client.post(
            f"/v1/conversations/{conversation}/messages", json={"content": content, **more}
        )
        assert answer.is_success, answer.text[:400]
        return dict(answer.json())

    async def claim(self) -> Puppet:
        body = {"agents": [AGENT], "adapter_session": self._session, "wait_s": 10, "prefer_own": True}
        answer = await self._client.post("/v1/adapter/claim", json=body)
        assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
        return Puppet(self._client, answer.json())

    async def begin(self, title: str, content: str = "Begin.") -> Puppet:
        """A new conversation with a run that is claimed already."""
        await self.send(await self.conversation(title), content)
        return await self.claim()

    async def call(self, method: str, path: str, body: Json | None = None) -> httpx.Response:
        return await self._client.request(method, path, json=body)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop what is still live, so that no other test claims it."""
        for status in ("queued", "running", "waiting_input", "cancelling"):
            found = await self._client.get("/v1/runs", params={"status": status, "limit": 200})
            for run in found.json()["items"]:
                if run["agent"] == AGENT:
                    await self._client.post(f"/v1/runs/{run['id']}/cancel", json={})
        await self._client.aclose()
