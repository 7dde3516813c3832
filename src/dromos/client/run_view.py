"""One run as a reader sees it: a snapshot of its document, then what arrives after it.

Three clocks that do not touch each other: the content part moves by `version` (patches), the server part by
`run_version`, the text by its length in UTF-16 code units. What is older than what is here changes nothing; what does
not fit makes the view `stale`, and the reader fetches the document again. It must not know the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dromos.client.stream import Event
from dromos.domain.statuses import FINAL
from dromos.domain.text import utf16_from, utf16_length

Json = dict[str, Any]


class RunView:
    """Follows the run `run_id`. `run` is what `GET /v1/runs/{id}` answers, `document` is `run_document.v1` (or {})."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        self.run: Json = dict(run)
        self.document: Json = {}
        self.version = 0
        self.message_id: str | None = None
        self.text = ""
        self.stale = False

    @property
    def run_id(self) -> str:
        return str(self.run["id"])

    @property
    def ended(self) -> bool:
        return self.run["status"] in FINAL

    def take(self, event: Event) -> bool:
        """Put an event or frame in; True if it changed something of this run."""
        data: Any = event.data
        if event.type == "run.status":
            payload = data["payload"]
            if payload["run"]["id"] != self.run_id:
                return False
            changed = self.take_run(payload["run"])
            self._server(payload.get("document") or {})
            return changed
        if not isinstance(data, Mapping) or data.get("run_id") != self.run_id:
            return False
        if event.type == "run.document":
            return self.take_document(data)
        if event.type == "run.text":
            return self._append(data["message_id"], data["offset"], data["text"])
        if event.type == "run.patch":
            return self._patch(data)
        return event.type == "run.server" and self._server(data)

    def take_run(self, run: Mapping[str, Any]) -> bool:
        """Take the run's row unless it is older than what is here."""
        if run["version"] < self.run["version"] or run == self.run:
            return False
        self.run = dict(run)
        return True

    def take_document(self, answer: Mapping[str, Any]) -> bool:
        """Take a whole snapshot (`GET /v1/runs/{id}/document`, or a `run.document` frame); never goes back."""
        fresh = dict(answer["document"])
        text = fresh.get("text") or {}
        have = utf16_length(self.text)
        behind = text.get("message_id") == self.message_id and (text.get("length") or 0) < have
        if not behind and text.get("message_id") is not None:
            self.message_id, self.text = text["message_id"], text["content"]
        server = {name: value for name, value in self.document.items() if name in _SERVER}
        newer_here = self.document.get("run_version", 0) > answer["run_version"]
        if answer["version"] >= self.version:
            self.document, self.version = fresh, answer["version"]
        if newer_here:
            self.document |= server
        self.stale = False
        return True

    def _append(self, message_id: str, offset: int, text: str) -> bool:
        if message_id != self.message_id:
            if offset != 0:
                self.stale = True
                return False
            self.message_id, self.text = message_id, ""
        have = utf16_length(self.text)
        if offset > have:
            self.stale = True
            return False
        added = utf16_from(text, have - offset)
        self.text += added
        return bool(added)

    def _server(self, part: Mapping[str, Any]) -> bool:
        if not part or part.get("run_version", 0) < self.document.get("run_version", 0):
            return False
        self.document |= {name: value for name, value in part.items() if name in _SERVER}
        return True

    def _patch(self, frame: Mapping[str, Any]) -> bool:
        if frame["version"] <= self.version:
            return False
        if frame["base_version"] != self.version or not _apply(self.document, frame["patch"]):
            self.stale = True
            return False
        self.version = frame["version"]
        return True


_SERVER = frozenset(
    {
        *("status", "reason", "error", "run_version", "created_at", "started_at", "finished_at", "attempt"),
        *("crashes", "owner", "wait", "stop", "requests", "followups", "cost", "agent", "backend_policy"),
    }
)
"""The server part's fields; they come whole, and no patch touches them."""


def _apply(document: Json, patch: Sequence[Mapping[str, Any]]) -> bool:
    """Apply `add`, `replace`, `remove` and `test` in place; False where an operation does not fit."""
    for operation in patch:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target: Any = document
        try:
            for part in way:
                target = target[int(part)] if isinstance(target, list) else target[part]
            if not _change(target, last, operation):
                return False
        except (KeyError, IndexError, ValueError, TypeError):
            return False
    return True


def _change(target: Any, last: str, operation: Mapping[str, Any]) -> bool:
    kind = operation["op"]
    key: Any = last
    if isinstance(target, list):
        key = len(target) if last == "-" else int(last)
    if kind == "remove":
        del target[key]
    elif kind == "test":
        return bool(target[key] == operation["value"])
    elif kind == "add" and isinstance(target, list):
        target.insert(key, operation["value"])
    elif kind == "add" or (kind == "replace" and (isinstance(target, list) or key in target)):
        target[key] = operation["value"]
    else:
        return False
    return True
