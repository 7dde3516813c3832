"""A small world around the lifecycle: a person, owners, and a stand-in for the engine that writes a thread's rows.

`Engine` writes what the checkpointer writes, under the same fence: checkpoints, messages in the thread's log, and
pending writes of tasks that finished before their step did. It makes no decisions.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson
import uuid_utils

from dromos.domain.machine import Command, Resume
from dromos.domain.reasons import Reason
from dromos.domain.requests import Decision
from dromos.domain.runs import Run
from dromos.domain.statuses import Verdict, WhenBusy
from dromos.lifecycle import Lifecycle
from dromos.lifecycle.change import Change
from dromos.lifecycle.contract import Claimed, IdempotencyKey, Policy, Posted, PostMessage, RunOptions
from dromos.lifecycle.scope import lock_run
from dromos.lifecycle.transition import transition
from dromos.ports.agent import InputMessage, Parked
from dromos.ports.live import DocumentSnapshot
from dromos.ports.store import NOT_NULL, Row, Store, Table, Tx
from dromos.testing.invariants import violations

T = TypeVar("T")
USER = "anna"
OWNER = "incarnation-1"


class NewIds:
    def new(self) -> str:
        return str(uuid_utils.uuid7())

    def secret(self) -> str:
        return secrets.token_urlsafe(32)


@dataclass
class Wakeups:
    """Remembers which topics were woken."""

    topics: list[str] = field(default_factory=list)

    def notify(self, topic: str, news: object = ()) -> None:
        self.topics.append(topic)

    def notify_elsewhere(self, topic: str) -> None:
        self.topics.append(topic)

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        raise NotImplementedError("nobody listens here")


class World:
    def __init__(self, store: Store, policy: Policy | None = None) -> None:
        self.store = store
        self.wakeups = Wakeups()
        self.lifecycle = Lifecycle(store, self.wakeups, NewIds(), policy or Policy())

    async def begin(self) -> World:
        await self.lifecycle.ensure_user(USER, "Anna")
        await self.lifecycle.register_owner(OWNER, "worker", "host", 1, None)
        return self

    # --- a person

    async def post(
        self,
        content: Any,
        conversation_id: str | None = None,
        *,
        user: str = USER,
        when_busy: WhenBusy = WhenBusy.QUEUE,
        key: IdempotencyKey | None = None,
        options: RunOptions | None = None,
    ) -> Posted:
        out: list[Posted] = []

        def encode(posted: Posted) -> tuple[int, str]:
            out.append(posted)
            return 201, orjson.dumps({"run": posted.run.id if posted.run else None}).decode()

        message = PostMessage(content, conversation_id, when_busy, options or RunOptions())
        await self.lifecycle.post_message(user, message, "assistant", encode, key)
        return out[-1]

    async def begin_run(self, content: Any = "hello", conversation_id: str | None = None) -> Claimed:
        """A message, and its run claimed and composed."""
        posted = await self.post(content, conversation_id)
        assert posted.run is not None, "the conversation is busy"
        claimed = await self.claim()
        assert claimed.run.id == posted.run.id
        return claimed

    async def resume(self, conversation_id: str, *, pending: bool = True) -> Run:
        out: list[Run] = []

        def encode(run: Run) -> tuple[int, str]:
            out.append(run)
            return 201, "{}"

        await self.lifecycle.continue_run(USER, conversation_id, pending, encode, None)
        return out[-1]

    async def cancel(self, run_id: str) -> Run:
        return await self.lifecycle.request_cancel(USER, run_id)

    async def decide(
        self,
        request: Row | str,
        verdict: Verdict,
        answer: Any = None,
        *,
        user: str = USER,
        key: IdempotencyKey | None = None,
        **seen: Any,
    ) -> tuple[Row, Run]:
        """A person's word on a question, as it is or was (`request_version`, `arguments_sha256`) when seen."""
        out: list[tuple[Row, Run]] = []

        def encode(result: tuple[Row, Run]) -> tuple[int, str]:
            out.append(result)
            return 200, orjson.dumps([result[0]["status"], result[1].status]).decode()

        if isinstance(request, str):
            (request,) = await self.rows(Table.REQUESTS, id=request)
        said = {"request_version": request["version"], "arguments_sha256": request["arguments_sha256"]} | seen
        decision = Decision(verdict, answer=answer, **said)
        await self.lifecycle.decide(user, request["id"], decision, encode, key)
        return out[-1] if out else (request, await self.run(request["run_id"]))

    # --- owners

    async def park(self, claimed: Claimed, *questions: dict[str, Any]) -> list[Row]:
        """The attempt ends with these questions (one without further ado); returns their rows."""
        asked = questions or ({"kind": "question", "prompt": "which one?"},)
        await self.lifecycle.end_attempt(claimed.fence, Parked(Reason.QUESTION_ASKED, asked), None)
        return await self.rows(Table.REQUESTS, run_id=claimed.run.id, status="open")

    async def claim(self, owner: str = OWNER) -> Claimed:
        """The one run that is claimable, its input made."""
        (claimed,) = await self.lifecycle.claim(owner, None, 1)
        await self.lifecycle.compose_input(claimed.fence, compose)
        return claimed

    async def lose(self, owner: str = OWNER) -> None:
        """The owner is dead: its lease is gone. A new incarnation stands ready, and one sweep finds its runs."""
        await self.lifecycle.retire_owner(owner)
        await self.lifecycle.sweep()
        await self.lifecycle.register_owner(owner, "worker", "host", 1, None)

    async def command(self, run_id: str, command: Command) -> Run:
        """Any command of the machine, for edges whose doors come later."""

        def operation(tx: Tx) -> Run:
            change = Change(tx, self.lifecycle.ids, self.lifecycle.policy)
            conversation, run = lock_run(change, run_id)
            after = transition(change, conversation, run, command)
            change.flush()
            return after

        return await self.store.write(operation)

    async def answer_all(self, run_id: str) -> Run:
        """Every open question of a parked run is decided."""
        where = {"run_id": run_id, "status": "open"}
        decided = {"status": "decided", "decision": {"decision": "answer", "answer": "so be it"}}
        await self.store.write(lambda tx: tx.change(Table.REQUESTS, where, decided))
        return await self.command(run_id, Resume())

    # --- looking

    async def rows(self, table: Table, **where: Any) -> list[Row]:
        orders = {
            Table.EVENTS: ("user_id", "seq"),
            Table.MESSAGES: ("position", "num"),
            Table.REQUESTS: ("opened_at", "id"),
        }
        order = orders.get(table, ())
        return await self.store.read(lambda tx: tx.find(table, where, order=order))

    async def run(self, run_id: str) -> Run:
        run = await self.store.read(lambda tx: tx.load_run(run_id))
        assert run is not None
        return run

    async def runs_of(self, conversation_id: str) -> list[Run]:
        where = {"conversation_id": conversation_id}
        return await self.store.read(lambda tx: tx.find_runs(where, order=("created_at", "id")))

    async def events(self, user: str = USER, **where: Any) -> list[Row]:
        return await self.rows(Table.EVENTS, user_id=user, **where)

    async def history(self, conversation_id: str) -> list[Row]:
        return await self.rows(Table.MESSAGES, conversation_id=conversation_id, hidden=False, pending_of=None)


