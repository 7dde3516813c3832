"""The saved form of a live document, and what else an owner notes about its run without moving it.

Under the fence, also while the run is stopping. The document's version, usage and model stand in the run's row too,
so that a list needs no second look; they raise no `run_version`, because they are no part of what devices get with
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from dromos.domain.document import carried_over, filled, first_version
from dromos.domain.runs import Run
from dromos.ports.live import DocumentSnapshot
from dromos.ports.store import Row, Table, Tx
from dromos.wire.shapes import moment


def standing(run: Run, saved: Row | None) -> tuple[int, dict[str, Any]]:
    """The version and the content part as they stand now, whole. An owner that has not saved yet finds what the one
    before it left, at the first version of its own epoch."""
    content = saved["content"] if saved is not None else None
    if run.status.is_owned and (saved is None or saved["epoch"] != run.epoch):
        return first_version(run.epoch), carried_over(content)
    return (saved["version"] if saved is not None else run.document_version), filled(content)


def save_document(tx: Tx, run: Run, snapshot: DocumentSnapshot) -> None:
    """Only the row of the document."""
    tx.upsert(
        Table.RUN_DOCUMENTS,
        {
            "run_id": run.id,
            "conversation_id": run.conversation_id,
            "epoch": run.epoch,
            "version": snapshot.version,
            "content": dict(snapshot.content),
            "saved_at": tx.now(),
        },
    )


def leave_as_saved(tx: Tx, run: Run) -> None:
    """The owner was lost: what it had shown and not saved is gone, and a version of the new epoch tells readers so."""
    version = first_version(run.epoch)
    tx.change(Table.RUN_DOCUMENTS, {"run_id": run.id}, {"version": version})
    tx.change(Table.RUNS, {"id": run.id}, {"document_version": version})


def facts_of(snapshot: DocumentSnapshot) -> dict[str, Any]:
    """Fields of the run that the document tells: version, usage, model."""
    facts: dict[str, Any] = {"document_version": snapshot.version}
    usage, model = snapshot.content.get("usage"), snapshot.content.get("model")
    if isinstance(usage, Mapping) and any(usage.values()):
        facts["usage"] = dict(usage)
    if isinstance(model, str) and model:
        facts["model_used"] = model
    return facts


def keep_document(tx: Tx, run: Run, snapshot: DocumentSnapshot, *, worked: bool = False) -> None:
    """The row of the document, and what the run's row repeats of it. `worked`: an adapter's sign of work."""
    save_document(tx, run, snapshot)
    facts = facts_of(snapshot)
    if worked:
        facts["quiet_since"] = _watched_from(tx, snapshot.content)
    tx.change(Table.RUNS, {"id": run.id}, facts)


def note_work(tx: Tx, run: Run, content: Mapping[str, Any]) -> None:
    """The agent of an adapter moved, and this is its document."""
    tx.change(Table.RUNS, {"id": run.id}, {"quiet_since": _watched_from(tx, content)})


def _watched_from(tx: Tx, content: Mapping[str, Any]) -> datetime | None:
    """From here on silence counts, if anything is under way. See `dromos.lifecycle.stalls`."""
    return tx.now() if content["current"] else None


def shows_stall(run: Run, content: Mapping[str, Any]) -> bool:
    """True where the document says that the run stalled and a sweep wrote that: the next sign of work takes it back."""
    return run.quiet_since is None and bool(content["current"]) and content["stall"] is not None


def note_tries(tx: Tx, run: Run, tries: Mapping[str, int]) -> None:
    tx.change(Table.RUNS, {"id": run.id}, {"tries": dict(tries)})


def note_delivered(tx: Tx, run: Run) -> Run:
    """The owner of a stopping run has heard of the stop; the first time counts."""
    if run.stop is None or run.stop.delivered_at is not None:
        return run
    after = replace(run, stop=replace(run.stop, delivered_at=tx.now()), version=run.version + 1)
    tx.swap_run(run, after)
    return after


def note_waiting_for(tx: Tx, run: Run, tool: str | None, until_s: float | None) -> Run:
    """Which call a stopping run still waits for, and until when; None: for none."""
    if run.stop is None:
        return run
    waiting_for = None
    if tool is not None:
        now = tx.now()
        until = now + timedelta(seconds=until_s) if until_s is not None else None
        waiting_for = {"tool": tool, "since": moment(now), "until": moment(until)}
    stop = replace(run.stop, waiting_for=waiting_for, delivered_at=run.stop.delivered_at or tx.now())
    after = replace(run, stop=stop, version=run.version + 1)
    tx.swap_run(run, after)
    return after
