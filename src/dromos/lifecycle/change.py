"""One change: what a lifecycle operation gathers while its transaction runs.

Messages, the conversation's row and events are written together at the end (`flush`), in the lock order
conversation, run, user; topics to wake are handed out for after the commit, so that none is forgotten. It knows
rows and no rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dromos.domain.events import EventDraft, EventType
from dromos.domain.runs import Run
from dromos.lifecycle.contract import Policy
from dromos.lifecycle.waiting import open_followups
from dromos.ports.clock import Ids
from dromos.ports.store import Row, Table, Tx
from dromos.ports.wakeup import user_topic


class Conversation:
    """A conversation whose row this transaction holds. Changes are kept and written once, by `Change.flush`."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.changed: Row = {}
        self.followups: list[Row] | None = None  # waiting and held, in order; None: not looked up yet

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def user_id(self) -> str:
        return str(self.row["user_id"])

    @property
    def deleting(self) -> bool:
        return bool(self.row["state"] == "deleting")

    def set(self, **values: Any) -> None:
        self.row.update(values)
        self.changed.update(values)


class Change:
    """The transaction of one operation, and what it will have done."""

    def __init__(self, tx: Tx, ids: Ids, policy: Policy) -> None:
        self.tx, self.ids, self.policy = tx, ids, policy
        self.topics: dict[str, list[Row]] = {}  # with the events that were written, as they can be read
        self.topics_elsewhere: set[str] = set()
        self.ended: list[Run] = []
        self._messages: list[Row] = []
        self._conversations: dict[str, Conversation] = {}
        self._events: dict[str, list[EventDraft]] = {}

    @property
    def now(self) -> datetime:
        return self.tx.now()

    # --- conversations and their messages

    def lock_conversation(self, conversation_id: str) -> Conversation | None:
        """The conversation, locked until the end of the transaction; None where there is none."""
        held = self._conversations.get(conversation_id)
        if held is None:
            row = self.tx.lock(Table.CONVERSATIONS, {"id": conversation_id})
            if row is None:
                return None
            held = self._conversations[conversation_id] = Conversation(row)
        return held

    def new_conversation(self, user_id: str, title: str, agent: str) -> Conversation:
        row: Row = {
            "id": self.ids.new(),
            "user_id": user_id,
            "title": title,
            "agent": agent,
            "state": "open",
            "archived": False,
            "message_count": 0,
            "next_num": 1,
            "last_run_id": None,
            "open_followups": 0,
            "seen_seq": 0,
            "unseen_seq": 0,
            "created_at": self.now,
            "updated_at": self.now,
        }
        self.tx.put(Table.CONVERSATIONS, dict(row))
        conversation = self._conversations[row["id"]] = Conversation(row)
        conversation.followups = []
        return conversation

    def drop(self, conversation: Conversation) -> None:
        """The conversation is erased: what was gathered for it is not written."""
        self._conversations.pop(conversation.id, None)
        self._messages = [row for row in self._messages if row["conversation_id"] != conversation.id]
        for user_id, drafts in self._events.items():
            self._events[user_id] = [draft for draft in drafts if draft.conversation_id != conversation.id]

    def add_message(self, conversation: Conversation, **columns: Any) -> Row:
        """A new row at the end of the history; what `columns` leave out is empty. The thread does not hold it yet."""
        num = conversation.row["next_num"]
        conversation.set(next_num=num + 1)
        row: Row = {
            "conversation_id": conversation.id,
            "num": num,
            "id": columns.pop("id", None) or self.ids.new(),
            "position": num,
            "role": None,
            "kind": "text",
            "content": None,
            "tool_calls": None,
            "tool_call_id": None,
            "name": None,
            "status": None,
            "run_id": None,
            "interrupted": False,
            "hidden": False,
            "ns": "",
            "channel": "messages",
            "log_seq": None,
            "pending_of": None,
            "engine": None,
            "engine_type": None,
            "created_at": self.now,
        } | columns
        self._messages.append(row)
        return row

    def followups(self, conversation: Conversation) -> list[Row]:
        """The waiting and held follow-ups, in order; the rows are this transaction's own view and may be changed."""
        if conversation.followups is None:
            some = conversation.row["open_followups"]
            conversation.followups = open_followups(self.tx, conversation.id) if some else []
        return conversation.followups

    # --- what devices and owners are told

    def emit(
        self,
        user_id: str,
        type: EventType,
        conversation_id: str,
        payload: Mapping[str, Any],
        run: Run | None = None,
    ) -> None:
        """A durable event; those of one user are numbered in the order of these calls."""
        draft = EventDraft(type, conversation_id, payload, run.id if run else None)
        self._events.setdefault(user_id, []).append(draft)

    def wake(self, topic: str) -> None:
        self.topics.setdefault(topic, [])

    def write_messages(self) -> None:
        """Write the messages gathered so far, so that this transaction reads them too."""
        gathered, self._messages = self._messages, []
        if gathered:
            self.tx.put_many(Table.MESSAGES, gathered)

    def wake_elsewhere(self, topic: str) -> None:
        """Only other processes; this one knows."""
        self.topics_elsewhere.add(topic)

    def flush(self) -> None:
        """Write what was gathered. Called once, when the operation is done."""
        self.write_messages()
        for user_id in sorted(self._events):
            drafts = self._events[user_id]
            told = self.topics.setdefault(user_topic(user_id), [])
            for draft, number in zip(drafts, self.tx.append_events(user_id, drafts), strict=True):
                if draft.calls and (calling := self._conversations.get(draft.conversation_id)):
                    calling.set(unseen_seq=number)
                told.append(draft.row(user_id, number, self.now))
        # Their rows are locked since they were looked up, so that they come last breaks no lock order.
        for conversation in self._conversations.values():
            waiting = conversation.followups
            if waiting is not None and len(waiting) != conversation.row["open_followups"]:
                conversation.set(open_followups=len(waiting))
            if conversation.changed:
                self.tx.set(Table.CONVERSATIONS, {"id": conversation.id}, conversation.changed)
