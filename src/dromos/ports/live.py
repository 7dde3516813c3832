"""The ephemeral side: what a run is doing right now, told to whoever looks, kept nowhere.

`LiveRun` is one attempt's pen: it writes into the run's document in memory. `LiveFeed` is a reader's side.
Losing anything here costs latency or detail only; the rows are the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Frame:
    """One ephemeral frame: SSE event name and its JSON, encoded once for all readers."""

    event: str
    data: bytes


@dataclass(frozen=True, slots=True)
class DocumentSnapshot:
    """The content part of `run_document.v1` at a version. `content["text"]` holds all text so far."""

    run_id: str
    version: int
    content: Mapping[str, Any]


class LiveRun(Protocol):
    """Used by the owner of a run. Never blocks, never fails the run."""

    changed: bool
    """True where something changed since whoever saves documents last set it to False."""

    def text(self, message_id: str, text: str) -> None:
        """Append to the message being written; a new `message_id` starts at offset 0 and replaces the part."""
        ...

    def set(self, path: str, value: Any) -> None:
        """Set a content path, e.g. `/current`, `/model`, `/context`, `/usage`, `/retries`."""
        ...

    def step(self, step: Mapping[str, Any]) -> None:
        """Add or update (by `id`) one entry of `/steps`, the newest 50 kept."""
        ...

    def touch(self) -> None:
        """The agent moved, with nothing to show: a hidden token, a sign of life of a tool."""
        ...

    def server(self, fields: Mapping[str, Any]) -> None:
        """Send changed server fields (`run.server`) to focused readers; at most one a second."""
        ...

    def snapshot(self) -> DocumentSnapshot: ...

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
        """True if frames were dropped since the last call; reading it resets it. Send a fresh snapshot then."""
        ...

    def close(self) -> None: ...


class LiveDocuments(Protocol):
    def open(self, run_id: str, conversation_id: str, epoch: int, content: Mapping[str, Any]) -> LiveRun: ...

    def snapshot(self, run_id: str) -> DocumentSnapshot | None:
        """The document in this process's memory; None where the run's home is elsewhere (read `run_documents`)."""
        ...

    def subscribe(self, conversation_id: str, on_frame: Callable[[], None]) -> LiveSubscription:
        """`on_frame()` is called (on the event loop) when frames became available."""
        ...
