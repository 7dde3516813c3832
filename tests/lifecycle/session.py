"""An adapter session for tests: what its HTTP calls do, without HTTP."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import orjson

from dromos.api.adapter import encode
from dromos.domain.runs import Run
from dromos.lifecycle.adapters import ClaimAsk, End, SessionClaim, SignOfLife
from dromos.lifecycle.contract import Answer, IdempotencyKey
from dromos.lifecycle.effects import Effect
from dromos.lifecycle.tokens import ClaimKey
from dromos.ports.store import Table, Tx
from dromos.wire import adapter
from tests.lifecycle.world import USER, World

Json = dict[str, Any]


class Session:
    """One start of an adapter. The calls for a run take its claim, and answer the JSON they would be sent."""

    def __init__(
        self,
        world: World,
        name: str = "session-1",
        *,
        user: str = USER,
        agents: tuple[str, ...] = ("assistant",),
    ) -> None:
        self.world, self.name, self.user, self.agents = world, name, user, agents
        self.outside = world.lifecycle.outside

    async def claim(
        self, key: str | None = None, *, body: str = "{}", own_first: bool = False
    ) -> SessionClaim | None:
        claim_key = ClaimKey(self.user, self.name, key, _digest(body)) if key else None
        return await self.outside.claim(ClaimAsk(self.user, self.agents, self.name, own_first), claim_key)

    async def take(self, **how: Any) -> SessionClaim:
        """A claim that finds a run."""
        claim = await self.claim(**how)
        assert claim is not None, "no run waits"
        return claim

    async def begin(self, content: Any = "hello", conversation_id: str | None = None) -> SessionClaim:
        """A message, and its run claimed."""
        posted = await self.world.post(content, conversation_id, user=self.user)
        claim = await self.take()
        assert posted.run is not None
        assert claim.run.id == posted.run.id
        return claim

    async def renew(self, claim: SessionClaim, *, key: str | None = None, **sign: Any) -> Json:
        answer, _ = await self.outside.renew(
            claim.run.id, claim.token, SignOfLife(**sign), encode.renewed, _key("renew", key)
        )
        return _read(answer)

    async def end(
        self, claim: SessionClaim, to: str = "completed", *, key: str | None = None, **how: Any
    ) -> Json:
        """The run's JSON after it."""
        body = adapter.EndRun.model_validate({"to": to, **how})
        answer = await self.outside.end(
            claim.run.id, claim.token, End(**body.model_dump()), encode.ended, _key("end", key)
        )
        return dict(_read(answer)["run"])

    async def park(self, claim: SessionClaim, *asked: Json, key: str | None = None) -> Json:
        questions = asked or ({"kind": "question", "prompt": "which one?"},)
        body = adapter.OpenRequests.model_validate({"requests": list(questions)})
        entries = [one.model_dump() for one in body.requests]
        return _read(
            await self.outside.park(claim.run.id, claim.token, entries, encode.parked, _key("park", key))
        )

    async def steps(self, claim: SessionClaim, *steps: Json) -> int:
        body = adapter.ReportSteps.model_validate({"steps": list(steps)})
        entries = [one.model_dump() for one in body.steps]
        answer = await self.outside.report_steps(claim.run.id, claim.token, entries, encode.steps, None)
        return int(_read(answer)["steps"])

    async def effect(self, claim: SessionClaim, state: str, call_id: str, **told: Any) -> Json:
        """The answer to an intent or an outcome; an intent without a tool is one of `send_mail`."""
        if state == "intent":
            told = {"tool": "send_mail", "arguments": {"to": "anna"}, **told}
        body = adapter.ReportEffect.model_validate({"state": state, "call_id": call_id, **told})
        effect = Effect(**body.model_dump())
        return _read(await self.outside.report_effect(claim.run.id, claim.token, effect, encode.effect, None))

    async def messages(self, claim: SessionClaim, *messages: Json, key: str | None = None) -> list[Json]:
        body = adapter.AppendMessages.model_validate({"messages": list(messages)})
        entries = [one.model_dump() for one in body.messages]
        answer = await self.outside.append_messages(
            claim.run.id, claim.token, entries, encode.messages, _key("messages", key)
        )
        return list(_read(answer)["messages"])


def said(text: str, *calls: str, id: str | None = None, **more: Any) -> Json:
    made = [{"id": call, "name": f"tool_{call}", "args": {}} for call in calls] or None
    return {"role": "assistant", "content": text, "tool_calls": made, "id": id, **more}


def result(call: str, text: str = "fine", id: str | None = None) -> Json:
    return {"role": "tool", "tool_call_id": call, "content": text, "id": id}


async def silent_for(world: World, seconds: float, run: Run | None = None) -> None:
    """The run (or every run) was renewed so long ago, and the server has been there all the time."""

    def move(tx: Tx) -> None:
        then = tx.now() - timedelta(seconds=seconds)
        tx.change(Table.RUNS, {"id": run.id} if run else {"owner_kind": "adapter"}, {"renewed_at": then})
        tx.change(Table.LEASES, {}, {"started_at": then - timedelta(hours=1)})

    await world.store.write(move)


def _key(route: str, key: str | None) -> IdempotencyKey | None:
    return None if key is None else IdempotencyKey(f"POST {route}", key, _digest(route))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read(answer: Answer) -> Json:
    read: Callable[[str], Json] = orjson.loads
    return read(answer.body)