def empty(tx: Tx) -> None:
    """Nothing is left in any table."""
    for table in Table:
        tx.remove(table, {})


def compose(messages: list[InputMessage]) -> list[dict[str, Any]]:
    """An input as an adapter might make it: the messages, by id."""
    return [
        {"id": one.id, "role": one.role, "content": one.content, "tool_call_id": one.tool_call_id}
        for one in messages
    ]


class Engine:
    """What a graph's run leaves in the store, step by step, for one claimed run."""

    def __init__(self, world: World, claimed: Claimed) -> None:
        self.world, self.run = world, claimed.run
        self.recorder = world.lifecycle.recorder(claimed.fence)
        self.conversation_id = claimed.run.conversation_id

    async def enter(self) -> None:
        """The input checkpoint: every message of the stored input gets its place in the log; once per run."""

        def write(tx: Tx, run: Run) -> None:
            (stored,) = tx.find(Table.RUN_INPUTS, {"run_id": run.id})
            if stored["input"] is None or tx.count(Table.CHECKPOINTS, {"run_id": run.id}):
                return
            for message in stored["input"]:
                where = {"conversation_id": run.conversation_id, "id": message["id"], "hidden": False}
                tx.change(Table.MESSAGES, where, {"log_seq": _next(tx, run, "log_seq")})
            _checkpoint(tx, run, self.world)

        await self.recorder.write(write)

    async def say(self, text: str, calls: Sequence[str] = (), message_id: str | None = None) -> str:
        """The model's step is committed: an assistant message, perhaps with tool calls."""
        return await self._commit("assistant", text, calls=calls, message_id=message_id)

    async def result(self, call_id: str, text: str = "fine") -> str:
        """A tool's step is committed; what was pending for the call becomes the committed message."""
        return await self._commit("tool", text, tool_call_id=call_id)

    async def pend_result(self, call_id: str, text: str = "finished beside others") -> None:
        """A tool finished, its step did not: the result is a pending write of the head."""
        await self.recorder.write(
            lambda tx, run: _pend(tx, run, self.world, "tool", text, call_id, ()), messages=True
        )

    async def pend_text(self, text: str, calls: Sequence[str] = ()) -> None:
        """A model finished inside a step that did not."""
        await self.recorder.write(
            lambda tx, run: _pend(tx, run, self.world, "assistant", text, None, calls), messages=True
        )

    async def _commit(
        self,
        role: str,
        text: str,
        *,
        calls: Sequence[str] = (),
        tool_call_id: str | None = None,
        message_id: str | None = None,
    ) -> str:
        def write(tx: Tx, run: Run) -> str:
            values = {"log_seq": _next(tx, run, "log_seq"), "pending_of": None}
            if tool_call_id is not None:
                pending = {
                    "conversation_id": run.conversation_id,
                    "tool_call_id": tool_call_id,
                    "pending_of": NOT_NULL,
                }
                if tx.change(Table.MESSAGES, {**pending, "run_id": run.id}, values):
                    _checkpoint(tx, run, self.world)
                    return tool_call_id
            row = _message(tx, run, self.world, role, text, tool_call_id, calls) | values
            if message_id is not None:
                row["id"] = message_id
            tx.put(Table.MESSAGES, row)
            _checkpoint(tx, run, self.world)
            return str(row["id"])

        return await self.recorder.write(write, messages=True)

    def shown(self, text: str, message_id: str = "live-text", **content: Any) -> DocumentSnapshot:
        """The live document of this attempt with `text` streamed so far."""
        part = {"message_id": message_id, "length": len(text), "content": text}
        return DocumentSnapshot(self.run.id, (self.run.epoch << 32) + 1, {"text": part, **content})


