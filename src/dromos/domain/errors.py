"""The errors of the product, drawn once:

    DromosError
    ├── Refusal            a command the rules refuse: a normal answer, told to the client (4xx)
    │   ├── InvalidTransition · AlreadyEnded · NotResumable · ConversationBusy · VersionConflict · AlreadyDecided
    │   ├── RequestClosed · NotFound · Invalid · IdempotencyKeyReused
    │   ├── UnknownToken · OtherRun · OwnershipLost · RunNotActive   what an outside owner's token may not do
    ├── Duplicate          a unique constraint of the store said no (inside a transaction)
    ├── LostRace           a compare-and-swap found another value (inside a transaction)
    └── Unavailable        something outside is missing or broken (5xx); nothing was changed
        ├── StoreUnavailable · SchemaMismatch · DataFolderLocked
    ControlSignal(BaseException)
    └── LeaseLost          the writer no longer owns its run and must stop at once

`LeaseLost` derives from `BaseException` so that an agent's `except Exception` cannot swallow it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class DromosError(Exception):
    """Base of everything this product raises on purpose."""


@dataclass(frozen=True)
class Fault:
    """One thing wrong with an input: a stable code, where (JSON pointer), and what to do."""

    code: str
    path: str
    message: str


class Refusal(DromosError):
    """A command that the rules refuse. Carries a stable `code`, a `detail` that says the cure, and what is current."""

    code = "refused"

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        current: Mapping[str, Any] | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.current: dict[str, Any] = dict(current or {})
        self.faults = tuple(faults)


class InvalidTransition(Refusal):
    code = "invalid_transition"


class AlreadyEnded(Refusal):
    code = "already_ended"


class NotResumable(Refusal):
    code = "run_not_resumable"


class ConversationBusy(Refusal):
    code = "conversation_busy"


class TooManyWaiting(Refusal):
    """As many messages wait in the conversation as there may be."""

    code = "too_many_waiting"


class VersionConflict(Refusal):
    code = "version_conflict"


class AlreadyDecided(Refusal):
    code = "already_decided"


class RequestClosed(Refusal):
    code = "request_closed"


class NotFound(Refusal):
    code = "not_found"


class Invalid(Refusal):
    code = "validation_failed"


class IdempotencyKeyReused(Refusal):
    code = "idempotency_key_reused"


class UnknownToken(Refusal):
    """No run token, or one that names no run (any more)."""

    code = "unknown_token"


class OtherRun(Refusal):
    """A run token that belongs to another run."""

    code = "other_run"


class OwnershipLost(Refusal):
    """The epoch of a run token is over: somebody else, or nobody, owns the run now."""

    code = "lease_lost"


class RunNotActive(Refusal):
    """The run of a token has ended."""

    code = "run_not_active"


class Duplicate(DromosError):
    """A unique constraint refused a row. `constraint` is its name, the same on both databases."""

    def __init__(self, constraint: str) -> None:
        super().__init__(f"a row that breaks {constraint} exists already")
        self.constraint = constraint


class LostRace(DromosError):
    """Somebody else changed the row first; reload and decide again, or give up."""


class Unavailable(DromosError):
    """Something outside is missing or broken. `detail` says the cure; nothing was changed."""

    code = "unavailable"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class StoreUnavailable(Unavailable):
    code = "store_unavailable"


class SchemaMismatch(Unavailable):
    code = "schema_mismatch"


class DataFolderLocked(Unavailable):
    code = "data_folder_locked"


class ControlSignal(BaseException):
    """Base of signals that must not be mistaken for an agent's own error."""


class LeaseLost(ControlSignal):
    """The writer's epoch or status no longer passes: it stops at once and writes nothing more."""
