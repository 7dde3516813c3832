"""`Client`: the operations by name. Answers are the JSON shapes of the HTTP API, as dicts.

Errors are those of `dromos.client.errors`. It must not know how a request is repeated or a stream comes back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

import httpx

from dromos.client.connection import ANSWER_SECONDS, Connection
from dromos.client.stream import EventStream, Link

Json = dict[str, Any]


class Client:
    """A server at `url`. `patience`: seconds for which a lost answer is asked for again (safely); 0: never.

    Use it as an async context, or `aclose` it.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8321",
        *,
        patience: float = 10.0,
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.connection = Connection(url, patience=patience, token=token, transport=transport)

    @property
    def url(self) -> str:
        """Base address without a trailing slash."""
        return self.connection.url

    async def aclose(self) -> None:
        await self.connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # ── conversations ─────────────────────────────────────────────────────────────────────────────────────────

    async def create_conversation(self, title: str | None = None, agent: str | None = None) -> Json:
        """→ the conversation."""
        return await self._post("/v1/conversations", _given(title=title, agent=agent))

    def conversations(self) -> AsyncIterator[Json]:
        """All conversations, newest first; pages are fetched as they are needed."""
        return self._pages("/v1/conversations", {})

    async def conversation(self, conversation_id: str) -> Json:
        """One consistent read: `{conversation, messages, runs, requests, followups, resumable, seq}`."""
        return await self._get(f"/v1/conversations/{_id(conversation_id)}")

    async def change_conversation(
        self,
        conversation_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
        seen_seq: int | None = None,
    ) -> Json:
        """→ the conversation."""
        body = _given(title=title, archived=archived, seen_seq=seen_seq)
        answer: Json = await self.connection.json(
            "PATCH", f"/v1/conversations/{_id(conversation_id)}", body=body
        )
        return answer

    async def delete_conversation(self, conversation_id: str) -> None:
        """Stop what runs and erase everything the conversation owns; returns when it is gone."""
        await self.connection.json(
            "DELETE", f"/v1/conversations/{_id(conversation_id)}", answer_seconds=2 * ANSWER_SECONDS
        )

    async def messages(self, conversation_id: str, *, before: str | None = None, limit: int = 50) -> Json:
        """A page of the history: `{items, next_cursor}`, the newest page without `before`."""
        query = {"before": before, "limit": limit}
        return await self._get(f"/v1/conversations/{_id(conversation_id)}/messages", query)

    async def export(self, conversation_id: str, format: Literal["md", "jsonl", "json"] = "md") -> bytes:
        """The whole conversation as a file's content, UTF-8."""
        path = f"/v1/conversations/{_id(conversation_id)}/export"
        return (await self.connection.send("GET", path, query={"format": format})).content

    async def checkpoints(self, conversation_id: str) -> list[Json]:
        """The thread's checkpoints, oldest first."""
        return list((await self._get(f"/v1/conversations/{_id(conversation_id)}/checkpoints"))["items"])

    # ── messages and runs ─────────────────────────────────────────────────────────────────────────────────────

    async def post_message(
        self,
        conversation_id: str,
        content: Any,
        *,
        when_busy: Literal["queue", "steer", "interrupt", "reject"] | None = None,
        run: Json | None = None,
    ) -> Json:
        """Send a person's message: `{message, run}`, or `{message, followup}` where a run is live.

        `run`: what it asks of its run (`agent`, `model`, `budget`, `deadline_s`, `backend_policy`). The message is
        taken once, however often the answer is lost. A follow-up's `when_busy` says what it acts as. Raises Conflict
        with `when_busy="reject"`, or where too many wait.
        """
        body = _given(content=content, when_busy=when_busy, run=run)
        return await self._post(f"/v1/conversations/{_id(conversation_id)}/messages", body)

    async def continue_run(self, conversation_id: str) -> Json:
        """Go on after a failure or a stop: `{run}`. Raises Conflict (`run_not_resumable`)."""
        return await self._post(f"/v1/conversations/{_id(conversation_id)}/continue", {})

    def runs(
        self, *, status: str | None = None, conversation_id: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Json]:
        """Runs, newest first; pages are fetched as they are needed. `limit` is the most that are given."""
        return self._pages("/v1/runs", {"status": status, "conversation_id": conversation_id}, limit)

    async def run(self, run_id: str) -> Json:
        return await self._get(f"/v1/runs/{_id(run_id)}")

    def steps(self, run_id: str) -> AsyncIterator[Json]:
        """What the run did, in order."""
        return self._pages(f"/v1/runs/{_id(run_id)}/steps", {})

    async def attempts(self, run_id: str) -> list[Json]:
        """Who worked on the run, in order."""
        return list((await self._get(f"/v1/runs/{_id(run_id)}/attempts"))["items"])

    async def document(self, run_id: str) -> Json:
        """`{run_id, version, run_version, document}`: what the run shows now, the text so far included."""
        return await self._get(f"/v1/runs/{_id(run_id)}/document")

    async def cancel(self, run_id: str, *, comment: str | None = None, wait_s: float | None = None) -> Json:
        """Ask for a stop: `{run}`. With `wait_s` the answer comes when the run has ended, or after that time.

        Raises Conflict (`already_ended`) where it ended otherwise; `current["run"]` says how.
        """
        return await self._post(
            f"/v1/runs/{_id(run_id)}/cancel",
            _given(comment=comment),
            query={"wait_s": wait_s},
            answer_seconds=ANSWER_SECONDS + (wait_s or 0),
        )

    # ── follow-ups ────────────────────────────────────────────────────────────────────────────────────────────

    async def followup(self, followup_id: str) -> Json:
        """A message that waits, or waited; `revisions` holds every text it had, oldest first."""
        return await self._get(f"/v1/followups/{_id(followup_id)}")

    async def edit_followup(self, followup_id: str, version: int, content: Any) -> Json:
        """Give a message that waits another text.

        This and the other changes raise Conflict (`version_conflict`) where it was changed or taken meanwhile;
        `current["followup"]` is as it is now.
        """
        return await self._change_followup(followup_id, {"version": version, "content": content})

    async def move_followup(self, followup_id: str, version: int, position: int) -> Json:
        """Put a message that waits at another place; 0 is the first of those that wait or are held."""
        return await self._change_followup(followup_id, {"version": version, "position": position})

    async def _change_followup(self, followup_id: str, body: Json) -> Json:
        path = f"/v1/followups/{_id(followup_id)}"
        answer: Json = await self.connection.json("PATCH", path, body=body)
        return answer

    async def send_followup(self, followup_id: str, version: int) -> Json:
        """Send a held message after all: `{message, run, followup}`, or `{message, followup}` behind what waits."""
        return await self._post(f"/v1/followups/{_id(followup_id)}/send", {"version": version})

    async def discard_followup(self, followup_id: str, version: int) -> None:
        """Take a message that waits, or is held, back for good."""
        await self.connection.json("DELETE", f"/v1/followups/{_id(followup_id)}", query={"version": version})

    # ── questions to a person ─────────────────────────────────────────────────────────────────────────────────

    def requests(self) -> AsyncIterator[Json]:
        """The open questions over all conversations, oldest first; pages are fetched as they are needed."""
        return self._pages("/v1/requests", {"status": "open"})

    async def request(self, request_id: str) -> Json:
        return await self._get(f"/v1/requests/{_id(request_id)}")

    async def decide(
        self,
        request: Json,
        decision: Literal["approve", "edit", "deny", "answer", "retry", "mark_done", "skip"],
        *,
        answer: Any = None,
        arguments: Json | None = None,
        grant: Literal["call", "tool"] | None = None,
        comment: str | None = None,
    ) -> Json:
        """Say it to the question as it was shown: `{request, run}`. `request`: the question itself, not its id.

        `answer` goes with `answer` and `mark_done`, `arguments` with `edit`; with `approve`, `grant` allows exactly
        this call, or the whole tool, for the rest of the conversation.

        Raises Conflict: `already_decided` (`current["request"]` says by whom and what), `request_closed` (too late, or
        its run ended) or `version_conflict`; and InvalidRequest where the answer does not fit.
        """
        body = {
            "decision": decision,
            "request_version": request["version"],
            "arguments_sha256": request["arguments_sha256"],
            **_given(answer=answer, arguments=arguments, grant=grant, comment=comment),
        }
        return await self._post(f"/v1/requests/{_id(request['id'])}/decision", body)

    def grants(self, conversation_id: str | None = None) -> AsyncIterator[Json]:
        """What was allowed for good and is in force, newest first; pages are fetched as they are needed."""
        return self._pages("/v1/grants", {"conversation_id": conversation_id})

    async def revoke_grant(self, grant_id: str) -> None:
        """From the next call on a person is asked again."""
        await self.connection.json("DELETE", f"/v1/grants/{_id(grant_id)}")

    # ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────

    async def agents(self) -> list[Json]:
        """The agents that can be named, each with the model that answers."""
        return list((await self._get("/v1/agents"))["items"])

    def stream(
        self,
        *,
        focus: str | None = None,
        after: int | None = None,
        patience: float | None = None,
        on_link: Callable[[Link], None] | None = None,
    ) -> EventStream:
        """Everything that happens, as it happens; with the frames of the conversation `focus`.

        `after` is the number to go on from (a conversation's `seq`); without it the stream starts at now.
        """
        return EventStream(self.connection, focus=focus, after=after, patience=patience, on_link=on_link)

    async def _get(self, path: str, query: Json | None = None) -> Json:
        answer: Json = await self.connection.json("GET", path, query=query)
        return answer

    async def _post(self, path: str, body: Json, **options: Any) -> Json:
        answer: Json = await self.connection.json("POST", path, body=body, **options)
        return answer

    async def _pages(self, path: str, query: Json, limit: int | None = None) -> AsyncIterator[Json]:
        given, cursor = 0, None
        while True:
            size = 200 if limit is None else min(limit - given, 200)
            page = await self._get(path, {**query, "cursor": cursor, "limit": size})
            for item in page["items"]:
                yield item
            given += len(page["items"])
            cursor = page.get("next_cursor")
            if cursor is None or (limit is not None and given >= limit):
                return


def _given(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _id(value: str) -> str:
    return quote(value, safe="")
