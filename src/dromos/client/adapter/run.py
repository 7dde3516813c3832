"""`AdapterRun`: one claimed run in the hands of a handler. Showing, saying, asking, and its one end.

    async with run:                       # or: `session.serve(handler)`, which does this for each run
        run.box.line = "looking"
        run.result = Answer("Seven.")

A stop cancels the task inside the block. However the block is left, the run gets the end that this means, and
nothing is taken for done before the server said so. It must not know how runs are claimed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Self

from dromos.client.adapter.body import Body
from dromos.client.adapter.box import Box
from dromos.client.adapter.calls import RunCalls
from dromos.client.adapter.effects import Effect, EffectCall, once
from dromos.client.adapter.ending import end_of, failed
from dromos.client.adapter.lease import Lease
from dromos.client.adapter.pen import Pen
from dromos.client.adapter.values import AgentError, Answer, Decision, Parked, Question, Steer, Stop
from dromos.client.connection import DELAYS, Connection
from dromos.client.errors import ApiError, Conflict, InvalidRequest
from dromos.domain.errors import LeaseLost
from dromos.domain.text import clean_text, text_of

log = logging.getLogger("dromos.adapter")
Json = dict[str, Any]

STOP_SECONDS: Final = 10.0
"""How long a call that a stop made pointless waits for the news of it."""
MOST_SESSION: Final = 200
"""Characters of a session's id."""


