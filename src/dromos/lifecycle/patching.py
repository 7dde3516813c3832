"""A patch from an owner outside of this process: one compare-and-swap on the run's document, under the run's lock.

What is looked for, in this order: a token that is known · of this run · a run that has not ended · the owner of today ·
the version the patch was made for, and the length of the text it goes on · every fault of the patch. Nothing of a
refused patch is kept, and no patch makes a durable event. What is taken is a sign of work: a stall that was shown is
taken back with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dromos.domain import patches
from dromos.domain.document import MAX_TEXT
from dromos.domain.errors import Fault, Invalid, VersionConflict
from dromos.domain.limits import TOO_LARGE
from dromos.domain.runs import Run
from dromos.domain.text import clean_text, moment_text, utf16_length
from dromos.lifecycle import tokens
from dromos.lifecycle.change import Change
from dromos.lifecycle.documents import keep_document, note_work, shows_stall, standing
from dromos.lifecycle.read import server_part_of
from dromos.ports.live import DocumentSnapshot, Patched, TextAppended
from dromos.ports.store import Table
from dromos.ports.wakeup import document_topic
from dromos.wire.document import document_json

_NO_STALL = {"op": "replace", "path": "/stall", "value": None}


@dataclass(frozen=True, slots=True)
class PatchAsk:
    """`patch` as it was sent: it is judged here. `text` goes on at its offset, in UTF-16 code units."""

    base_version: int
    patch: Any
    text: TextAppended | None = None


def patch_document(change: Change, run_id: str, token: str | None, ask: PatchAsk) -> Patched:
    row = tokens.identify(change.tx, run_id, token)
    run = tokens.checked(change.tx, row)
    saved = change.tx.first(Table.RUN_DOCUMENTS, {"run_id": run.id})
    version, content = standing(run, saved)
    if ask.base_version != version:
        raise _conflict(change, run, version, content, f"The document is at version {version}")
    shown = content["text"]
    if ask.text is not None:
        begins = ask.text.message_id != shown["message_id"]
        stands = 0 if begins else shown["length"]
        if ask.text.offset != stands:
            words = f"The text of this message ends at {stands}"
            raise _conflict(change, run, version, content, words)
    stalled = shows_stall(run, content)
    operations, faults = patches.change(content, ask.patch)
    text = None
    if ask.text is not None:
        text = TextAppended(ask.text.message_id, ask.text.offset, clean_text(ask.text.text))
        whole = text.text if not text.offset else shown["content"] + text.text
        if len(whole.encode()) > MAX_TEXT:
            cure = f"a message shows at most {MAX_TEXT} bytes here; the whole of it belongs into the history"
            faults.append(Fault(TOO_LARGE, "/text/append", cure))
        content["text"] = {
            "message_id": text.message_id,
            "length": text.offset + utf16_length(text.text),
            "content": whole,
        }
    if faults:
        told = "; ".join(f"{fault.path or 'the patch'}: {fault.message}" for fault in faults[:3])
        more = f" (and {len(faults) - 3} more, see `errors`)" if len(faults) > 3 else ""
        raise Invalid(f"Nothing of the patch was taken. {told}{more}.", faults=faults)
    moved = text is not None or any(operation["op"] != "test" for operation in operations)
    if (
        stalled
        and moved
        and not any(f"{operation['path']}/".startswith("/stall/") for operation in operations)
    ):
        content["stall"] = None
        operations.append(_NO_STALL)
    after = version + any(operation["op"] != "test" for operation in operations)
    keep_document(change.tx, run, DocumentSnapshot(run.id, after, content), worked=moved)
    change.wake_elsewhere(document_topic(run.conversation_id))
    return Patched(run.id, run.conversation_id, version, after, operations, text, content)


def note_activity(change: Change, run: Run, known: int | None) -> tuple[int, Patched | None]:
    """The agent moved, with nothing to show for it: `/activity_at` is now. Returns the document's version after that.

    Left alone where the owner knows another version than `known`: a patch of its own is on its way, and shows as much.
    A stall that is shown is taken back all the same: it is what raised the version.
    """
    saved = change.tx.first(Table.RUN_DOCUMENTS, {"run_id": run.id})
    version, content = standing(run, saved)
    stalled = shows_stall(run, content)
    if known is not None and known != version and not stalled:
        note_work(change.tx, run, content)
        return version, None
    content["activity_at"] = moment_text(change.now)
    moved = [{"op": "replace", "path": "/activity_at", "value": content["activity_at"]}]
    if stalled:
        content["stall"] = None
        moved.append(_NO_STALL)
    keep_document(change.tx, run, DocumentSnapshot(run.id, version + 1, content), worked=True)
    change.wake_elsewhere(document_topic(run.conversation_id))
    return version + 1, Patched(run.id, run.conversation_id, version, version + 1, moved, None, content)


def note_report(change: Change, run: Run) -> None:
    """A step or a message came: a sign of work that no patch tells. The document is left alone, but for a stall that it
    shows."""
    if run.quiet_since is not None:
        change.tx.change(Table.RUNS, {"id": run.id}, {"quiet_since": change.now})
        return
    version, content = standing(run, change.tx.first(Table.RUN_DOCUMENTS, {"run_id": run.id}))
    if shows_stall(run, content):
        content["stall"] = None
        keep_document(change.tx, run, DocumentSnapshot(run.id, version + 1, content), worked=True)
        change.wake(document_topic(run.conversation_id))


def version_of(change: Change, run: Run) -> int:
    """The version of the run's document as it stands."""
    return standing(run, change.tx.first(Table.RUN_DOCUMENTS, {"run_id": run.id}))[0]


def _conflict(change: Change, run: Run, version: int, content: dict[str, Any], what: str) -> VersionConflict:
    document = document_json(server_part_of(change.tx, run, change.policy), content, version)["document"]
    return VersionConflict(
        f"{what}; nothing of the patch was taken. Make it anew for the document told here.",
        current={"version": version, "document": document},
    )
