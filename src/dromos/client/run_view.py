"""One run as a reader sees it: a snapshot of its document, then what arrives after it.

Three clocks that do not touch each other: the content part moves by `version` (patches), the server part by
`run_version`, the text by its length in UTF-16 code units. What is older than what is here changes nothing; what does
not fit makes the view `stale`, and the reader fetches the document again. Frames that arrive meanwhile are kept and
put in afterwards, so one fetch heals one gap. It must not know the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dromos.client.stream import Event
from dromos.domain import patches
from dromos.domain.statuses import FINAL
from dromos.domain.text import utf16_from, utf16_length

Json = dict[str, Any]

MOST_KEPT = 512
"""Frames that are kept while the document is fetched; with more of them missing, it is fetched once more."""


class RunView:
    """Follows the run `run_id`. `run` is what `GET /v1/runs/{id}` answers, `document` is `run_document.v1` (or {})."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        self.run: Json = dict(run)
        self.document: Json = {}
        self.version = 0
        self.message_id: str | None = None
        self.text = ""
        self.length = 0
        self.stale = False
        self._kept: list[Mapping[str, Any]] = []
        self._outdated = False  # the last answer was older than what is here: a newer one will be sent

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
        if event.type == "followup.changed":
            return self._waits("followups", data["payload"]["followup"], ("waiting", "held"))
        if not isinstance(data, Mapping) or data.get("run_id") != self.run_id:
            return False
        if event.type in ("request.opened", "request.closed"):
            return self._waits("requests", data["payload"]["request"], ("open",))
        if event.type == "run.document":
            return self.take_document(data)
        if event.type in ("run.text", "run.patch"):
            return self._frame(data)
        return event.type == "run.server" and self._server(data)

    def take_run(self, run: Mapping[str, Any]) -> bool:
        """Take the run's row unless it is older than what is here."""
        if run["version"] < self.run["version"] or run == self.run:
            return False
        self.run = dict(run)
        self._last_line()
        return True

    def take_document(self, answer: Mapping[str, Any]) -> bool:
        """Take a whole snapshot (`GET /v1/runs/{id}/document`, or a `run.document` frame); never goes back."""
        fresh = dict(answer["document"])
        text = fresh.get("text") or {}
        behind = text.get("message_id") == self.message_id and (text.get("length") or 0) < self.length
        if not behind and text.get("message_id") is not None:
            self.message_id, self.text = text["message_id"], text["content"]
            self.length = text["length"]
        server = {name: value for name, value in self.document.items() if name in _SERVER}
        newer_here = self.document.get("run_version", 0) > answer["run_version"]
        before = self.version
        if answer["version"] >= self.version:
            self.document, self.version = fresh, answer["version"]
            self._show_text()
        if newer_here:
            self.document |= server
        kept, self._kept, self.stale, self._outdated = self._kept, [], False, False
        for frame in _since(kept, self.message_id):
            self._frame(frame)
        if self.stale and (answer["version"] <= before or _is_inside(self._kept[0], answer["version"])):
            # Another server's, which the news has not reached. Asking again at once would bring the same.
            self.stale, self._outdated = False, True
        self._last_line()
        return True

    def _last_line(self) -> None:
        """At an end whose owner left no line it is the run's own, as in a fresh read."""
        line = self.run.get("line")
        if line and self.document and not self.document.get("line"):
            self.document["line"] = line

    def _frame(self, frame: Mapping[str, Any]) -> bool:
        """A text or a patch; what cannot be put in waits for the document."""
        if not (self.stale or self._outdated):
            fits = self._append(frame) if "offset" in frame else self._patch(frame)
            if fits is not None:
                return fits
        self.stale, self._outdated = True, False
        self._kept = [*self._kept[-MOST_KEPT:], frame]
        return False

    def _append(self, frame: Mapping[str, Any]) -> bool | None:
        """None where text before it is missing."""
        message_id, offset = frame["message_id"], frame["offset"]
        if message_id != self.message_id:
            if offset != 0:
                return None
            self.message_id, self.text, self.length = message_id, "", 0
        if offset > self.length:
            return None
        added = utf16_from(frame["text"], self.length - offset)
        self.text += added
        self.length += utf16_length(added)
        self._show_text()
        return bool(added)

    def _show_text(self) -> None:
        if self.document:
            self.document["text"] = {
                "message_id": self.message_id,
                "length": self.length,
                "content": self.text,
            }

    def _server(self, part: Mapping[str, Any]) -> bool:
        known = self.document.get("run_version", 0)
        if not part or part.get("run_version", known) < known:
            return False
        self.document |= {name: value for name, value in part.items() if name in _SERVER}
        return True

    def _waits(self, name: str, one: Json, open_as: tuple[str, ...]) -> bool:
        """A follow-up or request of this conversation changed: the list holds those that still wait, in order."""
        if one["conversation_id"] != self.run["conversation_id"]:
            return False
        before: list[Json] = self.document.get(name) or []
        known = next((other for other in before if other["id"] == one["id"]), None)
        if known is not None and known["version"] > one["version"]:
            return False
        others = [other for other in before if other["id"] != one["id"]]
        if one["status"] in open_as:
            others.append(dict(one))
        self.document[name] = sorted(others, key=lambda other: (other.get("position") or 0, other["id"]))
        return True

    def _patch(self, frame: Mapping[str, Any]) -> bool | None:
        """None where a patch before it is missing."""
        if frame["version"] <= self.version:
            return False
        if frame["base_version"] != self.version:
            return None
        try:
            patches.apply(self.document, frame["patch"])
        except patches.NotApplied:
            return None
        self.version = frame["version"]
        self._last_line()
        return True


_SERVER = frozenset(
    {
        *("status", "reason", "error", "run_version", "created_at", "started_at", "finished_at", "attempt"),
        *("crashes", "owner", "wait", "stop", "requests", "followups", "cost", "agent", "backend_policy"),
    }
)
"""The server part's fields; they come whole, and no patch touches them."""


def _since(kept: list[Mapping[str, Any]], message_id: str | None) -> list[Mapping[str, Any]]:
    """The kept frames without what is surely text of messages before `message_id`, which the document shows."""
    texts = [at for at, frame in enumerate(kept) if "offset" in frame]
    shown = [at for at in texts if kept[at]["message_id"] == message_id]
    begun = [at for at in texts if kept[at]["offset"] == 0]
    first = min(shown or begun or [len(kept)])
    return [frame for at, frame in enumerate(kept) if at >= first or "offset" not in frame]


def _is_inside(frame: Mapping[str, Any], version: int) -> bool:
    """True where the version lies between the two that a patch connects: one that was saved, and never told."""
    return "offset" not in frame and bool(frame["base_version"] < version < frame["version"])
