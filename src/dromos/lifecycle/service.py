"""`Lifecycle`: the operations by name, each one transaction; wake-ups are sent after the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dromos.domain.reasons import ErrorCode
from dromos.domain.runs import Fence, Run
from dromos.lifecycle.contract import (
    Answer,
    Cancelled,
    Claimed,
    ConversationView,
    Encode,
    EventPage,
    IdempotencyKey,
    Policy,
    PostMessage,
    RunOptions,
)
from dromos.ports.agent import InputMessage, Outcome
from dromos.ports.clock import Ids
from dromos.ports.live import DocumentSnapshot
from dromos.ports.probe import NoProbe, Probe
from dromos.ports.recorder import Recorder
from dromos.ports.store import Row, Store
from dromos.ports.wakeup import Wakeup


class Lifecycle:
    """See each method. Refusals (`dromos.domain.errors.Refusal`) are normal answers and change nothing."""

    def __init__(
        self, store: Store, wakeup: Wakeup, ids: Ids, policy: Policy, probe: Probe | None = None
    ) -> None:
        self.store, self.wakeup, self.ids, self.policy = store, wakeup, ids, policy
        self.probe = probe or NoProbe()

    # --- clients: writes. Where `encode` is given, the answer is built inside the transaction and stored with `key`.
    async def ensure_user(self, user_id: str, name: str) -> None:
        raise NotImplementedError

    async def create_conversation(
        self, user_id: str, title: str | None, agent: str, encode: Encode, key: IdempotencyKey | None
    ) -> Answer:
        raise NotImplementedError

    async def change_conversation(
        self,
        user_id: str,
        conversation_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
        seen_seq: int | None = None,
    ) -> tuple[Row, Run | None]:
        raise NotImplementedError

    async def delete_conversation(self, user_id: str, conversation_id: str) -> bool:
        """Mark it deleting and stop its live run; True once nothing of it is left. A repeat goes on with it."""
        raise NotImplementedError

    async def post_message(
        self, user_id: str, post: PostMessage, default_agent: str, encode: Encode, key: IdempotencyKey | None
    ) -> Answer:
        """T1, or a follow-up where the conversation has a live run. `encode` gets a `Posted`."""
        raise NotImplementedError

    async def continue_run(
        self,
        user_id: str,
        conversation_id: str,
        pending: bool,
        encode: Encode,
        key: IdempotencyKey | None,
        options: RunOptions | None = None,
    ) -> Answer:
        """`resume_of` or `retry_of` (T1); `pending` says whether the agent's thread has something left to do. `encode` gets a `Run`."""
        raise NotImplementedError

    async def request_cancel(
        self, user_id: str, run_id: str, *, by: str = "user", comment: str | None = None
    ) -> Cancelled:
        raise NotImplementedError

    async def change_followup(
        self,
        user_id: str,
        followup_id: str,
        version: int,
        *,
        content: Any = None,
        position: int | None = None,
    ) -> Row:
        raise NotImplementedError

    async def discard_followup(self, user_id: str, followup_id: str, version: int | None = None) -> Row:
        raise NotImplementedError

    async def send_followup(
        self, user_id: str, followup_id: str, default_agent: str, encode: Encode, key: IdempotencyKey | None
    ) -> Answer:
        raise NotImplementedError

    # --- owners
    async def register_owner(self, owner_id: str, kind: str, host: str, pid: int, ttl: float | None) -> None:
        raise NotImplementedError

    async def retire_owner(self, owner_id: str) -> None:
        raise NotImplementedError

    async def claim(self, owner_id: str, agents: Sequence[str] | None, limit: int) -> list[Claimed]:
        raise NotImplementedError

    async def refuse_work(self, run_id: str, code: ErrorCode, message: str) -> None:
        raise NotImplementedError

    async def compose_input(self, fence: Fence, compose: Callable[[list[InputMessage]], Any]) -> Any:
        """First claim: gather what the thread lacks, let the agent make the one input, store it under the fence."""
        raise NotImplementedError

    def recorder(self, fence: Fence) -> Recorder:
        raise NotImplementedError

    async def save_document(
        self,
        fence: Fence,
        snapshot: DocumentSnapshot,
        *,
        usage: dict[str, int] | None = None,
        model: str | None = None,
    ) -> None:
        raise NotImplementedError

    async def note_tries(self, fence: Fence, tries: dict[str, int]) -> None:
        raise NotImplementedError

    async def end_attempt(self, fence: Fence, outcome: Outcome, document: DocumentSnapshot | None) -> Run:
        """The outcome of an attempt: T7, T8, T10, T11, or T17 where a stop was accepted meanwhile; saves the document in the same transaction."""
        raise NotImplementedError

    async def end_stopped(
        self, fence: Fence, *, forced: bool, unknown_calls: Sequence[str], document: DocumentSnapshot | None
    ) -> Run:
        """T17 by the owner after it carried out the stop."""
        raise NotImplementedError

    async def note_waiting_for(self, fence: Fence, tool: str | None, until_s: float | None) -> None:
        raise NotImplementedError

    async def sweep(self) -> int:
        """One reaper pass, one run per transaction: lost owners, stuck stops, deadlines, unfinished deletions, old rows. Returns how many rows it moved."""
        raise NotImplementedError

    # --- reads
    async def conversations(
        self, user_id: str, limit: int, cursor: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        raise NotImplementedError

    async def conversation(self, user_id: str, conversation_id: str, limit: int = 50) -> ConversationView:
        raise NotImplementedError

    async def messages(
        self, user_id: str, conversation_id: str, before: str | None, limit: int
    ) -> tuple[list[Row], str | None]:
        raise NotImplementedError

    async def run(self, user_id: str, run_id: str) -> Run:
        raise NotImplementedError

    async def runs(
        self,
        user_id: str,
        statuses: Sequence[str],
        conversation_id: str | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[list[Run], str | None]:
        raise NotImplementedError

    async def run_steps(self, user_id: str, run_id: str) -> list[Row]:
        raise NotImplementedError

    async def run_attempts(self, user_id: str, run_id: str) -> list[Row]:
        raise NotImplementedError

    async def run_events(self, user_id: str, run_id: str) -> list[Row]:
        raise NotImplementedError

    async def document(self, user_id: str, run_id: str) -> tuple[Run, dict[str, Any], Row | None]:
        """The run, its server part, and the saved content row (None: nothing saved yet)."""
        raise NotImplementedError

    async def events_after(self, user_id: str, cursor: int | None, limit: int) -> EventPage:
        raise NotImplementedError