class AdapterRun:
    """What `claim` (the answer to a claim that was sent at `sent_at`) brought. `on_end()` is called when it is over."""

    def __init__(
        self,
        claim: Mapping[str, Any],
        *,
        connection: Connection,
        sent_at: float,
        monotonic: Callable[[], float],
        new_id: Callable[[], str],
        on_end: Callable[[AdapterRun], None],
    ) -> None:
        run = claim["run"]
        self.id: str = run["id"]
        self.conversation_id: str = run["conversation_id"]
        self.agent: str = run["agent"]
        self.attempt: int = run["attempt"]
        self.model: str | None = run["model"]
        """The model that the person asked for."""
        self.backend_policy: Json = dict(run["backend_policy"])
        """`{"models", "providers"}`: what this run may use."""
        self.input: Any = claim["input"]
        """The person's message; None where the run goes on with an ended one (see `session_id`)."""
        self.history: list[Json] = list(claim["history"])
        """The conversation before it, oldest first."""
        self.progress: list[Json] = list(claim["progress"])
        """Messages that this run stored under earlier attempts."""
        self.decisions = [Decision.of(one) for one in claim["decisions"]]
        """What people decided since the run parked."""
        self.token: str = claim["token"]
        """Authorises every call for this run, as long as this attempt lasts: it is a secret."""
        self.stop: Stop | None = None
        """Why the handler is being cancelled."""
        self.result: Answer | None = None
        """What the run ends with if its block ends well."""
        self._decided = [(one, Decision.of(one, applied=True)) for one in claim["applied"]]
        self._decided += [(one, Decision.of(one)) for one in claim["decisions"]]
        self._session_id: str | None = claim["session_id"]
        self._new_id, self._on_end = new_id, on_end
        self._lease = Lease(monotonic, self._lost)
        seconds = float(claim["lease_s"])
        # A claim may have waited long for its run: then a renewal has to confirm it before anything else.
        sent_at = max(sent_at, monotonic() - seconds / 3)
        self._lease.grant(sent_at=sent_at, seconds=seconds, until=claim["lease_until"])
        self._calls = RunCalls(connection, self.id, self.token, self._lease)
        self._pen = Pen(self._calls, self._make_box, new_id)
        self._refusal: ApiError | None = None  # of the session's id; not raised yet
        self._hint = asyncio.Event()
        self._renewing = asyncio.Lock()
        self._steers: list[Steer] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._body = Body()
        self._closed = False

    def _make_box(self, on_change: Callable[[], None]) -> Box:
        lease = self._lease
        return Box(now=lease.server_now, monotonic=lease.monotonic, new_id=self._new_id, on_change=on_change)

    # ── what it brings ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def box(self) -> Box:
        """What the live box shows."""
        return self._pen.box

    @property
    def text(self) -> str:
        """The readable text of `input`; '' where it has none."""
        return text_of(self.input)

    @property
    def session_id(self) -> str | None:
        """The agent's own name for its state. Set it as soon as it is known: a takeover is told it.

        Raises ValueError for what no server takes. One that this server refuses all the same is None again, and the
        refusal is raised by `flush`.
        """
        return self._session_id

    @session_id.setter
    def session_id(self, value: str | None) -> None:
        self._session_id = None if value is None else _session_id(value)
        self._hint.set()

    # ── saying ────────────────────────────────────────────────────────────────────────────────────────────────

    async def say(self, text: str) -> None:
        """Stream text: the next piece of the message being written. It is sent within a quarter of a second."""
        self._lease.check()
        await self._pen.say(text)

    async def flush(self) -> None:
        """Returns when the server has everything said and shown so far.

        Raises LeaseLost, or the ApiError with every fault of what the server refused to show or to take.
        """
        await self._pen.flush()
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    async def message(
        self,
        content: Any = None,
        *,
        role: Literal["assistant", "tool"] = "assistant",
        tool_calls: Sequence[Mapping[str, Any]] | None = None,
        tool_call_id: str | None = None,
        name: str | None = None,
        interrupted: bool = False,
    ) -> Json:
        """Store a message in the history, for good; returns it as it stands there.

        Without `content` an assistant's message is what was said since the last one. `tool_calls`: `[{"id", "name",
        "args"}]`; each is answered by a message with `role="tool"` and its `tool_call_id`. Raises an ApiError where it
        does not fit, LeaseLost. Of a message that comes after a stop the text is kept, as one that was cut off.
        """
        message_id = None
        if role == "assistant":
            if content is None or content == self._pen.spoken.text:
                await self._pen.show()
            if content is None or content == self._pen.spoken.text:
                message_id, content = self._pen.spoken.end()
            if not content and not tool_calls:
                raise ValueError("nothing was said; give the message its `content`, or `tool_calls`")
        fields: Json = {
            "id": message_id or self._new_id(),
            "role": role,
            "content": content,
            "tool_calls": None if tool_calls is None else [dict(call) for call in tool_calls],
            "tool_call_id": tool_call_id,
            "name": name,
        }
        body = {key: value for key, value in fields.items() if value is not None}
        if interrupted:
            body["interrupted"] = True
        self._pen.touch()
        try:
            return await self._store(body)
        except Conflict as refusal:
            if role != "assistant" or not _tells_of_a_stop(refusal):
                raise
            calls = body.pop("tool_calls", None)
            stored = await self._store({**body, "interrupted": True}) if content else None
            if self.stop is None or calls or stored is None:
                await self._stopped_meanwhile(refusal)
            return stored

    async def _store(self, message: Json) -> Json:
        stored: Json = (await self._calls.post("messages", {"messages": [message]}))["messages"][0]
        return stored

    async def _stopped_meanwhile(self, refusal: ApiError) -> NoReturn:
        """A call came after somebody stopped the run: the news of it cancels this very call."""
        if self.stop is None:
            self._hint.set()
            await asyncio.sleep(STOP_SECONDS)
        raise refusal

    async def steering(self) -> AsyncIterator[Steer]:
        """What the person sent into this run since the last time, in order; ends when there is nothing more.

        Call it where the agent can read, for example before each call of its model: what is given out here counts as
        read. What is never taken starts the next run instead.
        """
        await self._renew(steer=True)
        while self._steers:
            yield self._steers.pop(0)

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, prompt: str, **fields: Any) -> Decision:
        """Ask the person (fields: see `Question`). With the decision at hand it is returned; else the run parks.

        Parking raises Parked; let it through. When the person has answered, the run comes back and the handler starts
        from its beginning, where this call returns the decision.
        """
        return (await self.ask_all(Question(prompt, **fields)))[0]

    async def approve(self, tool: str, arguments: Mapping[str, Any], **fields: Any) -> Decision:
        """Ask whether exactly this call may be made; see `ask`. Look at `applied` before you make it."""
        fields = {"prompt": f"May {tool} be called?", **fields}
        return (await self.ask_all(Question(kind="approval", tool=tool, arguments=arguments, **fields)))[0]

    async def ask_all(self, *questions: Question) -> list[Decision]:
        """Several questions at once; the run comes back when all are decided."""
        found = [self._decision_of(question) for question in questions]
        if all(found):
            return [decision for decision in found if decision is not None]
        asked = [one.as_json() for one, known in zip(questions, found, strict=True) if known is None]
        await self._pen.finish()
        try:
            await self._calls.post("requests", {"requests": asked})
        except Conflict as refusal:
            await self._stopped_meanwhile(refusal)
        self._close()
        raise Parked

    def _decision_of(self, question: Question) -> Decision | None:
        for place, (entry, decision) in enumerate(self._decided):
            if question.is_answered_by(entry):
                del self._decided[place]
                return decision
        return None

    # ── effects ───────────────────────────────────────────────────────────────────────────────────────────────

    def effect(self, tool: str, arguments: Mapping[str, Any], *, call_id: str, **options: Any) -> Effect:
        """One call with an effect outside, made once (options: see `EffectCall`):

            async with run.effect("send_mail", {"to": "ada"}, call_id="welcome") as effect:
                if not effect.done:
                    effect.result = await send_mail("ada", key=effect.key)

        `call_id` is the handler's own name of the call: the same whenever the turn is repeated, another for another
        call of the turn. Where an earlier attempt was lost in it, and it is not `keyed`, the run parks and asks.
        """
        return Effect(EffectCall(tool, arguments, call_id, **options), self._report_effect)

    async def once(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        make: Callable[[str], Awaitable[Any]],
        *,
        call_id: str,
        **options: Any,
    ) -> Any:
        """`await make(key)`, the first time; then what came of it. Raises EffectFailed where that was a failure."""
        return await once(self.effect(tool, arguments, call_id=call_id, **options), make)

    async def _report_effect(self, body: Json, on_unknown: str) -> Json:
        self._pen.touch()
        try:
            told = await self._calls.post("effects", body)
            if told["state"] != "ask" and (told["state"], on_unknown) != ("unknown", "ask"):
                return told
            await self._pen.finish()
            told = await self._calls.post("effects", {**body, "ask": True})
        except Conflict as refusal:
            await self._stopped_meanwhile(refusal)
        if told["state"] != "parked":
            return told
        self._close()
        raise Parked

    # ── its life ──────────────────────────────────────────────────────────────────────────────────────────────

    def hint(self) -> None:
        """Something may have happened to this run: ask the server now instead of later."""
        self._hint.set()

    async def open(self) -> None:
        """Begin to keep it alive. Raises LeaseLost where it is too late."""
        try:
            if self._lease.monotonic() >= self._lease.due:
                await self._renew()
            self.box.begin_from(await self._pen.read())
        except BaseException:
            self._close()
            raise
        self._tasks = [asyncio.create_task(self._keep_alive()), asyncio.create_task(self._write())]

    def give_up(self) -> None:
        """The session closes: cancel what is under way and leave the run to the server's grace."""
        if self.stop is None:
            self.stop = Stop("session_closed")
        self._body.cancel()
        if not self._body.entered:
            self._close()

    async def __aenter__(self) -> Self:
        self._body.enter()
        if self.stop is not None:
            self._body.cancel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        from_outside = self._body.leave()
        try:
            if not self._closed and self._lease.lost is None:
                await self._end(error, from_outside)
        except LeaseLost:
            pass
        finally:
            if self._lease.lost is not None:
                log.warning("run %s is not this side's any more: %s", self.id, self._lease.lost)
            self._close()
            await self.wait_closed()
        if isinstance(error, asyncio.CancelledError):
            return not from_outside
        return isinstance(error, Exception | Parked | LeaseLost)

    async def _end(self, error: BaseException | None, from_outside: bool) -> None:
        said = self._pen.spoken.text
        body = end_of(error, result=self.result, stop=self.stop, from_outside=from_outside, said=said)
        if isinstance(error, Exception) and not isinstance(error, AgentError):
            log.error("run %s: the handler failed", self.id, exc_info=error)
        if body is None:
            return
        ended: dict[str, Literal["done", "failed"]] = {"completed": "done", "failed": "failed"}
        self.box.end_steps(ended.get(body["to"], "cancelled"))
        self.box.current = None
        await self._pen.finish()
        if self._session_id is not None:
            body.setdefault("session_id", self._session_id)
        await self._report_end(body)

    async def _report_end(self, body: Json) -> None:
        """What the server does not take of an end is left out, so that the run has one."""
        while True:
            try:
                await self._calls.post("transition", body)
                return
            except ApiError as refusal:
                log.error("run %s: its end was refused: %s", self.id, _told(refusal))
                if "session_id" in body and _names(refusal, "/session_id"):
                    del body["session_id"]
                elif body["to"] == "completed":
                    body = failed(f"The agent's answer was refused: {refusal.detail}")
                else:
                    return

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _write(self) -> None:
        try:
            await self._pen.run()
        except LeaseLost:
            pass
        except Exception:
            log.exception("run %s: its box cannot be written any more", self.id)

    async def _keep_alive(self) -> None:
        """Renew every third of the lease, and at once when hinted. A renewal that is refused is made again: only the
        lease says when the run is lost."""
        refused = 0
        while not self._closed:
            try:
                async with asyncio.timeout(max(0.0, self._lease.due - self._lease.monotonic())):
                    await self._hint.wait()
            except TimeoutError:
                pass
            try:
                await self._renew()
                refused = 0
            except LeaseLost:
                return
            except ApiError as refusal:
                log.error("run %s: a renewal was refused, trying again: %s", self.id, _told(refusal))
                try:
                    await self._lease.pause(DELAYS[min(refused, len(DELAYS) - 1)])
                except LeaseLost:
                    return
                refused += 1

    async def _renew(self, *, steer: bool = False) -> None:
        async with self._renewing:
            self._hint.clear()
            body: Json = {"steer": steer}
            if self._session_id is not None:
                body["session_id"] = self._session_id
            sent_at = self._lease.monotonic()
            try:
                answer = await self._calls.post("renew", body)
            except InvalidRequest as refusal:
                if "session_id" not in body:
                    raise
                self._drop_session(body.pop("session_id"), refusal)
                sent_at = self._lease.monotonic()
                answer = await self._calls.post("renew", body)
            self._lease.grant(sent_at=sent_at, seconds=answer["lease_s"], until=answer["lease_until"])
            self._steers += [Steer(one["id"], one["content"]) for one in answer["steer"]]
            stop = answer["stop"]
            if stop is not None and (self.stop is None or self.stop.is_local):
                self.stop = Stop(stop["cause"], stop["by"], stop["deadline_s"])
                self._body.cancel()

    def _drop_session(self, refused: str, refusal: ApiError) -> None:
        log.error("run %s: session_id is refused and left out: %s", self.id, _told(refusal))
        self._refusal = refusal
        if self._session_id == refused:
            self._session_id = None

    def _lost(self) -> None:
        self.stop = Stop("lease_lost")
        self._body.cancel()

    def _close(self) -> None:
        """Nothing is sent for this run any more."""
        if self._closed:
            return
        self._closed = True
        self._lease.close()
        for task in self._tasks:
            task.cancel()
        self._on_end(self)

    async def wait_closed(self) -> None:
        """Returns when its own tasks have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _session_id(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MOST_SESSION:
        raise ValueError(f"session_id is a text of 1 to {MOST_SESSION} characters, or None")
    return clean_text(value)


def _tells_of_a_stop(refusal: Conflict) -> bool:
    run = refusal.current.get("run")
    return refusal.code == "invalid_transition" and isinstance(run, Mapping) and bool(run.get("stop"))


def _names(refusal: ApiError, place: str) -> bool:
    """Whether one of the faults is there."""
    return any(f"{fault.get('path')}/".startswith(f"{place}/") for fault in refusal.errors)


def _told(refusal: ApiError) -> str:
    """Its words and every fault, for a log."""
    faults = [f"{fault.get('path')}: {fault.get('message')}" for fault in refusal.errors]
    return "; ".join([refusal.detail, *faults])
