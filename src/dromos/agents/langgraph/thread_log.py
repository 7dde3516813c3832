"""The list of messages of one channel, as the store holds it: which message stands at which place of the log.

A thread's log only grows: every message gets the next `log_seq` once and keeps it. A checkpoint names its list as
ranges of `log_seq`, `[[0, n]]` where messages were only added. `ThreadLog` remembers the list that was stored last, so
that a step looks at its new messages only: old ones are recognised as the same objects and are neither compared nor
serialised again. Pure; it knows no table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, is_
from typing import Any

from langchain_core.messages import BaseMessage

from dromos.agents.langgraph.message_rows import is_storable

Ranges = list[list[int]]
"""Half-open ranges `[from, to]` of `log_seq`, in the order of the list."""

_content_of = attrgetter("content")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stored message is: its row (`num`), its place in the log and in the history."""

    num: int
    seq: int
    position: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One element of a changed list: a message that is stored already (`place`), or a new one.

    `replaces` is the place of the message with the same id that this one takes over from.
    """

    message: BaseMessage
    place: Place | None = None
    replaces: Place | None = None


@dataclass(slots=True)
class ThreadLog:
    """The stored list of one (namespace, channel). `next_seq` is None until somebody looked into the store."""

    messages: list[BaseMessage] = field(default_factory=list)
    contents: list[Any] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    ranges: Ranges = field(default_factory=list)
    ids: set[str | None] = field(default_factory=set)
    next_seq: int | None = None

    def added(self, value: Sequence[Any]) -> list[Any] | None:
        """The tail of `value` if it is the stored list with messages added, else None. Looks only at identity."""
        count = len(self.messages)
        head = value[:count]
        if len(head) < count or not all(map(is_, head, self.messages)):
            return None
        unchanged = all(map(is_, map(_content_of, head), self.contents))
        return list(value[count:]) if unchanged else None

    def takes(self, tail: Sequence[Any]) -> bool:
        """True if all of `tail` can be rows and none has an id that is in the list already."""
        return is_message_list(tail) and self.ids.isdisjoint(message.id for message in tail)

    def diff(self, value: Sequence[Any]) -> list[Entry]:
        """Every element of `value` (all `is_storable`), matched with what is stored by object and id."""
        known = {
            message.id: (message, content, place)
            for message, content, place in zip(self.messages, self.contents, self.places, strict=True)
        }
        entries: list[Entry] = []
        for message in value:
            stored = known.get(message.id)
            if stored is None:
                entries.append(Entry(message))
            elif stored[0] is message and stored[1] is message.content:
                entries.append(Entry(message, place=stored[2]))
            else:
                entries.append(Entry(message, replaces=stored[2]))
        return entries

    def append(self, messages: Iterable[BaseMessage], places: Iterable[Place]) -> None:
        """The list grew at its end and is stored."""
        for message, place in zip(messages, places, strict=True):
            self.messages.append(message)
            self.contents.append(message.content)
            self.places.append(place)
            self.ids.add(message.id)
            extend(self.ranges, place.seq)
            self.next_seq = max(self.next_seq or 0, place.seq + 1)

    def replace(self, messages: Sequence[BaseMessage], places: Sequence[Place]) -> None:
        """The list became another one and is stored."""
        next_seq = self.next_seq
        self.messages, self.contents, self.places, self.ranges, self.ids = [], [], [], [], set()
        self.append(messages, places)
        self.next_seq = max(next_seq or 0, self.next_seq or 0)


def is_message_list(value: Any) -> bool:
    """True for a non-empty list of messages that can be rows: each has an id, no id twice."""
    if type(value) is not list or not value or not all(map(is_storable, value)):
        return False
    return len({message.id for message in value}) == len(value)


def extend(ranges: Ranges, seq: int) -> None:
    """Add one place at the end of `ranges`."""
    if ranges and ranges[-1][1] == seq:
        ranges[-1][1] = seq + 1
    else:
        ranges.append([seq, seq + 1])


def places_in(ranges: Ranges) -> list[int]:
    """All `log_seq` of `ranges`, in order."""
    return [seq for start, stop in ranges for seq in range(start, stop)]
