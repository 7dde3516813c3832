"""A device of the tests: it applies the frames it receives to the snapshot it started from."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from dromos.domain import patches
from dromos.domain.text import utf16_length
from dromos.live import LiveHub


class Reader:
    """Starts from the document as it is in the hub's memory. `version` and `content` are what it has."""

    def __init__(self, hub: LiveHub, conversation_id: str, run_id: str) -> None:
        self.hub, self.run_id = hub, run_id
        self.arrived = asyncio.Event()
        self.subscription = hub.subscribe(conversation_id, self.arrived.set)
        self.frames: list[tuple[str, Any]] = []
        self.snapshots = 0
        self.take_snapshot()

    def take_snapshot(self) -> None:
        snapshot = self.hub.snapshot(self.run_id)
        assert snapshot is not None
        self.subscription.take_nowait()  # the snapshot holds what came before it
        self.snapshots += 1
        self.version, self.content = snapshot.version, orjson.loads(orjson.dumps(snapshot.content))

    def catch_up(self) -> None:
        frames = self.subscription.take_nowait()
        if self.subscription.lost:
            self.take_snapshot()
            return
        for frame in frames:
            data = orjson.loads(frame.data)
            self.frames.append((frame.event, data))
            if frame.event == "run.patch":
                assert (frame.start, frame.end) == (data["base_version"], data["version"])
                assert data["base_version"] == self.version
                self.version = data["version"]
                patches.apply(self.content, data["patch"])
            elif frame.event == "run.text":
                text = self.content["text"]
                if data["message_id"] != text["message_id"]:
                    text.update(message_id=data["message_id"], length=0, content="")
                assert data["offset"] == text["length"] == frame.start
                text["content"] += data["text"]
                text["length"] += utf16_length(data["text"])
                assert text["length"] == frame.end