def _next(tx: Tx, run: Run, column: str) -> int:
    where = {"conversation_id": run.conversation_id, column: NOT_NULL}
    newest = tx.first(Table.MESSAGES, where, order=(f"-{column}",))
    return newest[column] + 1 if newest else 0


def _message(
    tx: Tx, run: Run, world: World, role: str, text: str, tool_call_id: str | None, calls: Sequence[str]
) -> Row:
    row = tx.lock(Table.CONVERSATIONS, {"id": run.conversation_id})
    assert row is not None
    num = row["next_num"]
    tx.change(Table.CONVERSATIONS, {"id": run.conversation_id}, {"next_num": num + 1})
    return {
        "conversation_id": run.conversation_id,
        "num": num,
        "id": world.lifecycle.ids.new(),
        "position": num,
        "role": role,
        "kind": "tool" if role == "tool" else "text",
        "content": text,
        "tool_calls": [{"id": call, "name": f"tool_{call}", "args": {}} for call in calls] or None,
        "tool_call_id": tool_call_id,
        "run_id": run.id,
        "ns": "",
        "channel": "messages",
        "created_at": tx.now(),
    }


def _pend(
    tx: Tx, run: Run, world: World, role: str, text: str, tool_call_id: str | None, calls: Sequence[str]
) -> None:
    head = tx.first(Table.CHECKPOINTS, {"thread_id": run.conversation_id}, order=("-checkpoint_id",))
    assert head is not None
    row = _message(tx, run, world, role, text, tool_call_id, calls)
    tx.put(Table.MESSAGES, row | {"pending_of": head["checkpoint_id"]})


def _checkpoint(tx: Tx, run: Run, world: World) -> None:
    in_thread = {"conversation_id": run.conversation_id, "log_seq": NOT_NULL, "hidden": False}
    tx.put(
        Table.CHECKPOINTS,
        {
            "thread_id": run.conversation_id,
            "checkpoint_ns": "",
            "checkpoint_id": world.lifecycle.ids.new(),
            "run_id": run.id,
            "source": "loop",
            "step": 0,
            "message_count": tx.count(Table.MESSAGES, in_thread),
            "type": "test",
            "checkpoint": b"",
            "metadata": {"run_id": run.id},
            "created_at": tx.now(),
        },
    )


# --- invariants


async def check_invariants(world: World, user: str = USER) -> None:
    """What a store can show of the invariants, over everything that is stored for the user."""
    assert await violations(world.store, user) == []


async def check_history(world: World, conversation_id: str) -> None:
    """I13 alone, for moments at which a run is under way."""
    found = await violations(world.store, USER)
    assert [one for one in found if one.startswith("I13") and conversation_id in one] == []


async def open_calls(world: World, conversation_id: str) -> set[str]:
    rows = await world.history(conversation_id)
    answered = {row["tool_call_id"] for row in rows if row["role"] == "tool"}
    return {call["id"] for row in rows for call in row["tool_calls"] or ()} - answered
