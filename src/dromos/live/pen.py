"""The document of a run that is worked on in this process: in memory, changed in place, told to whoever looks.

A pen never fails a run. What does not fit the document's form is shortened or left out, and a warning says so once;
what would make the document too large makes room by dropping the oldest. A version is epoch × 2³² + n and grows
with each frame or save, not with each change. While nobody looks, nothing is encoded and no operation is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
import structlog

from dromos.domain import document, patches
from dromos.domain.errors import Fault
from dromos.domain.forms import Form, Free, Group, Register, Unfit
from dromos.domain.pointers import copied, index_of, parts_of, pointer, same
from dromos.domain.text import clean_json, clean_text, utf16_length
from dromos.live.channel import Channel
from dromos.live.fitting import TextRoom, make_room
from dromos.live.teller import Teller, Timer
from dromos.ports.live import DocumentSnapshot

log = structlog.get_logger("dromos.live")

SERVER_SECONDS = 1.0
QUIET = frozenset({"/activity_at"})
"""What is told with whatever else changes, and alone only every `QUIET_SECONDS`."""
QUIET_SECONDS = 5.0
MOST_NARROW = 2
"""Where no more members of an object change, they are told instead of the object."""
_STEP = document.CONTENT.members["steps"].member("-")


class Pen(Teller):
    """One attempt's; see `ports.live.LiveRun`. `put_down` is called when it is closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        run_id: str,
        conversation_id: str,
        epoch: int,
        content: Mapping[str, Any],
        channel: Channel | None,
        put_down: Callable[[Pen], None],
    ) -> None:
        super().__init__(loop, run_id, document.first_version(epoch), channel)
        self.conversation_id = conversation_id
        self.changed = False  # since the last save; reset by whoever saves
        self._put_down = put_down
        self._content = _fitting(content)
        self._written: list[str] = []  # the message so far, in pieces
        self._untold: list[str] = []  # of it, what readers were not told
        self._units = 0  # its length
        self._room = TextRoom()
        self._now = self.version  # of the content, told or not
        self._dirty = False
        self._most = patches.size_of(self._content)  # bytes the content has at most
        self._snapshot: DocumentSnapshot | None = None
        self._server: dict[str, Any] = {}
        self._server_timer: Timer | None = None
        self._server_at = -SERVER_SECONDS
        self._warned: set[str] = set()

    # --- the owner's side
    def text(self, message_id: str, text: str) -> None:
        if message_id != self.message_id:
            if not text or not isinstance(message_id, str):
                return
            self._new_message(message_id)
        self._pieces.append(text)
        self.changed = True
        if self._text_timer is None and self._channel is not None:
            self._arm_text()

    def set(self, path: str, value: Any) -> None:
        parts = parts_of(path)
        form = document.form_at(parts) if parts else None
        if not parts or form is None:
            return self._left_out(path, "no such path")
        try:
            fitting = form.conform(value, len(parts) + 1)
        except Unfit:
            return self._left_out(path, "the value does not fit")
        place = self._way_to(parts)
        key = parts[-1]
        if isinstance(place, dict):
            if key not in place:
                self._edit({"op": "add", "path": path, "value": fitting})
            elif not same(place[key], fitting):
                self._replace(path, place[key], fitting)
        elif isinstance(place, list):
            index = index_of(key)
            kind = "replace" if index is not None and index < len(place) else "add"
            self._edit({"op": kind, "path": path, "value": fitting})
        else:
            self._left_out(path, "there is nothing it could stand in")

    def remove(self, path: str) -> None:
        parts = parts_of(path)
        if not parts or document.form_at(parts) is None:
            return self._left_out(path, "no such path")
        above = document.form_at(parts[:-1])
        if isinstance(above, Group) and parts[-1] not in above.optional:
            if len(parts) == 1:
                return self.set(path, document.EMPTY_CONTENT[parts[0]])
            try:
                return self.set(path, above.members[parts[-1]].nothing())
            except Unfit:
                return self._left_out(path, "this member always stands there")
        self._edit({"op": "remove", "path": path}, quiet=True)

    def step(self, step: Mapping[str, Any]) -> None:
        steps: list[dict[str, Any]] = self._content["steps"]
        wanted, index = step.get("id"), len(steps) - 1
        while index >= 0 and steps[index]["id"] != wanted:
            index -= 1
        known = steps[index] if index >= 0 else None
        assert _STEP is not None
        try:
            fitting = _STEP.conform(step if known is None else {**known, **step}, 3)
        except Unfit:
            return self._left_out("/steps", "the step does not fit")
        if known is None:
            if len(steps) == document.MAX_STEPS:
                self._edit({"op": "remove", "path": "/steps/0"})
            steps.append(copied(fitting))  # as `_edit` would, for what comes with every step of the engine
            self._edited({"op": "add", "path": f"/steps/{len(steps) - 1}", "value": fitting})
        elif not same(known, fitting):
            self._replace(f"/steps/{index}", known, fitting)

    def patch(self, operations: Sequence[Mapping[str, Any]]) -> list[Fault]:
        done, faults = patches.change(self._content, list(operations))
        for operation in done:
            if operation["op"] != "test":
                self._edited(operation)
        return faults

    def touch(self) -> None:
        """Activity is the business of whoever wraps this pen."""

    def server(self, fields: Mapping[str, Any]) -> None:
        self._server.update(clean_json(fields)[0])
        if self._channel is not None and self._server_timer is None:
            due = max(self._loop.time(), self._server_at + SERVER_SECONDS)
            self._server_timer = self._loop.call_at(due, self._tell_server)

    def shown(self) -> DocumentSnapshot:
        """For a reader, who goes on with the frames that come: what was gathered is told before."""
        self.tell()
        return self.snapshot()

    def snapshot(self) -> DocumentSnapshot:
        self._settle_text()
        self._settle()
        known = self._snapshot
        if known is not None and known.version == self._now:
            shown = known.content["text"]
            if (shown["message_id"], shown["length"]) == (self.message_id, self._units):
                return known
            content = {**known.content}
        else:
            # A copy, made in one go: the pen goes on writing in place.
            content = orjson.loads(orjson.dumps(self._content))
        content["text"] = {
            "message_id": self.message_id,
            "length": self._units,
            "content": self._whole_text(),
        }
        self._snapshot = DocumentSnapshot(self.run_id, self._now, content)
        return self._snapshot

    def close(self) -> None:
        self._room.ends = True
        self.tell()
        if self._server_timer is not None:
            self._server_timer.cancel()
        self._put_down(self)

    # --- the hub's side
    def attach(self, channel: Channel | None) -> None:
        """Somebody began to look, or (None) nobody does any more."""
        self.tell()
        self._channel = channel

    # --- inside
    def _next_version(self) -> int:
        self._settle()
        return self._now

    def _settle(self) -> None:
        """What changed gets its version."""
        if self._dirty:
            self._make_room()
            self._dirty = False
            self._now += 1

    def _take_text(self) -> str:
        self._settle_text()
        text = "".join(self._untold)
        self._untold.clear()
        return text

    def _settle_text(self) -> None:
        """What was written becomes part of the message."""
        text = self._room.admit(self._pieces) if self._pieces else ""
        if text:
            units = utf16_length(text)
            self._written.append(text)
            self._units += units
            if self._channel is not None:
                self._untold.append(text)
            else:
                self.length += units

    def _new_message(self, message_id: str) -> None:
        self._room.ends = True
        if self._hurried():
            self._take_text()  # it is replaced in a moment
        self._tell_text()
        self._room, self._written, self._units = TextRoom(), [], 0
        self._begin_message(message_id)

    def _whole_text(self) -> str:
        if len(self._written) > 1:
            self._written = ["".join(self._written)]
        return self._written[0] if self._written else ""

    def _way_to(self, parts: list[str]) -> Any:
        """What the last part stands in. A missing entry on the way is made; None where nothing can be."""
        place: Any = self._content
        for depth, part in enumerate(parts[:-1], 1):
            if isinstance(place, list):
                index = index_of(part)
                place = place[index] if index is not None and index < len(place) else None
                continue
            if not isinstance(place, dict):
                return None
            below = place.get(part)
            if below is None:
                below = _made(document.form_at(parts[:depth]))
                if below is None:
                    return None
                self._edit({"op": "add", "path": pointer(*parts[:depth]), "value": below})
                below = place[part]
            place = below
        return place

    def _edit(self, operation: dict[str, Any], *, quiet: bool = False) -> None:
        try:
            patches.apply(self._content, [operation])
        except patches.NotApplied as error:
            if not quiet:
                self._left_out(operation["path"], error.why)
            return
        self._edited(operation)

    def _edited(self, operation: Mapping[str, Any]) -> None:
        self._dirty = self.changed = True
        if operation["op"] != "remove":
            self._most += len(operation["path"]) + len(orjson.dumps(operation["value"])) + 4
        if self._channel is not None:
            self._edits.add(operation)
            if self._patch_timer is None or self._patch_waits:
                self._arm_patch(QUIET_SECONDS if operation["path"] in QUIET else 0.0)

    def _replace(self, path: str, before: Any, after: Any) -> None:
        """Of an object that keeps its members, only those that changed."""
        if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
            changed = [name for name in after if not same(before[name], after[name])]
            if len(changed) <= MOST_NARROW:
                for name in changed:
                    self._edit({"op": "replace", "path": path + pointer(name), "value": after[name]})
                return
        self._edit({"op": "replace", "path": path, "value": after})

    def _make_room(self) -> None:
        """Keep the content within its limit. Measured only where the changes since the last time may have passed it."""
        if self._most <= document.MAX_CONTENT:
            return
        for operation in make_room(self._content):
            self._left_out(operation["path"], "the document is full; the oldest was dropped or shortened")
            patches.apply(self._content, [operation])
            if self._channel is not None:
                self._edits.add(operation)
        self._most = patches.size_of(self._content)

    def _left_out(self, path: str, why: str) -> None:
        name = "/".join(path.split("/", 2)[:2])
        if name not in self._warned:
            self._warned.add(name)
            log.warning("document.left_out", run_id=self.run_id, path=clean_text(path)[:200], why=why)

    def _tell_server(self) -> None:
        self._server_timer = None
        fields, self._server = self._server, {}
        if fields and self._channel is not None:
            self._server_at = self._loop.time()
            self._publish("run.server", {"run_id": self.run_id, **fields})


def _fitting(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content to begin with, each member as its form wants it; the text is the next owner's own."""
    made = document.empty_content()
    del made["text"]
    for name, form in document.CONTENT.members.items():
        if name in content:
            try:
                made[name] = form.conform(content[name], 2)
            except Unfit:
                continue
    return made


def _made(form: Form | None) -> Any:
    """An entry with nothing in it; None where the form does not take one."""
    if not isinstance(form, Group | Register | Free):
        return None
    return {} if not list(form.faults({})) else None
