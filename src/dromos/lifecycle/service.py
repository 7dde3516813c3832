"""`Lifecycle`: the operations by name, each one transaction; wake-ups are sent after the commit.

The rules are in the modules beside it, as plain functions over a `Change`; this is the door to them. It holds no
state but what it was built with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from dromos.domain.errors import ConversationBusy, Duplicate, LostRace, Refusal
from dromos.domain.reasons import ErrorCode
from dromos.domain.requests import Decision
from dromos.domain.runs import Fence, Run
from dromos.domain.statuses import RunStatus
from dromos.lifecycle import (
    cancel,
    claim,
    decide,
    delete,
    documents,
    finish,
    followups,
    grants,
    journal,
    overview,
    owners,
    read,
    reap,
    resume,
    retention,
    scope,
    stalls,
    submit,
)
from dromos.lifecycle.change import Change
from dromos.lifecycle.claim import Compose
from dromos.lifecycle.contract import (
    Answer,
    Claimed,
    ConversationView,
    Encode,
    EventPage,
    Figures,
    IdempotencyKey,
    Policy,
    Posted,
    PostMessage,
    RunOptions,
)
from dromos.lifecycle.idempotency import CONSTRAINT, answered
from dromos.lifecycle.journal import RunJournal
from dromos.lifecycle.outside import Outside
from dromos.lifecycle.overview import Overview
from dromos.lifecycle.record import FencedRecorder
from dromos.lifecycle.steering import RunSteering
from dromos.ports.agent import InputMessage, Outcome, Steering
from dromos.ports.clock import Ids
from dromos.ports.journal import Journal
from dromos.ports.live import DocumentSnapshot
from dromos.ports.meter import Meter, NoMeter
from dromos.ports.probe import Moment, NoProbe, Point, Probe
from dromos.ports.recorder import Recorder
from dromos.ports.store import LIVE_RUN, Row, Store, Tx
from dromos.ports.wakeup import Wakeup, document_topic

T = TypeVar("T")
ABSENT_SECONDS = 3.0
"""A server that looks later than this, or than a third of the adapters' grace, was away."""


