"""The store as the lifecycle sees it: transactions over named rows.

A lifecycle operation is a plain function `fn(tx)`: load, decide, swap, all inside one transaction. The store runs
it, possibly together with others of the same moment in one commit, and acknowledges after the commit is on disk.
`fn` has no effect outside `tx`; it may be run again after a serialisation failure. A refusal (any exception from
`fn`) rolls back only itself.

This file knows tables by name and rows as dicts of Python values (`datetime` aware UTC, `dict`/`list` for JSON
columns, `bytes` for blobs). It does not know SQL, a driver, or which database it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from dromos.domain.events import EventDraft
from dromos.domain.runs import Run

T = TypeVar("T")
Row = dict[str, Any]


class Table(StrEnum):
    """The tables. The guide to concepts says who writes each."""

    USERS = "users"
    CONVERSATIONS = "conversations"
    MESSAGES = "messages"
    RUNS = "runs"
    RUN_INPUTS = "run_inputs"
    RUN_STEPS = "run_steps"
    RUN_ATTEMPTS = "run_attempts"
    RUN_DOCUMENTS = "run_documents"
    RUN_FOLLOWUPS = "run_followups"
    REQUESTS = "requests"
    RUN_TOKENS = "run_tokens"
    MESSAGE_REVISIONS = "message_revisions"
    TOOL_CALLS = "tool_calls"
    TOOL_GRANTS = "tool_grants"
    EVENTS = "events"
    LEASES = "leases"
    IDEMPOTENCY = "idempotency"
    CHECKPOINTS = "checkpoints"
    CHECKPOINT_BLOBS = "checkpoint_blobs"
    WRITES = "writes"


@dataclass(frozen=True, slots=True)
class Lt:
    value: Any


@dataclass(frozen=True, slots=True)
class Le:
    value: Any


@dataclass(frozen=True, slots=True)
class Gt:
    value: Any


@dataclass(frozen=True, slots=True)
class Ge:
    value: Any


@dataclass(frozen=True, slots=True)
class In:
    """Any of these values; an empty list matches nothing."""

    values: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Ne:
    """Different from, NULL included where the value is not NULL."""

    value: Any


LIVE_RUN = "uq_runs_live_conversation"
"""The constraint by which a conversation has one live run."""
NOT_NULL = Ne(None)
Where = Mapping[str, Any]
"""Column → value (equal; None means IS NULL) or one of the operators above. All must hold."""


class ReadTx(Protocol):
    """A consistent snapshot."""

    def now(self) -> datetime:
        """The database's clock, the same value for the whole transaction."""
        ...

    def find(
        self,
        table: Table,
        where: Where,
        *,
        order: Sequence[str] = (),
        limit: int | None = None,
        columns: Sequence[str] = (),
    ) -> list[Row]:
        """Rows that match; `order` names columns, `-column` descending; `columns` () means all."""
        ...

    def first(self, table: Table, where: Where, *, order: Sequence[str] = ()) -> Row | None: ...

    def count(self, table: Table, where: Where) -> int: ...

    def load_run(self, run_id: str) -> Run | None: ...

    def find_runs(
        self, where: Where, *, order: Sequence[str] = (), limit: int | None = None
    ) -> list[Run]: ...

    def any_claimable(self, agents: Sequence[str], user_id: str) -> bool:
        """Whether `claimable` would find one of this person's runs, somebody else's locks aside. Locks nothing."""
        ...

    def ahead(self, *reads: Callable[[ReadTx], object]) -> None:
        """These reads follow: where that spares round trips, they are sent now and together, and answered when they are
        made, as often as they are. Each finds nothing while it only looks ahead; what is read of a table that was
        written since is read again. `find`, `first`, `count` and `find_runs` look ahead.
        """
        ...


class Tx(ReadTx, Protocol):
    """A read-write transaction. Lock order: conversation, run, then users, counters last."""

    def lock(self, table: Table, where: Where) -> Row | None:
        """The one row that matches, locked until the end of the transaction.

        Asking again for a row by its id costs nothing while the transaction has not written to it.
        """
        ...

    def lock_run(
        self, run_id: str, *, within: str | None = None, then: Sequence[Callable[[ReadTx], object]] = ()
    ) -> Run | None:
        """With `within`, the id of its conversation, that is locked first, in the same round trip: `lock` has it.

        `then`: reads that follow, looked `ahead` for behind the lock.
        """
        ...

    def claimable(
        self,
        agents: Sequence[str] | None,
        limit: int,
        *,
        without: Sequence[str] = (),
        user_id: str | None = None,
        own_first: str | None = None,
    ) -> list[Run]:
        """Queued runs whose time has come, oldest first, locked; rows locked by others are skipped.

        `agents` None means every agent but those of `without`. `user_id` None means everybody's. With `own_first`
        those whose last attempt was this owner's come before the others. Runs of conversations that are being
        deleted are left out.
        """
        ...

    def orphans(self, limit: int, sessions_until: datetime | None = None) -> list[Run]:
        """Running and cancelling runs that nobody keeps alive, by the database's clock.

        A worker's, where its owner has no lease that is valid now; an adapter session's, where the run itself was
        renewed last at `sessions_until` or before (None: none of those).
        """
        ...

    def insert_run(self, run: Run) -> None:
        """As `put`: `Duplicate(LIVE_RUN)` where the conversation has a live run."""
        ...

    def swap_run(self, before: Run, after: Run) -> None:
        """Replace the row if status, version and epoch are still those of `before`. Else `LostRace` is raised, here or
        by anything later in the operation, which then ends without effect."""
        ...

    def put(self, table: Table, row: Row) -> None:
        """Insert. A `Duplicate` with the constraint's name is raised here or by anything later in the operation, which
        then ends without effect."""
        ...

    def put_many(self, table: Table, rows: Sequence[Row]) -> None: ...

    def set(self, table: Table, where: Where, values: Row) -> None:
        """As `change`, where nobody asks how many: what fails is told here or later in the operation."""
        ...

    def upsert(self, table: Table, row: Row) -> None:
        """Insert, or replace all other columns of the row with the same primary key."""
        ...

    def change(self, table: Table, where: Where, values: Row) -> int:
        """Update; returns how many rows matched."""
        ...

    def remove(self, table: Table, where: Where) -> int: ...

    def append_events(self, user_id: str, events: Sequence[EventDraft]) -> list[int]:
        """Number and store events under the user's row lock; returns their numbers, contiguous per user."""
        ...


class Store(Protocol):
    """Runs transactions. Raises `StoreUnavailable` with the cure when the database cannot be reached or written."""

    async def write(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` in one transaction; return its value once that is on disk."""
        ...

    async def read(self, fn: Callable[[ReadTx], T]) -> T: ...

    async def check(self) -> None:
        """Raise `StoreUnavailable` or `SchemaMismatch` if the store cannot serve."""
        ...

    async def aclose(self) -> None: ...


class LeaseKeeper(Protocol):
    """Renews one owner's lease from a thread of its own; blocking."""

    def renew(self, owner_id: str, ttl: float) -> bool:
        """True if the lease row still existed and now ends `ttl` seconds after the database's now."""
        ...

    def close(self) -> None:
        """Let go of the connection; a later `renew` opens it again."""
        ...
