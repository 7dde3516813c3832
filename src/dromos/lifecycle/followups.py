"""What becomes of a message that waits: its author edits, moves, discards or sends it, or the live run reads it.

By compare-and-swap on the follow-up's version, with the conversation's row held: it is taken by a run or changed by
its author, never both.
"""

from __future__ import annotations

from typing import Any

from dromos.domain.errors import VersionConflict
from dromos.domain.runs import Run
from dromos.domain.statuses import FollowupStatus, RunStatus
from dromos.domain.text import clean_json
from dromos.lifecycle import announce, succession
from dromos.lifecycle.change import Change, Conversation
from dromos.lifecycle.contract import Posted
from dromos.lifecycle.followup_rows import add_revision, check_size, is_steer, rewrite
from dromos.lifecycle.submit import last_run, settle_open_end
from dromos.lifecycle.waiting import OPEN_FOLLOWUPS
from dromos.ports.store import Row
from dromos.wire.shapes import followup_json


def change_followup(
    change: Change,
    conversation: Conversation,
    row: Row,
    version: int,
    *,
    content: Any = None,
    position: int | None = None,
) -> Row:
    """New text, which is kept as a revision, or another place: `position` counts from 0 among those that wait or are
    held."""
    _must_be_open(row)
    _must_be_at(row, version)
    if content is not None:
        others = [one["content"] for one in change.followups(conversation) if one is not row]
        check_size([content, *others])
        rewrite(change, row, content=clean_json(content)[0])
        add_revision(change, row, conversation.user_id)
    if position is not None:
        _move(change, conversation, row, position)
    if row["version"] != version:
        announce.followup_changed(change, row)
    return row


def discard_followup(change: Change, conversation: Conversation, row: Row, version: int | None) -> Row:
    """Removed by its author. A repeat finds it removed already."""
    if row["status"] == FollowupStatus.DISCARDED:
        return row
    _must_be_open(row)
    if version is not None:
        _must_be_at(row, version)
    change.followups(conversation).remove(row)
    rewrite(change, row, status=FollowupStatus.DISCARDED.value)
    announce.followup_changed(change, row)
    return row


def send_followup(
    change: Change, conversation: Conversation, row: Row, version: int | None, default_agent: str
) -> Posted:
    """A held message goes on after all: as a run of its own, or behind what waits for the live one."""
    _must_be_open(row)
    if version is not None:
        _must_be_at(row, version)
    last = last_run(change, conversation)
    if last is not None and not last.is_final:
        if row["status"] == FollowupStatus.HELD:
            others = change.followups(conversation)
            rewrite(
                change,
                row,
                status=FollowupStatus.WAITING.value,
                run_id=last.id,
                during_stop=last.status is RunStatus.CANCELLING,
                position=max(other["position"] for other in others) + 1,
            )
            others.sort(key=lambda other: (other["position"], other["id"]))
            announce.followup_changed(change, row, last)
        return Posted(conversation.row, followup=row)
    settle_open_end(change, conversation, last)
    run, message = succession.apply(change, conversation, row, conversation.row["agent"] or default_agent)
    return Posted(conversation.row, message=message, run=run, followup=row)


def deliver_steers(change: Change, conversation: Conversation, run: Run) -> list[Row]:
    """The live run reads what its person sent to steer it: each such message is applied and takes its place at the
    end of the history, in the order in which they wait. Returns their rows of `messages`.

    Both rows are held, and `run` is running. Called where the run's owner takes them for good: in the transaction
    that stores them in its thread, or that hands them out.
    """
    if run.status is not RunStatus.RUNNING:
        return []
    messages: list[Row] = []
    for row in [one for one in change.followups(conversation) if is_steer(one)]:
        message = change.add_message(conversation, role="user", content=row["content"], run_id=run.id)
        change.followups(conversation).remove(row)
        rewrite(change, row, status=FollowupStatus.APPLIED.value, run_id=run.id, message_id=message["id"])
        announce.message_created(change, conversation, message, run)
        announce.followup_changed(change, row, run)
        messages.append(message)
    return messages


def _must_be_open(row: Row) -> None:
    if row["status"] not in OPEN_FOLLOWUPS:
        raise VersionConflict(
            f"This message is {row['status']} already; it can no longer be changed.",
            current={"followup": followup_json(row)},
        )


def _must_be_at(row: Row, version: int) -> None:
    if row["version"] != version:
        raise VersionConflict(
            "This message was changed meanwhile; look at it again and repeat.",
            current={"followup": followup_json(row)},
        )


def _move(change: Change, conversation: Conversation, row: Row, position: int) -> None:
    others = change.followups(conversation)
    others.remove(row)
    others.insert(max(position, 0), row)
    for place, one in enumerate(others):
        if one["position"] != place:
            rewrite(change, one, position=place)
            if one is not row:
                announce.followup_changed(change, one)