class Lifecycle:
    """See each method. Refusals (`dromos.domain.errors.Refusal`) are normal answers and change nothing."""

    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        ids: Ids,
        policy: Policy,
        probe: Probe | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.store, self.wakeup, self.ids, self.policy = store, wakeup, ids, policy
        self.probe, self.meter = probe or NoProbe(), meter or NoMeter()
        self.outside = Outside(store, self._change, self._answer, self.meter)

    async def _change(self, point: Point, operation: Callable[[Change], T]) -> T:
        """One transaction, then its wake-ups.

        Crash points: `<point>.written` inside the transaction, `<point>.committed` where it is on disk and nobody
        was told yet.
        """

        def fn(tx: Tx) -> tuple[T, Change]:
            change = Change(tx, self.ids, self.policy)
            value = operation(change)
            change.flush()
            self.probe.reach(point.at(Moment.WRITTEN))
            return value, change

        try:
            value, done = await self.store.write(fn)
        except Duplicate as duplicate:
            if duplicate.constraint != LIVE_RUN:
                raise
            raise ConversationBusy("A run is already under way here; wait for it or stop it.") from None
        self.probe.reach(point.at(Moment.COMMITTED))
        for topic, news in sorted(done.topics.items()):
            self.wakeup.notify(topic, news)
        for topic in sorted(done.topics_elsewhere):
            self.wakeup.notify_elsewhere(topic)
        for run in done.ended:
            self.meter.run_ended(run.status, run.error_code)
        return value

    async def _answer(self, point: Point, operation: Callable[[Change], Answer]) -> Answer:
        """As `_change`; a concurrent first call with the same key was stored meanwhile: its answer is the answer."""
        try:
            return await self._change(point, operation)
        except Duplicate as duplicate:
            if duplicate.constraint != CONSTRAINT:
                raise
        return await self._change(point, operation)

    # --- clients: writes. Where `encode` is given, the answer is built inside the transaction and stored with `key`.
    async def ensure_user(self, user_id: str, name: str) -> None:
        with suppress(Duplicate):
            await self._change(Point.ENSURE_USER, lambda change: submit.ensure_user(change, user_id, name))

    async def create_conversation(
        self, user_id: str, title: str | None, agent: str, encode: Encode, key: IdempotencyKey | None
    ) -> Answer:
        def operation(change: Change) -> Answer:
            def effect() -> Row:
                return submit.create_conversation(change, user_id, title, agent).row

            return answered(change, user_id, key, None, effect, encode)

        return await self._answer(Point.CREATE_CONVERSATION, operation)

    async def change_conversation(
        self,
        user_id: str,
        conversation_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
        seen_seq: int | None = None,
    ) -> tuple[Row, Run | None]:
        def operation(change: Change) -> tuple[Row, Run | None]:
            held = scope.lock_own_conversation(change, user_id, conversation_id)
            last = submit.change_conversation(change, held, title=title, archived=archived, seen_seq=seen_seq)
            return held.row, last

        return await self._change(Point.CHANGE_CONVERSATION, operation)

    async def delete_conversation(self, user_id: str, conversation_id: str) -> bool:
        """Mark it deleting and stop its live run; True once nothing of it is left. A repeat goes on with it."""
        return await self._change(
            Point.DELETE_CONVERSATION,
            lambda change: delete.delete_conversation(change, user_id, conversation_id),
        )

    async def post_message(
        self, user_id: str, post: PostMessage, default_agent: str, encode: Encode, key: IdempotencyKey | None
    ) -> Answer:
        """T1, or a follow-up where the conversation has a live run. `encode` gets a `Posted`."""

        def operation(change: Change) -> Answer:
            held = None
            if post.conversation_id is not None:
                held = scope.lock_own_conversation(change, user_id, post.conversation_id)

            def effect() -> Posted:
                return submit.post_message(change, user_id, held, post, default_agent)

            return answered(change, user_id, key, post.conversation_id, effect, encode)

        return await self._answer(Point.POST_MESSAGE, operation)

    async def continue_run(
        self,
        user_id: str,
        conversation_id: str,
        pending: bool,
        encode: Encode,
        key: IdempotencyKey | None,
        options: RunOptions | None = None,
    ) -> Answer:
        """`resume_of` or `retry_of` (T1). `encode` gets a `Run`.

        `pending` says whether the agent's thread has something left to do.
        """

        def operation(change: Change) -> Answer:
            held = scope.lock_own_conversation(change, user_id, conversation_id)

            def effect() -> Run:
                return resume.continue_run(change, held, pending, options)

            return answered(change, user_id, key, conversation_id, effect, encode)

        return await self._answer(Point.CONTINUE_RUN, operation)

    async def request_cancel(
        self, user_id: str, run_id: str, *, by: str = "user", comment: str | None = None
    ) -> Run:
        """The run with its accepted stop; it may not have ended yet."""

        def operation(change: Change) -> Run:
            return cancel.request_cancel(change, user_id, run_id, by=by, comment=comment)

        while True:
            try:
                return await self._change(Point.REQUEST_CANCEL, operation)
            except LostRace:
                continue  # the run moved between a look and its lock; it moves a few times at most

    async def change_followup(
        self,
        user_id: str,
        followup_id: str,
        version: int,
        *,
        content: Any = None,
        position: int | None = None,
    ) -> Row:
        def operation(change: Change) -> Row:
            held, row = scope.lock_own_followup(change, user_id, followup_id)
            return followups.change_followup(change, held, row, version, content=content, position=position)

        return await self._change(Point.CHANGE_FOLLOWUP, operation)

    async def discard_followup(self, user_id: str, followup_id: str, version: int | None = None) -> Row:
        def operation(change: Change) -> Row:
            held, row = scope.lock_own_followup(change, user_id, followup_id)
            return followups.discard_followup(change, held, row, version)

        return await self._change(Point.DISCARD_FOLLOWUP, operation)

    async def send_followup(
        self,
        user_id: str,
        followup_id: str,
        default_agent: str,
        encode: Encode,
        key: IdempotencyKey | None,
        version: int | None = None,
    ) -> Answer:
        def operation(change: Change) -> Answer:
            held, row = scope.lock_own_followup(change, user_id, followup_id)

            def effect() -> Posted:
                return followups.send_followup(change, held, row, version, default_agent)

            return answered(change, user_id, key, f"{followup_id} {held.id}", effect, encode)

        return await self._answer(Point.SEND_FOLLOWUP, operation)

    async def decide(
        self,
        user_id: str,
        request_id: str,
        decision: Decision,
        encode: Encode,
        key: IdempotencyKey | None,
    ) -> Answer:
        """A person's word on a question, and T13 with the last one. `encode` gets (request row, `Run`)."""

        def operation(change: Change) -> Answer:
            held, run, row = scope.lock_own_request(change, user_id, request_id)

            def effect() -> tuple[Row, Run]:
                after = decide.decide(change, held, run, row, decision, user_id)
                return row, after

            return answered(change, user_id, key, f"{request_id} {held.id}", effect, encode)

        return await self._answer(Point.DECIDE, operation)

    async def revoke_grant(self, user_id: str, grant_id: str) -> None:
        """Leave that a person gave for good counts no more, from the next call on."""
        await self._change(Point.REVOKE_GRANT, lambda change: grants.revoke(change, user_id, grant_id))

    # --- owners
    async def register_owner(self, owner_id: str, kind: str, host: str, pid: int, ttl: float | None) -> None:
        operation = partial(owners.register_owner, owner_id=owner_id, kind=kind, host=host, pid=pid, ttl=ttl)
        await self._change(Point.REGISTER_OWNER, operation)

    async def note_presence(self, owner_id: str, due: datetime | None = None) -> datetime:
        """The database's time. Where that is long after `due`, when this incarnation meant to look again, nobody could
        renew in between: adapter sessions get their whole grace anew, as after a restart."""
        now = await self.store.read(lambda tx: tx.now())
        late = 0.0 if due is None else (now - due).total_seconds()
        if late >= max(self.policy.adapter_grace / 3, ABSENT_SECONDS):
            await self._change(Point.REGISTER_OWNER, partial(owners.serve_anew, owner_id=owner_id))
        return now

    async def retire_owner(self, owner_id: str) -> None:
        await self._change(Point.RETIRE_OWNER, lambda change: owners.retire_owner(change, owner_id))

    async def claim(
        self,
        owner_id: str,
        agents: Sequence[str] | None,
        limit: int,
        composers: Mapping[str, Compose] | None = None,
        without: Sequence[str] = (),
    ) -> list[Claimed]:
        """T2 for up to `limit` runs, none of the agents `without`.

        With `composers` (by agent name) a first claim's input is made in the same transaction: `Claimed.composed` is
        then true and `compose_input` is not needed.
        """
        return await self._change(
            Point.CLAIM, lambda change: claim.claim(change, owner_id, agents, limit, composers, without)
        )

    async def refuse_work(self, run_id: str, code: ErrorCode, message: str) -> None:
        def operation(change: Change) -> None:
            held, run = scope.lock_run(change, run_id)
            finish.refuse_work(change, held, run, code, message)

        await self._change(Point.REFUSE_WORK, operation)

    async def compose_input(self, fence: Fence, compose: Callable[[list[InputMessage]], Any]) -> Any:
        """First claim: gather what the thread lacks, let the agent make the one input, store it under the fence."""
        return await self.recorder(fence).write(
            lambda tx, run: claim.compose_input(tx, run, compose), point=Point.COMPOSE_INPUT
        )

    def recorder(self, fence: Fence) -> Recorder:
        return FencedRecorder(self.store, fence, self.meter, self.probe)

    def journal(self, fence: Fence) -> Journal:
        """The record of the tool calls that the run's owner makes."""
        return RunJournal(self.recorder(fence))

    def steering(self, fence: Fence) -> Steering:
        """What people send to the live run while its owner works."""
        return RunSteering(self.recorder(fence), self.wakeup, self.ids, self.policy, self.probe)

    async def save_document(self, fence: Fence, snapshot: DocumentSnapshot) -> None:
        def operation(tx: Tx, run: Run) -> str:
            documents.keep_document(tx, run, snapshot)
            return run.conversation_id

        conversation_id = await self.recorder(fence).write(
            operation, while_cancelling=True, point=Point.SAVE_DOCUMENT
        )
        self.wakeup.notify_elsewhere(document_topic(conversation_id))

    async def note_tries(self, fence: Fence, tries: Mapping[str, int]) -> None:
        """Keep the count of failed tries with the run."""
        await self.recorder(fence).write(
            lambda tx, run: documents.note_tries(tx, run, tries), point=Point.NOTE_TRIES
        )

    async def end_attempt(self, fence: Fence, outcome: Outcome, document: DocumentSnapshot | None) -> Run:
        """The outcome of an attempt: T7, T8, T10, T11, T12, or T17 where a stop was accepted meanwhile.

        Saves the document in the same transaction.
        """
        return await self._change(
            Point.END_ATTEMPT, lambda change: finish.end_attempt(change, fence, outcome, document)
        )

    async def end_stopped(
        self, fence: Fence, *, forced: bool, unknown_calls: Sequence[str], document: DocumentSnapshot | None
    ) -> Run:
        """T17 by the owner after it carried out the stop."""

        def operation(change: Change) -> Run:
            return finish.end_stopped(
                change, fence, forced=forced, unknown_calls=unknown_calls, document=document
            )

        return await self._change(Point.END_STOPPED, operation)

    async def note_waiting_for(self, fence: Fence, tool: str | None, until_s: float | None) -> Run:
        """The call a stopping run still waits for (server part `stop.waiting_for`); returns the run as it is now."""

        def operation(tx: Tx, run: Run) -> Run:
            return documents.note_waiting_for(tx, run, tool, until_s)

        run = await self.recorder(fence).write(operation, while_cancelling=True, point=Point.NOTE_WAITING_FOR)
        self.wakeup.notify_elsewhere(document_topic(run.conversation_id))
        return run

    async def status_under(self, fence: Fence) -> RunStatus | None:
        """The run's status while the fence holds; None once another owner, or nobody, has it."""
        return await self.store.read(lambda tx: read.status_under(tx, fence))

    async def tries_under(self, fence: Fence) -> Mapping[str, int]:
        """The run's count of failed tries since its last checkpoint."""
        return await self.store.read(lambda tx: read.tries_under(tx, fence))

    async def unknown_calls_under(self, fence: Fence) -> list[str]:
        """Tools of this run that were called, must not be called again, and of which nobody knows how it went."""
        return await self.store.read(lambda tx: journal.unknown_tools(tx, fence.run_id, ("unsafe",)))

    async def owned_by(self, owner_id: str) -> dict[Fence, RunStatus]:
        """The runs that the rows call this owner's."""
        return await self.store.read(lambda tx: read.owned_by(tx, owner_id))

    async def sweep(self) -> int:
        """One reaper pass, one run per transaction: lost owners, stuck stops, deadlines, stalls, deletions, old rows.

        Returns how many rows it moved.
        """
        orphans = await self._change(Point.ORPHANS, lambda change: reap.list_orphans(change.tx, self.policy))
        due = await self.store.read(lambda tx: reap.list_due(tx, self.policy))
        moved = 0
        for run_id in dict.fromkeys([*orphans, *due.runs]):
            moved += await self._reap(partial(reap.reap_run, run_id=run_id))
        for run_id in due.silent:
            moved += await self._reap(partial(stalls.act_on_silence, run_id=run_id))
        for conversation_id in due.conversations:
            moved += await self._reap(partial(reap.erase_doomed, conversation_id=conversation_id))
        outdated = await self.store.read(lambda tx: retention.list_outdated(tx, self.policy))
        if outdated:
            moved += await self._change(
                Point.OUTDATED, lambda change: retention.remove_outdated(change, outdated)
            )
        return moved

    async def _reap(self, operation: Callable[[Change], bool]) -> bool:
        try:
            return await self._change(Point.REAP, operation)
        except (LostRace, Refusal):
            return False  # somebody else was there first; the next sweep looks again

    # --- reads
    async def overview(self, user_id: str, limit: int) -> Overview:
        return await self.store.read(lambda tx: overview.overview(tx, user_id, limit, self.policy))

    async def conversations(
        self, user_id: str, limit: int, cursor: str | None, *, unseen: bool = False
    ) -> tuple[list[dict[str, Any]], str | None]:
        return await self.store.read(lambda tx: read.conversations(tx, user_id, limit, cursor, unseen=unseen))

    async def conversation(self, user_id: str, conversation_id: str, limit: int = 50) -> ConversationView:
        return await self.store.read(lambda tx: read.conversation(tx, user_id, conversation_id, limit))

    async def messages(
        self, user_id: str, conversation_id: str, before: str | None, limit: int
    ) -> tuple[list[Row], str | None]:
        return await self.store.read(lambda tx: read.messages(tx, user_id, conversation_id, before, limit))

    async def run(self, user_id: str, run_id: str) -> Run:
        return await self.store.read(lambda tx: scope.own_run(tx, user_id, run_id))

    async def runs(
        self,
        user_id: str,
        statuses: Sequence[str],
        conversation_id: str | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[list[Run], str | None]:
        return await self.store.read(
            lambda tx: read.runs(tx, user_id, statuses, conversation_id, limit, cursor)
        )

    async def listed_runs(
        self,
        user_id: str,
        statuses: Sequence[str],
        conversation_id: str | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[list[dict[str, Any]], str | None]:
        """As `runs`, in the form they are sent, each with its owner."""
        return await self.store.read(
            lambda tx: overview.listed_runs(
                tx, user_id, statuses, conversation_id, limit, cursor, self.policy
            )
        )

    async def run_steps(self, user_id: str, run_id: str) -> list[Row]:
        return await self.store.read(lambda tx: read.run_steps(tx, user_id, run_id))

    async def run_attempts(self, user_id: str, run_id: str) -> list[Row]:
        return await self.store.read(lambda tx: read.run_attempts(tx, user_id, run_id))

    async def run_events(self, user_id: str, run_id: str) -> list[Row]:
        return await self.store.read(lambda tx: read.run_events(tx, user_id, run_id))

    async def document(self, user_id: str, run_id: str) -> tuple[Run, dict[str, Any], Row | None]:
        """The run, its server part, and the saved content row (None: nothing saved yet)."""
        return await self.store.read(lambda tx: read.document(tx, user_id, run_id, self.policy))

    async def events_after(self, user_id: str, cursor: int | None, limit: int) -> EventPage:
        return await self.store.read(lambda tx: read.events_after(tx, user_id, cursor, limit))

    async def followup(self, user_id: str, followup_id: str) -> tuple[Row, list[Row]]:
        """The follow-up, and the revisions of its text, oldest first."""
        return await self.store.read(lambda tx: read.followup(tx, user_id, followup_id))

    async def request(self, user_id: str, request_id: str) -> Row:
        return await self.store.read(lambda tx: read.request(tx, user_id, request_id))

    async def requests(self, user_id: str, limit: int, cursor: str | None) -> tuple[list[Row], str | None]:
        """The person's open questions over all conversations, oldest first."""
        return await self.store.read(lambda tx: read.requests(tx, user_id, limit, cursor))

    async def grants(
        self, user_id: str, conversation_id: str | None, limit: int, cursor: str | None
    ) -> tuple[list[Row], str | None]:
        """Leave that the person gave for good and that is in force, newest first."""
        return await self.store.read(lambda tx: grants.listed(tx, user_id, conversation_id, limit, cursor))

    async def silent_owners(self, conversation_ids: Sequence[str]) -> dict[str, tuple[Run, dict[str, Any]]]:
        """By conversation: the run whose owner gives no sign of life, and that owner; whoever's they are."""
        return await self.store.read(lambda tx: owners.silent_owners(tx, self.policy, conversation_ids))

    async def owners(self) -> list[Row]:
        """Lease rows that are valid now; the same for everybody."""
        return await self.store.read(read.owners)

    async def figures(self) -> Figures:
        """What the operator's metrics show of the database; the same for everybody."""
        return await self.store.read(read.figures)
