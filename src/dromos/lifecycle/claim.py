"""An owner takes queued runs (T2), and the one engine input of a run is made.

The input is computed once, at the first claim, and stored with the run before the engine sees it: a takeover passes
the same input again, which the engine recognises by the run's id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dromos.domain.machine import Claim
from dromos.domain.runs import Fence, Run
from dromos.domain.statuses import OwnerKind
from dromos.domain.text import clean_json
from dromos.lifecycle.change import Change
from dromos.lifecycle.contract import Claimed
from dromos.lifecycle.history import head_checkpoint, input_messages, unlogged
from dromos.lifecycle.owners import is_valid
from dromos.lifecycle.requests import decided
from dromos.lifecycle.transition import transition
from dromos.lifecycle.waiting import open_followups
from dromos.ports.agent import Decided, InputMessage
from dromos.ports.store import In, ReadTx, Row, Table, Tx

Compose = Callable[[list[InputMessage]], Any]


def claim(
    change: Change,
    owner_id: str,
    agents: Sequence[str] | None,
    limit: int,
    composers: Mapping[str, Compose] | None = None,
    without: Sequence[str] = (),
) -> list[Claimed]:
    """Up to `limit` runs for an owner whose lease is valid now; an owner without one gets nothing.

    `without`: agents whose runs are left to others.

    With `composers` (by agent name) the input of a first claim is made and stored in the same transaction, on the
    store's thread: they compute and do nothing else.
    """

    def find_lease(tx: ReadTx) -> Row | None:
        return tx.first(Table.LEASES, {"owner_id": owner_id})

    tx = change.tx
    tx.ahead(find_lease)
    runs = tx.claimable(agents, limit, without=without)
    lease = find_lease(tx)
    if lease is None or not is_valid(lease, change.now):
        return []
    kind = OwnerKind(lease["kind"])
    tx.ahead(*(partial(open_followups, conversation_id=run.conversation_id) for run in runs))  # told of each
    claimed = [transition(change, None, run, Claim(owner_id, kind)) for run in runs]
    again = [run.id for run in claimed if run.attempt > 1]
    inputs: dict[str, Row] = {}
    documents: dict[str, Row] = {}
    decisions: dict[str, tuple[Decided, ...]] = {}
    if again:
        inputs = {row["run_id"]: row for row in tx.find(Table.RUN_INPUTS, {"run_id": In(again)})}
        documents = {row["run_id"]: row for row in tx.find(Table.RUN_DOCUMENTS, {"run_id": In(again)})}
        decisions = decided(tx, again)
    for run in claimed:
        if composers and run.agent in composers and run.id not in inputs and run.resume_of is None:
            tx.ahead(
                partial(unlogged, conversation_id=run.conversation_id),
                partial(head_checkpoint, conversation_id=run.conversation_id),
            )
    out = []
    for run in claimed:
        stored, begins = inputs.get(run.id), False
        compose = composers.get(run.agent) if composers else None
        if stored is None and compose is not None:
            stored, begins = _store_input_if_it_can_be_made(tx, run, compose)
        out.append(
            Claimed(
                run=run,
                fence=Fence(run.id, run.epoch, run.conversation_id),
                composed=stored is not None,
                input=stored["input"] if stored else None,
                previous_document=documents.get(run.id),
                decisions=decisions.get(run.id, ()),
                begins=begins,
            )
        )
    return out


def compose_input(tx: Tx, run: Run, compose: Compose) -> Any:
    """The run's input: the stored one, else made from what the thread lacks and stored now."""
    stored = tx.first(Table.RUN_INPUTS, {"run_id": run.id}) or _store_input(tx, run, compose)[0]
    return stored["input"]


class _NotComposed(Exception):
    """The agent could not make an input."""


def _store_input_if_it_can_be_made(tx: Tx, run: Run, compose: Compose) -> tuple[Row | None, bool]:
    """An agent that fails here must not take the other runs of the claim with it; its own attempt will tell."""

    def careful(messages: list[InputMessage]) -> Any:
        try:
            return compose(messages)
        except Exception as error:
            raise _NotComposed from error

    try:
        return _store_input(tx, run, careful)
    except _NotComposed:
        return None, False


def _store_input(tx: Tx, run: Run, compose: Compose) -> tuple[Row, bool]:
    """The row, and whether the conversation begins with this run."""
    value, begins = None, False
    if run.resume_of is None:
        rows = unlogged(tx, run.conversation_id)
        value, _ = clean_json(compose(input_messages(rows)))
        first = run.attempt == 1 and run.retry_of is None and any(_is_first(row, run) for row in rows)
        begins = first and head_checkpoint(tx, run.conversation_id) is None
    row = {
        "run_id": run.id,
        "conversation_id": run.conversation_id,
        "input": value,
        "composed_at": tx.now(),
    }
    tx.put(Table.RUN_INPUTS, row)
    return row, begins


def _is_first(row: Row, run: Run) -> bool:
    """Whether this message, which started the run, is the first of its conversation."""
    return bool(row["num"] == 1 and row["id"] == run.trigger_message_id)
