"""Run tokens: what lets an owner outside of this process write for one run, and for no other.

A token is random, told once, and kept as its SHA-256. It is bound to a run, to the epoch of the claim that gave it out,
and to the adapter session. When the epoch ends the token is spent: it writes nothing more, but it still tells for a
day which run it belonged to, so that a late caller hears what happened instead of "unknown token".

A claim that carried an Idempotency-Key leaves the token veiled beside its hash: whoever repeats the claim with the
same key gets the same token back; from the stored rows alone nobody can.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta

from dromos.domain.errors import OtherRun, OwnershipLost, RunNotActive, UnknownToken
from dromos.domain.runs import Run
from dromos.lifecycle.change import Change, Conversation
from dromos.ports.store import Lt, ReadTx, Row, Table, Tx
from dromos.wire.shapes import run_json

PREFIX = "drt_"
CLAIM_CONSTRAINT = "uq_run_tokens_claim_key"
"""Two first claims at once with one key: the later one meets this."""
KEPT = timedelta(hours=24)
"""How long a spent token still names its run."""


@dataclass(frozen=True, slots=True)
class ClaimKey:
    """The Idempotency-Key of one person's claim; `body_sha256` of the raw body."""

    user_id: str
    session: str
    key: str
    body_sha256: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self._material("claim")).hexdigest()

    def veil(self, secret: bytes) -> bytes:
        """The bytes made unreadable without this key, or readable again: it is its own inverse."""
        pad = hashlib.shake_256(self._material("token")).digest(len(secret))
        return bytes(one ^ other for one, other in zip(secret, pad, strict=True))

    def _material(self, purpose: str) -> bytes:
        return "\n".join((purpose, self.user_id, self.session, self.key)).encode()


def issue(change: Change, run: Run, session: str, claim: ClaimKey | None = None) -> str:
    """A new token for the run's epoch. It is told now and can be read nowhere later."""
    token = PREFIX + change.ids.secret()
    change.tx.put(
        Table.RUN_TOKENS,
        {
            "token_sha256": digest(token),
            "run_id": run.id,
            "conversation_id": run.conversation_id,
            "epoch": run.epoch,
            "session": session,
            "created_at": change.now,
            "claim_key": claim.digest if claim else None,
            "claim_body": claim.body_sha256 if claim else None,
            "veiled": claim.veil(token.encode()).hex() if claim else None,
        },
    )
    return token


def unveiled(row: Row, claim: ClaimKey) -> str:
    """The token of a row that was issued for this very claim."""
    return claim.veil(bytes.fromhex(row["veiled"])).decode()


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def identify(tx: ReadTx, run_id: str, token: str | None) -> Row:
    """The token's row, spent or not, where it belongs to this run. Raises `UnknownToken` or `OtherRun`."""
    row = tx.first(Table.RUN_TOKENS, {"token_sha256": digest(token)}) if token else None
    if row is None:
        raise UnknownToken(
            "No run has this token. Send the one that the claim answered, as `Authorization: Bearer TOKEN`."
        )
    if row["run_id"] != run_id:
        raise OtherRun("This token belongs to another run. Use each token for the run it was given out with.")
    return row


def conversation_of(change: Change, row: Row) -> Conversation:
    """The locked conversation of a token's row."""
    conversation = change.lock_conversation(row["conversation_id"])
    if conversation is None:
        raise _erased()
    return conversation


def checked(tx: Tx, row: Row) -> Run:
    """The locked run of a token's row, running or cancelling under the token's epoch. Refuses as `look` does."""
    return _judged(tx.lock_run(row["run_id"]), row)


def look(tx: ReadTx, run_id: str, token: str | None) -> Run:
    """The run that the token may write for now. Nothing is held: what it says may be over a moment later.

    Raises, looked for in this order: `UnknownToken` · `OtherRun` · `RunNotActive` · `OwnershipLost`.
    """
    row = identify(tx, run_id, token)
    return _judged(tx.load_run(run_id), row)


def _judged(run: Run | None, row: Row) -> Run:
    if run is None:
        raise _erased()
    if run.is_final:
        raise RunNotActive(
            f"The run ended as {run.status}; nothing more is written for it.", current={"run": run_json(run)}
        )
    if run.epoch != row["epoch"] or not run.status.is_owned:
        raise OwnershipLost(
            "This token's time is over: the run waits, or somebody else has it. Drop it and claim again."
        )
    return run


def _erased() -> UnknownToken:
    return UnknownToken("The run of this token was erased with its conversation. Drop it.")


def spend(change: Change, run: Run) -> None:
    """The run's ownership ended: its tokens write nothing more."""
    change.tx.change(Table.RUN_TOKENS, {"run_id": run.id, "spent_at": None}, {"spent_at": change.now})


def any_outdated(tx: ReadTx) -> bool:
    return tx.first(Table.RUN_TOKENS, {"spent_at": Lt(tx.now() - KEPT)}) is not None


def remove_outdated(change: Change) -> int:
    """Forget tokens that were spent a day ago; returns how many."""
    return change.tx.remove(Table.RUN_TOKENS, {"spent_at": Lt(change.now - KEPT)})
