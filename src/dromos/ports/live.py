"""The ephemeral side: what a run is doing right now, told to whoever looks, kept nowhere.

`LiveRun` is one attempt's pen: it writes into the run's document in memory. `LiveSubscription` is a reader's side;
`LiveDocuments` has both, and what other owners of documents wrote. Losing anything here costs latency or detail
only; the rows are the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dromos.domain.errors import Fault


@dataclass(frozen=True, slots=True)
class Frame:
    """One ephemeral frame, encoded once for all readers.

    `sse` is the whole server-sent event. A patch leads from version `start` to `end`; a text begins at the offset
    `start` of `message_id` and ends at `end`, in UTF-16 code units. Other frames have no place.
    """

    event: str
    sse: bytes
    run_id: str
    start: int = 0
    end: int = 0
    message_id: str | None = None

    @property
    def data(self) -> bytes:
        """Its JSON."""
        return self.sse[len(self.event) + 14 : -2]

    @classmethod
    def of(
        cls, event: str, data: bytes, run_id: str, start: int = 0, end: int = 0, message_id: str | None = None
    ) -> Frame:
        sse = b"event: %b\ndata: %b\n\n" % (event.encode(), data)
        return cls(event, sse, run_id, start, end, message_id)


@dataclass(frozen=True, slots=True)
class DocumentSnapshot:
    """The content part of `run_document.v1` at a version. `content["text"]` holds all text so far.

    The content is nobody's to change: several readers may hold the same one.
    """

    run_id: str
    version: int
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextAppended:
    """`text` was added to the message at `offset`, in UTF-16 code units; at 0 it begins the message."""

    message_id: str
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Patched:
    """A patch that is on disk: it led from `base_version` to `version`, and `content` is the whole part afterwards."""

    run_id: str
    conversation_id: str
    base_version: int
    version: int
    operations: Sequence[Mapping[str, Any]]
    text: TextAppended | None
    content: Mapping[str, Any]


class LiveRun(Protocol):
    """Used by the owner of a run. Never blocks, never fails the run: what does not fit is shortened or left out."""

    changed: bool
    """True where something changed since whoever saves documents last set it to False."""

    def text(self, message_id: str, text: str) -> None:
        """Append to the message being written; a new `message_id` starts at offset 0 and replaces the part."""
        ...

    def set(self, path: str, value: Any) -> None:
        """Set a content path: `/current`, `/usage/input`, `/subagents/<id>/status`; a missing entry is made."""
        ...

    def remove(self, path: str) -> None:
        """Take an entry away; a member that always stands there becomes empty."""
        ...

    def step(self, step: Mapping[str, Any]) -> None:
        """Add or update (by `id`) one entry of `/steps`, the newest 50 kept."""
        ...

    def patch(self, operations: Sequence[Mapping[str, Any]]) -> list[Fault]:
        """Apply a patch (RFC 6902: add, replace, remove, test), or change nothing and return every fault."""
        ...

    def touch(self) -> None:
        """The agent moved, with nothing to show: a hidden token, a sign of life of a tool."""
        ...

    def server(self, fields: Mapping[str, Any]) -> None:
        """Send changed server fields (`run.server`) to focused readers; at most one a second."""
        ...

    def snapshot(self) -> DocumentSnapshot:
        """The document to be saved. Readers are told of it when their time comes."""
        ...

    def close(self) -> None:
        """The attempt ended; the document leaves memory."""
        ...


class LiveSubscription(Protocol):
    """Frames of one conversation for one reader. Bounded: on overflow `lost` is true once and frames start anew."""

    def take_nowait(self) -> list[Frame]:
        """All frames waiting, without waiting."""
        ...

    @property
    def lost(self) -> bool:
        """True if frames are missing, or the document changed where this process does not see it, since the last
        call; reading it resets it. Send a fresh snapshot then."""
        ...

    def skip_to(self, mark: int) -> None:
        """Pass over the frames before `mark` (see `LiveDocuments.mark`): a document that was read holds them."""
        ...

    def close(self) -> None: ...


class LiveDocuments(Protocol):
    def open(self, run_id: str, conversation_id: str, epoch: int, content: Mapping[str, Any]) -> LiveRun: ...

    def snapshot(self, run_id: str) -> DocumentSnapshot | None:
        """The document in this process's memory; None where the run's home is elsewhere (read `run_documents`).

        What waited to be told is told before.
        """
        ...

    def mark(self, conversation_id: str) -> int:
        """Where the conversation's frames stand: what was told before is in every document read from now on."""
        ...

    def subscribe(self, conversation_id: str, on_frame: Callable[[], None]) -> LiveSubscription:
        """`on_frame()` is called (on the event loop) when frames became available, or a document was opened."""
        ...

    def focused(self) -> list[str]:
        """The conversations that somebody reads here."""
        ...

    def server(self, conversation_id: str, run_id: str, fields: Mapping[str, Any]) -> None:
        """Tell readers of this process server fields that change without an event (`run.server`), as the rows say."""
        ...

    def relay(self, patched: Patched) -> None:
        """Tell readers of this process what an owner outside of it changed. After the commit."""
        ...

    def ended(self, run_id: str) -> None:
        """The run ended: what still waited is told; what was relayed for it leaves memory."""
        ...
