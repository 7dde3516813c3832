"""Leave that a person gave for good: for exactly one call's arguments or for a tool, within one conversation.

A grant rests on the approval it was given with, is listed, and can be taken back at any time; what was called under it
stays called. Whether a call needs leave at all is the gate's business.
"""

from __future__ import annotations

from dromos.domain.errors import Invalid
from dromos.lifecycle import announce
from dromos.lifecycle.change import Change
from dromos.lifecycle.scope import no_such
from dromos.ports.store import Lt, ReadTx, Row, Table


def give(change: Change, request: Row, *, whole_tool: bool) -> Row:
    """The grant that the person who decided `request` gave with it."""
    row: Row = {
        "id": change.ids.new(),
        "user_id": request["user_id"],
        "conversation_id": request["conversation_id"],
        "tool": request["tool"],
        "arguments": None if whole_tool else request["arguments"],
        "arguments_sha256": None if whole_tool else request["arguments_sha256"],
        "request_id": request["id"],
        "created_at": change.now,
        "revoked_at": None,
    }
    change.tx.put(Table.TOOL_GRANTS, dict(row))
    announce.grant_changed(change, row)
    return row


def listed(
    tx: ReadTx, user_id: str, conversation_id: str | None, limit: int, cursor: str | None = None
) -> tuple[list[Row], str | None]:
    """The person's grants that are in force, newest first, and where the next page begins. Raises `Invalid`."""
    where: Row = {"user_id": user_id, "revoked_at": None}
    if conversation_id is not None:
        where["conversation_id"] = conversation_id
    if cursor is None:
        found = tx.find(Table.TOOL_GRANTS, where, order=("-created_at", "-id"), limit=limit + 1)
    else:
        mark = tx.first(Table.TOOL_GRANTS, {"user_id": user_id, "id": cursor})
        if mark is None:
            raise Invalid("This cursor names none of your grants; leave it out to start at the newest.")
        alike = {**where, "created_at": mark["created_at"], "id": Lt(cursor)}
        found = tx.find(Table.TOOL_GRANTS, alike, order=("-id",), limit=limit + 1)
        older = {**where, "created_at": Lt(mark["created_at"])}
        found += tx.find(Table.TOOL_GRANTS, older, order=("-created_at", "-id"), limit=limit + 1)
    return found[:limit], found[limit - 1]["id"] if len(found) > limit else None


def revoke(change: Change, user_id: str, grant_id: str) -> Row:
    """Take it back; once more changes nothing. Raises `NotFound`."""
    row = change.tx.first(Table.TOOL_GRANTS, {"id": grant_id, "user_id": user_id})
    if row is None:
        raise no_such("grant")
    if row["revoked_at"] is None:
        change.tx.change(Table.TOOL_GRANTS, {"id": grant_id}, {"revoked_at": change.now})
        row["revoked_at"] = change.now
        announce.grant_changed(change, row)
    return row
