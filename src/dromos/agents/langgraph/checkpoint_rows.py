"""One checkpoint as a row of `checkpoints` and its values as rows of `checkpoint_blobs`, and back.

The bytes of a checkpoint hold everything but its values; of a value they say where it is:

    inline      its bytes, where they are few
    blobs       its channel: the bytes are a row of their own, keyed by (channel, version) and shared by checkpoints
    messages    ranges of the thread's log; the messages are rows of `messages`

Pure: rows come in and go out, nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import ormsgpack
from langgraph.checkpoint.base import Checkpoint

from dromos.agents.langgraph.state_serde import StateSerializer, UnreadableValue
from dromos.agents.langgraph.thread_log import Ranges

INLINE_BYTES = 64
"""Values up to this size stand in each checkpoint; a row of their own would be larger."""

FORMAT = "dromos.1"
_OPTIONS = ormsgpack.OPT_NON_STR_KEYS
_OWN_KEYS = frozenset({"channel_values", "channel_versions", "versions_seen"})


class StateUnreadable(Exception):
    """A part of the stored state cannot be rebuilt. `field` names it."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"The stored state cannot be read: {field}: {reason}.")
        self.field = field


class StateNotStorable(Exception):
    """A value of the graph's state has no form in which it can be stored. `field` names it."""

    def __init__(self, field: str, reason: object) -> None:
        super().__init__(f"The state cannot be stored: {field}: {reason}.")
        self.field = field


@dataclass(slots=True)
class Placement:
    """Where the values of one checkpoint are."""

    inline: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    blobs: list[str] = field(default_factory=list)
    messages: dict[str, Ranges] = field(default_factory=dict)


def pack(checkpoint: Checkpoint, placement: Placement) -> bytes:
    """The bytes of a checkpoint's row."""
    rest = {key: value for key, value in checkpoint.items() if key not in _OWN_KEYS and value}
    rest.pop("id", None)
    body = {
        "rest": rest,
        "versions": checkpoint["channel_versions"],
        "seen": checkpoint["versions_seen"],
        "inline": placement.inline,
        "blobs": placement.blobs,
        "messages": placement.messages,
    }
    packed = {key: value for key, value in body.items() if value}
    try:
        return ormsgpack.packb(packed, option=_OPTIONS)
    except (TypeError, ValueError) as error:
        raise StateNotStorable("checkpoint", error) from error


def unpack(checkpoint_id: str, form: str, data: bytes) -> tuple[Checkpoint, Placement]:
    """The checkpoint without its values, and where these are. Raises `StateUnreadable`."""
    if form != FORMAT:
        raise StateUnreadable("checkpoint", f"it has the format {form}, this version reads {FORMAT}")
    try:
        body: dict[str, Any] = ormsgpack.unpackb(data, option=_OPTIONS)
    except ValueError as error:
        raise StateUnreadable("checkpoint", f"it is damaged ({error})") from error
    empty: dict[str, Any] = {"v": 1, "ts": "", "pending_sends": [], "updated_channels": None}
    checkpoint = {
        **empty,
        **body.get("rest", {}),
        "id": checkpoint_id,
        "channel_values": {},
        "channel_versions": body.get("versions", {}),
        "versions_seen": body.get("seen", {}),
    }
    placement = Placement(
        inline={channel: (pair[0], pair[1]) for channel, pair in body.get("inline", {}).items()},
        blobs=body.get("blobs", []),
        messages=body.get("messages", {}),
    )
    return checkpoint, placement  # type: ignore[return-value]


def blob_version(version: Any) -> str:
    """A channel's version as the key of its blob."""
    return str(version)


def load_values(
    placement: Placement,
    versions: Mapping[str, Any],
    blobs: Mapping[tuple[str, str], Any],
    serde: StateSerializer,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """The values that are inline or blobs (rows by channel and version). Raises `StateUnreadable`."""
    values: dict[str, Any] = {}
    for channel, typed in placement.inline.items():
        if channel in without:
            continue
        values[channel] = load(serde, channel, typed)
    for channel in placement.blobs:
        row = blobs.get((channel, blob_version(versions.get(channel))))
        if row is None:
            raise StateUnreadable(channel, "its value is missing in the store")
        values[channel] = load(serde, channel, (row["type"], row["value"] or b""))
    return values


def load(serde: StateSerializer, field: str, typed: tuple[str, bytes]) -> Any:
    """One value; the error names its field."""
    try:
        return serde.loads_typed(typed)
    except UnreadableValue as error:
        raise StateUnreadable(field, str(error)) from error


def dump(serde: StateSerializer, field: str, value: Any) -> tuple[str, bytes]:
    """One value's type and bytes. Raises `StateNotStorable` naming its field."""
    try:
        return serde.dumps_typed(value)
    except Exception as error:
        raise StateNotStorable(field, error) from error
