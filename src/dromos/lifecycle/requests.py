"""The rows of questions to a person: asked (T8), void when their run ends, consumed by the owner that applied them.

Every write here holds the run's row locked, so a question, its run and its events change together. Answers and
deadlines are next door (`decide`): they move runs, and this does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dromos.domain import requests as rules
from dromos.domain.errors import Fault, Invalid
from dromos.domain.runs import Run
from dromos.domain.statuses import RequestStatus
from dromos.lifecycle import announce
from dromos.lifecycle.change import Change
from dromos.lifecycle.waiting import open_requests as open_rows
from dromos.ports.agent import Decided, decided_from
from dromos.ports.store import In, ReadTx, Row, Table, Tx


def open_requests(change: Change, run: Run, requests: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Write what `run` will wait for, and tell it; the caller parks the run in the same transaction.

    `requests` as `domain.requests.opening` takes them, at least one. One that `replaces` another of this run voids
    that. Raises `Invalid` with every fault, before anything is written.
    """
    if not requests:
        raise ValueError("a run parks on at least one request")
    rows = []
    for asked in _checked(change, requests):
        row: Row = {
            "id": change.ids.new(),
            "user_id": run.user_id,
            "conversation_id": run.conversation_id,
            "run_id": run.id,
            **asked,
            "status": RequestStatus.OPEN.value,
            "version": 1,
            "opened_at": change.now,
            "decided_by": None,
            "decided_at": None,
            "decision": None,
            "comment": None,
            "consumed_epoch": None,
        }
        if row["replaces"] is not None:  # decided, or the run would not be at work
            replaced = {"id": row["replaces"], "run_id": run.id, "status": RequestStatus.DECIDED.value}
            change.tx.change(Table.REQUESTS, replaced, {"status": RequestStatus.VOID.value})
        change.tx.put(Table.REQUESTS, dict(row))
        announce.request_changed(change, row, run)
        rows.append(row)
    return rows


def _checked(change: Change, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if len(requests) > rules.MAX_REQUESTS:
        told = f"ask at most {rules.MAX_REQUESTS} questions at once"
        raise Invalid(
            f"These are {len(requests)} questions; {told}.", faults=[Fault("too_many", "/requests", told)]
        )
    openings, faults = [], []
    for place, asked in enumerate(requests):
        try:
            openings.append(rules.opening(asked, change.now, f"/requests/{place}"))
        except Invalid as wrong:
            faults.append(wrong)
    if faults:
        raise Invalid(faults[0].detail, faults=[fault for wrong in faults for fault in wrong.faults])
    return openings


def close(change: Change, run: Run, row: Row, status: RequestStatus, **values: Any) -> None:
    """An open question is open no more; `row` is changed too."""
    row.update(values, status=status.value, version=row["version"] + 1)
    kept = {"status": row["status"], "version": row["version"], **values}
    change.tx.change(Table.REQUESTS, {"id": row["id"]}, kept)
    announce.request_changed(change, row, run)


def void_all(change: Change, run: Run) -> None:
    """The run ends: nobody can answer its open questions any more, and no decision of it is applied later."""
    for row in open_rows(change.tx, run.id):
        close(change, run, row, RequestStatus.VOID)
    unused = {"run_id": run.id, "status": RequestStatus.DECIDED.value}
    change.tx.change(Table.REQUESTS, unused, {"status": RequestStatus.VOID.value})


def decided(
    tx: ReadTx, run_ids: Sequence[str], status: RequestStatus = RequestStatus.DECIDED
) -> dict[str, tuple[Decided, ...]]:
    """By run: decisions that no owner has applied yet (or, with `CONSUMED`, those that one has), in the order the
    questions were asked."""
    where = {"run_id": In(list(run_ids)), "status": status.value}
    found: dict[str, tuple[Decided, ...]] = {}
    for row in tx.find(Table.REQUESTS, where, order=("opened_at", "id")):
        found[row["run_id"]] = (*found.get(row["run_id"], ()), decided_from(row))
    return found


def consume(tx: Tx, run: Run, request_ids: Sequence[str]) -> int:
    """The owner of `run` has applied these decisions, in this transaction and under its fence. Repeats are harmless."""
    where = {"id": In(list(request_ids)), "run_id": run.id, "status": RequestStatus.DECIDED.value}
    return tx.change(Table.REQUESTS, where, rules.consumed(run.epoch))
