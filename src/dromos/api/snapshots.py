"""Whole documents for readers: read once and encoded once for all who need one at the same moment.

A read that is asked for begins afterwards, never before: a reader subscribes, then asks, so nothing falls between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dromos.api.json import dumps
from dromos.api.sse import frame
from dromos.domain.errors import NotFound
from dromos.domain.runs import Run
from dromos.domain.statuses import LIVE, OwnerKind
from dromos.lifecycle import Lifecycle
from dromos.lifecycle.documents import standing
from dromos.ports.live import DocumentSnapshot, LiveDocuments
from dromos.ports.store import Row
from dromos.wire.document import document_json

Json = dict[str, Any]

REMEMBERED = 32
"""Documents of runs that just began, kept to be shared."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A `run.document` frame and where it stands. `mark`: the frames it holds; `here`: its home is this process."""

    run_id: str
    version: int
    run_version: int
    message_id: str | None
    length: int
    mark: int
    here: bool
    sse: bytes

    @classmethod
    def of(cls, document: Json, mark: int, here: bool) -> Whole:
        text = document["document"]["text"]
        return cls(
            document["run_id"],
            document["version"],
            document["run_version"],
            text["message_id"],
            text["length"],
            mark,
            here,
            frame("run.document", dumps(document)),
        )


class Documents:
    """One application's; `aclose` ends what is under way."""

    def __init__(self, lifecycle: Lifecycle, live: LiveDocuments) -> None:
        self._lifecycle, self._live = lifecycle, live
        self._asked: dict[tuple[str, str, str | None], asyncio.Task[Whole | None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._begun: dict[str, tuple[DocumentSnapshot, Whole]] = {}

    async def read(self, user_id: str, run_id: str) -> Json:
        """The document now: from the memory of its home where that is here, else as it was last saved."""
        run, server, saved = await self._lifecycle.document(user_id, run_id)
        return composed(server, run, saved, self._live.snapshot(run_id))

    async def whole(self, user_id: str, conversation_id: str, run_id: str | None = None) -> Whole | None:
        """The document of this run, else of the conversation's live one; None where there is none."""
        key = (user_id, conversation_id, run_id)
        task = self._asked.get(key)
        if task is None:

            async def begin() -> Whole | None:
                del self._asked[key]  # who asks from now on needs a later read
                try:
                    return await self._whole(user_id, conversation_id, run_id)
                except NotFound:
                    return None  # deleted at this moment; its event is on the way

            task = self._asked[key] = asyncio.create_task(begin())
            self._tasks.add(task)
            task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def begun(self, server: Json, conversation_id: str) -> Whole | None:
        """Of a run that just began here, by the server part its event told; None where it has not been opened."""
        run_id = server["run_id"]
        live = self._live.snapshot(run_id)
        if live is None:
            return None
        known = self._begun.get(run_id)
        if known is not None and known[0] is live and known[1].run_version == server["run_version"]:
            return known[1]
        document = document_json(server, live.content, live.version)
        whole = Whole.of(document, self._live.mark(conversation_id), _is_here(document, live))
        self._begun.pop(run_id, None)
        self._begun[run_id] = live, whole
        if len(self._begun) > REMEMBERED:
            del self._begun[next(iter(self._begun))]
        return whole

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- inside
    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it

    async def _whole(self, user_id: str, conversation_id: str, run_id: str | None) -> Whole | None:
        mark = self._live.mark(conversation_id)
        if run_id is None:
            runs, _ = await self._lifecycle.runs(user_id, tuple(LIVE), conversation_id, 1, None)
            if not runs:
                return None
            run_id = runs[0].id
        run, server, saved = await self._lifecycle.document(user_id, run_id)
        live = self._live.snapshot(run_id)
        document = composed(server, run, saved, live)
        here = _is_here(document, live)
        return Whole.of(document, self._live.mark(conversation_id) if here else mark, here)


def composed(server: Mapping[str, Any], run: Run, saved: Row | None, live: DocumentSnapshot | None) -> Json:
    """The newest of what memory and the last save hold; at an end whose owner left no line, the run's."""
    version, content = standing(run, saved)
    if live is not None and _is_newer(live, version, content):
        version, content = live.version, dict(live.content)
    if run.line and not content.get("line"):
        content["line"] = run.line
    return document_json(server, content, version)


def _is_newer(live: DocumentSnapshot, version: int, content: Mapping[str, Any]) -> bool:
    if live.version != version:
        return live.version > version
    text, saved = live.content["text"], content["text"]
    return bool(text["message_id"] != saved["message_id"] or text["length"] >= saved["length"])


def _is_here(document: Json, live: DocumentSnapshot | None) -> bool:
    """True where every change of the document is made in this process."""
    owner = document["document"]["owner"]
    return (
        live is not None
        and live.version == document["version"]
        and (owner is None or owner["kind"] != OwnerKind.ADAPTER)
    )
